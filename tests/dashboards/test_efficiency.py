"""What tuning cost, and what it bought."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashboards.efficiency import (
    efficiency_frame,
    expected_best,
    refusal,
    restarts_frame,
    score_over_hours,
    seconds_frame,
)
from dashboards.records import SweepRecords, read_sweep
from sweep.store.home import Home
from sweep.store.rows import Failure
from tests.dashboards.synthetic import fill


def test_runs_times_time_per_run_is_the_total_everywhere(paired: SweepRecords) -> None:
    frame = efficiency_frame(paired)
    assert len(frame) == 3 * 4  # two datasets and all, three pairs and all
    assert frame["total_ratio"].to_numpy() == pytest.approx(
        (frame["runs_ratio"] * frame["time_per_run_ratio"]).to_numpy()
    )
    assert (frame["runs_ratio"] == 30).all()  # 4 x 6 x 3 x 5 = 360 against 4 x 3 = 12
    assert ((frame["low"] < frame["total_ratio"]) & (frame["total_ratio"] < frame["high"])).all()


def test_the_totals_are_the_ledgers(paired: SweepRecords) -> None:
    last = efficiency_frame(paired).iloc[-1]
    tuning = paired.fits[paired.fits["fold"].notna()]
    nonconvex = tuning["method"].str.startswith("pdml")
    assert last["nonconvex_seconds"] == pytest.approx(tuning.loc[nonconvex, "solve_seconds"].sum())
    assert last["convex_seconds"] == pytest.approx(tuning.loc[~nonconvex, "solve_seconds"].sum())
    assert last["nonconvex_fits"] == tuning.loc[nonconvex, "restarts"].sum()


def test_wasted_seconds_and_the_cost_stand_apart(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ledger = fill(home, "one", methods=["mdml-csfn"])
    failure = Failure("k", "digits", 0, "mdml-csfn", "label", 1, "out of memory", "boom", "", 90.0, False, 0.0)
    ledger.fail("one", failure)
    frame = seconds_frame(read_sweep(ledger, "one"), price=2.0)
    row = frame.loc["mdml-csfn"]
    assert row["wasted"] == 90
    held = row[["solve", "score", "transfer", "startup", "wasted"]].sum()
    assert row["hours"] == pytest.approx(held / 3600)
    assert row["cost"] == pytest.approx(2 * row["hours"])


def test_the_expected_best_is_the_mean_over_all_subsets() -> None:
    values = np.sort(np.random.default_rng(0).uniform(size=6))
    for k in range(1, 7):
        expected = np.mean([max(subset) for subset in itertools.combinations(values, k)])
        assert expected_best(values, k) == pytest.approx(expected)


def test_score_over_hours_ends_at_the_chosen_trial_and_at_the_whole_cost(paired: SweepRecords) -> None:
    curves = score_over_hours(paired)
    one = curves[(curves["dataset"] == "act") & (curves["method"] == "pdml-vnd")]
    assert len(one) == 24
    assert one["score"].is_monotonic_increasing
    rows = paired.results[(paired.results["dataset"] == "act") & (paired.results["method"] == "pdml-vnd")]
    assert one["score"].iloc[-1] == pytest.approx(rows["cv_score"].mean())
    assert one["hours"].iloc[-1] * 3600 == pytest.approx(rows["tuning_seconds"].mean())


def test_best_of_all_restarts_is_the_one_with_the_lowest_objective(paired: SweepRecords) -> None:
    curves = restarts_frame(paired)
    assert set(curves["method"]) == {"pdml-sfn", "pdml-vnd", "pdml-ldd"}
    studies = [s for s in paired.studies if (s.dataset, s.method) == ("act", "pdml-sfn")]
    expected = []
    for study in studies:
        assert study.refit is not None
        record = study.refit[1]
        assert record.scores.restart_auc is not None
        assert record.fit.restart_objectives is not None
        expected.append(record.scores.restart_auc[int(np.argmin(record.fit.restart_objectives))])
    of_all = curves[(curves["dataset"] == "act") & (curves["method"] == "pdml-sfn") & (curves["m"] == 5)]
    assert of_all["auc"].item() == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("column", ["algorithm", "mode", "gpu"])
def test_times_of_unlike_fits_are_refused_not_compared(paired: SweepRecords, column: str) -> None:
    changed: dict[str, Any] = {column: "another"}
    mixed = replace(paired, rows=[replace(paired.rows[0], **changed), *paired.rows[1:]])
    assert f"differ in {column}" in refusal(mixed)
    assert efficiency_frame(mixed).empty
    assert refusal(paired) == ""


def test_a_method_outside_the_pairs_may_run_elsewhere(paired: SweepRecords) -> None:
    on_cpu = replace(paired.rows[0], method="ilhd", gpu=None)
    assert refusal(replace(paired, rows=[*paired.rows, on_cpu])) == ""


def test_the_path_stands_beside_the_grids_as_a_third_arm(on_path: SweepRecords) -> None:
    frame = efficiency_frame(on_path)
    assert set(frame["search"]) == {"path"}
    last = frame.iloc[-1]
    assert last["convex_fits"] == 3 * 2 * 3  # pairs, splits, folds: one path each
    assert last["nonconvex_fits"] == 3 * 2 * 360
    assert last["low"] < last["total_ratio"] < last["high"]


def test_a_path_is_one_point_of_score_over_hours(on_path: SweepRecords) -> None:
    curves = score_over_hours(on_path)
    one = curves[curves["method"] == "mdml-csfn"]
    assert list(one["search"]) == ["path"]
    rows = on_path.results[on_path.results["method"] == "mdml-csfn"]
    assert one["score"].item() == pytest.approx(rows["cv_score"].mean())
    assert one["hours"].item() * 3600 == pytest.approx(rows["tuning_seconds"].mean())


def test_methods_that_are_not_ours_have_their_cost_too(tmp_path: Path) -> None:
    frame = seconds_frame(read_sweep(fill(Home(tmp_path), "own", methods=["euc", "my-nca"]), "own"))
    assert list(frame.index) == ["euc", "my-nca"]
    assert frame.loc["my-nca", "fits"] == 10
