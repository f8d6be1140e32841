"""Figures about the learned metrics: scores, balance, spectra, classes, differences, ranks."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

from dashboards.charts import (
    DATASETS,
    GREY,
    Chart,
    Panel,
    Series,
    left_out,
    nothing,
    of_dataset,
    series_style,
    thinned,
)
from dashboards.records import Arrays, SweepRecords
from dashboards.statistics import Ranking

_DATASET_COLOURS = ("#2f6fde", "#d9480f", "#0f9d58", "#8a4fd0", "#b8860b", "#0b8fa6", "#c2367c")


def regularizers_figure(sweep: SweepRecords) -> Chart:
    """The paper's figure: non-convex regularizers at the convex solution, over gamma."""
    panels = []
    for name in ("sfn", "ldd", "vnd"):
        method = f"mdml-c{name}"
        fits = sweep.fits[(sweep.fits["method"] == method) & sweep.fits[name].notna()]
        means = fits.groupby(["dataset", "gamma"])[name].mean()
        series = [
            Series(str(dataset), values.index.get_level_values("gamma").to_numpy(), values.to_numpy(), colour)
            for colour, (dataset, values) in zip(
                itertools.cycle(_DATASET_COLOURS), means.groupby(level=0), strict=False
            )
        ]
        panels.append(
            Panel(
                f"{name.upper()} in {method}",
                "gamma",
                f"non-convex {name.upper()}",
                series,
                x_log=True,
                missing=f"{method}: not run, or its solutions have no finite {name.upper()}",
            )
        )
    return Chart(
        "regularizers",
        "Non-convex regularizers at the convex solution",
        "Mean over folds and splits. The paper: all three fall as gamma grows, so the convex "
        "regularizers are good "
        "stand-ins. A solution of low rank has no finite LDD.",
        [panels],
    )


def scores_figure(sweep: SweepRecords, paper: pd.DataFrame) -> Chart:
    """Test AUC of every method, with the published one where there is one."""
    panels = []
    for dataset in sweep.datasets[:DATASETS]:
        groups = of_dataset(sweep.results, dataset).groupby("method")["auc_all"]
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
            series.append(
                Series(
                    "published",
                    printed["value"].to_numpy(),
                    list(printed["method"]),
                    GREY,
                    "points",
                    symbol="other",
                )
            )
        panels.append(Panel(dataset, "AUC over all test queries", "", series, missing="no result yet"))
    return Chart(
        "scores",
        "Retrieval score of every method",
        "Mean over splits; bars are standard errors." + left_out(sweep.datasets),
        [panels or [nothing()]],
        row_height=max(340, 22 * len(sweep.methods) + 80),
        legend=False,
    )


def balance_figure(sweep: SweepRecords) -> Chart:
    """Infrequent against frequent classes: a balanced method is on the diagonal."""
    panels = []
    for dataset in sweep.datasets[:DATASETS]:
        means = of_dataset(sweep.results, dataset).dropna(subset=["auc_frequent", "auc_infrequent"]).groupby("method")
        points = means[["auc_frequent", "auc_infrequent"]].mean()
        series = [
            Series(
                m,
                [points.loc[m, "auc_frequent"]],
                [points.loc[m, "auc_infrequent"]],
                kind="points",
                **series_style(m) | {"background": False},
            )
            for m in sweep.methods
            if m in points.index
        ]
        panels.append(
            Panel(
                dataset,
                "AUC, frequent classes",
                "AUC, infrequent classes",
                series,
                diagonal=True,
                missing="all classes are frequent, or all infrequent",
            )
        )
    return Chart(
        "balance",
        "Balance between frequent and infrequent classes",
        "Mean over splits. On the dotted line, both kinds of classes are served alike." + left_out(sweep.datasets),
        [panels or [nothing()]],
        row_height=380,
    )


def spectrum_figure(sweep: SweepRecords, arrays: Arrays) -> Chart:
    """Eigenvalues of each learned metric."""
    panels = []
    for dataset in sweep.datasets[:DATASETS]:
        series = []
        for (name, method), values in arrays.items():
            if name == dataset and "components" in values and values["components"].size:
                eigenvalues = metric_spectrum(values["components"])
                kept = thinned(len(eigenvalues))
                series.append(Series(method, kept + 1.0, eigenvalues[kept], **series_style(method)))
        panels.append(
            Panel(dataset, "eigenvalue number", "eigenvalue of M", series, y_log=True, missing="no refit yet")
        )
    return Chart(
        "spectrum",
        "Spectrum of the learned metrics",
        "Eigenvalues of M = L'L in the first split, largest first: flat is close to orthogonal, short is "
        "compact." + left_out(sweep.datasets),
        [panels or [nothing()]],
    )


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
    for dataset in sweep.datasets[:DATASETS]:
        series = []
        for (name, method), values in arrays.items():
            if name == dataset and "class_auc" in values:
                sizes, auc = binned_classes(values["class_sizes"], values["class_auc"])
                series.append(Series(method, sizes, auc, kind="points", **series_style(method)))
        panels.append(
            Panel(
                dataset,
                "examples of the class",
                "AUC of its queries",
                series,
                x_log=True,
                missing="no refit yet",
            )
        )
    return Chart(
        "classes",
        "AUC of each class against its size",
        "First split; with more than 60 classes, means over classes of similar size. A balanced metric "
        "is level." + left_out(sweep.datasets),
        [panels or [nothing()]],
    )


def binned_classes(sizes: np.ndarray, auc: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    known = np.isfinite(auc)
    frame = pd.DataFrame({"size": sizes[known].astype(float), "auc": auc[known]}).sort_values("size", kind="stable")
    if len(frame) > 60:
        frame = frame.groupby(np.arange(len(frame)) * 60 // len(frame)).mean()
    return frame["size"].to_numpy(), frame["auc"].to_numpy()


def differences_figure(differences: pd.DataFrame) -> Chart:
    """Convex minus non-convex AUC, with its interval, per dataset and over all."""
    series = []
    for (convex, nonconvex), group in differences.groupby(["convex", "nonconvex"], sort=False):
        style = series_style(str(convex)) | {"background": False}
        pair = f"{str(convex)[5:]} - {str(nonconvex)[5:]}"
        names = [f"{pair}, {row.dataset} ({row.basis})" for row in group.itertuples()]
        half = group["half_width"].fillna(0.0).to_numpy()
        series.append(
            Series(
                f"{convex} - {nonconvex}",
                group["difference"].to_numpy(),
                names,
                kind="points",
                error=half,
                **style,
            )
        )
    return Chart(
        "differences",
        "Paired differences: convex minus non-convex",
        "AUC over all queries; bars are 95 % intervals of the corrected resampled t-test. A bar that "
        "crosses zero is not "
        "significant; a point without a bar was not repeated.",
        [
            [
                Panel(
                    "",
                    "difference in AUC",
                    "",
                    series,
                    zero=True,
                    missing="no pair has finished on the same data",
                )
            ]
        ],
        row_height=max(260, 26 * len(differences) + 100),
        legend=False,
    )


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
        f"Rank by AUC on {ranking.n_datasets} datasets, 1 is best. Methods farther apart than the grey "
        "bar differ at 5 % "
        f"(Nemenyi); Friedman test of no difference at all: p = {ranking.p:.2g}."
        if ranking
        else "Ranks over datasets need three methods that finished on the same two datasets or more."
    )
    return Chart(
        "ranks",
        "Mean rank over datasets",
        caption,
        [[Panel("", "mean rank", "", series, missing="fewer than two datasets, or three methods")]],
        row_height=max(260, 22 * n + 100),
        legend=False,
    )
