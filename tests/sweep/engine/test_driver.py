"""The driver commits each fit once, goes on where it stopped, and outlives fits that fail."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweep.engine.driver import Driver, Tally
from sweep.engine.executors import Finished, InlineExecutor, classify
from sweep.engine.progress import Progress
from sweep.fits import FitSpec, SplitData
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.store.recording import Recorder
from sweep.store.results import result_rows
from sweep.studies.plan import make_plan
from sweep.studies.spec import parse_spec
from tests.sweep.conftest import tiny


class CountingExecutor(InlineExecutor):
    """Runs fits in process and counts how often each is submitted."""

    def __init__(self, submitted: Counter[str], stop_after: int | None = None) -> None:
        super().__init__()
        self.submitted, self._left = submitted, stop_after

    def submit(self, spec: FitSpec, data: SplitData, *, warm: Any = None, lean: bool = False) -> None:
        self.submitted[spec.key] += 1
        super().submit(spec, data, warm=warm, lean=lean)

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
        if self._queue and self._chosen(self._queue[0][0]) and self.submitted[self._queue[0][0].key] <= self._times:
            spec, *_ = self._queue.popleft()
            return [Finished(spec, None, self._kind, "Broken: on purpose", "trace", 0.5)]
        return super().wait(seconds)


def run(home: Home, executor: Any, **changes: Any) -> tuple[Tally, Ledger]:
    spec = parse_spec(yaml.safe_dump(tiny(**changes)), "t.yaml")
    home.create()
    ledger = Ledger(home.ledger_url)
    plan = make_plan(spec, home, ledger)
    ledger.open_sweep(spec.name, spec.model_dump(mode="json"), {"version": "test"})
    recorder = Recorder(spec.name, "sqlite", None, home, ledger, lambda message: None)
    recorder.poke = lambda: None  # type: ignore[method-assign]  # MLflow has tests of its own
    driver = Driver(
        plan,
        home=home,
        ledger=ledger,
        make_executor=lambda: executor,
        recorder=recorder,
        progress=Progress("t"),
    )
    return driver.run(), ledger


def scores(ledger: Ledger) -> dict[str, Any]:
    return {spec.key: (record.scores, record.fit["objective"]) for spec, record in ledger.records("tiny")}


def test_a_sweep_runs_each_fit_once_and_ends_with_a_row_per_method(tmp_path: Path) -> None:
    submitted: Counter[str] = Counter()
    tally, ledger = run(Home(tmp_path), CountingExecutor(submitted))
    assert set(submitted.values()) == {1}
    assert (tally.done, tally.failed) == (tally.total, 0)
    rows = result_rows(ledger.records("tiny"))
    assert {row["method"] for row in rows} == {"mdml-csfn", "pdml-sfn"}
    assert all(0.5 < row["auc_all"] <= 1 for row in rows)


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
    new = {spec.key for spec, _ in ledger.records("tiny") if spec.gamma == 1 or spec.fold is None}
    assert set(submitted) <= new
    assert tally.cached > 0


def test_a_failed_fit_does_not_stop_the_sweep(tmp_path: Path) -> None:
    def chosen(spec: FitSpec) -> bool:
        return spec.method == "mdml-csfn" and spec.gamma == 0.1 and spec.fold == 1

    tally, ledger = run(Home(tmp_path), BreakingExecutor(Counter(), "bug", 99, chosen))
    assert tally.failed == 1
    (failure,) = ledger.failures("tiny")
    assert (failure.kind, failure.final, failure.message) == ("bug", True, "Broken: on purpose")
    rows = {row["method"]: row for row in result_rows(ledger.records("tiny"))}
    assert rows["mdml-csfn"]["gamma"] == 0.01  # the trial that lost a fold is no candidate


def test_a_method_whose_fits_all_fail_leaves_the_others_their_rows(tmp_path: Path) -> None:
    _, ledger = run(Home(tmp_path), BreakingExecutor(Counter(), "bug", 99, lambda s: s.method == "mdml-csfn"))
    assert [row["method"] for row in result_rows(ledger.records("tiny"))] == ["pdml-sfn"]


@pytest.mark.parametrize(("kind", "retries"), [("lost worker", 3), ("out of memory", 1), ("numerical", 0), ("bug", 0)])
def test_retries_are_bounded_and_counted(tmp_path: Path, kind: str, retries: int) -> None:
    def chosen(spec: FitSpec) -> bool:
        return spec.method == "mdml-csfn" and spec.gamma == 0.1 and spec.fold == 1

    submitted: Counter[str] = Counter()
    tally, ledger = run(Home(tmp_path / "ends"), BreakingExecutor(submitted, kind, retries, chosen))
    assert tally.failed == 0
    assert [f.final for f in ledger.failures("tiny")] == [False] * retries
    attempts = {record.attempts for spec, record in ledger.records("tiny") if chosen(spec)}
    assert attempts == {retries + 1}
    tally, ledger = run(Home(tmp_path / "fails"), BreakingExecutor(Counter(), kind, retries + 1, chosen))
    assert tally.failed == 1
    assert [f.final for f in ledger.failures("tiny")] == [False] * retries + [True]


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
    import numpy as np

    class OutOfMemoryError(Exception):
        """As CuPy and Ray name theirs."""

    assert classify(OutOfMemoryError()) == "out of memory"
    assert classify(MemoryError()) == "out of memory"
    assert classify(np.linalg.LinAlgError("no")) == "numerical"
    assert classify(ValueError("x")) == "bug"


def test_the_same_fit_gives_the_same_record_twice(tmp_path: Path) -> None:
    _, first = run(Home(tmp_path / "a"), InlineExecutor())
    _, second = run(Home(tmp_path / "b"), InlineExecutor())
    strip = {"seconds": {}, "place": {}, "started": 0.0, "artifact": None}
    kept = [
        {spec.key: replace(record, **strip) for spec, record in ledger.records("tiny")} for ledger in (first, second)
    ]
    assert kept[0] == kept[1]


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
        return {(s.gamma, s.fold): (s, r) for s, r in ledger.records("tiny") if s.fold is not None}

    cost = [sum(r.fit["n_eigh"] for _, r in tuning(ledger).values()) for ledger in (cold, warm)]
    assert cost[1] < 0.9 * cost[0]
    for place, (spec, record) in tuning(warm).items():
        assert spec.start == ("chain" if spec.gamma == 1 else tuning(warm)[(spec.gamma * 10, spec.fold)][0].key)
        assert record.fit["objective"] == pytest.approx(tuning(cold)[place][1].fit["objective"], abs=2e-3)


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
