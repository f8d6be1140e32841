"""Where continuous integration runs, no test is left out that could have been run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, STRICT, may_be_left_out

SUITE = """
import pytest

def test_gpu():
    pytest.skip("no CUDA device here")

def test_tool():
    pytest.skip("no Prometheus here: install Debian's prometheus")

@pytest.mark.xfail(strict=True)
def test_known():
    raise AssertionError
"""


def outcome(folder: Path, absent: str | None) -> tuple[int, str]:
    hooks = "pytest_make_collect_report, pytest_runtest_makereport"
    (folder / "conftest.py").write_text(f"from tests.conftest import {hooks}\n")
    (folder / "test_it.py").write_text(SUITE)
    (folder / "test_module.py").write_text("import pytest\npytest.importorskip('no_such_module_1')\n")
    environment = {name: value for name, value in os.environ.items() if name != STRICT} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    if absent is not None:
        environment[STRICT] = absent
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    return answer.returncode, answer.stdout


def test_by_default_skips_are_skips(tmp_path: Path) -> None:
    code, text = outcome(tmp_path, None)
    assert code == 0
    assert "3 skipped, 1 xfailed" in text


@pytest.mark.parametrize(
    ("absent", "expected"),
    [
        ("", "1 error"),  # the module that cannot be collected
        ("no_such_module_1", "1 failed, 2 skipped, 1 xfailed"),
        ("no_such_module_1 prometheus", "3 skipped, 1 xfailed"),
    ],
)
def test_where_the_switch_is_set_only_what_cannot_run_may_be_left_out(
    absent: str, expected: str, tmp_path: Path
) -> None:
    code, text = outcome(tmp_path, absent)
    assert (code == 0) is ("skipped" in expected and "failed, " not in expected)
    assert expected in text


@pytest.mark.parametrize(
    ("reason", "allowed"),
    [
        ("no GPU that CuPy can use here", True),
        ("pip install botocore", True),
        ("no real data at /x; set SWEEP_DATA to the folder that holds it", True),
        ("no Chromium here: install Debian's chromium and chromium-driver", False),
        ("CuPy is not installed: pip install orthosweep[gpu]", False),
        ("needs the bench extra", False),
    ],
)
def test_reasons_are_told_apart(reason: str, allowed: bool) -> None:
    assert may_be_left_out(reason, "") is allowed
