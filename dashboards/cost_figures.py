"""Figures about cost: time, hours against score, restarts, convergence, trials, the timeline."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dashboards.charts import (
    DATASETS,
    Chart,
    Panel,
    Parallel,
    Series,
    colour_of,
    left_out,
    method_lines,
    of_dataset,
    series_style,
    thinned,
)
from dashboards.metric_figures import foreground
from dashboards.records import Arrays, SweepRecords, in_order
from solvers.methods import PAIRS

_SEGMENTS = 1000  # of the timeline; more cannot be told apart
_TRIALS = 400  # lines of the parallel coordinates


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
        if len(seconds) and seconds[phase].any()
    ]
    return Chart(
        "seconds",
        "Time by phase",
        "Sum over all fits. Waiting in the queue holds no device; wasted time went into attempts that failed.",
        [Panel("", "hours", "", series, missing="no fit has finished")],
    )


def hours_figure(sweep: SweepRecords, curves: pd.DataFrame) -> Chart:
    """What the hours of tuning bought; a path of gamma is one point."""
    panels, shown = [], foreground(sweep)
    for dataset in sweep.datasets[:DATASETS]:
        found = of_dataset(curves, dataset)
        series = method_lines(found[found["search"] == "grid"], "hours", "score", shown)
        for row in found[found["search"] == "path"].itertuples():
            note = f"{row.method}, the whole path: {row.score:.4f} after {row.hours:.3g} hours"
            style = series_style(str(row.method), shown) | {"symbol": "own"}
            series.append(Series(str(row.method), [row.hours], [row.score], kind="points", notes=[note], **style))
        panels.append(
            Panel(
                dataset,
                f"solver {sweep.hours_unit}",
                f"best tuning {sweep.score_title} so far",
                series,
                x_log=True,
                missing=f"{dataset}: no method was tuned to the end",
            )
        )
    return Chart(
        "score-over-hours",
        "Score reached over hours spent",
        "Best mean over folds after k trials, against what k trials cost; expected over all orders of the trials, mean "
        "over splits. Solid: convex; dashed: non-convex, restarts included; a triangle is a whole path of gamma."
        + left_out(sweep.datasets),
        panels,
    )


def restarts_figure(sweep: SweepRecords, curves: pd.DataFrame) -> Chart:
    """Best of m restarts, with the score of the convex counterpart as a line."""
    panels = []
    for dataset in sweep.datasets[:DATASETS]:
        auc = of_dataset(sweep.results, dataset).groupby("method")["auc_all"].mean()
        series = method_lines(of_dataset(curves, dataset), "m", "auc", foreground(sweep))
        levels = [(float(auc[convex]), colour_of(convex)) for convex, _ in PAIRS if convex in auc.index]
        panels.append(
            Panel(
                dataset,
                "restarts m",
                "test AUC of the best of m",
                series,
                levels=levels if series else [],
                missing=f"{dataset}: no method with several restarts has finished",
            )
        )
    return Chart(
        "restarts",
        "Best of m restarts",
        "The restart with the lowest objective among m, at the chosen gamma and rank; expected over "
        "which m were run, mean "
        "over splits. Dotted lines: the convex method of the same colour, certified and run once."
        + left_out(sweep.datasets),
        panels,
    )


def convergence_figure(sweep: SweepRecords) -> Chart:
    """Gap over eigendecompositions and seconds; the objective where there is no gap."""
    panels = []
    for dataset in sweep.datasets[:DATASETS]:
        for x, x_title in (("n_eigh", "eigendecompositions"), ("seconds", "seconds")):
            suffix = f" ({sweep.beside.algorithm})"
            series = _histories(sweep, sweep.arrays, dataset, x, "gap", "")
            series += _histories(sweep, sweep.beside.arrays, dataset, x, "gap", suffix)
            missing = f"{dataset}: no refit has recorded a gap"
            panels.append(Panel(dataset, x_title, "relative gap", series, x_log=True, y_log=True, missing=missing))
        series = _histories(sweep, sweep.arrays, dataset, "seconds", "objective", "")
        missing = f"{dataset}: no history recorded"
        panels.append(Panel(dataset, "seconds", "objective", series, x_log=True, missing=missing))
    return Chart(
        "convergence",
        "Convergence of the refits",
        "First split. The gap is between the objective and its certified lower bound, relative to the objective. A "
        "sweep of the same data with the other algorithm in this home is drawn dashed." + left_out(sweep.datasets),
        panels,
        height=230,
    )


def _histories(sweep: SweepRecords, arrays: Arrays, dataset: str, x: str, y: str, suffix: str) -> list[Series]:
    series, shown = [], foreground(sweep)
    for (name, method), values in arrays.items():
        xs, ys = values.get(f"history_{x}"), values.get(f"history_{y}")
        if name != dataset or xs is None or ys is None:
            continue
        usable = np.isfinite(ys) & (xs > 0) & ((ys > 0) | (y != "gap"))
        if usable.sum() > 1:
            kept = np.flatnonzero(usable)[thinned(int(usable.sum()))]
            style = series_style(method, shown) | ({"dashed": True} if suffix else {})
            series.append(Series(method + suffix, xs[kept], ys[kept], **style))
    return series


def trials_figure(sweep: SweepRecords) -> Parallel:
    """Parallel coordinates over method, gamma, rank, time and score of every trial."""
    tuning = sweep.fits[sweep.fits["fold"].notna() & sweep.fits["gamma_low"].isna()]
    keys = ["dataset", "method", "setting", "gamma", "rank"]
    trials = tuning.groupby(keys, dropna=False, sort=False).agg(
        score=("value", "mean"), seconds=("solve_seconds", "mean")
    )
    trials = trials.reset_index().dropna(subset=["score"])
    cut = f" The {_TRIALS} best of {len(trials)} are drawn." if len(trials) > _TRIALS else ""
    # Drawn in this order: the best lie on top.
    trials = trials.sort_values("score", ascending=sweep.maximize).tail(_TRIALS)
    methods = {name: i for i, name in enumerate(reversed(in_order(set(trials["method"]))))}
    axes = [
        (
            "method",
            trials["method"].map(methods).to_numpy(float),
            [(float(i), m) for m, i in methods.items()],
        ),
        *((name, *_log_axis(trials[name].astype(float))) for name in ("gamma", "rank") if trials[name].nunique() > 1),
        ("seconds per fit, log10", np.log10(np.maximum(trials["seconds"].to_numpy(float), 1e-6)), []),
        (f"tuning {sweep.score_title}", trials["score"].to_numpy(float), []),
    ]
    datasets = {name: float(i) for i, name in enumerate(sweep.datasets)}
    if len(datasets) > 1:
        ticks = [(i, d) for d, i in datasets.items()]
        axes.insert(1, ("dataset", trials["dataset"].map(datasets).to_numpy(float), ticks))
    return Parallel(
        "trials",
        "Every trial",
        "One line per setting, mean over folds and splits; point at where a line crosses an axis to bring its method "
        f"out. A method that does not tune gamma or rank crosses that axis at “none”.{cut}",
        axes,
        [str(method) for method in trials["method"]],
        missing="no tuning fit of a grid or a search has finished",
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
        for method in in_order(set(merged["method"])):
            own = merged[merged["method"] == method]
            x = np.column_stack([own["started"] - origin, own["ended"] - origin, np.full(len(own), np.nan)]) / 60
            y = np.repeat(own["lane"].map(lanes).to_numpy(object), 3)
            series.append(Series(method, x.ravel(), list(y), kind="segments", **series_style(method)))
    return Chart(
        "timeline",
        "Timeline: which device did what when",
        "Fits from their start to their last score; neighbouring fits of one method are drawn as one. A resumed sweep "
        "shows the pause.",
        [Panel("", "minutes since the first fit", "", series, missing="no fit has finished")],
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
