"""The ledger keeps a fit once, keeps it whole, and notices what was altered."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from sweep.errors import UserError
from sweep.fits import FitRecord, FitSpec
from sweep.store.home import Home
from sweep.store.ledger import Failure, Ledger


def spec(fold: int = 0) -> FitSpec:
    return FitSpec(
        dataset="d", data="f", scaling="minmax", pca=None, frequent_above=5, split=0, folds=3, fold=fold,
        method="mdml-csfn", gamma=0.1, rank=None, restarts=1, algorithm="certified", settings=(("tol", 0.1),), seed=0,
    )  # fmt: skip


def record(fit: FitSpec, auc: float = 0.5) -> FitRecord:
    return FitRecord(fit.key, {"auc_all": auc}, {"n_eigh": 3}, {"solve": 1.0}, {"host": "h"}, started=1.0)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    home = Home(tmp_path)
    home.create()
    return Ledger(home.ledger_url)


def test_a_committed_fit_comes_back_equal(ledger: Ledger) -> None:
    ledger.commit(spec(), record(spec()))
    assert ledger.record(spec().key) == record(spec())
    assert ledger.record("no such key") is None


def test_the_first_record_of_a_key_stays(ledger: Ledger) -> None:
    ledger.commit(spec(), record(spec(), 0.5))
    ledger.commit(spec(), record(spec(), 0.9))
    kept = ledger.record(spec().key)
    assert kept is not None
    assert kept.score == 0.5


def test_a_sweep_sees_its_own_fits_only(ledger: Ledger) -> None:
    ledger.open_sweep("a", {}, {})
    ledger.adopt("a", [spec(0).key, spec(1).key])
    for fold in range(3):
        ledger.commit(spec(fold), record(spec(fold)))
    assert {s.fold for s, _ in ledger.records("a")} == {0, 1}
    assert ledger.count("a") == (2, 2)


def test_a_sweep_file_that_shrank_asks_for_less(ledger: Ledger) -> None:
    ledger.open_sweep("a", {}, {})
    ledger.adopt("a", [spec(0).key, spec(1).key])
    ledger.open_sweep("a", {"new": 1}, {})
    ledger.adopt("a", [spec(0).key])
    assert ledger.count("a") == (0, 1)
    assert ledger.sweeps() == {"a": {"new": 1}}


def test_an_altered_row_is_noticed_and_left_out(ledger: Ledger, tmp_path: Path) -> None:
    ledger.open_sweep("a", {}, {})
    ledger.adopt("a", [spec(0).key, spec(1).key])
    for fold in range(2):
        ledger.commit(spec(fold), record(spec(fold)))
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        (text,) = connection.execute("SELECT record FROM fits WHERE key = ?", (spec(0).key,)).fetchone()
        connection.execute("UPDATE fits SET record = ? WHERE key = ?", (text.replace("0.5", "0.7"), spec(0).key))
    assert [s.fold for s, _ in ledger.records("a")] == [1]
    assert ledger.altered == [spec(0).key]


def test_a_record_that_is_no_json_number_is_refused(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        ledger.commit(spec(), replace(record(spec()), scores={"auc_all": float("nan")}))
    assert ledger.record(spec().key) is None


def test_failures_are_kept_and_a_new_run_tries_again(ledger: Ledger) -> None:
    ledger.open_sweep("a", {}, {})
    failure = Failure("k", "label", "m", 1, "bug", "ValueError: x", "trace", 2.0, final=True, happened=1.0)
    ledger.fail("a", failure)
    assert ledger.failures("a") == [failure]
    ledger.open_sweep("a", {}, {})
    assert ledger.failures("a") == [replace(failure, final=False)]


def test_a_wrong_url_gets_one_line() -> None:
    with pytest.raises(UserError, match=r"tracking\.ledger"):
        Ledger("not a url")


def test_rows_are_plain_text(ledger: Ledger, tmp_path: Path) -> None:
    ledger.commit(spec(), record(spec()))
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        stored_spec, stored_record = connection.execute("SELECT spec, record FROM fits").fetchone()
    assert json.loads(stored_spec)["method"] == "mdml-csfn"
    assert json.loads(stored_record)["scores"] == {"auc_all": 0.5}
