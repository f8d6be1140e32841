"""Records travel between ledgers whole and checked, and never replace what is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweep.errors import UserError
from sweep.store.home import Home
from sweep.store.ledger import Ledger, open_ledger
from sweep.store.rows import checksum
from tests.sweep.store.test_ledger import failure, record, spec


def _home(folder: Path) -> tuple[Home, Ledger]:
    home = Home(folder)
    return home, open_ledger("sqlite", home)


@pytest.fixture
def head(tmp_path: Path) -> tuple[Home, Ledger]:
    """A home elsewhere: a finished sweep with a refit's artifact and a failure."""
    home, ledger = _home(tmp_path / "head")
    ledger.open_sweep("a", {"search": "grid"}, {"version": "1"})
    fits = [spec(0), spec(1), spec(None)]
    ledger.adopt("a", [fit.key for fit in fits])
    for fit in fits[:2]:
        ledger.commit(fit, record(fit))
    artifact = home.write_artifact(fits[2].key, {"components": np.eye(2)})
    ledger.commit(fits[2], record(fits[2], artifact=artifact))
    ledger.fail("a", failure(spec(1)))
    return home, ledger


def _files(home: Home) -> Callable[[str], bytes | None]:
    def read(key: str) -> bytes | None:
        path = home.artifact_path(key)
        return path.read_bytes() if path.exists() else None

    return read


def _through_json(rows: Any) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(row)) for row in rows]


def test_a_sweep_arrives_with_all_that_belongs_to_it(head: tuple[Home, Ledger], tmp_path: Path) -> None:
    there, source = head
    here, target = _home(tmp_path / "here")
    done = target.import_rows(_through_json(source.export_rows("a")), here, _files(there))
    assert (done.sweeps, done.fits, done.known, done.refused) == (["a"], 3, 0, [])
    assert list(target.records("a")) == list(source.records("a"))
    assert target.failures("a") == source.failures("a")
    assert target.about("a") == source.about("a")
    refit = target.record(spec(None).key)
    assert refit is not None
    assert refit.artifact is not None
    assert here.read_artifact(refit.key, refit.artifact) is not None
    assert not target.lies_elsewhere(refit.key)
    assert target.state_digest("a") == source.state_digest("a")
    again = target.import_rows(_through_json(source.export_rows()), here, _files(there))
    assert (again.fits, again.known) == (0, 3)


def test_one_sweep_of_several_is_exported_alone(head: tuple[Home, Ledger]) -> None:
    _, source = head
    source.open_sweep("b", {}, {})
    source.commit(spec(2), record(spec(2)))
    source.adopt("b", [spec(2).key])
    rows = list(source.export_rows("b"))
    assert rows[0]["schema"] == 2
    assert [row["key"] for row in rows if row["table"] == "fits"] == [spec(2).key]
    assert {row["name"] for row in rows if row["table"] == "sweeps"} == {"b"}
    assert len([row for row in source.export_rows() if row["table"] == "fits"]) == 4


def test_an_artifact_that_did_not_come_stays_where_it_is(head: tuple[Home, Ledger], tmp_path: Path) -> None:
    there, source = head
    here, target = _home(tmp_path / "here")
    target.import_rows(source.export_rows(), here, lambda key: b"something else")
    assert target.lies_elsewhere(spec(None).key)
    assert target.artifacts()[spec(None).key].home == there.id
    assert here.artifact_keys() == set()
    target.import_rows(source.export_rows(), here, _files(there))
    assert not target.lies_elsewhere(spec(None).key)


def test_neither_a_record_nor_a_file_that_is_here_is_replaced(head: tuple[Home, Ledger], tmp_path: Path) -> None:
    there, source = head
    here, target = _home(tmp_path / "here")
    artifact = here.write_artifact(spec(None).key, {"components": np.ones((2, 2))})
    mine = record(spec(None), 0.9, artifact=artifact)
    target.commit(spec(None), mine)
    target.import_rows(source.export_rows(), here, _files(there))
    assert target.record(spec(None).key) == mine
    assert here.read_artifact(spec(None).key, artifact) is not None


def test_a_sweep_that_went_on_there_is_brought_up_to_date(head: tuple[Home, Ledger], tmp_path: Path) -> None:
    there, source = head
    here, target = _home(tmp_path / "here")
    target.import_rows(source.export_rows(), here, _files(there))
    source.open_sweep("a", {"search": "grid", "more": 1}, {"version": "2"})
    source.adopt("a", [spec(0).key, spec(2).key])
    target.import_rows(source.export_rows(), here, _files(there))
    assert target.sweeps()["a"]["more"] == 1
    assert target.members("a") == {spec(0).key, spec(2).key}
    assert target.about("a") == {"version": "2"}


def test_two_different_sweeps_of_one_name_are_not_mixed(head: tuple[Home, Ledger], tmp_path: Path) -> None:
    there, source = head
    here, target = _home(tmp_path / "here")
    target.open_sweep("a", {"search": "grid", "algorithm": "paper"}, {})
    with pytest.raises(UserError, match="another sweep of this name") as caught:
        target.import_rows(source.export_rows(), here, _files(there))
    assert "\n" not in str(caught.value)
    assert target.keys() == set()


def test_the_same_sweep_that_ran_here_gains_what_was_computed_there(head: tuple[Home, Ledger], tmp_path: Path) -> None:
    there, source = head
    here, target = _home(tmp_path / "here")
    target.open_sweep("a", {"search": "grid"}, {"mine": 1})
    target.adopt("a", [spec(2).key])
    target.import_rows(source.export_rows(), here, _files(there))
    assert target.members("a") == {spec(0).key, spec(1).key, spec(2).key, spec(None).key}
    assert target.about("a") == {"mine": 1}


def _forge(row: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A row whose checksum was made to fit."""
    forged = row | changes
    return forged | {"checksum": checksum(forged)}


FORGERIES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "an altered record": lambda row: row | {"record": row["record"].replace("0.5", "0.9")},
    "a better score in a column": lambda row: _forge(row, value=0.99),
    "the key of another fit": lambda row: _forge(row, key=spec(2).key),
    "a key that is a path": lambda row: _forge(row, key="../../x"),
    "a spec that is no JSON": lambda row: _forge(row, spec="{"),
    "a spec that is nested without end": lambda row: _forge(row, spec="[" * 100_000),
    "a record of infinite score": lambda row: _forge(row, record=row["record"].replace("0.5", "Infinity")),
    "a column of another type": lambda row: _forge(row, split="0; DROP TABLE fits"),
    "a column too many": lambda row: row | {"extra": 1},
    "a column too few": lambda row: {k: v for k, v in row.items() if k != "record"},
    "a text without end": lambda row: _forge(row, dataset="x" * (17 * 2**20)),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_a_forged_fit_is_refused_and_the_rest_arrives(head: tuple[Home, Ledger], tmp_path: Path, what: str) -> None:
    there, source = head
    here, target = _home(tmp_path / "here")
    rows = [
        FORGERIES[what](row) if row["table"] == "fits" and row["fold"] == 0 else row for row in source.export_rows()
    ]
    done = target.import_rows(rows, here, _files(there))
    assert len(done.refused) == 1
    assert all(len(reason) < 200 for reason in done.refused)
    assert done.fits == 2
    assert target.keys() == {spec(1).key, spec(None).key}
    assert {path.name for path in tmp_path.iterdir()} == {"head", "here"}


@pytest.mark.parametrize(
    "forged",
    [
        {"table": "sweeps", "name": "../evil", "spec": "{}", "about": "{}"},
        {"table": "sweeps", "name": "x", "spec": "[]", "about": "{}"},
        {"table": "sweeps", "name": "x", "spec": "{}", "about": "{"},
        {"table": "members", "sweep": "a", "key": "short"},
        {"table": "failures", "sweep": "a", "key": "0" * 32},
        {"table": "ledger_meta", "name": "schema", "value": "99"},
        {"table": "mlflow_runs", "store": "x"},
        {"table": None},
        {},
    ],
)
def test_rows_that_are_nothing_of_ours_are_refused(
    head: tuple[Home, Ledger], tmp_path: Path, forged: dict[str, Any]
) -> None:
    there, source = head
    here, target = _home(tmp_path / "here")
    done = target.import_rows([*source.export_rows(), forged], here, _files(there))
    assert len(done.refused) == 1
    assert (done.sweeps, done.fits) == (["a"], 3)


@pytest.mark.parametrize("first", [{}, {"table": "ledger", "schema": 3}, {"table": "ledger", "schema": "2"}])
def test_records_of_another_version_are_refused_in_one_line(tmp_path: Path, first: dict[str, Any]) -> None:
    here, target = _home(tmp_path / "here")
    with pytest.raises(UserError) as caught:
        target.import_rows([first], here, lambda key: None)
    assert "\n" not in str(caught.value)


def test_long_failures_that_arrive_are_capped(head: tuple[Home, Ledger], tmp_path: Path) -> None:
    there, source = head
    here, target = _home(tmp_path / "here")
    rows = list(source.export_rows())
    long = next(row for row in rows if row["table"] == "failures") | {"traceback": "x" * 10**6, "happened": 5.0}
    target.import_rows([*rows, long], here, _files(there))
    assert max(len(found.traceback) for found in target.failures("a")) <= 20_000
    assert target.failures("a")[0] == replace(source.failures("a")[0])
