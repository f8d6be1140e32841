"""Figures about cost: time, hours against score, restarts, convergence, trials, the timeline."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dashboards.charts import (
    COLOURS,
    DATASETS,
    Chart,
    Panel,
    Parallel,
    Series,
    left_out,
    method_lines,
    nothing,
    of_dataset,
    series_style,
    thinned,
)
from dashboards.records import Arrays, SweepRecords
from sweep.store.results import PAIRS

_SEGMENTS = 2000  # of the timeline; more cannot be told apart


def seconds_figure(seconds: pd.DataFrame) -> Chart:
    """Where the time of each method went."""
    phases = {
        "solve": "#2f6fde",
        "score": "#0b8fa6",
        "transfer": "#b8860b",
        "startup": "#8a4fd0",
        "queue": "#b5b5b5",
        "wasted": "#c92a2a",
    }
    series = [
        Series(phase, seconds[phase].to_numpy() / 3600, list(seconds.index), colour, "bars")
        for phase, colour in phases.items()
        if len(seconds)
    ]
    return Chart(
        "seconds",
        "Time by phase",
        "Sum over all fits. Waiting in the queue holds no device; wasted time went into attempts that failed.",
        [[Panel("", "hours", "", series, missing="no fit has finished")]],
        row_height=max(340, 22 * len(seconds) + 80),
    )


def hours_figure(sweep: SweepRecords, curves: pd.DataFrame) -> Chart:
    """What the hours of tuning bought, both arms."""
    panels = [
        Panel(
            dataset,
            f"solver {sweep.hours_unit}",
            "best tuning AUC so far",
            method_lines(of_dataset(curves, dataset), "hours", "cv_auc"),
            x_log=True,
            missing="no method was tuned to the end",
        )
        for dataset in sweep.datasets[:DATASETS]
    ]
    return Chart(
        "score-over-hours",
        "Score reached over hours spent",
        "Best mean AUC over folds after k trials, against what k trials cost; expected over all orders "
        "of the trials, "
        "mean over splits. Solid: convex; dashed: non-convex, restarts included." + left_out(sweep.datasets),
        [panels or [nothing()]],
    )


def restarts_figure(sweep: SweepRecords, curves: pd.DataFrame) -> Chart:
    """Best of m restarts, with the score of the convex counterpart as a line."""
    panels = []
    for dataset in sweep.datasets[:DATASETS]:
        auc = of_dataset(sweep.results, dataset).groupby("method")["auc_all"].mean()
        series = method_lines(of_dataset(curves, dataset), "m", "auc")
        levels = [(float(auc[convex]), COLOURS[convex]) for convex, _ in PAIRS if convex in auc.index]
        panels.append(
            Panel(
                dataset,
                "restarts m",
                "test AUC of the best of m",
                series,
                levels=levels if series else [],
                missing="no method with several restarts has finished",
            )
        )
    return Chart(
        "restarts",
        "Best of m restarts",
        "The restart with the lowest objective among m, at the chosen gamma and rank; expected over "
        "which m were run, mean "
        "over splits. Dotted lines: the convex method of the same colour, certified and run once."
        + left_out(sweep.datasets),
        [panels or [nothing()]],
    )


def convergence_figure(sweep: SweepRecords, arrays: Arrays, other: Arrays, other_name: str) -> Chart:
    """Objective and gap over eigendecompositions and over seconds."""
    rows = []
    for y, y_title, y_log in (("gap", "relative gap", True), ("objective", "objective", False)):
        for x, x_title in (("n_eigh", "eigendecompositions"), ("seconds", "seconds")):
            row = []
            for dataset in sweep.datasets[:DATASETS]:
                series = _histories(arrays, dataset, x, y, "") + _histories(other, dataset, x, y, f" ({other_name})")
                row.append(
                    Panel(
                        dataset,
                        x_title,
                        y_title,
                        series,
                        x_log=True,
                        y_log=y_log,
                        missing="no history recorded",
                    )
                )
            rows.append(row or [nothing()])
    return Chart(
        "convergence",
        "Convergence of the refits",
        "First split. The gap is between the objective and its certified lower bound, relative to the "
        "objective; other "
        "methods wait in the legend. A sweep of the same data with the other algorithm in this home is "
        "drawn dashed." + left_out(sweep.datasets),
        rows,
        row_height=280,
    )


def _histories(arrays: Arrays, dataset: str, x: str, y: str, suffix: str) -> list[Series]:
    series = []
    for (name, method), values in arrays.items():
        xs, ys = values.get(f"history_{x}"), values.get(f"history_{y}")
        if name != dataset or xs is None or ys is None:
            continue
        usable = np.isfinite(ys) & (xs > 0) & ((ys > 0) | (y != "gap"))
        if usable.any():
            kept = np.flatnonzero(usable)[thinned(int(usable.sum()))]
            style = series_style(method) | {"dashed": bool(suffix)}
            series.append(Series(method + suffix, xs[kept], ys[kept], **style))
    return series


def trials_figure(sweep: SweepRecords) -> Parallel:
    """Parallel coordinates over method, gamma, rank, score and time of every trial."""
    tuning = sweep.fits[sweep.fits["fold"].notna()]
    trials = tuning.groupby(["dataset", "method", "gamma", "rank"], dropna=False, sort=False).agg(
        cv_auc=("auc_all", "mean"), balance=("balance_score", "mean"), seconds=("solve", "mean")
    )
    trials = trials.reset_index()
    datasets = {name: i for i, name in enumerate(sweep.datasets)}
    methods = {name: i for i, name in enumerate(m for m in COLOURS if m in set(trials["method"]))}
    axes = [
        (
            "method",
            trials["method"].map(methods).to_numpy(float),
            [(float(i), m) for m, i in methods.items()],
        ),
        ("gamma", *_log_axis(trials["gamma"])),
        ("rank", *_log_axis(trials["rank"])),
        ("seconds per fit (log10)", np.log10(np.maximum(trials["seconds"].to_numpy(float), 1e-6)), []),
        ("tuning AUC", trials["cv_auc"].to_numpy(float), []),
    ]
    if trials["balance"].notna().all():
        axes.insert(4, ("balance score", trials["balance"].to_numpy(float), []))
    if len(datasets) > 1:
        axes.insert(
            0,
            (
                "dataset",
                trials["dataset"].map(datasets).to_numpy(float),
                [(float(i), d) for d, i in datasets.items()],
            ),
        )
    return Parallel(
        "trials",
        "Every trial: method, gamma, rank, time and score",
        "One line per setting, mean over folds and splits. Drag along an axis to keep only the lines "
        "that pass there. "
        "A method that does not tune gamma or rank crosses that axis at “none”.",
        axes,
        list(trials["method"]),
        missing="no tuning fit has finished",
    )


def _log_axis(values: pd.Series) -> tuple[np.ndarray, list[tuple[float, str]]]:
    """Logarithms with their values as ticks; what is not tuned sits one step below the smallest."""
    known = np.sort(values.dropna().unique().astype(float))
    if not known.size:
        return np.zeros(len(values)), [(0.0, "none")]
    step = 1.0 if known.size < 2 else float(np.log10(known[-1] / known[0])) / (known.size - 1)
    none = float(np.log10(known[0])) - step
    ticks = [(float(np.log10(value)), f"{value:g}") for value in known]
    if values.isna().any():
        ticks.insert(0, (none, "none"))
    return np.log10(
        values.to_numpy(float, na_value=np.nan).astype(float),
        where=values.notna().to_numpy(),
        out=np.full(len(values), none),
    ), ticks


def timeline_figure(sweep: SweepRecords) -> Chart:
    """Which device did what when."""
    fits = sweep.fits.sort_values("started")
    series = []
    if len(fits):
        origin, end = float(fits["started"].min()), float(fits["ended"].max())
        lanes = {name: f"{i}: {name}" for i, name in enumerate(sorted(fits["lane"].unique()))}
        merged = _merged(fits, gap=max(end - origin, 1e-9) / _SEGMENTS * max(1, len(lanes)))
        for method in (m for m in COLOURS if m in set(merged["method"])):
            own = merged[merged["method"] == method]
            x = np.column_stack([own["started"] - origin, own["ended"] - origin, np.full(len(own), np.nan)]) / 60
            y = np.repeat(own["lane"].map(lanes).to_numpy(object), 3)
            series.append(
                Series(
                    method,
                    x.ravel(),
                    list(y),
                    kind="segments",
                    **series_style(method) | {"background": False},
                )
            )
    n_lanes = fits["lane"].nunique() if len(fits) else 1
    return Chart(
        "timeline",
        "Timeline: which device did what when",
        "Fits from their start to their last score; neighbouring fits of one method are drawn as one. A "
        "resumed sweep "
        "shows the pause.",
        [[Panel("", "minutes since the first fit", "", series, missing="no fit has finished")]],
        row_height=max(220, 34 * n_lanes + 90),
    )


def _merged(fits: pd.DataFrame, gap: float) -> pd.DataFrame:
    """Consecutive fits of one method on one device joined where less than `gap` seconds lie between."""
    pieces = []
    for _, group in fits.groupby("lane"):
        before = group.shift()
        begins = (group["method"] != before["method"]) | (group["started"] - before["ended"] > gap)
        pieces.append(
            group.groupby(begins.cumsum()).agg(
                lane=("lane", "first"),
                method=("method", "first"),
                started=("started", "min"),
                ended=("ended", "max"),
            )
        )
    return pd.concat(pieces)
