"""Waiting fits start split by split, the longest first, then the promising."""

from __future__ import annotations

from dataclasses import replace

from sweep.engine.order import FitQueue
from sweep.fits import FitSpec, Trial
from tests.sweep.studies.playing import template


def fit(gamma: float = 1.0, fold: int = 0, split: int = 0, rank: int | None = None) -> FitSpec:
    return replace(template(split=split), trial=Trial.of({"gamma": gamma, "rank": rank}), fold=fold)


def drained(queue: FitQueue) -> list[FitSpec]:
    return [queue.pop() for _ in range(len(queue))]


def by_rank(spec: FitSpec) -> float:
    return float(spec.trial.get("rank") or 1)


def test_one_split_after_the_other_whatever_the_cost() -> None:
    queue = FitQueue(by_rank, lambda spec: spec.split)
    for split, rank in ((1, 50), (0, 1), (2, 99), (0, 7)):
        queue.push(fit(split=split, rank=rank))
    assert [(s.split, s.trial.get("rank")) for s in drained(queue)] == [(0, 7), (0, 1), (1, 50), (2, 99)]


def test_among_equals_every_trials_first_fold_comes_first() -> None:
    queue = FitQueue(lambda spec: 1.0)
    for gamma in (1.0, 2.0):
        for fold in range(3):
            queue.push(fit(gamma, fold))
    order = [(s.trial.get("gamma"), s.fold) for s in drained(queue)]
    assert order[:2] == [(1.0, 0), (2.0, 0)]


def test_a_trial_that_scored_well_is_finished_first() -> None:
    queue = FitQueue(lambda spec: 1.0)
    for gamma in (1.0, 2.0, 3.0):
        for fold in range(2):
            queue.push(fit(gamma, fold))
    first = [queue.pop() for _ in range(3)]
    for spec, score in zip(first, (0.5, 0.9, 0.7), strict=True):
        queue.learn(spec, score)
    assert [s.trial.get("gamma") for s in drained(queue)] == [2.0, 3.0, 1.0]


def test_where_smaller_is_better_the_smallest_score_is_the_promise() -> None:
    queue = FitQueue(lambda spec: 1.0)
    fits = [replace(fit(gamma, fold), maximize=False) for gamma in (1.0, 2.0) for fold in range(2)]
    for spec in fits:
        queue.push(spec)
    first = [queue.pop() for _ in range(2)]
    for spec, score in zip(first, (0.5, 0.9), strict=True):
        queue.learn(spec, score)
    assert [s.trial.get("gamma") for s in drained(queue)] == [1.0, 2.0]


def test_a_fit_that_was_dropped_never_comes_out() -> None:
    queue = FitQueue(by_rank)
    fits = [fit(rank=rank) for rank in (1, 2, 3)]
    for spec in fits:
        queue.push(spec)
    assert queue.drop(fits[1].key) == fits[1]
    assert queue.drop(fits[1].key) is None
    queue.learn(fits[1], 0.9)
    assert len(queue) == 2
    assert queue.waiting() == [fits[0], fits[2]]
    assert [s.trial.get("rank") for s in drained(queue)] == [3, 1]


def test_a_fit_may_come_back_after_a_failed_attempt() -> None:
    queue = FitQueue(by_rank)
    queue.push(fit())
    again = queue.pop()
    queue.push(again)
    assert drained(queue) == [again]
    assert not queue


def test_fits_of_one_lane_do_not_wait_behind_those_of_another() -> None:
    queue = FitQueue(by_rank)
    fits = [fit(rank=rank) for rank in range(1, 7)]
    for spec in fits[:5]:
        queue.push(spec)
    queue.drop(fits[4].key)
    queue.divide(lambda spec: "gpu" if spec.trial.get("rank") > 2 else "cpu")
    queue.push(fits[5])
    assert (queue.count("gpu"), queue.count("cpu"), len(queue)) == (3, 2, 5)
    assert [queue.pop("cpu").trial.get("rank") for _ in range(2)] == [2, 1]
    assert [queue.pop("gpu").trial.get("rank") for _ in range(3)] == [6, 4, 3]
    assert (queue.count("gpu"), queue.count("cpu")) == (0, 0)
