"""From tables to figures: what each figure of a report shows. Drawing is in `drawing`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from dashboards.charts import COLOURS, GREY, Chart, Panel, Parallel, Series, series_style
from dashboards.records import SweepRecords
from dashboards.statistics import Ranking
from sweep.results import PAIRS

Arrays = Mapping[tuple[str, str], Mapping[str, np.ndarray]]  # (dataset, method) -> arrays of a refit

# Side by side, more datasets than this are too narrow to read; the tables have all of them.
_DATASETS = 4
_POINTS = 150  # of a curve; more cannot be told apart on a screen
_SEGMENTS = 2000
_DATASET_COLOURS = ("#2f6fde", "#d9480f", "#0f9d58", "#8a4fd0", "#b8860b", "#0b8fa6", "#c2367c")


def regularizers_figure(sweep: SweepRecords) -> Chart:
    """The paper's figure: non-convex regularizers at the convex solution, over gamma."""
    panels = []
    for name in ("sfn", "ldd", "vnd"):
        method = f"mdml-c{name}"
        fits = sweep.fits[(sweep.fits["method"] == method) & sweep.fits[name].notna()]
        means = fits.groupby(["dataset", "gamma"])[name].mean()
        series = [
            Series(dataset, values.index.get_level_values("gamma").to_numpy(), values.to_numpy(), colour)
            for colour, (dataset, values) in zip(_cycle(_DATASET_COLOURS), means.groupby(level=0), strict=False)
        ]
        panels.append(
            Panel(f"{name.upper()} in {method}", "gamma", f"non-convex {name.upper()}", series, x_log=True,
                  missing=f"{method}: not run, or its solutions have no finite {name.upper()}")
        )  # fmt: skip
    return Chart(
        "regularizers", "Non-convex regularizers at the convex solution",
        "Mean over folds and splits. The paper: all three fall as gamma grows, so the convex regularizers are good "
        "stand-ins. A solution of low rank has no finite LDD.",
        [panels],
    )  # fmt: skip


def scores_figure(sweep: SweepRecords, paper: pd.DataFrame) -> Chart:
    """Test AUC of every method, with the published one where there is one."""
    panels = []
    for dataset in sweep.datasets[:_DATASETS]:
        groups = _of(sweep.results, dataset).groupby("method")["auc_all"]
        mean, error = groups.mean(), groups.sem()
        series = []
        for method in sweep.methods:
            if method in mean.index:
                half = None if np.isnan(error[method]) else [error[method]]
                style = series_style(method) | {"background": False}
                series.append(Series(method, [mean[method]], [method], kind="points", error=half, **style))
        printed = paper[(paper["table"] == "auc") & (paper["dataset"] == dataset) & (paper["quantity"] == "auc_all")]
        printed = printed[printed["method"].isin(mean.index)]
        if len(printed):
            series.append(Series("published", printed["value"].to_numpy(), list(printed["method"]), GREY, "points", symbol="other"))
        panels.append(Panel(dataset, "AUC over all test queries", "", series, missing="no result yet"))
    return Chart(
        "scores", "Retrieval score of every method", "Mean over splits; bars are standard errors." + _left_out(sweep),
        [panels or [_nothing()]], row_height=max(340, 22 * len(sweep.methods) + 80),
    )  # fmt: skip


def balance_figure(sweep: SweepRecords) -> Chart:
    """Infrequent against frequent classes: a balanced method is on the diagonal."""
    panels = []
    for dataset in sweep.datasets[:_DATASETS]:
        means = _of(sweep.results, dataset).dropna(subset=["auc_frequent", "auc_infrequent"]).groupby("method")
        points = means[["auc_frequent", "auc_infrequent"]].mean()
        series = [
            Series(m, [points.loc[m, "auc_frequent"]], [points.loc[m, "auc_infrequent"]], kind="points",
                   **series_style(m) | {"background": False})
            for m in sweep.methods if m in points.index
        ]  # fmt: skip
        panels.append(
            Panel(dataset, "AUC, frequent classes", "AUC, infrequent classes", series, diagonal=True,
                  missing="all classes are frequent, or all infrequent")
        )  # fmt: skip
    return Chart(
        "balance", "Balance between frequent and infrequent classes",
        "Mean over splits. On the dotted line, both kinds of classes are served alike." + _left_out(sweep),
        [panels or [_nothing()]], row_height=380,
    )  # fmt: skip


def seconds_figure(seconds: pd.DataFrame) -> Chart:
    """Where the time of each method went."""
    phases = {
        "solve": "#2f6fde", "score": "#0b8fa6", "transfer": "#b8860b", "startup": "#8a4fd0", "queue": "#b5b5b5",
        "wasted": "#c92a2a",
    }  # fmt: skip
    series = [
        Series(phase, seconds[phase].to_numpy() / 3600, list(seconds.index), colour, "bars")
        for phase, colour in phases.items()
        if len(seconds)
    ]
    return Chart(
        "seconds", "Where the time went",
        "Sum over all fits. Waiting in the queue holds no device; wasted time went into attempts that failed.",
        [[Panel("", "hours", "", series, missing="no fit has finished")]], row_height=max(340, 22 * len(seconds) + 80),
    )  # fmt: skip


def hours_figure(sweep: SweepRecords, curves: pd.DataFrame) -> Chart:
    """What the hours of tuning bought, both arms."""
    panels = [
        Panel(
            dataset, f"solver {sweep.hours_unit}", "best tuning AUC so far",
            [
                Series(method, curve["hours"].to_numpy(), curve["cv_auc"].to_numpy(), **series_style(method))
                for method, curve in _of(curves, dataset).groupby("method", sort=False)
            ],
            x_log=True, missing="no method was tuned to the end",
        )
        for dataset in sweep.datasets[:_DATASETS]
    ]  # fmt: skip
    return Chart(
        "score-over-hours", "Score reached over hours spent",
        "Best mean AUC over folds after k trials, against what k trials cost; expected over all orders of the trials, "
        "mean over splits. Solid: convex; dashed: non-convex, restarts included." + _left_out(sweep),
        [panels or [_nothing()]],
    )  # fmt: skip


def restarts_figure(sweep: SweepRecords, curves: pd.DataFrame) -> Chart:
    """Best of m restarts, with the score of the convex counterpart as a line."""
    convex_of = {nonconvex: convex for convex, nonconvex in PAIRS}
    panels = []
    for dataset in sweep.datasets[:_DATASETS]:
        auc = _of(sweep.results, dataset).groupby("method")["auc_all"].mean()
        series, levels = [], []
        for method, curve in _of(curves, dataset).groupby("method", sort=False):
            series.append(Series(method, curve["m"].to_numpy(), curve["auc"].to_numpy(), **series_style(method)))
        for convex in convex_of.values():
            if convex in auc.index:
                levels.append((float(auc[convex]), COLOURS[convex]))
        panels.append(
            Panel(dataset, "restarts m", "test AUC of the best of m", series, levels=levels if series else [],
                  missing="no method with several restarts has finished")
        )  # fmt: skip
    return Chart(
        "restarts", "Best of m restarts",
        "The restart with the lowest objective among m, at the chosen gamma and rank; expected over which m were run, mean "
        "over splits. Dotted lines: the convex method of the same colour, certified and run once." + _left_out(sweep),
        [panels or [_nothing()]],
    )  # fmt: skip


def convergence_figure(sweep: SweepRecords, arrays: Arrays, other: Arrays, other_name: str) -> Chart:
    """Objective and gap over eigendecompositions and over seconds."""
    rows = []
    for y, y_title, y_log in (("gap", "relative gap", True), ("objective", "objective", False)):
        for x, x_title in (("n_eigh", "eigendecompositions"), ("seconds", "seconds")):
            row = []
            for dataset in sweep.datasets[:_DATASETS]:
                series = _histories(arrays, dataset, x, y, "") + _histories(other, dataset, x, y, f" ({other_name})")
                row.append(Panel(dataset, x_title, y_title, series, x_log=True, y_log=y_log, missing="no history recorded"))
            rows.append(row or [_nothing()])
    return Chart(
        "convergence", "Convergence of the refits",
        "First split. The gap is between the objective and its certified lower bound, relative to the objective; other "
        "methods wait in the legend. A sweep of the same data with the other algorithm in this home is drawn dashed."
        + _left_out(sweep),
        rows, row_height=280,
    )  # fmt: skip


def _histories(arrays: Arrays, dataset: str, x: str, y: str, suffix: str) -> list[Series]:
    series = []
    for (name, method), values in arrays.items():
        xs, ys = values.get(f"history_{x}"), values.get(f"history_{y}")
        if name != dataset or xs is None or ys is None:
            continue
        usable = np.isfinite(ys) & (xs > 0) & ((ys > 0) | (y != "gap"))
        if usable.any():
            kept = np.flatnonzero(usable)[_thin(int(usable.sum()))]
            style = series_style(method) | {"dashed": bool(suffix)}
            series.append(Series(method + suffix, xs[kept], ys[kept], **style))
    return series


def spectrum_figure(sweep: SweepRecords, arrays: Arrays) -> Chart:
    """Eigenvalues of each learned metric."""
    panels = []
    for dataset in sweep.datasets[:_DATASETS]:
        series = []
        for (name, method), values in arrays.items():
            if name == dataset and "components" in values and values["components"].size:
                eigenvalues = metric_spectrum(values["components"])
                kept = _thin(len(eigenvalues))
                series.append(Series(method, kept + 1.0, eigenvalues[kept], **series_style(method)))
        panels.append(Panel(dataset, "eigenvalue number", "eigenvalue of M", series, y_log=True, missing="no refit yet"))
    return Chart(
        "spectrum", "Spectrum of the learned metrics",
        "Eigenvalues of M = L'L in the first split, largest first: flat is close to orthogonal, short is compact." + _left_out(sweep),
        [panels or [_nothing()]],
    )  # fmt: skip


def metric_spectrum(L: np.ndarray) -> np.ndarray:
    """Eigenvalues above zero of L'L for L (k, D), descending."""
    gram = L @ L.T if L.shape[0] <= L.shape[1] else L.T @ L
    diagonal = np.diag(gram)
    # The factor of a convex method has orthogonal rows: its spectrum is there to be read off.
    off = np.abs(gram - np.diag(diagonal)).max()
    values = diagonal if off <= 1e-9 * diagonal.max() else np.linalg.eigvalsh(gram)
    values = np.sort(values)[::-1]
    return values[values > 1e-15 * values[0]]


def classes_figure(sweep: SweepRecords, arrays: Arrays) -> Chart:
    """AUC of each class against its size."""
    panels = []
    for dataset in sweep.datasets[:_DATASETS]:
        series = []
        for (name, method), values in arrays.items():
            if name == dataset and "class_auc" in values:
                sizes, auc = _binned(values["class_sizes"], values["class_auc"])
                series.append(Series(method, sizes, auc, kind="points", **series_style(method)))
        panels.append(Panel(dataset, "examples of the class", "AUC of its queries", series, x_log=True, missing="no refit yet"))
    return Chart(
        "classes", "AUC of each class against its size",
        "First split; with more than 60 classes, means over classes of similar size. A balanced metric is level." + _left_out(sweep),
        [panels or [_nothing()]],
    )  # fmt: skip


def _binned(sizes: np.ndarray, auc: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    known = np.isfinite(auc)
    frame = pd.DataFrame({"size": sizes[known].astype(float), "auc": auc[known]}).sort_values("size", kind="stable")
    if len(frame) > 60:
        frame = frame.groupby(np.arange(len(frame)) * 60 // len(frame)).mean()
    return frame["size"].to_numpy(), frame["auc"].to_numpy()


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
        ("method", trials["method"].map(methods).to_numpy(float), [(float(i), m) for m, i in methods.items()]),
        ("gamma", *_log_axis(trials["gamma"])),
        ("rank", *_log_axis(trials["rank"])),
        ("seconds per fit (log10)", np.log10(np.maximum(trials["seconds"].to_numpy(float), 1e-6)), []),
        ("tuning AUC", trials["cv_auc"].to_numpy(float), []),
    ]
    if trials["balance"].notna().all():
        axes.insert(4, ("balance score", trials["balance"].to_numpy(float), []))
    if len(datasets) > 1:
        axes.insert(0, ("dataset", trials["dataset"].map(datasets).to_numpy(float), [(float(i), d) for d, i in datasets.items()]))
    return Parallel(
        "trials", "Every trial: method, gamma, rank, time and score",
        "One line per setting, mean over folds and splits. Drag along an axis to keep only the lines that pass there. "
        "A method that does not tune gamma or rank crosses that axis at “none”.",
        axes, list(trials["method"]), missing="no tuning fit has finished",
    )  # fmt: skip


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
    return np.log10(values.to_numpy(float, na_value=np.nan).astype(float), where=values.notna().to_numpy(),
                    out=np.full(len(values), none)), ticks  # fmt: skip


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
            series.append(Series(method, x.ravel(), list(y), kind="segments", **series_style(method) | {"background": False}))
    n_lanes = fits["lane"].nunique() if len(fits) else 1
    return Chart(
        "timeline", "Timeline: which device did what when",
        "Fits from their start to their last score; neighbouring fits of one method are drawn as one. A resumed sweep "
        "shows the pause.",
        [[Panel("", "minutes since the first fit", "", series, missing="no fit has finished")]],
        row_height=max(220, 34 * n_lanes + 90),
    )  # fmt: skip


def _merged(fits: pd.DataFrame, gap: float) -> pd.DataFrame:
    """Consecutive fits of one method on one device joined where less than `gap` seconds lie between."""
    pieces = []
    for _, group in fits.groupby("lane"):
        before = group.shift()
        begins = (group["method"] != before["method"]) | (group["started"] - before["ended"] > gap)
        pieces.append(
            group.groupby(begins.cumsum()).agg(
                lane=("lane", "first"), method=("method", "first"), started=("started", "min"), ended=("ended", "max")
            )
        )
    return pd.concat(pieces)


def differences_figure(differences: pd.DataFrame) -> Chart:
    """Convex minus non-convex AUC, with its interval, per dataset and over all."""
    series = []
    for (convex, nonconvex), group in differences.groupby(["convex", "nonconvex"], sort=False):
        style = series_style(convex) | {"background": False}
        names = [f"{row.dataset} ({row.basis})" for row in group.itertuples()]
        half = group["half_width"].fillna(0.0).to_numpy()
        series.append(Series(f"{convex} - {nonconvex}", group["difference"].to_numpy(), names, kind="points", error=half, **style))
    return Chart(
        "differences", "Paired differences: convex minus non-convex",
        "AUC over all queries; bars are 95 % intervals of the corrected resampled t-test. A bar that crosses zero is not "
        "significant; a point without a bar was not repeated.",
        [[Panel("", "difference in AUC", "", series, zero=True, missing="no pair has finished on the same data")]],
        row_height=max(260, 30 * differences[["dataset", "basis"]].drop_duplicates().shape[0] + 100),
    )  # fmt: skip


def ranks_figure(ranking: Ranking | None) -> Chart:
    """Mean ranks over datasets, and how far apart they must be."""
    series = []
    if ranking is not None:
        for method, rank in ranking.mean_ranks.items():
            style = series_style(str(method)) | {"background": False}
            series.append(Series(str(method), [rank], [str(method)], kind="points", **style))
        best = float(ranking.mean_ranks.iloc[0])
        reach = [best, best + ranking.critical_difference]
        series.append(Series("critical difference", reach, ["critical difference"] * 2, GREY))
    n = len(ranking.mean_ranks) if ranking else 0
    caption = (
        f"Rank by AUC on {ranking.n_datasets} datasets, 1 is best. Methods farther apart than the grey bar differ at 5 % "
        f"(Nemenyi); Friedman test of no difference at all: p = {ranking.p:.2g}."
        if ranking
        else "Ranks over datasets need three methods that finished on the same two datasets or more."
    )
    return Chart("ranks", "Mean rank over datasets", caption,
                 [[Panel("", "mean rank", "", series, missing="fewer than two datasets, or three methods")]],
                 row_height=max(260, 22 * n + 100))  # fmt: skip


def _of(frame: pd.DataFrame, dataset: str) -> pd.DataFrame:
    return frame[frame["dataset"] == dataset]


def _thin(n: int) -> np.ndarray:
    """At most `_POINTS` indices below n, denser at the start."""
    if n <= _POINTS:
        return np.arange(n)
    return np.unique(np.geomspace(1, n, _POINTS).astype(int) - 1)


def _nothing() -> Panel:
    return Panel("", "", "", missing="no fit has finished")


def _left_out(sweep: SweepRecords) -> str:
    rest = sweep.datasets[_DATASETS:]
    return f" Not drawn, but in the tables: {', '.join(rest)}." if rest else ""


def _cycle(values: tuple[str, ...]) -> list[str]:
    return list(values) * 20
