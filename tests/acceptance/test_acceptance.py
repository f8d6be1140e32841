"""The program of `make gpu-acceptance`, on what there is here: NumPy, and another library's device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from solvers.backend import gpu_count
from tests.acceptance import checks
from tests.acceptance.__main__ import main


def run(library: str, folder: Path) -> tuple[int, dict[str, Any], str]:
    code = main([library, "--quick", "--out", str(folder / "found")])
    return code, json.loads((folder / "found.json").read_text()), (folder / "found.html").read_text()


def test_numpy_is_accepted_and_the_page_tells_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, facts, page = run("numpy", tmp_path)
    assert code == 0, capsys.readouterr().out
    assert [check["name"] for check in facts["checks"]] == [
        "machine", "methods", "determinism", "memory", "kernels", "sweeps",
    ]  # fmt: skip
    found = {check["name"]: check for check in facts["checks"]}
    assert [row["distances off by"] for row in found["methods"]["rows"]] == [0.0] * 3
    assert {row["apart"] for row in found["determinism"]["rows"]} == {0.0}
    assert {row["method"] for row in found["sweeps"]["rows"]} == set(checks.SWEEP["methods"])
    assert all(row["solve, s"] > 0 for row in found["sweeps"]["rows"])
    assert "numpy: accepted" in page
    assert "http" not in page.split("<script")[0]  # one file, nothing is fetched
    assert capsys.readouterr().out.strip().splitlines()[-1].startswith("numpy: accepted in")


def test_a_device_of_another_library_is_compared_with_numpy(tmp_path: Path) -> None:
    pytest.importorskip("array_api_strict")
    code, facts, _ = run("array_api_strict", tmp_path)
    assert code == 0, facts
    assert [check["name"] for check in facts["checks"]] == ["machine", "methods", "determinism", "memory"]


def test_a_method_that_finds_something_else_is_not_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a check that raises has failed without ending the others."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("<b>the device is gone</b>")

    monkeypatch.setattr(checks.on_device, "agree", lambda one, other: False)
    for name in ("determinism", "memory", "kernels", "sweeps"):
        monkeypatch.setattr(checks, name, broken)
    code, facts, page = run("numpy", tmp_path)
    assert code == 1
    found = {check["name"]: (check["passed"], check["told"]) for check in facts["checks"]}
    assert found["methods"] == (False, "0 of 3 methods agree with NumPy")
    assert found["broken"] == (False, "RuntimeError: <b>the device is gone</b>")
    assert "<b>" not in page
    assert "NOT accepted" in capsys.readouterr().out


@pytest.mark.skipif(gpu_count() > 0, reason="there is a GPU here")
def test_without_a_gpu_it_says_so_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cupy", "--out", str(tmp_path / "found")]) == 3
    assert capsys.readouterr().out.count("\n") == 1
    assert not list(tmp_path.iterdir())
