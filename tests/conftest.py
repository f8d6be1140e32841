"""Shared fixtures: array backends, the real data's folder; and which tests may be left out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings

# Without tracing every line of every library, which explains failures and takes most of the time of a long example.
settings.register_profile("untraced", phases=set(Phase) - {Phase.explain})
settings.load_profile("untraced")

ROOT = Path(__file__).resolve().parents[1]

# The files that take longest, those that wait for processes mixed with those that compute.
LONGEST = (
    "test_chaos",
    "test_faults",
    "test_methods",
    "test_kill",
    "test_browser",
    "test_mdml",
    "test_report",
    "test_driver",
    "test_adaptive",
    "test_metrics",
    "test_recording",
    "test_postgres",
    "test_submit",
)

# Where it is set, a test that is left out fails unless its reason is one of MACHINES_OWN, or has one of these words.
STRICT = "SWEEP_MAY_SKIP"
# What cannot be mended by installing something small: devices, rights, the clouds' packages, data under a licence, and
# PyTorch, which brings gigabytes of CUDA's libraries.
MACHINES_OWN = re.compile(
    r"no CUDA device|no GPU|has a GPU|needs root|does not let us|pip install (botocore|google-api|kubernetes)"
    r"|KUBERAY_CRD|no real data|no file of real data|PyTorch"
)


def may_be_left_out(reason: str, absent: str) -> bool:
    """Whether a test may be left out for a reason; `absent` has the tools that could not be installed."""
    return bool(MACHINES_OWN.search(reason)) or any(tool in reason for tool in absent.split())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    return _judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    return _judged((yield))


def _judged(report: Any) -> Any:
    absent = os.environ.get(STRICT)
    if absent is not None and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not may_be_left_out(reason, absent):
            report.outcome, report.longrepr = "failed", f"{reason}\n{STRICT} is set: this may not be left out here"
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longest files first: with the shortest last, no worker of a parallel run idles at the end."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


@dataclass(frozen=True)
class ArrayBackend:
    """A namespace with the device that its test arrays live on."""

    name: str
    xp: Any
    device: Any

    def asarray(self, values: Any, dtype: str = "float64") -> Any:
        return self.xp.asarray(np.asarray(values), dtype=getattr(self.xp, dtype), device=self.device)


def _array_backend(name: str) -> ArrayBackend:
    if name == "numpy":
        import array_api_compat.numpy as xp

        return ArrayBackend(name, xp, "cpu")
    if name == "strict":
        # The second device: NumPy functions pass silently on the first.
        strict = pytest.importorskip("array_api_strict")
        return ArrayBackend(name, strict, strict.Device("device1"))
    cupy = pytest.importorskip("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"no CUDA device here: {error}")
    import array_api_compat.cupy as xp

    return ArrayBackend(name, xp, cupy.cuda.Device(0))


@pytest.fixture(params=["numpy", "strict", pytest.param("cupy", marks=pytest.mark.gpu)])
def arrays(request: pytest.FixtureRequest) -> ArrayBackend:
    """Every array backend in turn."""
    return _array_backend(request.param)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder with the real files; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("SWEEP_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set SWEEP_DATA to the folder that holds it")
    return folder
