"""Figures about the learned metrics: scores, balance, spectra, classes, differences, ranks."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dashboards.charts import (
    DATASETS,
    FOREGROUND,
    GREY,
    Chart,
    Panel,
    Series,
    left_out,
    of_dataset,
    series_style,
    thinned,
)
from dashboards.records import SweepRecords
from dashboards.statistics import Ranking
from solvers.methods import PAIRS

_DIFFERENCES = 12  # against the best, per dataset; the table has all


def foreground(sweep: SweepRecords) -> list[str]:
    """Methods that figures of many lines show in colour: all if there are few, else the pairs and the best."""
    ranked = sweep.ranked()
    if len(ranked) <= FOREGROUND:
        return ranked
    paired = [method for pair in PAIRS for method in pair if method in ranked]
    return list(dict.fromkeys([*paired, *ranked]))[:FOREGROUND]


def scores_figure(sweep: SweepRecords, published: pd.DataFrame) -> Chart:
    """Test score of every method, best first; `published` has dataset, method, value where the data are the paper's."""
    panels = []
    for dataset in sweep.datasets[:DATASETS]:
        groups = of_dataset(sweep.results, dataset).groupby("method")["test_score"]
        mean, error = groups.mean(), groups.sem()
        series = []
        for method in sweep.ranked(dataset):
            if not np.isnan(mean[method]):
                half = None if np.isnan(error[method]) else [error[method]]
                note = f"{method}: {mean[method]:.4f}" + ("" if half is None else f" ± {half[0]:.4f}")
                style = series_style(method)
                series.append(
                    Series(method, [mean[method]], [method], kind="points", error=half, notes=[note], **style)
                )
        printed = published[(published["dataset"] == dataset) & published["method"].isin(mean.index)]
        if len(printed) and series:
            notes = [f"{m}: published {v:g}" for m, v in zip(printed["method"], printed["value"], strict=True)]
            values, names = printed["value"].to_numpy(), list(printed["method"])
            series.append(Series("published", values, names, GREY, "points", symbol="other", notes=notes))
        panels.append(Panel(dataset, f"{sweep.score_title} on the test part", "", series, missing="no result yet"))
    squares = " Grey squares: published." if any(s.name == "published" for p in panels for s in p.series) else ""
    return Chart(
        "scores",
        "Score of every method",
        f"Mean over splits; bars are standard errors.{squares}" + left_out(sweep.datasets),
        panels,
        legend=False,
    )


def balance_figure(sweep: SweepRecords) -> Chart:
    """Infrequent against frequent classes: a balanced method is on the diagonal."""
    panels = []
    for dataset in sweep.datasets[:DATASETS]:
        means = of_dataset(sweep.results, dataset).dropna(subset=["auc_frequent", "auc_infrequent"]).groupby("method")
        points = means[["auc_frequent", "auc_infrequent"]].mean()
        series = []
        for method in sweep.ranked(dataset):
            if method in points.index:
                x, y = points.loc[method].to_numpy(dtype=float)
                note = f"{method}: frequent {x:.4f}, infrequent {y:.4f}"
                series.append(Series(method, [x], [y], kind="points", notes=[note], **series_style(method)))
        panels.append(
            Panel(
                dataset,
                "AUC, frequent classes",
                "AUC, infrequent classes",
                series,
                diagonal=True,
                missing=f"{dataset}: all classes are frequent, or all infrequent (frequent_above decides)",
            )
        )
    return Chart(
        "balance",
        "Balance between frequent and infrequent classes",
        "Mean over splits. On the dotted line, both kinds of classes are served alike." + left_out(sweep.datasets),
        panels,
        height=330,
    )


def spectrum_figure(sweep: SweepRecords) -> Chart:
    """Eigenvalues of each learned metric."""
    panels, shown = [], foreground(sweep)
    for dataset in sweep.datasets[:DATASETS]:
        series = []
        for (name, method), values in sweep.arrays.items():
            if name == dataset and "components" in values and values["components"].size:
                eigenvalues = metric_spectrum(values["components"])
                kept = thinned(len(eigenvalues))
                series.append(Series(method, kept + 1.0, eigenvalues[kept], **series_style(method, shown)))
        missing = f"{dataset}: no refit yet whose metric is a linear map"
        panels.append(Panel(dataset, "eigenvalue number", "eigenvalue of M", series, y_log=True, missing=missing))
    return Chart(
        "spectrum",
        "Spectrum of the learned metrics",
        "Eigenvalues of M = L'L in the first split, largest first: flat is close to orthogonal, short is compact."
        + left_out(sweep.datasets),
        panels,
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


def classes_figure(sweep: SweepRecords) -> Chart:
    """AUC of each class against its size."""
    panels, shown = [], foreground(sweep)
    for dataset in sweep.datasets[:DATASETS]:
        series = []
        for (name, method), values in sweep.arrays.items():
            if name == dataset and "class_auc" in values and method in shown:
                sizes, auc = binned_classes(values["class_sizes"], values["class_auc"])
                series.append(Series(method, sizes, auc, kind="points", **series_style(method)))
        panels.append(
            Panel(
                dataset,
                "examples of the class",
                "AUC of its queries",
                series,
                x_log=True,
                missing=f"{dataset}: no refit yet",
            )
        )
    few = "" if len(shown) == len(sweep.methods) else f" The {len(shown)} methods in colour elsewhere are drawn."
    return Chart(
        "classes",
        "AUC of each class against its size",
        f"First split; with more than 60 classes, means over classes of similar size. A balanced metric is level.{few}"
        + left_out(sweep.datasets),
        panels,
    )


def binned_classes(sizes: np.ndarray, auc: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sizes and AUC of the classes that have one; means over neighbours where there are many."""
    known = np.isfinite(auc)
    frame = pd.DataFrame({"size": sizes[known].astype(float), "auc": auc[known]}).sort_values("size", kind="stable")
    if len(frame) > 60:
        frame = frame.groupby(np.arange(len(frame)) * 60 // len(frame)).mean()
    return frame["size"].to_numpy(), frame["auc"].to_numpy()


def differences_figure(sweep: SweepRecords, differences: pd.DataFrame) -> Chart:
    """The best method of each dataset minus every other, with its interval; then each convex method's counterpart."""
    panels = []
    for dataset in sweep.datasets[:DATASETS]:
        found = of_dataset(differences, dataset)
        if found.empty:
            continue
        paired = {frozenset(pair) for pair in PAIRS}
        is_pair = [frozenset(two) in paired for two in zip(found["first"], found["second"], strict=True)]
        best = sweep.ranked(dataset)[0]
        against_best = found[found["first"] == best].head(_DIFFERENCES)
        chosen = pd.concat([against_best, found[np.array(is_pair) & (found["first"] != best)]])
        series = []
        for first, second, mean, half_width in zip(
            *(chosen[name] for name in ("first", "second", "difference", "half_width")), strict=True
        ):
            half = 0.0 if np.isnan(half_width) else float(half_width)
            name = f"{first} - {second}"
            note = f"{name}: {mean:+.4f} ± {half:.4f}"
            style = series_style(first)
            series.append(Series(name, [mean], [name], kind="points", error=[half], notes=[note], **style))
        panels.append(Panel(dataset, f"difference in {sweep.score_title}", "", series, zero=True))
    return Chart(
        "differences",
        "The best method against the others",
        "Bars are 95 % intervals of the corrected resampled t-test, over the test parts of the splits or, with one "
        "split, over the tuning folds; they are not corrected for the number of comparisons, the table is. "
        "Convex methods and their counterparts are shown, too." + left_out(sweep.datasets),
        panels or [Panel("", "", "", missing="no two methods have finished on the same data")],
        legend=False,
    )


def ranks_figure(ranking: Ranking | None) -> Chart:
    """Mean ranks over datasets, and how far apart they must be."""
    series, caption = [], ""
    if ranking is not None:
        for method, rank in ranking.mean_ranks.items():
            note = [f"{method}: {rank:.2f}"]
            style = series_style(str(method))
            series.append(Series(str(method), [float(rank)], [str(method)], kind="points", notes=note, **style))
        best = float(ranking.mean_ranks.iloc[0])
        reach = [best, best + ranking.critical_difference]
        series.append(Series("critical difference", reach, ["critical difference"] * 2, GREY))
        caption = (
            f"Rank on {ranking.n_datasets} datasets, 1 is best. Methods farther apart than the grey bar differ at 5 % "
            f"(Nemenyi); Friedman test of no difference at all: p = {ranking.p:.2g}."
        )
    missing = "ranks over datasets need three methods that finished on the same two datasets or more"
    panel = Panel("", "mean rank", "", series, missing=missing)
    return Chart("ranks", "Mean rank over datasets", caption, [panel], legend=False)
