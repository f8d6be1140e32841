"""`sweep diff` says what differs in the files, in what was chosen, in scores and times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweep.api import open_run
from sweep.cli import main
from tests.sweep.commands.homes import write_sweep


def test_files_choices_scores_and_times_are_compared(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = finished / "home"
    assert main(["diff", "tiny", "after", "--home", str(home), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    changed = {entry["key"]: (entry["first"], entry["second"]) for entry in found["files"]}
    assert changed["splits"] == (1, 2)
    assert changed["methods"] == (["mdml-csfn", "pdml-sfn"], ["mdml-csfn", "euc"])
    assert "name" not in changed
    assert "folds" not in changed
    (row,) = found["rows"]  # what both have
    assert (row["method"], row["split"]) == ("mdml-csfn", 0)
    assert row["chosen"] == "gamma=0.01 -> gamma=0.1"
    rows = {name: next(r for r in open_run(name, home).rows if r.method == "mdml-csfn") for name in ("tiny", "after")}
    before, after = rows["tiny"], rows["after"]
    assert before.test_score is not None
    assert after.test_score is not None
    assert row["change"] == pytest.approx(after.test_score - before.test_score)
    assert row["ratio"] == pytest.approx(after.fit_seconds / before.fit_seconds)


def test_a_sweep_equals_itself_and_its_copy_in_another_home(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = str(finished / "home")
    assert main(["diff", "tiny", "tiny", "--home", home]) == 0
    captured = capsys.readouterr()
    assert "the sweep files say the same" in captured.err
    assert "->" not in captured.out.splitlines()[-1]
    file = write_sweep(tmp_path, name="copy", methods=["mdml-csfn"])
    assert main(["run", str(file), "--home", str(tmp_path / "home"), "--address", "inline"]) == 0
    capsys.readouterr()
    assert main(["diff", "tiny", "copy", "--home", home, "--other-home", str(tmp_path / "home"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["key"] for entry in found["files"]] == ["methods"]
    assert [row["change"] for row in found["rows"]] == [0.0]


def test_sweeps_without_a_common_result_are_said_to_have_none(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_sweep(tmp_path, name="other", methods=["euc"], seed=1)
    assert main(["run", str(file), "--home", str(tmp_path / "home"), "--address", "inline"]) == 0
    capsys.readouterr()
    others = ["--other-home", str(tmp_path / "home")]
    assert main(["diff", "tiny", "other", "--home", str(finished / "home"), *others]) == 0
    assert "no method has a result in both" in capsys.readouterr().err
