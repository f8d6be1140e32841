"""Adaptive search: what is asked for depends on scores alone, whatever ends first and whatever is killed."""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import optuna
import pytest

from sweep.engine.executors import InlineExecutor
from sweep.errors import UserError
from sweep.fits import FitSpec, Trial
from sweep.seeds import derive_seed
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.store.results import result_rows
from sweep.studies.adaptive import AdaptiveStudy, search_space
from sweep.studies.spec import Optuna, Range
from tests.sweep.engine.test_driver import CountingExecutor, run, scores
from tests.sweep.studies.playing import Play, play, template

SPACE: dict[str, Any] = {"gamma": Range(low=1e-3, high=1.0), "rank": Range(low=2, high=64)}
GRID = {"gamma": [0.01, 0.1], "rank": [4, 8]}
SEARCH: dict[str, Any] = {
    "search": {"optuna": {"trials": 5, "prune_folds": True}},
    "grid": {"gamma": [0.001, 1], "rank": [2, 16]},
    "tracking": {"mlflow": "none"},
}


def score(spec: FitSpec) -> float:
    """Best near gamma = 0.05 and rank = 16, a little different in each fold, with one restart a little worse."""
    gamma, rank = spec.trial.get("gamma"), spec.trial.get("rank") or 16
    noise = derive_seed(spec.key, "noise") / 2**32
    base = 0.9 - 0.05 * math.log10(gamma / 0.05) ** 2 - 0.03 * math.log2(rank / 16) ** 2
    return base + 0.01 * (spec.fold or 0) + 0.002 * noise - 0.01 / spec.restarts


def study(restarts: int = 1, folds: int = 3, space: Any = None, **options: Any) -> AdaptiveStudy:
    refit = template(method="pdml-sfn", restarts=restarts, folds=folds)
    return AdaptiveStudy(refit, search_space(SPACE if space is None else space), Optuna(**options))


def keys(played: Play) -> set[str]:
    return {spec.key for spec in played.ran}


VARIANTS: list[dict[str, Any]] = [
    {"trials": 24, "prune_folds": False},
    {"trials": 24, "prune_folds": True},
    {"trials": 24, "prune_folds": True, "restarts": 3},
    {"trials": 24, "prune_folds": True, "pruner": "median"},
    {"trials": 40, "prune_folds": True, "patience": 6},
]


@pytest.mark.parametrize("options", VARIANTS)
def test_the_order_of_arrival_changes_nothing(options: dict[str, Any]) -> None:
    first = play(study(**options), score)
    assert first.refit is not None
    for seed in (1, 2):
        again = play(study(**options), score, seed)
        assert keys(again) == keys(first)
        assert again.refit == first.refit


@pytest.mark.parametrize("options", VARIANTS[1:3])
def test_a_study_replayed_from_known_records_asks_for_the_same(options: dict[str, Any]) -> None:
    first = play(study(**options), score, seed=7)
    for share in (0.0, 0.3, 0.7, 1.0):
        known = {spec.key for spec in first.ran[: int(share * len(first.ran))]}
        again = play(study(**options), score, seed=8, known=known)
        assert keys(again) == keys(first)
        assert again.refit == first.refit
    assert not again.in_flight  # all was known: nothing had to run


def test_eight_tasks_or_more_run_at_a_time_until_the_last_trial_is_asked_for() -> None:
    """Forty trials, as by default, one task each at a time, fits that take about equally long."""
    played = play(study(trials=40, prune_folds=True), score)
    trials = list(dict.fromkeys(spec.trial for spec in played.ran))
    before_the_last = [spec.trial for spec in played.ran].index(trials[-1])
    assert before_the_last > 30
    assert min(played.in_flight[: before_the_last - 1]) >= 8


def test_what_is_asked_differs_by_seed_and_study() -> None:
    def trials(**changes: Any) -> set[Trial]:
        made = AdaptiveStudy(template(**changes), search_space({"gamma": SPACE["gamma"]}), Optuna(trials=8))
        return {spec.trial for spec in made.start()}

    assert trials() == trials()
    assert not trials() & trials(seed=1)
    assert not trials() & trials(split=1)


def test_patience_ends_a_study_that_improves_no_more() -> None:
    patient = study(trials=60, prune_folds=False, patience=8, improvement=0.01)
    played = play(patient, score, seed=1)
    trials = {spec.trial for spec in played.ran if spec.fold is not None}
    assert 8 < len(trials) < 60
    assert played.refit is not None
    assert len(played.ran) < patient.size.tasks
    impatient = play(study(trials=60, prune_folds=False, patience=60, improvement=0.01), score, seed=1)
    assert len({spec.trial for spec in impatient.ran if spec.fold is not None}) > len(trials)


def test_a_trial_that_was_asked_for_before_is_not_run_again() -> None:
    """Two values, twelve trials: ten of them are twins."""
    played = play(study(space={"rank": [4], "kind": ["a", "b"]}, trials=12, prune_folds=False), _by_kind, seed=2)
    assert Counter(spec.key for spec in played.ran).most_common(1)[0][1] == 1
    assert len(played.ran) == 2 * 3 + 1
    assert played.refit is not None
    assert played.refit.trial.get("kind") == "b"


def _by_kind(spec: FitSpec) -> float:
    return 0.5 + 0.1 * (spec.trial.get("kind") == "b") + 0.01 * (spec.fold or 0)


def test_screening_uses_one_restart_and_only_survivors_get_all() -> None:
    played = play(study(restarts=4, folds=5, trials=30, prune_folds=True), score, seed=5)
    fits = [spec for spec in played.ran if spec.fold is not None]
    screened = Counter(spec.trial for spec in fits if spec.restarts == 1)
    full = Counter(spec.trial for spec in fits if spec.restarts == 4)
    assert set(full) < set(screened)  # some were pruned
    assert set(full.values()) == {5}
    assert all(screened[trial] == 5 for trial in full)
    assert any(count < 5 for count in screened.values())  # ended before all folds were screened
    assert len(played.ran) <= study(restarts=4, folds=5, trials=30).size.tasks
    assert played.refit is not None
    assert played.refit.restarts == 4
    assert played.refit.trial in full


def test_a_failed_fold_ends_its_trial_alone() -> None:
    def failing(spec: FitSpec) -> float | None:
        return None if spec.trial.get("gamma") > 0.1 else score(spec)

    played = play(study(trials=20, prune_folds=False), failing, seed=1)
    assert played.refit is not None
    assert played.refit.trial.get("gamma") <= 0.1
    assert play(study(trials=6), lambda spec: None).refit is None


def test_values_are_readable_and_inside_the_space() -> None:
    played = play(study(trials=30, prune_folds=False), score)
    for spec in played.ran:
        gamma, rank = spec.trial.get("gamma"), spec.trial.get("rank")
        assert float(f"{gamma:.3g}") == gamma
        assert 1e-3 <= gamma <= 1
        assert 2 <= rank <= 64
        assert isinstance(rank, int)


def test_lists_span_ranges_and_words_are_choices() -> None:
    space = search_space({"gamma": [0.01, 1.0], "rank": [4, 8], "kind": ["a", "b"], "scale": Range(low=0.1, high=0.9)})
    assert space["gamma"] == optuna.distributions.FloatDistribution(0.01, 1.0, log=True)
    assert space["rank"] == optuna.distributions.IntDistribution(4, 8, log=True)
    assert space["kind"] == optuna.distributions.CategoricalDistribution(["a", "b"])
    assert space["scale"] == optuna.distributions.FloatDistribution(0.1, 0.9, log=True)


def test_observations_of_other_sweeps_count_as_trials_that_are_done() -> None:
    trials = [Trial.of({"gamma": g, "rank": 16}) for g in (0.01, 0.05, 0.4)]
    outside = Trial.of({"gamma": 50.0, "rank": 16})
    known = {trial: dict.fromkeys(range(3), 2.0) for trial in [*trials, outside]}
    known[Trial.of({"gamma": 0.2, "rank": 8})] = {0: 9.0}  # not all folds
    made = AdaptiveStudy(template(method="pdml-sfn"), search_space(SPACE), Optuna(trials=6), observations=lambda: known)
    played = play(made, score, seed=1)
    assert {spec.trial for spec in played.asked} >= set(trials)
    assert outside not in {spec.trial for spec in played.asked}
    assert played.refit is not None
    assert played.refit.trial in trials  # their scores are the best, so one of them is chosen


def test_the_study_is_mirrored_into_a_storage_for_other_tools(tmp_path: Path) -> None:
    made = study(trials=6, prune_folds=False)
    play(made, score)
    storage = f"sqlite:///{tmp_path}/optuna.db"
    for _ in range(2):  # the second time it replaces the first
        made.mirror(storage)
    (summary,) = optuna.get_all_study_summaries(storage)
    assert summary.study_name == "d/0/pdml-sfn"
    assert summary.n_trials > 0
    with pytest.raises(UserError, match=r"search\.optuna\.storage: cannot write the study"):
        made.mirror("sqlite:////no/such/folder/x.db")


def test_gp_without_torch_is_answered_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    with pytest.raises(UserError, match="needs PyTorch"):
        study(sampler="gp", trials=2).start()


# -- real sweeps --------------------------------------------------------------------------------------


def test_a_search_ends_with_a_row_per_method_and_runs_nothing_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    _, ledger = run(home, InlineExecutor(), **SEARCH)
    rows = {row.method: row for row in result_rows(ledger.records("tiny"))}
    assert set(rows) == {"mdml-csfn", "pdml-sfn"}
    gamma, rank = rows["mdml-csfn"].gamma, rows["pdml-sfn"].rank
    assert gamma is not None
    assert rank is not None
    assert 0.001 <= gamma <= 1
    assert 2 <= rank <= 16
    submitted: Counter[str] = Counter()
    tally, _ = run(home, CountingExecutor(submitted), **SEARCH)
    assert not submitted
    assert tally.done == tally.total == tally.cached
    assert tally.exact


def test_a_killed_search_goes_on_and_ends_equal(tmp_path: Path) -> None:
    search = SEARCH | {"methods": ["pdml-sfn"]}
    _, undisturbed = run(Home(tmp_path / "a"), InlineExecutor(), **search)
    home, submitted = Home(tmp_path / "b"), Counter[str]()
    for stop_after in (1, 4, 5):
        with pytest.raises(KeyboardInterrupt):
            run(home, CountingExecutor(submitted, stop_after), **search)
    committed = Ledger(home.ledger_url).keys()
    assert len(committed) == 10
    again: Counter[str] = Counter()
    _, ledger = run(home, CountingExecutor(again), **search)
    assert committed.isdisjoint(again)
    assert scores(ledger) == scores(undisturbed)


def test_other_sweeps_in_the_home_are_observations_only_on_request(tmp_path: Path) -> None:
    few = {"methods": ["mdml-csfn"], "tracking": {"mlflow": "none"}}
    _, alone = run(Home(tmp_path / "alone"), InlineExecutor(), **(SEARCH | few))
    home = Home(tmp_path / "shared")
    run(home, InlineExecutor(), name="grid", grid=GRID, **few)
    _, beside = run(home, InlineExecutor(), **(SEARCH | few))
    assert scores(beside) == scores(alone)
    submitted: Counter[str] = Counter()
    reuse = {"search": {"optuna": {"trials": 5, "reuse": True}}}
    _, ledger = run(home, CountingExecutor(submitted), name="reusing", **(SEARCH | few | reuse))
    of_grid = {spec.key for spec, _ in ledger.records("grid") if spec.fold is not None}
    assert of_grid <= {spec.key for spec, _ in ledger.records("reusing")}
    assert not of_grid & set(submitted)
