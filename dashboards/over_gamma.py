"""Numbers over gamma, from the curves of paths and from the fits of grids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dashboards.records import NONCONVEX_VALUES, SweepRecords, in_order
from solvers.methods import METHODS, PAIRS
from sweep.fits import Curve
from sweep.store.results import StudyRecords

Line = tuple[np.ndarray, np.ndarray]  # gammas ascending, values; NaN where there is none


def on_path(sweep: SweepRecords, dataset: str) -> list[str]:
    """Methods whose gamma was tuned by the path."""
    return in_order({s.method for s in sweep.studies if s.dataset == dataset and s.curves})


def path_studies(sweep: SweepRecords, dataset: str, method: str) -> list[StudyRecords]:
    return [s for s in sweep.studies if (s.dataset, s.method) == (dataset, method) and s.curves]


def path_lines(
    sweep: SweepRecords, dataset: str, method: str, column: Callable[[Curve], Sequence[float | None]]
) -> list[Line]:
    """One line per fold and split that kept the column."""
    lines = [joined(spans, column) for s in path_studies(sweep, dataset, method) for spans in s.curves.values()]
    return [line for line in lines if len(line[0])]


def joined(curves: Mapping[tuple[float, float], Curve], column: Callable[[Curve], Sequence[float | None]]) -> Line:
    """One fold's values over gamma, over all ranges that it covered; empty if it did not keep them."""
    found: dict[float, float] = {}
    for curve in curves.values():
        values = column(curve)
        if len(values) == len(curve.gammas):
            found |= {g: np.nan if v is None else float(v) for g, v in zip(curve.gammas, values, strict=True)}
    gammas = np.array(sorted(found))
    return gammas, np.array([found[gamma] for gamma in gammas])


def together(lines: Sequence[Line]) -> Line:
    """Mean of lines where all of them reach, linear in log gamma between their points."""
    low, high = max(g[0] for g, _ in lines), min(g[-1] for g, _ in lines)
    gammas = np.unique(np.concatenate([g for g, _ in lines]))
    gammas = gammas[(gammas >= low) & (gammas <= high)]
    return gammas, np.mean([np.interp(np.log(gammas), np.log(g), v) for g, v in lines], axis=0)


def relaxed_values() -> dict[str, str]:
    """Each convex method with the non-convex regularizer that it stands for."""
    values = {convex: str(METHODS[nonconvex].params["regularizer"]) for convex, nonconvex in PAIRS}
    return {convex: name for convex, name in values.items() if name in NONCONVEX_VALUES}


def regularizer_lines(sweep: SweepRecords, method: str, name: str) -> dict[str, Line]:
    """Mean of a non-convex regularizer over a method's tuning fits, by dataset: along paths, at a grid's gammas."""
    found: dict[str, Line] = {}
    fits = sweep.fits[(sweep.fits["method"] == method) & sweep.fits["fold"].notna() & sweep.fits["gamma"].notna()]
    means = fits.dropna(subset=[f"theory_{name}"]).groupby(["dataset", "gamma"])[f"theory_{name}"].mean()
    for dataset, of_grid in means.groupby(level=0):
        found[str(dataset)] = of_grid.index.get_level_values("gamma").to_numpy(float), of_grid.to_numpy(float)
    for dataset in sweep.datasets:
        lines = path_lines(sweep, dataset, method, lambda curve: getattr(curve, name))
        if lines:
            gammas, values = together(lines)
            known = np.isfinite(values)
            found[dataset] = gammas[known], values[known]
    return found


def eigenvalue_lines(sweep: SweepRecords, dataset: str, method: str) -> dict[int, Line]:
    """Eigenvalues of M along the path by their number, the largest being 1: geometric means over folds and splits."""
    curves = [c for s in path_studies(sweep, dataset, method) for spans in s.curves.values() for c in spans.values()]
    found: dict[int, Line] = {}
    for place in sorted({place for curve in curves for place in curve.places}):
        lines = path_lines(sweep, dataset, method, lambda curve, place=place: _numbered(curve, place))  # type: ignore[misc]
        gammas, logs = together([(g, np.log(v)) for g, v in lines])
        if np.isfinite(logs).sum() > 1:
            found[place] = gammas, np.exp(logs)
    return found


def _numbered(curve: Curve, place: int) -> list[float | None]:
    """The eigenvalue of one number at every gamma; None where the rank is lower."""
    if not curve.spectra:
        return []
    if place not in curve.places:
        return [None] * len(curve.gammas)
    index = curve.places.index(place)
    return [values[index] if index < len(values) else None for values in curve.spectra]
