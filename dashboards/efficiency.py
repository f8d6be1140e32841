"""What tuning cost: runs x time per run, phases, hours and money, and what the hours bought."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from dashboards.records import PHASES, SweepRecords, in_order
from dashboards.statistics import ratio_interval, resampled_totals
from solvers.methods import PAIRS
from sweep.errors import UserError
from sweep.store.efficiency import Efficiency, efficiency
from sweep.store.results import StudyRecords

ALL_DATASETS = "all"
_COLUMNS = [
    "dataset",
    "search",
    "convex",
    "nonconvex",
    "convex_fits",
    "nonconvex_fits",
    "convex_seconds",
    "nonconvex_seconds",
    "runs_ratio",
    "time_per_run_ratio",
    "total_ratio",
    "low",
    "high",
]


def efficiency_frame(sweep: SweepRecords) -> pd.DataFrame:
    """Runs ratio x time-per-run ratio = total ratio, per dataset, arm and pair, then overall.

    Arms are how the convex side was tuned: a grid, or the path of gamma. Empty where times must not be compared:
    `refusal` says why.

    Only (dataset, split) places where both methods of a pair have finished count; seconds are those
    of the solver over all tuning fits. `low` and `high` bound the total ratio at 95 %.
    """
    rows: list[dict[str, Any]] = []
    if refusal(sweep):
        return pd.DataFrame(rows, columns=_COLUMNS)
    totals = _totals(sweep)
    groups = [(name, [name]) for name in sweep.datasets]
    if len(groups) != 1:
        groups.append((ALL_DATASETS, sweep.datasets))
    for label, names in groups:
        for found in efficiency([row for row in sweep.rows if row.dataset in names]):
            low, high = _interval(totals, names, found)
            rows.append(
                {
                    "dataset": label,
                    "search": found.search,
                    "convex": found.convex,
                    "nonconvex": found.nonconvex,
                    "convex_fits": found.convex_fits,
                    "nonconvex_fits": found.nonconvex_fits,
                    "convex_seconds": found.convex_seconds,
                    "nonconvex_seconds": found.nonconvex_seconds,
                    "runs_ratio": found.runs_ratio,
                    "time_per_run_ratio": found.time_per_run_ratio,
                    "total_ratio": found.total_ratio,
                    "low": low,
                    "high": high,
                }
            )
    return pd.DataFrame(rows, columns=_COLUMNS)


def refusal(sweep: SweepRecords) -> str:
    """Why the times of this sweep cannot be compared: another algorithm, mode or GPU model on one side."""
    try:
        efficiency(sweep.rows)
    except UserError as error:
        return str(error)
    return ""


def overall(frame: pd.DataFrame, search: str = "grid") -> pd.Series | None:
    """The last line of an arm in an efficiency frame: all pairs on all datasets."""
    arm = frame[frame["search"] == search]
    return None if arm.empty else arm.iloc[-1]


Totals = dict[tuple[str, int, str], tuple[str, np.ndarray]]  # how it was tuned, resampled seconds


def _totals(sweep: SweepRecords) -> Totals:
    """Resampled solver seconds of the tuning fits of every study of a pair that has its result."""
    paired = {method for pair in PAIRS for method in pair}
    return {
        (s.dataset, s.split, s.method): (
            "path" if s.curves else "grid",
            resampled_totals(np.array([record.seconds.solve for _, record in s.tuning_fits]), seed),
        )
        for seed, s in enumerate(sweep.studies)
        if s.method in paired and s.refit is not None and len(s.tuning_fits) > 1
    }


def _interval(totals: Totals, datasets: list[str], found: Efficiency) -> tuple[float, float]:
    """Of the total ratio; NaN where nothing was repeated."""
    above, below = [], []
    for convex, nonconvex in PAIRS:
        if found.convex in (convex, "all convex"):
            for (dataset, split, method), (search, seconds) in totals.items():
                other = totals.get((dataset, split, nonconvex))
                if dataset in datasets and method == convex and search == found.search and other is not None:
                    above.append(other[1])
                    below.append(seconds)
    return ratio_interval(above, below) if above else (math.nan, math.nan)


def seconds_frame(sweep: SweepRecords, price: float | None = None) -> pd.DataFrame:
    """Seconds per method and phase, all fits; `wasted` went into attempts that failed.

    `hours` is the time that a device was held: everything but waiting in the queue. `cost` is that
    times the price of an hour.
    """
    methods = pd.Index(in_order({*sweep.fits["method"], *sweep.failures["method"]}), name="method")
    phases = {f"{phase}_seconds": phase for phase in PHASES}
    frame = sweep.fits.groupby("method")[list(phases)].sum().rename(columns=phases).reindex(methods, fill_value=0.0)
    frame["wasted"] = sweep.failures.groupby("method")["seconds"].sum().reindex(methods, fill_value=0.0)
    frame = frame.astype(np.float64)
    frame["hours"] = frame.drop(columns="queue").sum(axis=1) / 3600
    if price is not None:
        frame["cost"] = frame["hours"] * price
    counts = sweep.fits.groupby("method")["restarts"].sum().reindex(methods, fill_value=0)
    frame.insert(0, "fits", counts.astype(int))
    return frame


def score_over_hours(sweep: SweepRecords) -> pd.DataFrame:
    """Best tuning score that k trials reach, over the hours that k trials take; a path is one point.

    Expected over all orders of the trials: the order in which a sweep happens to run them (the longest first) says
    nothing about a method. Mean over the splits that have all trials of the grid.
    """
    rows = []
    for dataset, method, studies in _by_method(sweep):
        curves = [curve for study in studies if (curve := _trial_curve(study)) is not None]
        length = max((len(hours) for hours, _ in curves), default=0)
        curves = [curve for curve in curves if len(curve[0]) == length]
        if not curves:
            continue
        hours = np.mean([h for h, _ in curves], axis=0)
        score = np.mean([s for _, s in curves], axis=0)
        search = "path" if studies[0].curves else "grid"
        rows += [
            {
                "dataset": dataset,
                "method": method,
                "search": search,
                "trials": k + 1,
                "hours": hours[k],
                "score": score[k],
            }
            for k in range(length)
        ]
    return pd.DataFrame(rows, columns=["dataset", "method", "search", "trials", "hours", "score"])


def _trial_curve(study: StudyRecords) -> tuple[np.ndarray, np.ndarray] | None:
    if study.curves:
        scores = study.chosen_scores()
        hours = sum(record.seconds.solve for _, record in study.tuning_fits) / 3600
        return (np.array([hours]), np.array([np.mean(scores)])) if scores else None
    complete = {t: folds for t, folds in study.tuning.items() if len(folds) == study.folds}
    if len(complete) < 2:
        return None
    sign = 1.0 if study.maximize else -1.0
    ascending = np.sort([sign * np.mean(list(study.fold_scores[trial].values())) for trial in complete])
    cost = np.mean([sum(record.seconds.solve for _, record in folds.values()) for folds in complete.values()]) / 3600
    steps = np.arange(1, len(ascending) + 1)
    return steps * cost, sign * np.array([expected_best(ascending, int(k)) for k in steps])


def expected_best(ascending: np.ndarray, k: int) -> float:
    """Expected largest of k values drawn without replacement from sorted ones."""
    n = len(ascending)
    chances = [math.comb(i, k - 1) / math.comb(n, k) for i in range(n)]
    return float(np.dot(chances, ascending))


def restarts_frame(sweep: SweepRecords) -> pd.DataFrame:
    """Test AUC of the restart with the lowest objective among m, expected over which m were run."""
    rows = []
    for dataset, method, studies in _by_method(sweep):
        curves = []
        for study in studies:
            record = study.refit[1] if study.refit else None
            objectives = record.fit.restart_objectives if record else None
            scores = record.scores.restart_auc if record else None
            if objectives and scores and len(objectives) == len(scores):
                worst_first = np.asarray(scores)[np.argsort(objectives)[::-1]]
                curves.append([expected_best(worst_first, m) for m in range(1, len(scores) + 1)])
        length = max(map(len, curves), default=0)
        if length < 2:
            continue
        mean = np.mean([curve for curve in curves if len(curve) == length], axis=0)
        rows += [{"dataset": dataset, "method": method, "m": m + 1, "auc": mean[m]} for m in range(length)]
    return pd.DataFrame(rows, columns=["dataset", "method", "m", "auc"])


def _by_method(sweep: SweepRecords) -> Iterator[tuple[str, str, list[StudyRecords]]]:
    groups: dict[tuple[str, str], list[StudyRecords]] = {}
    for study in sweep.studies:
        groups.setdefault((study.dataset, study.method), []).append(study)
    for (dataset, method), studies in groups.items():
        yield dataset, method, studies
