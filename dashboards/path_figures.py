"""Figures over gamma: the path's curves with what is proved about them, and the grid's points on them."""

from __future__ import annotations

import colorsys
import itertools
from collections.abc import Sequence

import numpy as np

from dashboards.charts import DATASET_COLOURS, DATASETS, GREY, Chart, Panel, Series, left_out, series_style
from dashboards.over_gamma import (
    Line,
    eigenvalue_lines,
    on_path,
    path_lines,
    path_studies,
    regularizer_lines,
    relaxed_values,
    together,
)
from dashboards.records import SweepRecords, in_order
from sweep.fits.path import path_tolerance
from sweep.studies.path import mean_curve

_METHODS = 6  # panels per dataset; the results table has the choices of all


def path_figure(sweep: SweepRecords) -> Chart:
    """Score over gamma: the mean over folds as one curve, the folds behind it, what a grid would have seen on it."""
    panels = []
    for dataset in sweep.datasets[:DATASETS]:
        for method in on_path(sweep, dataset)[:_METHODS]:
            studies = path_studies(sweep, dataset, method)
            style = series_style(method)
            folds, means, chosen = [], [], []
            for study in studies:
                gammas, rows = mean_curve(study.curves)
                grid = np.array(gammas)
                folds += [
                    Series(f"fold {k}, split {study.split}", grid, row, style["colour"], faint=True)
                    for k, row in enumerate(rows)
                ]
                means.append((grid, rows.mean(axis=0)))
                if study.chosen is not None:
                    chosen.append(float(study.chosen.get("gamma")))
            grid, mean = together(means)
            points = sweep.beside.grid
            points = points[(points["dataset"] == dataset) & (points["method"] == method)]
            series = [*folds, Series(f"{method}, mean over folds", grid, mean, style["colour"])]
            if len(points):
                xs, ys = points["gamma"].to_numpy(float), points["score"].to_numpy(float)
                notes = [f"grid, gamma={x:g}: {y:.4f}" for x, y in zip(xs, ys, strict=True)]
                series.append(Series("a grid's points", xs, ys, GREY, "points", symbol="other", notes=notes))
            panels.append(
                Panel(f"{dataset}, {method}", "gamma", sweep.score_title, series, x_log=True, marks=sorted(set(chosen)))
            )
    return Chart(
        "path",
        "Score over the whole path of gamma",
        "Strong: mean over folds and splits; faint: single folds; a vertical line is the gamma that a split chose. "
        "Squares: what a grid sweep of the same data in this home found at its few gammas. A path's metrics are "
        "optimal within its own tolerance (settings.path_tol); fits of a grid are solved further and may differ."
        + left_out(sweep.datasets),
        panels or [Panel("", "", "", missing=_NO_PATH)],
        legend=False,
    )


def certificate_figure(sweep: SweepRecords) -> Chart:
    """How far below the objective the optimal value can lie, for every gamma: proved, not estimated."""
    panels = []
    for dataset in sweep.datasets[:DATASETS]:
        for method in on_path(sweep, dataset)[:_METHODS]:
            studies = path_studies(sweep, dataset, method)
            tolerance = path_tolerance(studies[0].tuning_fits[0][0])
            gammas, worst = _worst(path_lines(sweep, dataset, method, lambda curve: curve.gaps))
            lowest = -100 * worst
            notes = [f"gamma={g:g}: at most {-low:.3g} %" for g, low in zip(gammas, lowest, strict=True)]
            colour = series_style(method)["colour"]
            series = [Series("proven bound", gammas, lowest, colour, "points", symbol="mdml", notes=notes)]
            if all(record.fit.converged for study in studies for _, record in study.tuning_fits):
                ends, floor = gammas[[0, -1]], np.full(2, -100 * tolerance)
                series.insert(0, Series("where the optimum lies", ends, floor, colour, "band", upper=np.zeros(2)))
            title = f"{dataset}, {method}"
            level = [(-100 * tolerance, GREY)]
            panels.append(Panel(title, "gamma", "optimal value, % off", series, x_log=True, levels=level))
    return Chart(
        "certificate",
        "What is proved along the path",
        "How far below the objective of the path's metric the optimal value can lie, in percent of the objective. The "
        "band holds at every gamma: it reaches down to the path's tolerance, and is left out where some fold did not "
        "reach it. Points: the tighter bounds at gammas that were scored, worst of the folds and splits that looked "
        "there." + left_out(sweep.datasets),
        panels or [Panel("", "", "", missing=_NO_PATH)],
        height=190,
        legend=False,
    )


def _worst(curves: Sequence[Line]) -> Line:
    """Largest value at each gamma of the curves that have it."""
    found: dict[float, float] = {}
    for gammas, values in curves:
        for gamma, value in zip(gammas.tolist(), values.tolist(), strict=True):
            found[gamma] = max(value, found.get(gamma, 0.0))
    gammas = np.array(sorted(found))
    return gammas, np.array([found[gamma] for gamma in gammas])


def rank_figure(sweep: SweepRecords) -> Chart:
    """Projection vectors over gamma, of paths and of grids."""
    panels = []
    for dataset in sweep.datasets[:DATASETS]:
        series = []
        for method in on_path(sweep, dataset):
            gammas, ranks = together(path_lines(sweep, dataset, method, lambda curve: curve.ranks))
            series.append(Series(method, gammas, ranks, **series_style(method)))
        fits = sweep.fits[(sweep.fits["dataset"] == dataset) & sweep.fits["gamma"].notna() & sweep.fits["rank"].isna()]
        fits = fits[fits["vectors"].notna() & fits["fold"].notna()]
        for method in in_order(set(fits["method"])):
            means = fits[fits["method"] == method].groupby("gamma")["vectors"].mean()
            if len(means) > 1:
                x, y = means.index.to_numpy(float), means.to_numpy(float)
                series.append(Series(method, x, y, **series_style(method)))
        missing = f"{dataset}: no method without a rank of its own at two gammas or more"
        panels.append(Panel(dataset, "gamma", "projection vectors", series, x_log=True, missing=missing))
    return Chart(
        "rank-over-gamma",
        "Projection vectors over gamma",
        "Of methods that learn their rank; mean over folds and splits." + left_out(sweep.datasets),
        panels,
    )


def regularizers_figure(sweep: SweepRecords) -> Chart:
    """The paper's figure: non-convex regularizers at the convex solution, over gamma."""
    panels = []
    for method, name in relaxed_values().items():
        lines = {d: line for d, line in regularizer_lines(sweep, method, name).items() if len(line[0]) > 1}
        colours = zip(itertools.cycle(DATASET_COLOURS), lines.items(), strict=False)
        panels.append(
            Panel(
                f"{name.upper()} in {method}",
                "gamma",
                f"non-convex {name.upper()}",
                [Series(dataset, *line, colour) for colour, (dataset, line) in colours],
                x_log=True,
                missing=f"{method}: fewer than two gammas with a finite {name.upper()}",
            )
        )
    return Chart(
        "regularizers",
        "Non-convex regularizers at the convex solution",
        "Mean over folds and splits: a curve along a path, points at a grid's gammas; over the projection vectors that "
        "rank_tol keeps, so that their number counts as well. The paper: all three fall as gamma grows, so the convex "
        "regularizers are good stand-ins.",
        panels,
    )


def spectrum_over_gamma_figure(sweep: SweepRecords) -> Chart:
    """Eigenvalues of the metric along the path."""
    panels = []
    for dataset in sweep.datasets[:DATASETS]:
        for method in on_path(sweep, dataset)[:_METHODS]:
            lines = eigenvalue_lines(sweep, dataset, method)
            series = [
                Series(f"number {place}", *line, _ramp(index / max(1, len(lines) - 1)))
                for index, (place, line) in enumerate(lines.items())
            ]
            panels.append(Panel(f"{dataset}, {method}", "gamma", "eigenvalue of M", series, x_log=True, y_log=True))
    return Chart(
        "spectrum-over-gamma",
        "Spectrum over gamma",
        "Eigenvalues of M by their number, the largest being 1; geometric means over folds and splits. A line ends "
        "where a fold's metric has no such eigenvalue above rank_tol. Lines close together: nearly orthogonal."
        + left_out(sweep.datasets),
        panels or [Panel("", "", "", missing=_NO_PATH)],
    )


def _ramp(share: float) -> str:
    """From blue to orange."""
    rgb = colorsys.hls_to_rgb(0.6 - 0.53 * share, 0.47, 0.65)
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


_NO_PATH = "no method was tuned by the path of gamma (search: path)"
