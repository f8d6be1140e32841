"""Adaptive search: deterministic whatever is killed, cheaper than the grid, and it forgets nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import optuna
import pytest

from sweep.engine.executors import InlineExecutor
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.store.results import result_rows
from tests.sweep.engine.test_driver import CountingExecutor, run, scores

GRID = {"gamma": [0.01, 0.1], "rank": [4, 8]}
SEARCH: dict[str, Any] = {
    "search": {"optuna": {"trials": 6, "prune_folds": True}},
    "grid": {"gamma": [0.001, 1], "rank": [2, 16]},
}


def studies(home: Home) -> dict[str, optuna.Study]:
    from sweep.studies.adaptive import open_storage

    storage = open_storage("journal", home.folder / "optuna")
    return {
        s.study_name: optuna.load_study(study_name=s.study_name, storage=storage)
        for s in optuna.get_all_study_summaries(storage)
    }


def test_a_search_ends_with_a_row_per_method(tmp_path: Path) -> None:
    home = Home(tmp_path)
    _, ledger = run(home, InlineExecutor(), **SEARCH)
    rows = {row["method"]: row for row in result_rows(ledger.records("tiny"))}
    assert set(rows) == {"mdml-csfn", "pdml-sfn"}
    assert 0.001 <= rows["mdml-csfn"]["gamma"] <= 1
    assert 2 <= rows["pdml-sfn"]["rank"] <= 16
    for study in studies(home).values():
        assert len(study.trials) == 6
        assert not any(t.state == optuna.trial.TrialState.RUNNING for t in study.trials)


def test_a_killed_search_goes_on_and_ends_equal(tmp_path: Path) -> None:
    _, undisturbed = run(Home(tmp_path / "a"), InlineExecutor(), **SEARCH)
    home, submitted = Home(tmp_path / "b"), Counter[str]()
    for stop_after in (2, 5, 9):
        with pytest.raises(KeyboardInterrupt):
            run(home, CountingExecutor(submitted, stop_after), **SEARCH)
    committed = Ledger(home.ledger_url).keys()
    again: Counter[str] = Counter()
    _, ledger = run(home, CountingExecutor(again), **SEARCH)
    assert committed.isdisjoint(again)
    assert scores(ledger) == scores(undisturbed)
    assert [t.params for s in studies(home).values() for t in s.trials] == [
        t.params for s in studies(Home(tmp_path / "a")).values() for t in s.trials
    ]


def test_a_finished_search_runs_nothing_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run(home, InlineExecutor(), **SEARCH)
    submitted: Counter[str] = Counter()
    tally, _ = run(home, CountingExecutor(submitted), **SEARCH)
    assert not submitted
    assert tally.done == tally.total == tally.cached


def test_finished_grid_fits_are_observations_at_no_cost(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run(home, InlineExecutor(), grid=GRID)
    submitted: Counter[str] = Counter()
    _, ledger = run(home, CountingExecutor(submitted), name="search", **SEARCH)
    study = next(s for name, s in studies(home).items() if "pdml" in name)
    observed = [t for t in study.trials if t.user_attrs.get("observed")]
    assert {(t.params["gamma"], t.params["rank"]) for t in observed} == {
        (g, r) for g in GRID["gamma"] for r in GRID["rank"]
    }
    assert not set(submitted) & {spec.key for spec, _ in ledger.records("tiny") if spec.fold is not None}


def test_screening_uses_one_restart_and_only_survivors_get_all(tmp_path: Path) -> None:
    home = Home(tmp_path)
    _, ledger = run(home, InlineExecutor(), methods=["pdml-sfn"], **SEARCH)
    fits = [spec for spec, _ in ledger.records("tiny") if spec.fold is not None]
    screened = {(s.gamma, s.rank) for s in fits if s.restarts == 1}
    full = {(s.gamma, s.rank) for s in fits if s.restarts == 2}
    assert full <= screened
    assert len(screened) == len({tuple(sorted(t.params.items())) for t in next(iter(studies(home).values())).trials})


def test_gp_without_torch_is_answered_with_one_line(tmp_path: Path) -> None:
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        from sweep.errors import UserError

        search = {"search": {"optuna": {"sampler": "gp", "trials": 2}}}
        with pytest.raises(UserError, match="needs PyTorch"):
            run(Home(tmp_path), InlineExecutor(), **search)
