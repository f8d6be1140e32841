"""The driver commits each fit once, goes on where it stopped, and outlives fits that fail."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sweep.engine.driver import Driver, Tally
from sweep.engine.executors import Finished, InlineExecutor, Job, classify
from sweep.engine.progress import Progress
from sweep.fits import FitSpec, Place, Seconds, Solved
from sweep.store.home import Home
from sweep.store.ledger import Ledger, open_ledger
from sweep.store.results import result_rows
from sweep.studies.plan import make_plan
from sweep.studies.sweepfile import parse_spec
from tests.sweep.conftest import tiny


class CountingExecutor(InlineExecutor):
    """Runs fits in process and counts how often each is submitted."""

    def __init__(self, submitted: Counter[str], stop_after: int | None = None) -> None:
        super().__init__()
        self.submitted, self._left = submitted, stop_after

    def submit(self, job: Job) -> None:
        self.submitted[job.spec.key] += 1
        super().submit(job)

    def wait(self, seconds: float) -> list[Finished]:
        if self._left == 0:
            raise KeyboardInterrupt
        if self._left is not None:
            self._left -= 1
        return super().wait(seconds)


class BreakingExecutor(CountingExecutor):
    """Fails chosen fits a number of times with a given kind of error."""

    def __init__(self, submitted: Counter[str], kind: str, times: int, chosen: Any) -> None:
        super().__init__(submitted)
        self._kind, self._times, self._chosen = kind, times, chosen

    def wait(self, seconds: float) -> list[Finished]:
        if self._queue and self._chosen(self._queue[0].spec) and self.submitted[self._queue[0].spec.key] <= self._times:
            spec = self._queue.popleft().spec
            return [Finished(spec, None, self._kind, "Broken: on purpose", "trace", 0.5)]
        return super().wait(seconds)


def drive(home: Home, executor: Any, **changes: Any) -> tuple[Driver, Ledger]:
    """Run a small sweep as `sweep.run` does, without MLflow; the home's lock and the fence are given back."""
    spec = parse_spec(yaml.safe_dump(tiny(**changes)), "t.yaml")
    with home.lock():
        ledger = open_ledger("sqlite", home)
        try:
            plan = make_plan(spec, home.data, like=ledger.finished_like)
            ledger.open_sweep(spec.name, spec.model_dump(mode="json"), {"version": "test"})
            display = Progress("t", io.StringIO(), live=False)
            driver = Driver(plan, home=home, ledger=ledger, make_executor=lambda: executor, display=display)
            driver.run()
        finally:
            ledger.release()
    return driver, ledger


def run(home: Home, executor: Any, **changes: Any) -> tuple[Tally, Ledger]:
    driver, ledger = drive(home, executor, **changes)
    return driver.tally, ledger


def scores(ledger: Ledger) -> dict[str, Any]:
    return {spec.key: (record.scores, record.fit.objective) for spec, record in ledger.records("tiny")}


def one_fold(spec: FitSpec) -> bool:
    return spec.method == "mdml-csfn" and spec.trial.get("gamma") == 0.1 and spec.fold == 1


def test_a_sweep_runs_each_fit_once_and_ends_with_a_row_per_method(tmp_path: Path) -> None:
    submitted: Counter[str] = Counter()
    tally, ledger = run(Home(tmp_path), CountingExecutor(submitted))
    assert set(submitted.values()) == {1}
    assert (tally.done, tally.failed, tally.left) == (tally.total, 0, 0)
    rows = result_rows(ledger.records("tiny"))
    assert {row.method for row in rows} == {"mdml-csfn", "pdml-sfn"}
    assert all(row.auc_all is not None and 0.5 < row.auc_all <= 1 for row in rows)


def test_an_interrupted_sweep_goes_on_and_ends_equal(tmp_path: Path) -> None:
    _, undisturbed = run(Home(tmp_path / "a"), InlineExecutor())
    submitted: Counter[str] = Counter()
    home = Home(tmp_path / "b")
    for stop_after in (3, 5):
        with pytest.raises(KeyboardInterrupt):
            run(home, CountingExecutor(submitted, stop_after))
    committed = set(Ledger(home.ledger_url).keys())
    assert len(committed) == 8
    again: Counter[str] = Counter()
    _, ledger = run(home, CountingExecutor(again))
    assert committed.isdisjoint(again)
    assert scores(ledger) == scores(undisturbed)


def test_a_grown_sweep_computes_only_what_is_new(tmp_path: Path) -> None:
    run(Home(tmp_path), InlineExecutor())
    submitted: Counter[str] = Counter()
    tally, ledger = run(Home(tmp_path), CountingExecutor(submitted), grid={"gamma": [0.01, 0.1, 1], "rank": [4, 8]})
    new = {spec.key for spec, _ in ledger.records("tiny") if spec.trial.get("gamma") == 1 or spec.fold is None}
    assert set(submitted) <= new
    assert tally.cached > 0


def test_another_score_computes_only_the_refits_that_it_chooses_anew(tmp_path: Path) -> None:
    run(Home(tmp_path), InlineExecutor())
    submitted: Counter[str] = Counter()
    _, ledger = run(Home(tmp_path), CountingExecutor(submitted), name="other", score="knn_accuracy")
    refits = {spec.key for spec, _ in ledger.records("other") if spec.fold is None}
    assert set(submitted) <= refits
    by_score = {row.method: row for row in result_rows(ledger.records("other"))}
    _, alone = run(Home(tmp_path / "fresh"), InlineExecutor(), name="other", score="knn_accuracy")
    for row in result_rows(alone.records("other")):
        other = by_score[row.method]
        assert (other.score, other.params, other.cv_score, other.test_score) == (
            "knn_accuracy", row.params, row.cv_score, row.test_score,
        )  # fmt: skip
    assert {row.score for row in result_rows(ledger.records("tiny"))} == {"auc_all"}


def test_a_failed_fit_does_not_stop_the_sweep(tmp_path: Path) -> None:
    tally, ledger = run(Home(tmp_path), BreakingExecutor(Counter(), "bug", 99, one_fold))
    assert tally.failed == 1
    (failure,) = ledger.failures("tiny")
    assert (failure.kind, failure.final, failure.message) == ("bug", True, "Broken: on purpose")
    assert (failure.method, failure.split) == ("mdml-csfn", 0)
    rows = {row.method: row for row in result_rows(ledger.records("tiny"))}
    assert rows["mdml-csfn"].gamma == 0.01  # the trial that lost a fold is no candidate


def test_a_method_whose_fits_all_fail_leaves_the_others_their_rows(tmp_path: Path) -> None:
    tally, ledger = run(Home(tmp_path), BreakingExecutor(Counter(), "bug", 99, lambda s: s.method == "mdml-csfn"))
    assert [row.method for row in result_rows(ledger.records("tiny"))] == ["pdml-sfn"]
    assert tally.left == 0


@pytest.mark.parametrize(("kind", "retries"), [("lost worker", 3), ("out of memory", 1), ("numerical", 0), ("bug", 0)])
def test_retries_are_bounded_and_counted(tmp_path: Path, kind: str, retries: int) -> None:
    few = {"methods": ["mdml-csfn"]}
    tally, ledger = run(Home(tmp_path / "ends"), BreakingExecutor(Counter(), kind, retries, one_fold), **few)
    assert tally.failed == 0
    assert [f.final for f in ledger.failures("tiny")] == [False] * retries
    attempts = {record.attempts for spec, record in ledger.records("tiny") if one_fold(spec)}
    assert attempts == {retries + 1}
    tally, ledger = run(Home(tmp_path / "fails"), BreakingExecutor(Counter(), kind, retries + 1, one_fold), **few)
    assert tally.failed == 1
    assert [f.final for f in ledger.failures("tiny")] == [False] * retries + [True]


def test_a_node_that_was_taken_away_many_times_costs_no_fit(tmp_path: Path) -> None:
    executor = BreakingExecutor(Counter(), "preempted", 12, one_fold)
    tally, ledger = run(Home(tmp_path), executor, methods=["mdml-csfn"])
    assert tally.failed == 0
    assert len(ledger.failures("tiny")) == 12


def test_failures_of_one_kind_use_up_no_retry_of_another(tmp_path: Path) -> None:
    class Twofold(BreakingExecutor):
        def wait(self, seconds: float) -> list[Finished]:
            ends = super().wait(seconds)
            preempted = ends and ends[0].outcome is None and self.submitted[ends[0].spec.key] <= 5
            return [replace(ends[0], kind="preempted")] if preempted else ends

    executor = Twofold(Counter(), "lost device", 8, one_fold)
    tally, ledger = run(Home(tmp_path), executor, methods=["mdml-csfn"])
    assert tally.failed == 0
    assert Counter(f.kind for f in ledger.failures("tiny")) == {"preempted": 5, "lost device": 3}
    assert {record.attempts for spec, record in ledger.records("tiny") if one_fold(spec)} == {9}


class UnsoundExecutor(InlineExecutor):
    """One fit comes back with a number that is none."""

    def wait(self, seconds: float) -> list[Finished]:
        (end,) = super().wait(seconds)
        if end.outcome is None or not one_fold(end.spec):
            return [end]
        record = end.outcome.record
        broken = replace(record, fit=replace(record.fit, objective=float("nan")))
        return [replace(end, outcome=replace(end.outcome, record=broken))]


def test_a_record_that_is_not_sound_is_a_numerical_failure(tmp_path: Path) -> None:
    tally, ledger = run(Home(tmp_path), UnsoundExecutor(), methods=["mdml-csfn"])
    assert tally.failed == 1
    (failure,) = ledger.failures("tiny")
    assert (failure.kind, failure.final) == ("numerical", True)
    assert "objective" in failure.message
    assert failure.seconds > 0
    assert not any(one_fold(spec) for spec, _ in ledger.records("tiny"))


class TwiceExecutor(InlineExecutor):
    """Every answer comes twice."""

    def wait(self, seconds: float) -> list[Finished]:
        return [end for end in super().wait(seconds) for _ in range(2)]


def test_an_answer_that_comes_twice_counts_once(tmp_path: Path) -> None:
    tally, _ = run(Home(tmp_path), TwiceExecutor(), methods=["mdml-csfn"])
    assert (tally.done, tally.total) == (5, 5)


def test_a_damaged_artifact_is_computed_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    _, ledger = run(home, InlineExecutor())
    before = scores(ledger)
    refit = next(spec for spec, _ in ledger.records("tiny") if spec.fold is None)
    home.artifact_path(refit.key).write_bytes(b"garbage")
    submitted: Counter[str] = Counter()
    _, ledger = run(home, CountingExecutor(submitted))
    assert dict(submitted) == {refit.key: 1}
    assert ledger.altered == [refit.key]
    assert scores(ledger) == before


def test_errors_are_told_apart() -> None:
    class OutOfMemoryError(Exception):
        """As CuPy and Ray name theirs."""

    assert classify(OutOfMemoryError()) == "out of memory"
    assert classify(MemoryError()) == "out of memory"
    assert classify(np.linalg.LinAlgError("no")) == "numerical"
    assert classify(ValueError("x")) == "bug"


def test_the_same_fit_gives_the_same_record_twice(tmp_path: Path) -> None:
    _, first = run(Home(tmp_path / "a"), InlineExecutor())
    _, second = run(Home(tmp_path / "b"), InlineExecutor())
    strip: dict[str, Any] = {"seconds": Seconds(), "place": Place(), "started": 0.0, "artifact": None}
    kept = [
        {spec.key: replace(record, **strip) for spec, record in ledger.records("tiny")} for ledger in (first, second)
    ]
    assert kept[0] == kept[1]


def test_elimination_saves_fits_and_chooses_the_same(tmp_path: Path) -> None:
    grid = {"methods": ["mdml-csfn"], "folds": 3, "grid": {"gamma": [1e-3, 1e-2, 0.1, 1, 10, 100]}}
    whole, first = run(Home(tmp_path / "whole"), InlineExecutor(), **grid)
    saved, second = run(Home(tmp_path / "saved"), InlineExecutor(), eliminate=True, **grid)
    assert saved.saved > 0
    assert (saved.done, saved.left, saved.exact) == (whole.done - saved.saved, 0, True)
    chosen = [result_rows(ledger.records("tiny"))[0] for ledger in (first, second)]
    assert chosen[0].params == chosen[1].params
    assert chosen[0].test_score == chosen[1].test_score
    assert chosen[1].n_fits == 18 - saved.saved
    again, _ = run(Home(tmp_path / "saved"), InlineExecutor(), eliminate=True, **grid)
    assert (again.done, again.cached, again.left) == (saved.done, saved.done, 0)


def test_a_path_takes_one_task_per_fold_and_beside_it_others_run_their_grid(tmp_path: Path) -> None:
    path = {"search": "path", "grid": {"gamma": {"low": 0.01, "high": 1, "least": 0.001}, "rank": [4]}}
    driver, ledger = drive(Home(tmp_path), InlineExecutor(), **path)
    rows = {row.method: row for row in result_rows(ledger.records("tiny"))}
    assert (rows["mdml-csfn"].search, rows["pdml-sfn"].search) == ("path", "grid")
    assert rows["mdml-csfn"].n_fits in (2, 4)  # one more decade if the score rises at the end
    assert rows["pdml-sfn"].n_fits == 3 * 2 * 2
    for spec, record in ledger.records("tiny"):
        if spec.gammas is not None:
            curve = record.curve
            assert curve is not None
            assert list(curve.gammas) == sorted(set(curve.gammas))
            assert max(curve.gaps) <= 0.011
            assert record.value == max(curve.scores)
            assert record.seconds.score > 0
    # At most what was said beforehand, and the end is known exactly.
    assert driver.tally.done == driver.tally.total <= driver.plan.size.fits
    assert driver.tally.exact


def test_the_refit_after_a_path_starts_from_it_also_after_a_stop_and_a_damaged_artifact(tmp_path: Path) -> None:
    path: dict[str, Any] = {
        "methods": ["mdml-csfn"], "search": "path", "grid": {"gamma": {"low": 0.01, "high": 1}},
    }  # fmt: skip
    _, whole = run(Home(tmp_path / "whole"), InlineExecutor(), **path)
    refit = next(spec for spec, _ in whole.records("tiny") if spec.fold is None)
    paths = {spec.key: record for spec, record in whole.records("tiny") if spec.gammas is not None}
    assert refit.start in paths
    assert all(record.artifact for record in paths.values())
    home = Home(tmp_path / "stopped")
    with pytest.raises(KeyboardInterrupt):
        run(home, CountingExecutor(Counter(), 2), **path)
    home.artifact_path(refit.start).unlink()
    submitted: Counter[str] = Counter()
    _, stopped = run(home, CountingExecutor(submitted), **path)
    assert dict(submitted) == {refit.start: 1, refit.key: 1}
    assert scores(stopped) == scores(whole)


def test_warm_chains_cost_less_end_within_the_tolerance_and_survive_a_stop(tmp_path: Path) -> None:
    chained: dict[str, Any] = {
        "methods": ["mdml-csfn"], "warm": True, "grid": {"gamma": [0.001, 0.01, 0.1, 1]}, "settings": {"n_pairs": 1000},
    }  # fmt: skip
    _, cold = run(Home(tmp_path / "cold"), InlineExecutor(), **(chained | {"warm": False}))
    _, warm = run(Home(tmp_path / "warm"), InlineExecutor(), **chained)
    with pytest.raises(KeyboardInterrupt):
        run(Home(tmp_path / "stopped"), CountingExecutor(Counter(), 3), **chained)
    _, stopped = run(Home(tmp_path / "stopped"), InlineExecutor(), **chained)
    assert scores(stopped) == scores(warm)

    def tuning(ledger: Ledger) -> dict[Any, Any]:
        return {(s.trial.get("gamma"), s.fold): (s, r) for s, r in ledger.records("tiny") if s.fold is not None}

    cost = [sum(r.fit.n_eigh for _, r in tuning(ledger).values()) for ledger in (cold, warm)]
    assert cost[1] < 0.9 * cost[0]
    for (gamma, fold), (spec, record) in tuning(warm).items():
        assert spec.start == ("chain" if gamma == 1 else tuning(warm)[gamma * 10, fold][0].key)
        assert record.fit.objective == pytest.approx(tuning(cold)[gamma, fold][1].fit.objective, abs=2e-3)


def test_a_damaged_link_of_a_chain_is_computed_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    chained: dict[str, Any] = {"methods": ["mdml-csfn"], "warm": True}
    _, ledger = run(home, InlineExecutor(), **chained)
    before = scores(ledger)
    first = next(spec for spec, _ in ledger.records("tiny") if spec.start == "chain")
    home.artifact_path(first.key).unlink()
    submitted: Counter[str] = Counter()
    _, ledger = run(home, CountingExecutor(submitted), **chained)
    assert dict(submitted) == {first.key: 1}
    assert scores(ledger) == before


class SplitWatcher(InlineExecutor):
    """Notes which splits' data are held while fits run."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[set[tuple[str, int]]] = []
        self.forgotten: list[tuple[str, int]] = []

    def wait(self, seconds: float) -> list[Finished]:
        found = super().wait(seconds)
        self.held.append(set(self._data))
        return found

    def forget(self, place: tuple[str, int]) -> None:
        super().forget(place)
        self.forgotten.append(place)


def test_one_splits_data_at_a_time_are_in_memory(tmp_path: Path) -> None:
    home, watcher = Home(tmp_path), SplitWatcher()
    home.create()
    spec = parse_spec(yaml.safe_dump(tiny(splits=3, methods=["mdml-csfn", "euc"])), "t.yaml")
    ledger = Ledger(home.ledger_url)
    plan = make_plan(spec, home.data)
    ledger.open_sweep("tiny", {}, {})
    driver = Driver(
        plan, home=home, ledger=ledger, make_executor=lambda: watcher, display=Progress("t", io.StringIO(), live=False)
    )
    driver.run()
    assert max(map(len, watcher.held)) == 1
    assert watcher.forgotten == [("digits-imbalanced", split) for split in range(3)]
    assert not watcher._data


def test_fits_of_an_own_parameter_keep_it_in_the_record(tmp_path: Path) -> None:
    methods = [{"name": "lmnn", "params": {"max_iter": 5}, "tune": {"n_neighbors": [1, 3]}}]
    _, ledger = run(Home(tmp_path), InlineExecutor(), methods=methods)
    fits = list(ledger.records("tiny"))
    assert len(fits) == 5
    for spec, record in fits:
        solved: Solved = record.fit
        assert solved.params["n_neighbors"] == spec.trial.get("n_neighbors")
        assert solved.params["max_iter"] == 5
    (row,) = result_rows(ledger.records("tiny"))
    assert set(row.params) == {"n_neighbors"}
    assert (row.gamma, row.rank) == (None, None)


class NeverDone(CountingExecutor):
    """Answers for nothing that takes long: pdml."""

    def wait(self, seconds: float) -> list[Finished]:
        return [] if self._queue[0].spec.method.startswith("pdml") else super().wait(seconds)


def test_a_pilot_takes_the_cheapest_of_all_datasets_and_gives_up_what_runs_when_its_time_is_over(
    tmp_path: Path,
) -> None:
    home, executor, seconds = Home(tmp_path), NeverDone(Counter()), iter(range(10_000))
    home.create()
    ledger = Ledger(home.ledger_url)
    document = tiny(datasets=["digits", "digits-imbalanced"], methods=["mdml-csfn", "pdml-sfn"],
                    grid={"gamma": [0.1], "rank": [60]})  # fmt: skip
    spec = parse_spec(yaml.safe_dump(document | {"budget": {"wall_hours": 200 / 3600}}), "t.yaml")
    plan = replace(make_plan(spec, home.data), pilot=True)
    ledger.open_sweep(spec.name, {}, {})
    display = Progress("t", io.StringIO(), live=False)
    driver = Driver(plan, home=home, ledger=ledger, make_executor=lambda: executor, display=display,
                    clock=lambda: float(next(seconds)))  # fmt: skip
    driver.run()  # would never end otherwise
    assert driver.stopped is not None
    assert {fit.dataset for fit, _ in ledger.records(spec.name)} == {"digits", "digits-imbalanced"}
    assert {fit.method for fit, _ in ledger.records(spec.name)} == {"mdml-csfn"}
