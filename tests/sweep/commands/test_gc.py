"""`sweep gc` lists what no sweep of a home refers to, and removes it only on request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweep.cli import main
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from tests.sweep.commands.homes import one_line, write_sweep


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home whose sweep file was shortened after it ran, with a file that no fit names."""
    found = Home(tmp_path / "home")
    for methods in (["mdml-csfn", "euc"], ["euc"]):
        file = write_sweep(tmp_path, methods=methods)
        assert main(["run", str(file), "--home", str(found.folder), "--address", "inline"]) == 0
    found.write_artifact_bytes("0" * 32, b"x" * 1000)
    return found


def listed(home: Home, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main(["gc", "--home", str(home.folder), "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_is_not_referred_to_is_listed_and_nothing_is_touched(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    keys, artifacts = Ledger(home.ledger_url).keys(), home.artifact_keys()
    found = {each["what"]: each for each in listed(home, capsys)}
    assert found["fits that no sweep asks for"]["count"] == 5
    files = found["their artifacts, and files that no fit names"]
    assert files["count"] == 2  # the refit's, and the stray one
    assert files["bytes"] > 1000
    assert (Ledger(home.ledger_url).keys(), home.artifact_keys()) == (keys, artifacts)
    assert main(["gc", "--home", str(home.folder)]) == 0
    assert "nothing was removed; --delete does it" in capsys.readouterr().err


def test_on_request_it_is_removed_and_the_sweep_is_as_before(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    listed(home, capsys, "--delete")
    assert listed(home, capsys) == []
    ledger = Ledger(home.ledger_url)
    assert len(ledger.keys()) == 1
    assert home.artifact_keys() == set(ledger.artifacts())
    assert main(["results", "tiny", "--home", str(home.folder), "--format", "json"]) == 0
    assert [row["method"] for row in json.loads(capsys.readouterr().out)] == ["euc"]


def test_a_pilots_fits_stay_while_its_sweep_may_want_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = Home(tmp_path / "home")
    file = write_sweep(tmp_path, methods=["mdml-csfn"])
    pilot = ["plan", str(file), "--home", str(home.folder), "--address", "inline", "--pilot"]
    assert main(pilot) == 0
    assert listed(home, capsys) == []


def test_nothing_is_removed_while_a_sweep_runs(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    with home.lock():
        assert main(["gc", "--home", str(home.folder), "--delete"]) == 2
    assert "already running here" in one_line(capsys.readouterr().err)
    assert len(Ledger(home.ledger_url).keys()) == 6
