"""A whole range of gammas from one fit: the curve of scores over gamma, fine where it matters.

The path gives a metric for every gamma; scoring one costs about as much as a step of the solver. So a coarse grid is
scored first, the same in every fold, and then the neighbourhood of its best point is halved a few times.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sweep.fits.record import Curve
from sweep.fits.scoring import tuning_score
from sweep.fits.spec import FitSpec

_PER_DECADE = 2
_HALVINGS = 3


def coarse_gammas(low: float, high: float) -> list[float]:
    """The gammas that every fold scores, both ends included, rounded to what people can read."""
    steps = max(1, round(_PER_DECADE * math.log10(high / low)))
    inner = (low * (high / low) ** (k / steps) for k in range(1, steps))
    return [low, *(float(f"{gamma:.3g}") for gamma in inner), high]


def fit_path(spec: FitSpec, path: Any, X: Any, y: Any, frequent: np.ndarray) -> tuple[Curve, Any]:
    """Scores of a fitted path over gamma on held-out rows, and the metric with the best of them."""
    assert spec.gammas is not None
    sign = 1.0 if spec.maximize else -1.0
    models: dict[float, Any] = {}
    scores: dict[float, float] = {}

    def look(gamma: float) -> None:
        models[gamma] = path.at(gamma)
        scores[gamma] = tuning_score(spec, models[gamma].transform(X), y, frequent)

    for gamma in coarse_gammas(*spec.gammas):
        look(gamma)
    for _ in range(_HALVINGS):
        best = max(scores, key=lambda gamma: (sign * scores[gamma], gamma))
        for gamma in _between(best, sorted(scores)):
            look(gamma)
    gammas = sorted(scores)
    best = max(scores, key=lambda gamma: (sign * scores[gamma], gamma))
    curve = Curve(
        gammas=tuple(gammas),
        scores=tuple(scores[gamma] for gamma in gammas),
        gaps=tuple(float(models[gamma].relative_gap_) for gamma in gammas),
        ranks=tuple(int(models[gamma].rank_) for gamma in gammas),
        objectives=tuple(float(models[gamma].objective_) for gamma in gammas),
        knots=tuple(float(gamma) for gamma in path.knots_),
    )
    chosen = models[best]
    chosen.n_eigh_ = path.n_eigh_  # the whole path's, not one metric's
    chosen.converged_ = path.converged_
    return curve, chosen


def _between(gamma: float, known: list[float]) -> list[float]:
    """Geometric means of a gamma and its neighbours."""
    place = known.index(gamma)
    neighbours = [*known[max(0, place - 1) : place], *known[place + 1 : place + 2]]
    found = (float(f"{math.sqrt(gamma * other):.3g}") for other in neighbours)
    return [each for each in found if each not in known]
