"""A whole range of gammas from one fit: the curve of scores over gamma, fine where it matters.

The path gives a metric for every gamma; scoring one costs about as much as a step of the solver. So a coarse grid is
scored first, the same in every fold, and then a few times the top of the parabola through the best point and those
beside it. A metric that serves several gammas is scored once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.fits.record import Curve
from sweep.fits.scoring import tuning_score
from sweep.fits.spec import FitSpec

_PER_DECADE = 2
_REFINED = 3
# Gammas nearer to each other than this are as good as one.
_NEAR = 1.08
# A path only has to find gamma, for which a percent is enough; the refit has the sweep's own tolerance.
_TOLERANCE = 0.01
# Numbers of the eigenvalues that a record keeps, the largest being the first.
_PLACES = (1, 2, 5, 10, 20, 50, 100, 200, 500)


def path_tolerance(spec: FitSpec) -> float:
    """Relative gap that a path has to prove at every gamma."""
    settings = dict(spec.settings)
    return float(settings.get("path_tol") or max(_TOLERANCE, settings.get("tol", 0.0)))


def coarse_gammas(low: float, high: float) -> list[float]:
    """The gammas that every fold scores, both ends included, rounded to what people can read."""
    steps = max(1, round(_PER_DECADE * math.log10(high / low)))
    inner = (low * (high / low) ** (k / steps) for k in range(1, steps))
    return [low, *(float(f"{gamma:.3g}") for gamma in inner), high]


@dataclass(frozen=True)
class _Look:
    """What is kept of the metric at one gamma."""

    score: float
    gap: float
    rank: int
    objective: float
    nonconvex: tuple[float | None, ...]
    spectrum: tuple[float, ...]


def fit_path(spec: FitSpec, path: Any, X: Any, y: Any, frequent: np.ndarray) -> tuple[Curve, Any]:
    """Scores of a fitted path over gamma on held-out rows, and the metric with the best of them."""
    assert spec.gammas is not None
    sign = 1.0 if spec.maximize else -1.0
    looks: dict[float, _Look] = {}
    scores: dict[int, float] = {}  # by the number of the metric

    def look(gamma: float) -> None:
        model, number = path.at(gamma), path.metric_number(gamma)
        if number not in scores:
            scores[number] = tuning_score(spec, model.transform(X), y, frequent)
        looks[gamma] = _look(model, scores[number])

    def best() -> float:
        return max(looks, key=lambda gamma: (sign * looks[gamma].score, gamma))

    coarse = coarse_gammas(*spec.gammas)
    for gamma in coarse:
        look(gamma)
    for _ in range(_REFINED):
        gamma = _top({gamma: sign * each.score for gamma, each in looks.items()})
        if min(abs(math.log(gamma / other)) for other in looks) < math.log(_NEAR):
            break
        look(gamma)
    gammas = sorted(looks)
    found = [looks[gamma] for gamma in gammas]
    sfn, vnd, ldd = zip(*(each.nonconvex for each in found), strict=True)
    curve = Curve(
        gammas=tuple(gammas),
        scores=tuple(each.score for each in found),
        gaps=tuple(each.gap for each in found),
        ranks=tuple(each.rank for each in found),
        objectives=tuple(each.objective for each in found),
        knots=tuple(float(gamma) for gamma in path.knots_),
        sfn=sfn,
        vnd=vnd,
        ldd=ldd,
        places=tuple(place for place in _PLACES if place <= max(each.rank for each in found)),
        spectra=tuple(each.spectrum for each in found),
        n_coarse=len(coarse),
        n_scored=len(scores),
        kept=best(),
    )
    chosen = path.at(best())
    chosen.n_eigh_ = path.n_eigh_  # the whole path's, not one metric's
    chosen.converged_ = path.converged_
    return curve, chosen


def _look(model: Any, score: float) -> _Look:
    from solvers.backend import to_numpy
    from solvers.theory import non_convex_values

    L = to_numpy(model.components_)
    eigenvalues = np.sort(np.sum(L * L, axis=1, dtype=np.float64))[::-1]  # the rows of L are orthogonal
    values = non_convex_values(eigenvalues)
    return _Look(
        score=score,
        gap=float(model.relative_gap_),
        rank=int(model.rank_),
        objective=float(model.objective_),
        nonconvex=tuple(_finite(value) for value in (values.sfn, values.vnd, values.ldd)),
        spectrum=tuple(float(f"{eigenvalues[place - 1]:.4g}") for place in _PLACES if place <= len(eigenvalues)),
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _top(scores: dict[float, float]) -> float:
    """Where the parabola over log gamma through the best score and those beside it is highest.

    At an end of the range, half-way to the one beside it.
    """
    gammas = sorted(scores)
    best = max(gammas, key=lambda gamma: (scores[gamma], gamma))
    place = gammas.index(best)
    beside = [*gammas[max(0, place - 1) : place], *gammas[place + 1 : place + 2]]
    if len(beside) == 1:
        return float(f"{math.sqrt(best * beside[0]):.3g}")
    low, high = (math.log(gamma / best) for gamma in beside)
    fallen = [scores[best] - scores[gamma] for gamma in beside]
    bend = fallen[0] * high - fallen[1] * low  # zero where all three are equal
    shift = (fallen[0] * high * high - fallen[1] * low * low) / (2 * bend) if bend > 0 else (low + high) / 2
    return float(f"{best * math.exp(shift):.3g}")
