"""Shared fixtures: array backends, the real data's folder, small sweeps."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
