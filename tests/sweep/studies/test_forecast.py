"""What a plan says beforehand is what happens; forecasts follow the costs that were seen."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import solvers
from sweep.engine.executors import InlineExecutor
from sweep.fits import FitRecord, FitSpec, Place, Scores, Seconds, Solved, Trial
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.studies.base import Told
from sweep.studies.forecast import Costs, forecast, pilot_studies, simulate
from sweep.studies.grid import GridStudy
from sweep.studies.plan import Standing, make_plan, standing
from sweep.studies.sweepfile import parse_spec
from tests.sweep.conftest import tiny
from tests.sweep.engine.test_driver import drive
from tests.sweep.studies.playing import template

PATH = pytest.param(
    {"methods": ["mdml-csfn"], "search": "path", "grid": {"gamma": {"low": 0.01, "high": 1, "least": 0.001}}},
    marks=pytest.mark.skipif(not hasattr(solvers, "MDMLPath"), reason="no solver for paths yet"),
)


def standings(home: Home, **changes: Any) -> list[Standing]:
    """Where the studies of a sweep file stand in a home."""
    plan = make_plan(parse_spec(yaml.safe_dump(tiny(**changes)), "t.yaml"), home.data)
    records = {spec.key: record for spec, record in Ledger(home.ledger_url).records("tiny")}

    def known(spec: FitSpec) -> Told | None:
        return Told.of(records[spec.key]) if spec.key in records else None

    return [standing(study, known) for study in plan.studies]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"methods": ["mdml-csfn"], "warm": True},
        {"methods": ["mdml-csfn", "euc"], "splits": 2},
        {"methods": ["mdml-csfn"], "eliminate": True, "folds": 3, "grid": {"gamma": [0.001, 0.01, 0.1, 1, 10, 100]}},
        {"methods": ["pdml-sfn"], "search": {"optuna": {"trials": 4}}},
        PATH,
    ],
)
def test_a_plan_is_what_happens_or_at_most(tmp_path: Path, changes: dict[str, Any]) -> None:
    home = Home(tmp_path)
    driver, ledger = drive(home, InlineExecutor(), **changes)
    said = driver.plan.size
    tasks = len(ledger.members("tiny")) - (driver.tally.saved if changes.get("eliminate") else 0)
    fits = sum(spec.restarts for spec, _ in ledger.records("tiny"))
    if said.exact:
        assert (said.tasks, said.fits) == (tasks, fits)
    else:
        assert tasks <= said.tasks
        assert fits <= said.fits
    assert (driver.tally.total, driver.tally.exact) == (fits, True)
    # A finished sweep has nothing left, and costs nothing more.
    after = standings(home, **changes)
    assert all(each.over and not each.waiting for each in after)
    assert sum(each.size.fits for each in after) == fits
    left = forecast(after, Costs(ledger.records("tiny")), [1, 8])
    assert left.n_tasks == 0
    assert left.busy_hours == (0, 0, 0)
    assert left.wall_seconds == {1: (0, 0, 0), 8: (0, 0, 0)}


def test_a_half_finished_sweep_has_the_rest_left(tmp_path: Path) -> None:
    from collections import Counter

    from tests.sweep.engine.test_driver import CountingExecutor

    home = Home(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        drive(home, CountingExecutor(Counter(), 4))
    found = standings(home)
    done = sum(len(each.done) for each in found)
    assert done == 4
    costs = Costs(Ledger(home.ledger_url).records("tiny"))
    predicted = forecast(found, costs, [1, 4])
    assert predicted.n_tasks == sum(each.size.tasks for each in found) - done
    low, expected, high = predicted.busy_hours
    assert 0 < low < expected < high
    assert predicted.wall_seconds[4][1] < predicted.wall_seconds[1][1]


def test_what_is_expected_lies_in_its_interval_however_many_studies_nothing_is_known_of(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    found = standings(home, methods=["euc", "mdml-*", "pdml-*"], splits=3)
    costs = Costs([(fit(dataset="another"), record(fit(dataset="another"), 10.0))])
    low, expected, high = forecast(found, costs, [2]).busy_hours
    assert low < 0.7 * expected
    assert high > 1.5 * expected


# -- costs --------------------------------------------------------------------------------------------


def fit(gamma: float | None = 1.0, rank: int | None = None, **changes: Any) -> FitSpec:
    return template(trial=Trial.of({"gamma": gamma, "rank": rank}), fold=0, **changes)


def record(spec: FitSpec, seconds: float, startup: float = 0.0) -> FitRecord:
    return FitRecord(
        spec.key, Scores(auc_all=0.5), Solved(), Seconds(solve=seconds, startup=startup), Place(), 0.0, value=0.5
    )


def test_nothing_known_predicts_nothing() -> None:
    costs = Costs()
    assert not costs.known
    assert costs.predict(fit()) == 0.0
    assert costs.seconds_left([fit()], 1, 1) is None


def test_what_was_seen_is_predicted_and_what_lies_between_follows_a_power_law() -> None:
    ranks = (2, 8, 32, 128)
    costs = Costs((s, record(s, 0.1 * r)) for r in ranks for s in [fit(1.0, r, method="pdml-sfn")])
    for rank in ranks:
        assert costs.predict(fit(1.0, rank, method="pdml-sfn")) == pytest.approx(0.1 * rank, rel=0.05)
    assert costs.predict(fit(1.0, 16, method="pdml-sfn")) == pytest.approx(1.6, rel=0.3)
    assert costs.predict(fit(1.0, 512, method="pdml-sfn")) == pytest.approx(51.2, rel=0.3)
    # Beyond the largest that was seen, and for methods of which nothing is known, less is certain.
    spread = [
        costs.spread(each)
        for each in (fit(1.0, 16, method="pdml-sfn"), fit(1.0, 512, method="pdml-sfn"), fit(1.0, 16, method="pdml-vnd"))
    ]
    assert spread == sorted(spread)
    assert len(set(spread)) == 3
    # A method that was never seen costs what its family does.
    assert costs.predict(fit(1.0, 32, method="pdml-vnd")) == pytest.approx(3.2, rel=0.05)


def test_a_refit_sees_one_fold_more() -> None:
    costs = Costs([(fit(), record(fit(), 2.0))])
    assert costs.predict(replace(fit(), fold=None)) == pytest.approx(3.0)  # three folds: three halves of the rows


def test_the_start_up_of_a_worker_is_paid_once_and_no_part_of_a_fit() -> None:
    costs = Costs([(fit(), record(fit(), 2.0, startup=7.0))])
    assert costs.predict(fit()) == pytest.approx(2.0)
    assert costs.startup == 7.0


def test_the_time_left_is_the_work_over_the_workers_but_never_less_than_the_longest_fit() -> None:
    costs = Costs([(fit(), record(fit(), 10.0))])
    waiting = [replace(fit(), fold=k) for k in range(8)]
    assert costs.seconds_left(waiting, 8, 2) == pytest.approx(40.0)
    assert costs.seconds_left(waiting[:1], 1, 4) == pytest.approx(10.0)
    assert costs.seconds_left(waiting, 16, 2) == pytest.approx(80.0)  # eight more that nobody has asked for yet
    assert costs.seconds_left([], 0, 2) == 0.0


def test_a_schedule_is_simulated_with_the_longest_first_and_refits_after_their_study() -> None:
    assert simulate([([3.0, 1.0, 1.0, 1.0], [])], 2, startup=0.0) == 3.0
    assert simulate([([3.0, 1.0, 1.0, 1.0], [2.0])], 2, startup=5.0) == 10.0
    assert simulate([([4.0], [1.0]), ([1.0], [1.0])], 2, startup=0.0) == 5.0
    assert simulate([], 3, startup=0.0) == 0.0


def test_a_pilot_runs_the_corners_of_the_grid_on_the_first_fold_of_the_first_split() -> None:
    trials = [Trial.of({"gamma": g, "rank": r}) for g in (1e-3, 1e-2, 0.1, 1.0) for r in (2, 4, 8, 16, 32)]
    studies = [GridStudy(template(split=split), trials) for split in range(3)]
    (pilot,) = pilot_studies(studies)
    fits = pilot.start()
    assert {(s.split, s.fold) for s in fits} == {(0, 0)}
    assert {s.trial.get("gamma") for s in fits} == {1e-3, 0.1, 1.0}
    assert {s.trial.get("rank") for s in fits} == {2, 8, 32}
    assert pilot.size.tasks == len(fits) == 9
    assert {s.key for s in fits} <= {s.key for s in studies[0].start()}  # they are kept
    assert not math.isnan(Costs().predict(fits[0]))


def test_a_method_known_elsewhere_costs_as_much_more_as_what_is_known_on_both() -> None:
    def at(dataset: str, method: str) -> FitSpec:
        return replace(fit(0.1), dataset=dataset, method=method)

    seconds = {("small", "pdml-sfn"): 1.0, ("small", "mdml-csfn"): 3.0, ("large", "pdml-sfn"): 10.0}
    costs = Costs((at(*where), record(at(*where), each)) for where, each in seconds.items())
    assert costs.predict(at("large", "mdml-csfn")) == pytest.approx(30.0)
    # Nothing of its own: the mean of its family there, as uncertain as before.
    assert costs.predict(at("small", "mdml-cvnd")) == pytest.approx(3.0)
    spreads = [costs.spread(at(*where)) for where in (*seconds, ("large", "mdml-csfn"), ("small", "mdml-cvnd"))]
    assert spreads[0] == spreads[2] < spreads[3] < spreads[4]
