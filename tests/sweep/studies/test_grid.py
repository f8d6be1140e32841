"""Grids: what is chosen depends on scores alone, and what elimination leaves out would not have won."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sweep.fits import CHAIN, FitSpec, Trial, choose
from sweep.studies.grid import EliminatingGridStudy, GridStudy, WarmGridStudy
from tests.sweep.studies.playing import play, template

TRIALS = [Trial.of({"gamma": g, "rank": r}) for g, r in itertools.product([0.01, 0.1, 1.0], [2, 4, 8])]


class Table:
    """Random scores by trial and fold; some fits fail. Rounded, so that ties happen."""

    def __init__(self, seed: int, folds: int, digits: int = 3, failing: float = 0.05) -> None:
        rng = np.random.default_rng(seed)
        level = rng.uniform(0.3, 0.95, len(TRIALS))[:, None]
        self.values = np.clip(level + rng.normal(0, 0.1, (len(TRIALS), folds)), 0, 1).round(digits)
        self.failed = rng.random(self.values.shape) < failing

    def __call__(self, spec: FitSpec) -> float | None:
        if spec.fold is None:
            return 0.5
        place = TRIALS.index(spec.trial), spec.fold
        return None if self.failed[place] else float(self.values[place])


def chosen(study: GridStudy, table: Table, seed: int | None = None) -> Trial | None:
    refit = play(study, table, seed).refit
    return None if refit is None else refit.trial


@pytest.mark.parametrize("folds", [2, 5])
def test_elimination_chooses_what_the_whole_grid_would(folds: int) -> None:
    saved = 0
    for seed in range(150):
        table, refit = Table(seed, folds, digits=1 if seed % 3 == 0 else 3), template(folds=folds)
        whole = chosen(GridStudy(refit, TRIALS), table)
        for order in (None, seed, seed + 1000):
            study = EliminatingGridStudy(refit, TRIALS)
            played = play(study, table, order)
            assert (None if played.refit is None else played.refit.trial) == whole, (seed, order)
            assert not played.dropped & {spec.key for spec in played.ran}
            assert study.size.tasks >= len(played.ran)
            saved += len(played.dropped)
    assert saved > 1000


def test_elimination_with_a_smaller_bound_is_as_safe_and_saves_more() -> None:
    saved = []
    for bound in (1.0, 2.0):
        table = Table(3, 5, failing=0.0)
        study = EliminatingGridStudy(template(folds=5), TRIALS, best_possible=bound)
        played = play(study, table)
        assert played.refit is not None
        assert played.refit.trial == chosen(GridStudy(template(folds=5), TRIALS), table)
        saved.append(len(played.dropped))
    assert saved[0] >= saved[1]


def test_a_trial_that_can_still_tie_is_not_eliminated() -> None:
    """Equal means go to the simpler trial, so the later of two equal ones must be finished."""

    def score(spec: FitSpec) -> float:
        return 1.0  # the leader has the best possible mean; every other can still reach it

    study = EliminatingGridStudy(template(), TRIALS)
    played = play(study, score)
    assert not played.dropped
    assert played.refit is not None
    assert played.refit.trial == Trial.of({"gamma": 1.0, "rank": 2})


def test_the_order_of_arrival_decides_nothing() -> None:
    for seed in range(20):
        table = Table(seed, 3, digits=1)
        for select in ("best", "one-se"):
            ends = {chosen(GridStudy(template(), TRIALS, select), table, order) for order in (None, 1, 2, 3)}  # type: ignore[arg-type]
            assert len(ends) == 1


def test_one_se_takes_the_simplest_trial_within_a_standard_error_of_the_best() -> None:
    def scores(means: dict[float, float]) -> dict[Trial, dict[int, float | None]]:
        return {Trial.of({"gamma": g}): {0: m - 0.02, 1: m, 2: m + 0.02} for g, m in means.items()}

    table = scores({0.01: 0.90, 0.1: 0.895, 1.0: 0.87})  # standard error 0.0115
    assert choose(table, 3) == Trial.of({"gamma": 0.01})
    assert choose(table, 3, select="one-se") == Trial.of({"gamma": 0.1})
    assert choose(table, 3, maximize=False) == Trial.of({"gamma": 1.0})
    assert choose(table, 3, maximize=False, select="one-se") == Trial.of({"gamma": 1.0})
    table[Trial.of({"gamma": 10.0})] = {0: 0.99, 1: 0.99}  # a fold is missing: no candidate
    assert choose(table, 3) == Trial.of({"gamma": 0.01})
    assert choose({}, 3) is None


def test_ties_go_to_fewer_vectors_then_to_more_regularization() -> None:
    table: dict[Trial, dict[int, float | None]] = {trial: {0: 0.5} for trial in TRIALS}
    assert choose(table, 1) == Trial.of({"gamma": 1.0, "rank": 2})


def test_smaller_is_better_where_the_score_says_so() -> None:
    table = Table(5, 3, failing=0.0)
    means = table.values.mean(axis=1)
    assert chosen(GridStudy(template(maximize=False), TRIALS), table) == TRIALS[int(means.argmin())]


def test_the_refit_waits_for_all_and_a_grid_without_a_survivor_has_none() -> None:
    played = play(GridStudy(template(), TRIALS), lambda spec: 0.5, seed=0)
    assert [spec.fold for spec in played.ran].index(None) == len(TRIALS) * 3
    assert play(GridStudy(template(), TRIALS), lambda spec: None).refit is None
    (only,) = play(GridStudy(template(), TRIALS[:1]), lambda spec: 0.5).ran
    assert (only.fold, only.trial) == (None, TRIALS[0])


def test_a_chain_goes_from_strong_to_weak_and_passes_over_a_failed_link() -> None:
    trials = [Trial.of({"gamma": g}) for g in (0.01, 0.1, 1.0)]

    def score(spec: FitSpec) -> float | None:
        return None if spec.fold == 1 and spec.trial.get("gamma") == 1.0 else 0.5

    study = WarmGridStudy(template(), trials)
    played = play(study, score, seed=4)
    assert len(played.ran) == study.size.tasks
    found = {(spec.trial.get("gamma"), spec.fold): spec for spec in played.ran if spec.fold is not None}
    for (gamma, fold), spec in found.items():
        if gamma == 1.0 or (gamma == 0.1 and fold == 1):
            assert spec.start == CHAIN
        else:
            assert spec.start == found[gamma * 10, fold].key
