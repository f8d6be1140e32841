"""What a ledger promises, the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select, update

from sweep.errors import UserError
from sweep.fits import FitRecord, FitSpec, Place, Scores, Seconds, Solved, Trial
from sweep.store import tables
from sweep.store.faults import FencedError, UnsoundRecord
from sweep.store.ledger import Artifact, Failure, Ledger

Connect = Callable[..., Ledger]
HERE, THERE = "a" * 32, "b" * 32


def spec(fold: int | None = 0, **changes: Any) -> FitSpec:
    made = FitSpec(
        dataset="d", data="f", scaling="minmax", pca=None, frequent_above=5, split=0, folds=3, fold=fold,
        method="mdml-csfn", version="4", trial=Trial.of({"gamma": 0.1}), restarts=1, algorithm="certified",
        settings=(("tol", 0.1),), seed=0,
    )  # fmt: skip
    return replace(made, **changes)


def record(of: FitSpec, auc: float = 0.5, **changes: Any) -> FitRecord:
    made = FitRecord(
        of.key, Scores(auc_all=auc, n_queries=7), Solved(n_eigh=3, relative_gap=0.02, converged=True),
        Seconds(solve=1.0, score=0.5, queue=9.0), Place(host="h"), started=1.0, value=auc,
    )  # fmt: skip
    return replace(made, **changes)


def failure(fit: FitSpec, **changes: Any) -> Failure:
    made = Failure.of(
        fit, attempt=1, kind="bug", message="ValueError: x", traceback="trace", seconds=2.0, final=True, happened=1.0
    )
    return replace(made, **changes)


@pytest.fixture
def ledger(connect: Connect) -> Ledger:
    return connect(home_id=HERE)


def columns(ledger: Ledger, key: str) -> Any:
    (row,) = ledger.database.rows(select(tables.fits).where(tables.fits.c.key == key))
    return row


# -- fits ------------------------------------------------------------------------------------------


def test_a_committed_fit_comes_back_equal(ledger: Ledger) -> None:
    ledger.commit(spec(), record(spec()))
    assert ledger.record(spec().key) == record(spec())
    assert ledger.record("no such key") is None
    assert ledger.keys() == {spec().key}


def test_the_first_record_of_a_key_stays(ledger: Ledger) -> None:
    ledger.commit(spec(), record(spec(), 0.5))
    ledger.commit(spec(), record(spec(), 0.9))
    kept = ledger.record(spec().key)
    assert kept is not None
    assert kept.value == 0.5


def test_what_is_asked_for_is_a_column(ledger: Ledger) -> None:
    fit = spec(None, trial=Trial.of({"gamma": 0.1, "rank": 3, "k": "wide"}))
    ledger.commit(fit, record(fit, artifact="c0ffee"))
    row = columns(ledger, fit.key)
    assert (row["dataset"], row["data"], row["split"], row["fold"], row["method"]) == ("d", "f", 0, None, "mdml-csfn")
    assert (row["gamma"], row["rank"], json.loads(row["params"])) == (0.1, 3, {"gamma": 0.1, "k": "wide", "rank": 3})
    assert (row["value"], row["solve_seconds"], row["busy_seconds"]) == (0.5, 1.0, 1.5)
    assert (row["relative_gap"], row["converged"], row["restarts"]) == (0.02, True, 1)
    assert (row["artifact"], row["artifact_home"]) == ("c0ffee", HERE)


@pytest.mark.parametrize("value", ["scale", True, 10**12])
def test_a_users_own_parameter_of_a_known_name_may_be_anything(ledger: Ledger, value: Any) -> None:
    fit = spec(trial=Trial.of({"rank": value, "gamma": value}), estimator="mypkg:Own", version="x")
    ledger.commit(fit, record(fit))
    ledger.open_sweep("a", {}, {})
    ledger.adopt("a", [fit.key])
    assert [found for found, _ in ledger.records("a")] == [fit]


def test_numbers_of_numpy_become_plain_ones(ledger: Ledger) -> None:
    solved = Solved(n_eigh=np.int64(3), converged=np.bool_(True), objective=np.float32(0.5), params={"k": np.int32(4)})  # type: ignore[arg-type]
    ledger.commit(spec(), record(spec(), fit=solved, theory={"t": np.float64(2.0)}))
    kept = ledger.record(spec().key)
    assert kept is not None
    assert (kept.fit.n_eigh, kept.fit.converged, kept.fit.objective, kept.fit.params) == (3, True, 0.5, {"k": 4})
    assert type(kept.fit.n_eigh) is int


@pytest.mark.parametrize(
    "bad",
    [
        {"value": float("nan")},
        {"fit": Solved(objective=float("inf"))},
        {"fit": Solved(restart_objectives=(0.1, float("-inf")))},
        {"fit": Solved(objective=np.float32("inf"))},  # type: ignore[arg-type]
        {"theory": {"t": float("nan")}},
        {"fit": Solved(params={"x": object()})},
    ],
)
def test_a_record_with_a_number_that_is_none_is_refused_by_its_type(ledger: Ledger, bad: dict[str, Any]) -> None:
    with pytest.raises(UnsoundRecord):
        ledger.commit(spec(), record(spec(), **bad))
    assert ledger.record(spec().key) is None


def test_a_record_of_another_fit_is_refused(ledger: Ledger) -> None:
    with pytest.raises(UnsoundRecord, match="came back for"):
        ledger.commit(spec(0), record(spec(1)))


def test_many_fits_are_read_in_order_and_completely(ledger: Ledger) -> None:
    many = [spec(0, seed=i) for i in range(2_345)]
    ledger.commit_all((fit, record(fit)) for fit in many)
    ledger.open_sweep("a", {}, {})
    ledger.adopt("a", [fit.key for fit in many])
    keys = [fit.key for fit, _ in ledger.records("a")]
    assert keys == sorted(fit.key for fit in many)
    assert sorted(found.key for found in ledger.glances("a", "auc_all")) == keys
    assert ledger.count("a") == (2_345, 2_345)


def test_finished_like_finds_other_trials_and_folds_of_the_same_study(ledger: Ledger) -> None:
    same = [spec(0), spec(1, trial=Trial.of({"gamma": 1.0})), spec(2, trial=Trial.of({"gamma": 0.1, "rank": 4}))]
    other = [
        spec(None),
        spec(0, split=1),
        spec(0, seed=1),
        spec(0, data="g"),
        spec(0, restarts=2),
        spec(0, method="euc"),
    ]
    ledger.commit_all((fit, record(fit)) for fit in same + other)
    template = spec(None, trial=Trial())
    assert {fit.key for fit, _ in ledger.finished_like(template)} == {fit.key for fit in same}


def test_fits_of_all_sweeps_and_datasets_are_found(ledger: Ledger) -> None:
    fits = [spec(0, dataset=name) for name in ("a", "b", "a%")]
    ledger.commit_all((fit, record(fit)) for fit in fits)
    assert {fit.key for fit, _ in ledger.all_records()} == {fit.key for fit in fits}


def test_an_altered_row_is_noticed_and_left_out_whatever_was_altered(ledger: Ledger) -> None:
    ledger.open_sweep("a", {}, {})
    fits = [spec(fold) for fold in range(3)] + [spec(None)]
    ledger.adopt("a", [fit.key for fit in fits])
    ledger.commit_all((fit, record(fit)) for fit in fits)
    f = tables.fits
    changes: list[dict[str, Any]] = [{"record": "{}"}, {"value": 0.75}, {"dataset": "e"}]
    for fit, change in zip(fits, changes, strict=False):
        ledger.database.execute(update(f).where(f.c.key == fit.key).values(**change))
    assert [fit.fold for fit, _ in ledger.records("a")] == [None]
    assert set(ledger.altered) == {fit.key for fit in fits[:3]}
    assert ledger.record(fits[0].key) is None
    assert len(ledger.altered) == 3
    ledger.discard(ledger.altered)
    ledger.commit(fits[0], record(fits[0], 0.6))
    assert ledger.count("a") == (2, 4)


# -- sweeps ----------------------------------------------------------------------------------------


def test_a_sweep_sees_its_own_fits_only(ledger: Ledger) -> None:
    ledger.open_sweep("a", {}, {})
    ledger.adopt("a", [spec(0).key, spec(1).key])
    for fold in range(3):
        ledger.commit(spec(fold), record(spec(fold)))
    assert {s.fold for s, _ in ledger.records("a")} == {0, 1}
    assert ledger.count("a") == (2, 2)
    assert ledger.members("a") == {spec(0).key, spec(1).key}


def test_a_sweep_file_that_shrank_asks_for_less(ledger: Ledger) -> None:
    ledger.open_sweep("a", {}, {"n": 1})
    ledger.adopt("a", [spec(0).key, spec(1).key])
    ledger.open_sweep("a", {"new": 1}, {"n": 2})
    ledger.adopt("a", [spec(0).key, spec(0).key])
    assert ledger.count("a") == (0, 1)
    assert ledger.sweeps() == {"a": {"new": 1}}
    assert ledger.about("a") == {"n": 2}
    assert ledger.about("b") == {}


def test_one_unreadable_description_hides_no_other_sweep(ledger: Ledger) -> None:
    for name in "ab":
        ledger.open_sweep(name, {"of": name}, {"x": 1})
    ledger.database.execute(update(tables.sweeps).where(tables.sweeps.c.name == "a").values(spec="{", about="["))
    assert ledger.sweeps() == {"b": {"of": "b"}}
    assert ledger.about("a") == {}
    ledger.open_sweep("a", {"of": "a"}, {})
    assert set(ledger.sweeps()) == {"a", "b"}


def test_failures_are_kept_with_their_study_and_a_new_run_tries_again(ledger: Ledger) -> None:
    ledger.open_sweep("a", {}, {})
    first = failure(spec(0), happened=1.0)
    second = failure(spec(0), attempt=2, happened=2.0)
    for each in (second, first, first):  # the third after an answer that was lost
        ledger.fail("a", each)
    assert ledger.failures("a") == [first, second]
    assert first.study == spec(0).study
    ledger.open_sweep("a", {}, {})
    assert [f.final for f in ledger.failures("a")] == [False, False]


def test_texts_are_cleaned_and_capped(ledger: Ledger) -> None:
    ledger.open_sweep("a", {}, {})
    dirty = failure(
        spec(), message="a\0b\ud800c" + "m" * 5_000, traceback="t" * 10**6 + "the end", seconds=float("nan")
    )
    ledger.fail("a", dirty)
    (kept,) = ledger.failures("a")
    assert kept.message.startswith("a\ufffdb\ufffdc")
    assert len(kept.message) <= 2_000
    assert len(kept.traceback) <= 20_000
    assert kept.traceback.endswith("the end")
    assert kept.seconds == 0.0


def test_the_state_of_a_sweep_changes_with_all_that_is_recorded_of_it(ledger: Ledger) -> None:
    ledger.open_sweep("a", {}, {})
    ledger.adopt("a", [spec(0).key, spec(1).key])
    states = [ledger.state_digest("a")]
    ledger.commit(spec(0), record(spec(0)))
    states.append(ledger.state_digest("a"))
    ledger.fail("a", failure(spec(1)))
    states.append(ledger.state_digest("a"))
    ledger.open_sweep("a", {}, {"version": 2})
    states.append(ledger.state_digest("a"))
    assert len(set(states)) == 4
    ledger.commit(spec(2), record(spec(2)))  # of no sweep
    assert ledger.state_digest("a") == states[-1]


# -- what nobody needs any more --------------------------------------------------------------------


def test_only_fits_that_no_sweep_asks_for_are_forgotten(ledger: Ledger) -> None:
    ledger.open_sweep("a", {}, {})
    ledger.adopt("a", [spec(0).key])
    ledger.commit_all((spec(fold), record(spec(fold))) for fold in range(3))
    assert ledger.unreferenced() == {spec(1).key, spec(2).key}
    assert ledger.forget([spec(0).key, spec(1).key]) == 1
    assert ledger.keys() == {spec(0).key, spec(2).key}
    ledger.fail("a", failure(spec(1)))
    ledger.forget_sweep("a")
    assert (ledger.sweeps(), ledger.failures("a"), ledger.members("a")) == ({}, [], set())
    assert ledger.unreferenced() == ledger.keys()


def test_what_mlflow_has_is_remembered_per_store(ledger: Ledger) -> None:
    ledger.remember_run("one", "k", "", "")
    ledger.remember_run("one", "k", "run", "content")
    ledger.remember_run("two", "k", "other", "content")
    assert ledger.recorded_runs("one") == {"k": ("run", "content")}
    ledger.forget_runs("one", ["k", "no such"])
    assert ledger.recorded_runs("one") == {}
    assert ledger.recorded_runs("two") == {"k": ("other", "content")}


# -- one driver, several homes ---------------------------------------------------------------------


def test_a_driver_that_lost_its_sweep_writes_nothing_more(connect: Connect) -> None:
    first, second = connect(home_id=HERE), connect(home_id=HERE)
    one = first.open_sweep("a", {}, {})
    first.adopt("a", [spec(0).key])
    two = second.open_sweep("a", {}, {})
    assert two > one
    attempts: list[Callable[[], None]] = [
        lambda: first.commit(spec(0), record(spec(0))),
        lambda: first.adopt("a", [spec(1).key]),
        lambda: first.fail("a", failure(spec(1))),
        lambda: first.discard([spec(0).key]),
    ]
    for attempt in attempts:
        with pytest.raises(FencedError, match="taken over by another driver") as caught:
            attempt()
        assert "\n" not in str(caught.value)
    assert (second.keys(), second.members("a"), second.failures("a")) == (set(), set(), [])
    second.commit(spec(0), record(spec(0)))
    assert second.keys() == {spec(0).key}


def test_other_sweeps_do_not_fence_each_other(connect: Connect) -> None:
    first, second = connect(home_id=HERE), connect(home_id=THERE)
    first.open_sweep("a", {}, {})
    second.open_sweep("b", {}, {})
    first.commit(spec(0), record(spec(0)))
    second.commit(spec(1), record(spec(1)))
    assert first.keys() == {spec(0).key, spec(1).key}


def test_status_can_tell_who_drives(connect: Connect) -> None:
    ledger = connect(home_id=HERE)
    ledger.open_sweep("a", {}, {})
    driving = ledger.drivers()["a"]
    assert driving.home == HERE
    assert driving.age is not None
    assert abs(driving.age) < 5
    ledger.close()
    assert connect().drivers()["a"].age is None


def test_a_missing_artifact_of_another_home_is_no_damage(connect: Connect) -> None:
    here, there = connect(home_id=HERE), connect(home_id=THERE)
    there.commit(spec(None), record(spec(None), artifact="c0ffee"))
    here.commit(spec(0), record(spec(0), artifact="beef"))
    assert here.lies_elsewhere(spec(None).key)
    assert not there.lies_elsewhere(spec(None).key)
    assert not here.lies_elsewhere(spec(0).key)
    assert not here.lies_elsewhere("no such key")
    assert here.artifacts() == {
        spec(None).key: Artifact("c0ffee", THERE),
        spec(0).key: Artifact("beef", HERE),
    }
    here.open_sweep("a", {}, {})
    here.adopt("a", [spec(0).key])
    assert set(here.artifacts("a")) == {spec(0).key}


# -- opening ---------------------------------------------------------------------------------------


def test_a_ledger_of_a_newer_version_is_refused_in_one_line(connect: Connect) -> None:
    ledger = connect()
    ledger.commit(spec(), record(spec()))
    ledger.database.execute(update(tables.meta).values(value="3"))
    with pytest.raises(UserError, match=r"newer version of orthosweep \(schema 3, this one knows 2\)") as caught:
        connect()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["not a url", "mysql://host/x", "postgresql://host:port/x"])
def test_a_wrong_url_gets_one_line(wrong: str) -> None:
    with pytest.raises(UserError, match=r"tracking\.ledger: expected") as caught:
        Ledger(wrong)
    assert "\n" not in str(caught.value)


def test_two_who_create_the_tables_at_once_do_not_collide(url: str) -> None:
    import threading

    failed: list[Exception] = []

    def create() -> None:
        try:
            Ledger(url).close()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_driver_elsewhere_is_waited_for_and_then_succeeded(connect: Connect) -> None:
    """On a database that hosts share, a fresh sign of life excludes a second driver, its absence does not."""
    first, second = connect(home_id=HERE), connect(home_id=THERE)
    for ledger in (first, second):
        ledger.database.shared, ledger.beat_seconds, ledger.stale_seconds = True, 0.2, 3.0
    first.open_sweep("a", {}, {})
    with pytest.raises(UserError, match="already running this sweep on the same database"):
        second.open_sweep("a", {}, {})
    first._ended.set()  # killed: no more signs of life, and no word of farewell
    start = time.monotonic()
    assert second.open_sweep("a", {}, {}) == 2
    assert 1 < time.monotonic() - start < 20
    with pytest.raises(FencedError):
        first.commit(spec(), record(spec()))
