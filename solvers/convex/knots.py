"""A knot of a path: weights at one gamma, what they prove at others, and the metrics that come with them.

One decomposition G = U diag(g) U' gives a metric U diag(x) U' for every gamma around its own, each with eigenvalues
polished for it (`solvers.convex.diagonal`), after one pass over the pairs for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import array_api_compat.numpy as numpy_namespace
import numpy as np

from solvers.backend import Array, Backend, Namespace, to_numpy
from solvers.convex.certified import Newton
from solvers.convex.diagonal import diagonal
from solvers.convex.dual import DualCurve, DualPoint, Solution, SpectralProblem, relative_gap
from solvers.convex.envelope import Knot, Line, Ray
from solvers.convex.mdml import MDML, solver_for
from solvers.convex.normal import normalize
from solvers.convex.tuning import TUNING
from solvers.pairs import PairProblem
from solvers.regularizers.spectral import SmoothConjugate


@dataclass(frozen=True)
class Near:
    """A metric of a knot, and what its mixtures need: <C_S, M> and the distances of the pairs, on the host."""

    line: Line
    similar: float
    distances: np.ndarray


@dataclass(frozen=True)
class Blend:
    """Weights between two knots, and their G, which is as exact as those of the two."""

    alpha: Array
    G: Array


def blend(first: Blend, second: Blend, share: float) -> Blend:
    """(1 - share) of one and share of another."""
    return Blend(*((1 - share) * a + share * b for a, b in ((first.alpha, second.alpha), (first.G, second.G))))


@dataclass(frozen=True)
class Found:
    """A knot and what came with it.

    Attributes
    ----------
    near : metrics with the eigenvectors of its G.
    lines : others.
    start : what the next knot can begin from: a dual point, or a metric.
    n_eigh, reason : what it took, and why it did not reach its tolerance.
    """

    knot: Knot
    near: list[Near]
    lines: list[Line]
    start: DualPoint | Array
    n_eigh: int
    reason: str = ""


@dataclass(frozen=True)
class Course:
    """What the knots of a path by the Newton method share: the problem, its lowest gamma, and its tolerance."""

    problem: PairProblem
    penalty: SmoothConjugate
    low: float
    tol: float
    backend: Backend


def newton_knot(course: Course, gamma: float, *, tol: float, max_iter: int, start: DualPoint | Blend | None) -> Found:
    """No more than is needed for a metric within the tolerance: a blend as it is, the iteration, a whole fit."""
    normal = normalize(course.problem, course.penalty, gamma, course.backend)
    newton, unit = Newton(normal, tol, max_iter, course.backend, TUNING.knots), normal.margin / normal.unit

    def found(point: DualPoint, curve: DualCurve, solution: Solution | None = None) -> Found:
        knot = Knot(gamma, to_numpy(point.alpha), None, curve)
        lines = [] if solution is None else [own_line(solution, gamma, course.backend)]
        near = nearby(course, gamma, point, curve, unit)
        return Found(knot, near, lines, point, newton.p.n_eigh, "" if solution is None else solution.reason)

    def within(found: Found) -> bool:
        return any(_gap(each.line, found.knot.curve, gamma, course.problem.margin) <= tol for each in found.near)

    if isinstance(start, Blend):
        start, bound = newton.proven(newton.p.point(start.alpha, start.G, fresh=True))
        as_it_is = found(start, bound.curve)
        if within(as_it_is):
            return as_it_is
    newton.descend(start)
    point, bound = newton.proven()
    descended = found(point, bound.curve)
    if within(descended):
        return descended
    solution = newton.complete()
    assert solution.start is not None
    assert solution.curve is not None
    return found(solution.start, solution.curve, solution)


def fitted_knot(
    problem: PairProblem, gamma: float, *, tol: float, model: MDML, start: Array | None, backend: Backend
) -> Found:
    """By whichever solver the model's regularizer has."""
    penalty = model._penalty()
    model.gamma, model.tol, model.max_iter = gamma, tol, None
    solution = solver_for(penalty, model.regularizer).solve(problem, penalty, gamma, model, start, backend)
    assert solution.dual_objective is not None
    assert solution.weights is not None
    matrix = None if solution.matrix is None else to_numpy(solution.matrix)
    knot = Knot(gamma, to_numpy(solution.weights), matrix, Ray(gamma, solution.dual_objective))
    return Found(knot, [], [own_line(solution, gamma, backend)], solution.M, solution.n_eigh, solution.reason)


def own_line(solution: Solution, gamma: float, backend: Backend) -> Line:
    """A fit's own metric."""
    xp, values, vectors, loss = backend.xp, solution.eigenvalues, solution.eigenvectors, solution.loss
    kept = xp.nonzero(values > 0)[0]
    if kept.shape[0] == 0:  # M = 0 still has a shape
        kept = backend.indices([values.shape[0] - 1])
    omega = (solution.objective - loss) / gamma
    return Line(loss, omega, to_numpy(xp.take(values, kept)), to_numpy(xp.take(vectors, kept, axis=1)))


def nearby(course: Course, gamma: float, point: DualPoint, curve: DualCurve, unit: float) -> list[Near]:
    """For some gamma' around a knot about the best metric with the eigenvectors of its G.

    `unit` is what an eigenvalue of G in `point` is in the problem's units. Downward they go as far as what the knot's
    weights prove is within the tolerance.
    """
    problem, penalty, xp, g = course.problem, course.penalty, course.backend.xp, unit * point.g
    p = SpectralProblem(problem, penalty, gamma, course.backend)

    def suggested(each: float) -> Array:
        feasible = -float(g[0]) < 0.99 * each * penalty.dual_limit
        return penalty.maximizer(-g / each, xp=xp) if feasible else xp.zeros_like(g)

    x, more = suggested(gamma), suggested(gamma * TUNING.above[-1])
    x = xp.where(x > 0, x, more)
    rank = _rank(penalty, gamma, g, x, TUNING.negligible * course.tol * p.margin, xp=xp)
    if rank == 0:
        return []
    vectors = point.U[:, :rank]
    family = diagonal(p, penalty, vectors, problem.dissimilar.X @ vectors, x[:rank])
    host, rest = to_numpy(vectors), float(np.sum(penalty.value(np.zeros(g.shape[0] - rank), xp=numpy_namespace)))

    def metrics(factors: Sequence[np.ndarray]) -> list[Near]:
        spectra = [family.eigenvalues(w) for w in factors]
        distances = to_numpy(family.distances(np.stack(spectra, axis=1), p))
        return [metric(*each) for each in zip(factors, spectra, distances.T, strict=True)]

    def metric(w: np.ndarray, x: np.ndarray, distances: np.ndarray) -> Near:
        similar = float(family.similar @ w)
        loss = similar + float(np.mean(np.maximum(p.margin - distances, 0.0)))
        omega = float(np.sum(penalty.value(x, xp=numpy_namespace))) + rest
        return Near(Line(loss, omega, x, host), similar, np.ascontiguousarray(distances))

    best = [family.best(gamma, np.ones(len(family.starts)), p)]
    for ratios in (TUNING.above, TUNING.below):
        w = best[0]
        for ratio in ratios:  # away from the knot, each from the one before
            best.append(w := family.best(gamma * ratio, w, p, near=True))
    found, ratio = metrics(best), TUNING.below[-1]
    while gamma * ratio > course.low and _gap(found[-1].line, curve, gamma * ratio, p.margin) <= course.tol:
        ratio *= TUNING.further
        w = family.best(gamma * ratio, w, p, near=True)
        found += metrics([w])
    return found


def _rank(penalty: SmoothConjugate, gamma: float, g: Array, x: Array, negligible: float, *, xp: Namespace) -> int:
    """How many eigenvalues x (D,) matter: the others together change F by next to nothing."""
    none = xp.zeros_like(x)
    if not math.isfinite(float(penalty.value(none[:1], xp=xp)[0])):
        return int(xp.sum(xp.astype(x > 0, xp.int64)))
    parts = xp.abs(g * x + gamma * (penalty.value(x, xp=xp) - penalty.value(none, xp=xp)))
    rest = xp.sum(parts) - xp.cumulative_sum(parts)
    return int(xp.sum(xp.astype((x > 0) & (rest >= negligible), xp.int64)))


def _gap(line: Line, curve: DualCurve | Ray, gamma: float, margin: float) -> float:
    return relative_gap(line.at(gamma), curve.at(gamma)[0], line.loss, margin)
