"""Homes of earlier releases are gone on with: nothing is computed anew unless a method's version changed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sweep
from solvers.methods import METHODS
from sweep.store.home import Home
from sweep.store.ledger import view_ledger
from tests.sweep.store.conftest import OLD_HOME

THEN = 4  # the version that all methods had in 0.1


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user of 0.1: home, data and sweep files, these without MLflow to be quick."""
    folder = tmp_path / "0.1"
    shutil.copytree(OLD_HOME, folder)
    for name in ("old", "small"):
        file = folder / f"{name}.yaml"
        file.write_text(file.read_text() + "tracking: {mlflow: none}\n")
    monkeypatch.chdir(folder)
    return folder


def _records(home: Path) -> dict[str, Any]:
    ledger = view_ledger("sqlite", Home(home))
    found = {spec.key: (spec, record) for name in ledger.sweeps() for spec, record in ledger.records(name)}
    ledger.close()
    return found


@pytest.mark.parametrize("name", ["old", "small"])
def test_with_the_versions_of_then_nothing_is_computed(
    release: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    then = {method: replace(known, version=THEN) for method, known in METHODS.items()}
    monkeypatch.setattr("sweep.methods.METHODS", then)
    before = _records(release / "home")
    done = sweep.run(f"{name}.yaml", home=release / "home", address="inline")
    assert done.outcome is not None
    assert done.outcome.tally.done == done.outcome.tally.cached == done.outcome.tally.total > 0
    assert _records(release / "home") == before


def test_only_methods_with_a_new_version_are_computed_again(release: Path) -> None:
    before = _records(release / "home")
    sweep.run("old.yaml", home=release / "home", address="inline")
    after = _records(release / "home")
    kept = {method for method in ("euc", "gmml", "mdml-csfn", "pdml-sfn") if METHODS[method].version == THEN}
    assert {spec.method for key, (spec, _) in after.items() if key not in before} <= set(METHODS) - kept
    again = {key: row for key, row in after.items() if row[0].method in kept}
    assert again
    assert all(before[key] == row for key, row in again.items())
