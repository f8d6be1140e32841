"""A home of the first release opens, is upgraded as a whole or not at all, and keeps every fit."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy import select

from sweep.errors import UserError
from sweep.fits import FitSpec, Trial
from sweep.store import migrations, tables
from sweep.store.database import connect_readonly, open_database
from sweep.store.home import Home
from sweep.store.ledger import Ledger, open_ledger, view_ledger
from sweep.store.migrations import V1, schema_of
from tests.sweep.store.conftest import OLD_HOME

# What version 0.1 said of its home.
FITS, MEMBERS = 49, {"old": 48, "small": 2}


def _files(home: Home) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in home.folder.rglob("*") if p.is_file()}


def _old_rows(home: Home) -> dict[str, tuple[str, str]]:
    with sqlite3.connect(home.ledger_path) as connection:
        return {k: (s, r) for k, s, r in connection.execute("SELECT key, spec, record FROM fits")}


def test_an_old_home_keeps_its_keys_its_records_and_its_sweeps(old_home: Home) -> None:
    before = _old_rows(old_home)
    with old_home.lock():
        ledger = open_ledger("sqlite", old_home)
        assert {name: ledger.count(name) for name in ledger.sweeps()} == {n: (m, m) for n, m in MEMBERS.items()}
        assert ledger.keys() == set(before)
        assert len(before) == FITS
        for name in MEMBERS:
            for spec, record in ledger.records(name):
                then = json.loads(before[spec.key][0])
                assert FitSpec.from_dict(spec.to_dict()).key == spec.key  # computed, not copied
                assert (spec.trial.get("gamma"), spec.trial.get("rank")) == (then["gamma"], then["rank"])
                assert record.value == json.loads(before[spec.key][1])["scores"]["auc_all"]
                assert spec.version == "4"
                if record.artifact:
                    assert old_home.read_artifact(spec.key, record.artifact) is not None
        assert ledger.altered == []
        assert not any(ledger.lies_elsewhere(key) for key in ledger.artifacts())
        ledger.close()


def test_chains_still_know_what_they_started_from(old_home: Home) -> None:
    ledger = open_ledger("sqlite", old_home)
    chained = [spec for spec, _ in ledger.records("old") if spec.start not in ("cold", "chain")]
    assert chained
    for spec in chained:
        start = ledger.record(spec.start)
        assert start is not None
        assert start.artifact is not None
        arrays = old_home.read_artifact(spec.start, start.artifact)
        assert arrays is not None
        assert "weights" in arrays
    ledger.close()


def test_failures_are_charged_to_their_study_by_columns(old_home: Home) -> None:
    ledger = open_ledger("sqlite", old_home)
    assert {failure.study for failure in ledger.failures("old")} == {("blobs.csv", 1, "pdml-sfn")}
    assert [failure.kind for failure in ledger.failures("old")] == ["out of memory"] * 2
    ledger.close()


def test_the_upgraded_tables_are_those_of_a_new_ledger(old_home: Home, tmp_path: Path) -> None:
    open_ledger("sqlite", old_home).close()
    Ledger(f"sqlite:///{tmp_path / 'new.sqlite'}").close()

    def shape(path: Path) -> set[str]:
        with sqlite3.connect(path) as connection:
            return {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}

    assert shape(old_home.ledger_path) == shape(tmp_path / "new.sqlite")


def test_an_upgrade_that_is_cut_off_changes_nothing(old_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _old_rows(old_home)
    calls = 0

    def cut_off(*arguments: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        original(*arguments)

    original = migrations._copy
    monkeypatch.setattr(migrations, "_copy", cut_off)
    with pytest.raises(KeyboardInterrupt):
        open_ledger("sqlite", old_home)
    monkeypatch.undo()
    assert _old_rows(old_home) == before
    ledger = open_ledger("sqlite", old_home)
    assert len(ledger.keys()) == FITS
    ledger.close()


def test_rows_that_were_altered_before_are_found_after(old_home: Home) -> None:
    with sqlite3.connect(old_home.ledger_path) as connection:
        (first, second, third) = [k for (k,) in connection.execute("SELECT key FROM members WHERE sweep='old' LIMIT 3")]
        connection.execute("UPDATE fits SET record = replace(record, '0.9', '0.8') WHERE key = ?", (first,))
        connection.execute("UPDATE fits SET spec = CAST(X'ff' AS TEXT) WHERE key = ?", (second,))
        connection.execute("UPDATE fits SET record = 7 WHERE key = ?", (third,))
        connection.execute("UPDATE failures SET label = CAST(X'ff' AS TEXT) WHERE attempt = 1")
    ledger = open_ledger("sqlite", old_home)
    assert sum(1 for _ in ledger.records("old")) == MEMBERS["old"] - 3
    assert set(ledger.altered) == {first, second, third}
    ledger.close()


def test_looking_at_an_old_home_upgrades_nothing(old_home: Home) -> None:
    before = _files(old_home)
    ledger = view_ledger("sqlite", old_home)
    assert {name: ledger.count(name)[0] for name in ledger.sweeps()} == MEMBERS
    assert len(list(ledger.records("old"))) == MEMBERS["old"]
    ledger.close()
    assert _files(old_home) == before


def test_an_old_ledger_on_a_server_is_upgraded_by_a_run_only(postgres: str, tmp_path: Path) -> None:
    database = open_database(postgres)
    with connect_readonly(OLD_HOME / "home" / "ledger.sqlite") as old, database.engine.begin() as connection:
        V1.create_all(connection)
        for table in V1.sorted_tables:
            names = ", ".join(table.columns.keys())
            rows = [
                dict(zip(table.columns.keys(), row, strict=True)) for row in old.execute(f"SELECT {names} FROM {table}")
            ]
            connection.execute(table.insert(), rows)
    home = Home(tmp_path / "home")
    with pytest.raises(UserError, match="older version; the next `sweep run` upgrades it"):
        view_ledger(postgres, home)
    ledger = open_ledger(postgres, home)
    assert {name: ledger.count(name)[0] for name in ledger.sweeps()} == MEMBERS
    assert len(list(ledger.records("old"))) == MEMBERS["old"]
    assert not any(name.endswith("_v1") for name in sqlalchemy.inspect(ledger.database.engine).get_table_names())
    # Whose home held those artifacts is not known: none of them counts as damaged for being absent here.
    assert all(ledger.lies_elsewhere(key) for key in ledger.artifacts())
    ledger.close()
    database.close()


def test_a_name_of_a_dataset_may_look_like_a_label() -> None:
    row = {"label": "my split 3 data split 2 pdml-sfn gamma=0.1 fold 1/2", "method": "pdml-sfn", "final": 0}
    found = migrations._failure_from_v1(row, "")
    assert (found["dataset"], found["split"]) == ("my split 3 data", 1)


def test_a_fit_of_an_earlier_solver_keeps_its_key() -> None:
    values = {
        "dataset": "d", "data": "f", "scaling": "minmax", "pca": None, "frequent_above": 5, "split": 0, "folds": 3,
        "fold": 0, "method": "euc", "gamma": None, "rank": None, "restarts": 1, "algorithm": "certified",
        "settings": [["tol", 0.1]], "seed": 0, "start": "cold", "salt": "",
    }  # fmt: skip
    trial = {"trial": {}, "version": "2"}
    key = FitSpec.from_dict({k: v for k, v in values.items() if k not in ("gamma", "rank")} | trial).key
    found = migrations.spec_from_v1(dict(values), key)
    assert (found.key, found.version, found.trial) == (key, "2", Trial())
    assert migrations.spec_from_v1(dict(values), "0" * 32).key == "0" * 32


def test_the_version_stands_in_the_ledger(old_home: Home) -> None:
    ledger = open_ledger("sqlite", old_home)
    assert ledger.database.read(schema_of) == tables.SCHEMA
    assert ledger.database.scalar(select(tables.meta.c.value)) == str(tables.SCHEMA)
    ledger.close()
