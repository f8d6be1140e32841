"""Figures over gamma: the path's curves with what is proved about them, and the grid's points on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dashboards.charts import DATASETS, GREY, Chart, Panel, Series, left_out, series_style
from dashboards.records import SweepRecords, in_order
from sweep.fits import Curve
from sweep.store.results import StudyRecords
from sweep.studies.path import mean_curve

_METHODS = 6  # panels per dataset; the results table has the choices of all


def path_figure(sweep: SweepRecords) -> Chart:
    """Score over gamma: the mean over folds as one curve, the folds behind it, what a grid would have seen on it."""
    panels = []
    for dataset in sweep.datasets[:DATASETS]:
        for method in _on_path(sweep, dataset)[:_METHODS]:
            studies = _studies(sweep, dataset, method)
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
            grid, mean = _together(means)
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
        "Squares: what a grid sweep of the same data in this home found at its few gammas." + left_out(sweep.datasets),
        panels or [Panel("", "", "", missing=_NO_PATH)],
        legend=False,
    )


def certificate_figure(sweep: SweepRecords) -> Chart:
    """How far below the objective the optimal value can lie, for every gamma: proved, not estimated."""
    panels = []
    for dataset in sweep.datasets[:DATASETS]:
        for method in _on_path(sweep, dataset)[:_METHODS]:
            studies = _studies(sweep, dataset, method)
            tolerance = float(dict(studies[0].fits[0][0].settings).get("tol", 1e-3))
            curves = [_joined(each, lambda c: c.gaps) for study in studies for each in study.curves.values()]
            gammas, worst = _worst(curves)
            lowest = -100 * worst
            notes = [f"gamma={g:g}: at most {-low:.3g} %" for g, low in zip(gammas, lowest, strict=True)]
            colour = series_style(method)["colour"]
            band = Series("where the optimum lies", gammas, lowest, colour, "band", upper=np.zeros(len(gammas)))
            edge = Series("proven bound", gammas, lowest, colour, "points", symbol="mdml", notes=notes)
            title = f"{dataset}, {method}"
            level = [(-100 * tolerance, GREY)]
            panels.append(Panel(title, "gamma", "optimal value, % off", [band, edge], x_log=True, levels=level))
    return Chart(
        "certificate",
        "What is proved along the path",
        "The optimal value lies in the band: at most so many percent below the objective of the metric that the path "
        "gives at that gamma (of the larger of 1 and the objective; worst of the folds and splits that looked there). "
        "The dotted line is the tolerance." + left_out(sweep.datasets),
        panels or [Panel("", "", "", missing=_NO_PATH)],
        height=190,
        legend=False,
    )


def _worst(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Largest value at each gamma of the curves that have it: nothing in between is proved, so nothing is guessed."""
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
        for method in _on_path(sweep, dataset):
            curves = [c for s in _studies(sweep, dataset, method) for c in s.curves.values()]
            gammas, ranks = _together([_joined(each, lambda c: c.ranks) for each in curves])
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


def _on_path(sweep: SweepRecords, dataset: str) -> list[str]:
    return in_order({s.method for s in sweep.studies if s.dataset == dataset and s.curves})


def _studies(sweep: SweepRecords, dataset: str, method: str) -> list[StudyRecords]:
    return [s for s in sweep.studies if (s.dataset, s.method) == (dataset, method) and s.curves]


def _joined(
    curves: Mapping[tuple[float, float], Curve], column: Callable[[Curve], Sequence[float]]
) -> tuple[np.ndarray, np.ndarray]:
    """One fold's values over gamma, over all ranges that it covered."""
    found = {g: float(v) for c in curves.values() for g, v in zip(c.gammas, column(c), strict=True)}
    gammas = np.array(sorted(found))
    return gammas, np.array([found[gamma] for gamma in gammas])


def _together(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean of curves where all of them reach, linear in log gamma between their points."""
    low, high = max(g[0] for g, _ in curves), min(g[-1] for g, _ in curves)
    gammas = np.unique(np.concatenate([g for g, _ in curves]))
    gammas = gammas[(gammas >= low) & (gammas <= high)]
    return gammas, np.mean([np.interp(np.log(gammas), np.log(g), v) for g, v in curves], axis=0)


_NO_PATH = "no method was tuned by the path of gamma (search: path)"
