"""The same problem in units of its own: margin 1, typical dissimilar pairs at a squared distance of about 1.

With x = 2^k u and M = (margin / 4^k) N,

    F(M; x, margin, gamma, h) = margin F(N; u, 1, gamma / margin, h(margin / 4^k .)) ,

so nothing in the solver depends on the scale of features, and single precision neither overflows nor
vanishes. A power of two changes no digit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from solvers.backend import Array, Backend
from solvers.convex.tuning import TUNING
from solvers.pairs import PairProblem
from solvers.regularizers.spectral import Scaled, SmoothConjugate


@dataclass(frozen=True)
class NormalProblem:
    """A problem in its own units.

    Attributes
    ----------
    problem : with margin 1.
    penalty, gamma : h(unit .), gamma / margin.
    unit : what an eigenvalue of 1 here is in the user's units.
    margin : what F = 1 here is in the user's units.
    """

    problem: PairProblem
    penalty: Scaled
    gamma: float
    unit: float
    margin: float


def normalize(problem: PairProblem, penalty: SmoothConjugate, gamma: float, backend: Backend) -> NormalProblem:
    """The problem in its own units; points are centred already."""
    size = typical_distance(problem, backend)
    power = round(math.log2(size) / 2) if size > 0 else 0
    shrink = 2.0**-power
    scaled = replace(
        problem,
        similar_scatter=shrink * shrink * problem.similar_scatter,
        dissimilar=problem.dissimilar.of(shrink * problem.dissimilar.X),
        margin=1.0,
        similar_size=shrink * shrink * problem.similar_size,
    )
    unit = problem.margin * shrink * shrink
    return NormalProblem(scaled, Scaled(penalty, unit), gamma / problem.margin, unit, problem.margin)


def typical_distance(problem: PairProblem, backend: Backend) -> float:
    """Median squared distance of some of the dissimilar pairs, else their largest, else that of similar pairs."""
    xp, pairs = backend.xp, problem.dissimilar
    chosen = xp.arange(0, len(pairs), -(-len(pairs) // TUNING.judges), device=backend.device)
    found: Array = xp.sort(pairs.subset(chosen, pairs.X).projected_distances(pairs.X))
    middle, most = float(found[found.shape[0] // 2]), float(found[-1])
    return middle or most or float(xp.linalg.trace(problem.similar_scatter))
