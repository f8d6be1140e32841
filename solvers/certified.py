"""Certified minimisation of the convex problem by a Newton method on its dual (see `solvers.dual`).

One eigendecomposition G = U diag(g) U' gives the bound, the metric M(alpha) = U diag(x*(-g / gamma)) U'
that attains it, the gradient (margin - z_k' M z_k) / m, and through the divided differences of x*
the Hessian. Each iteration maximises the quadratic model of D over the box without any further
eigendecomposition and searches along the result; it stops when F and D are `tol` apart.

The loop may work in single precision; what it returns is measured in the precision of the data.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import array_api_compat

from solvers.backend import Array, Backend
from solvers.boxmodel import PairModel, maximize_model
from solvers.dual import DualPoint, Solution, SpectralProblem, relative_gap
from solvers.pairs import PairProblem
from solvers.regularizers.spectral import Spectral

# Coordinates of the model: those that carry most of the dual's curvature.
MODEL_RANK = 128
# The hinge is smoothed by this many times the gap still open.
_SMOOTHING = 3.0
_LEAST_SMOOTHING = 1e-3
# Settled pairs stay where they are while moving them would gain less than this share of the gap.
_IDLE = 0.02
# Metrics that a mixture holds before they are added up.
_TERMS = 8
# On the way from another gamma's optimum, the largest eigenvalue of M grows at most by this factor a step.
_GROWTH = 4.0
# Single precision serves down to this tolerance.
_SINGLE_TOL = 1e-4


@dataclass(frozen=True)
class _Parts:
    """What F needs of a metric M: <C_S, M>, the distances, gamma Omega(M)."""

    similar: float
    distances: Array
    penalty: float

    def mixed(self, other: _Parts, share: float) -> _Parts:
        """Parts of (1 - share) M + share M'; the penalty, being convex, is at most what is given here."""
        return _Parts(
            (1 - share) * self.similar + share * other.similar,
            (1 - share) * self.distances + share * other.distances,
            (1 - share) * self.penalty + share * other.penalty,
        )


class _Mixture:
    """A metric put together of others, sum_i w_i U_i diag(x_i) U_i', added up only when asked for."""

    def __init__(self) -> None:
        self._terms: list[tuple[float, Array, Array]] = []
        self._sum: Array | None = None

    def blend(self, share: float, scale: float, U: Array, x: Array, *, xp: Any) -> None:
        """Become (1 - share) times itself plus share times scale U diag(x) U'."""
        if share == 1:
            self._terms, self._sum = [], None
        self._terms = [((1 - share) * weight, *rest) for weight, *rest in self._terms]
        self._sum = None if self._sum is None else (1 - share) * self._sum
        self._terms.append((share * scale, U, x))
        if len(self._terms) > _TERMS:  # each holds a matrix
            self._sum, self._terms = self.dense(xp=xp), []

    def dense(self, *, xp: Any) -> Array:
        """The matrix itself."""
        products = [(U * (weight * x)[None, :]) @ xp.matrix_transpose(U) for weight, U, x in self._terms]
        return sum(products[1:], products[0]) if self._sum is None else sum(products, self._sum)


def solve_spectral(
    problem: PairProblem,
    penalty: Spectral,
    gamma: float,
    *,
    tol: float,
    max_iter: int,
    start: DualPoint | Array | None,
    backend: Backend,
) -> Solution:
    """Minimise F to a relative gap of `tol`; `start` is the dual point, or its alpha, of another solution."""
    p = SpectralProblem(problem, penalty, gamma, backend)
    history: list[dict[str, float]] = []
    solution = None
    for single in (True, False):
        if single and tol < _SINGLE_TOL:
            continue
        solver = _Newton(p, tol if not single else 0.95 * tol, max_iter, single, history)
        solution = solver.run(start)
        if solution.converged or p.n_eigh >= max_iter:
            break
        start = solution.dual  # single precision was not enough: go on in the data's own
    assert solution is not None
    return solution


class _Newton:
    """The iteration: dual point -> metric -> model of the dual -> line search."""

    def __init__(
        self, p: SpectralProblem, tol: float, max_iter: int, single: bool, history: list[dict[str, float]]
    ) -> None:
        self.p, self.xp, self.tol, self.max_iter, self.history = p, p.xp, tol, max_iter, history
        self.begin = time.perf_counter() - (history[-1]["seconds"] if history else 0.0)
        self.kind = self.xp.float32 if single else p.backend.dtype
        self.X = self.xp.astype(p.pairs.X, self.kind)
        self.tight = tol < _SINGLE_TOL
        self.line_steps = 40 if self.tight else 16
        self.best: _Parts | None = None
        self.metric = _Mixture()  # that of `best`
        self.step = 1.0
        self.dual: DualPoint | None = None  # the best so far, and F at the best multiple of its metric
        self.own_objective = math.inf

    def run(self, start: DualPoint | Array | None) -> Solution:
        p = self.p
        point = self._first(start)
        iteration, factor = 0, _SMOOTHING
        while True:
            iteration += 1
            XU, y, x, distances = self._metric(point)
            own = self._improve(point, x, distances)
            if self.dual is None or point.value > self.dual.value:
                self.dual, self.own_objective = point, own
            assert self.best is not None
            objective, bound = self._value(self.best), self.dual.value
            gap = relative_gap(objective, bound)
            self.history.append(
                {
                    "n_eigh": p.n_eigh,
                    "seconds": time.perf_counter() - self.begin,
                    "objective": objective,
                    "gap": gap,
                }
            )
            if gap <= self.tol or p.n_eigh >= self.max_iter or factor < _LEAST_SMOOTHING:
                return self._finish(iteration)
            smoothing = min(p.margin, max(factor * (objective - bound), 1e-12 * p.margin))
            change, slope = self._model_step(point, XU, x, y, distances, smoothing, objective - bound)
            following = self._search(point, change, slope, smoothing)
            if following is None:  # the smoothed problem is solved: only less smoothing helps
                factor /= 4
            else:
                point = following

    def _first(self, start: DualPoint | Array | None) -> DualPoint:
        """Where to begin: at another fit's weights where that is feasible, else at alpha = 0."""
        p, xp = self.p, self.xp
        if isinstance(start, DualPoint):
            point = p.resume(start)
            if math.isfinite(point.value):
                return self._follow(point, start.gamma)
        elif start is not None:
            return p.feasible(start, p.gradient(start))
        alpha = xp.zeros((len(p.pairs),), dtype=p.backend.dtype, device=p.backend.device)
        return p.point(alpha, p.C_S, proven=True)

    def _follow(self, point: DualPoint, gamma: float) -> DualPoint:
        """From the optimum for a larger gamma towards this one's: a step for every time that the metric grows much."""
        p, xp, goal, first = self.p, self.xp, self.p.gamma, point

        def largest(gamma: float) -> float:
            y = -point.g[:1] / gamma
            return float(p.penalty.maximizer(y, xp=xp)[0]) if float(y[0]) < p.penalty.dual_limit else math.inf

        while gamma > goal and largest(goal) > _GROWTH * largest(gamma):
            most = _GROWTH * largest(gamma)
            gamma = max(goal, gamma / 1.5)
            while gamma > goal and largest(gamma / 1.25) <= most:
                gamma /= 1.25
            p.gamma = gamma
            XU, y, x, distances = self._metric(point)
            hinge = p.margin - distances
            gap = float(xp.mean(xp.clip(hinge, 0.0, None) - point.alpha * hinge))
            smoothing = min(p.margin, max(_SMOOTHING * gap, 1e-12 * p.margin))
            here = replace(point, value=p.bound(point.alpha, point.g))
            change, slope = self._model_step(here, XU, x, y, distances, smoothing, gap)
            following = self._search(here, change, slope, smoothing)
            p.gamma = goal
            if following is None:
                break
            point = following
        if point is first:
            return first
        point = replace(point, value=p.bound(point.alpha, point.g), gamma=goal)
        return point if math.isfinite(point.value) else first

    def _metric(self, point: DualPoint) -> tuple[Array, Array, Array, Array]:
        """X U, the conjugate's arguments y, the metric's eigenvalues x and its distances.

        Without the eigenvectors far beyond the metric's own: neither it nor the model of the dual uses them.
        """
        p, xp = self.p, self.xp
        y = -point.g / p.gamma
        x = p.penalty.maximizer(y, xp=xp)
        near = min(int(xp.sum(xp.astype(x > 0, xp.int64))) + MODEL_RANK, x.shape[0])
        XU = self.X @ xp.astype(point.U[:, :near], self.kind)
        return XU, y, x, self._distances(XU, x)

    def _distances(self, XU: Array, x: Array) -> Array:
        """z' M(alpha) z from projected points; x falls along the columns of U."""
        xp = self.xp
        kept = int(xp.sum(xp.astype(x > 0, xp.int64)))
        if kept == 0:
            return xp.zeros((len(self.p.pairs),), dtype=x.dtype, device=self.p.backend.device)
        scaled = XU[:, :kept] * xp.astype(xp.sqrt(x[:kept]), self.kind)[None, :]
        return xp.astype(self.p.pairs.projected_distances(scaled), x.dtype)

    # -- primal ---------------------------------------------------------------------------------

    def _value(self, parts: _Parts) -> float:
        xp = self.xp
        hinge = xp.mean(xp.clip(self.p.margin - parts.distances, 0.0, None))
        return parts.similar + float(hinge) + parts.penalty

    def _improve(self, point: DualPoint, x: Array, distances: Array) -> float:
        """Take the best multiple of M(alpha), then the best point between it and the best metric so far.

        Returns F at the multiple.
        """
        xp = self.xp
        # <C_S, M> = <G, M> + mean(alpha d), and M shares the eigenvectors of G.
        similar = float(xp.sum(point.g * x)) + float(xp.mean(point.alpha * distances))
        scale, candidate = self._multiple(x, similar, distances)
        own, share, best = self._value(candidate), 1.0, self.best
        if best is not None:
            inner = _minimize(lambda share: self._value(best.mixed(candidate, share)), 0.0, 1.0, self.line_steps)
            share = min((0.0, inner, 1.0), key=lambda share: self._value(best.mixed(candidate, share)))
            candidate = best.mixed(candidate, share)
        if share > 0:
            self.metric.blend(share, scale, point.U, x, xp=xp)
            self.best = candidate
        return own

    def _multiple(self, x: Array, similar: float, distances: Array) -> tuple[float, _Parts]:
        """The scale at which the metric with eigenvalues x has the least F, and its parts there."""
        p, xp = self.p, self.xp

        def scaled(log_scale: float) -> _Parts:
            scale = math.exp(log_scale)
            penalty = p.gamma * float(xp.sum(p.penalty.value(scale * x, xp=xp)))
            return _Parts(scale * similar, scale * distances, penalty)

        best = _minimize(lambda s: self._value(scaled(s)), -3.0, 1.0, self.line_steps)
        best = min((0.0, best), key=lambda s: self._value(scaled(s)))
        return math.exp(best), scaled(best)

    # -- dual -----------------------------------------------------------------------------------

    def _model_step(
        self, point: DualPoint, XU: Array, x: Array, y: Array, distances: Array, smoothing: float, gap: float
    ) -> tuple[Array, float]:
        """Change of alpha that maximises the quadratic model of the smoothed dual, and its slope."""
        p, xp, alpha = self.p, self.xp, point.alpha
        target = xp.clip((p.margin - distances) / smoothing, 0.0, 1.0)
        # Pairs far from the margin that are where they belong go onto their bound; the rest is in play.
        reach = p.margin * min(1.0, math.sqrt(max(gap, 0.0) / p.margin)) + smoothing
        settled = (xp.abs(p.margin - distances) >= reach) & (xp.abs(target - alpha) <= 0.02)
        Y, T = self._coordinates(XU, x, y)
        for fixed in (settled, xp.zeros_like(settled)):
            chosen = xp.nonzero(~fixed)[0]
            model = PairModel(p.pairs.subset(chosen, Y), T)
            moved = xp.where(fixed, target - alpha, xp.zeros_like(alpha))
            in_play = xp.take(distances, chosen)
            if float(xp.sum(xp.abs((p.margin - distances) * moved))) <= _IDLE * gap * len(p.pairs):
                moved = xp.zeros_like(moved)  # not worth a pass over them
            else:
                response = model.pairs.quadratic_forms(T * p.pairs.scatter(xp.astype(moved, self.kind), Y))
                in_play = in_play + xp.astype(response, in_play.dtype)
            proposal = maximize_model(
                model,
                xp.take(alpha, chosen),
                in_play,
                margin=p.margin,
                smoothing=smoothing,
                tight=self.tight,
            )
            change = moved + _spread(proposal - xp.take(alpha, chosen), ~fixed, xp=xp)
            slope = float(xp.sum((p.margin - distances - smoothing * alpha) * change)) / len(p.pairs)
            if slope > 0:  # else settling the far pairs overshot: near the dual's limit it bends sharply
                break
        return change, slope

    def _coordinates(self, XU: Array, x: Array, y: Array) -> tuple[Array, Array]:
        """Points and curvature in the few eigenvectors that carry most of the dual's curvature."""
        p, xp, near = self.p, self.xp, XU.shape[1]
        x, y = x[:near], y[:near]
        curvature = _divided_differences(y, x, p.penalty.maximizer_slope(y, xp=xp), xp=xp)
        spread = xp.astype(xp.var(XU, axis=0), y.dtype)  # how much pairs differ along each eigenvector
        weight = spread * (curvature @ spread)
        leading = xp.sort(xp.argsort(-weight, stable=True)[: min(MODEL_RANK, weight.shape[0])])
        T = xp.take(xp.take(curvature, leading, axis=0), leading, axis=1) / (len(p.pairs) * p.gamma)
        return xp.take(XU, leading, axis=1), xp.astype(T, self.kind)

    def _search(self, point: DualPoint, change: Array, slope: float, smoothing: float) -> DualPoint | None:
        """Backtracking on the smoothed dual; G is linear in the step, so each trial is one eigendecomposition."""
        p, xp = self.p, self.xp
        if not bool(xp.any(change != 0)):
            return None
        direction = self._direction(change)

        def smoothed(at: DualPoint) -> float:
            return at.value - smoothing / 2 * float(xp.mean(at.alpha * at.alpha))

        base, step = smoothed(point), min(1.0, 2 * self.step)
        while p.n_eigh < self.max_iter and step > 1e-4:
            trial = p.point(point.alpha + step * change, point.G + step * direction, proven=False)
            gain = smoothed(trial) - base
            if gain >= 1e-4 * step * slope:
                self.step = step
                return trial
            if math.isfinite(gain):
                step *= min(max(0.5 * step * slope / (step * slope - gain), 0.2), 0.5)
            else:
                step *= 0.25
        return None

    def _direction(self, change: Array) -> Array:
        """Change of G that a change of alpha makes."""
        p, xp = self.p, self.xp
        moving = xp.nonzero(change != 0)[0]
        weights = xp.astype(xp.take(change, moving) / len(p.pairs), self.kind)
        return -xp.astype(p.pairs.subset(moving, self.X).scatter(weights), p.backend.dtype)

    # -- result ---------------------------------------------------------------------------------

    def _finish(self, iteration: int) -> Solution:
        """Measure the result in the data's precision: D at a G made afresh, F at the metric that is returned."""
        p, xp = self.p, self.xp
        assert self.dual is not None
        assert self.best is not None
        single = self.kind != p.backend.dtype
        tol = self.tol / 0.95 if single else self.tol
        dual = self.dual
        if single and not dual.proven:
            dual = p.resume(dual)
            if relative_gap(self._value(self.best), dual.value) > tol:
                dual = p.feasible(dual.alpha, dual.G)
        bound, x = dual.value, p.penalty.maximizer(-dual.g / p.gamma, xp=xp)
        found = None
        if relative_gap(self.own_objective, bound) <= tol:  # M(alpha) itself, decomposed already, may do
            found = self._own_metric(dual, x)
        if found is None or relative_gap(found[0], bound) > tol:
            M = self.metric.dense(xp=xp)
            values, vectors = p.eigh(M)
            values = xp.clip(values, 0.0, None)
            found = p.objective(M, values, p.distances(values, vectors)), M, values, vectors
        objective, M, values, vectors = found
        bound = min(bound, objective)  # rounding may put them the wrong way round
        gap = relative_gap(objective, bound)
        self.history[-1] |= {"n_eigh": p.n_eigh, "objective": objective, "gap": gap}
        return Solution(
            M,
            values,
            vectors,
            objective,
            bound,
            iteration,
            p.n_eigh,
            gap <= tol,
            self.history,
            dual,
            int(xp.sum(xp.astype(x > 0, xp.int64))),
        )

    def _own_metric(self, dual: DualPoint, x: Array) -> tuple[float, Array, Array, Array]:
        """F, M and its eigenpairs (ascending) for the best multiple of M(alpha)."""
        p, xp = self.p, self.xp
        values, vectors = xp.flip(x), xp.flip(dual.U, axis=1)
        M = (vectors * values[None, :]) @ xp.matrix_transpose(vectors)
        distances = p.distances(values, vectors)
        scale, _ = self._multiple(values, float(xp.sum(p.C_S * M)), distances)
        M, values = scale * M, scale * values
        return p.objective(M, values, scale * distances), M, values, vectors


def _spread(values: Array, mask: Array, *, xp: Any) -> Array:
    """Values (p,) at the p places where the mask (m,) is true, zero elsewhere."""
    if values.shape[0] == 0:
        return xp.zeros(mask.shape, dtype=values.dtype, device=array_api_compat.device(mask))
    place = xp.clip(xp.cumulative_sum(xp.astype(mask, xp.int64)) - 1, 0, None)
    everywhere = xp.take(values, place)
    return xp.where(mask, everywhere, xp.zeros_like(everywhere))


def _divided_differences(y: Array, x: Array, slope: Array, *, xp: Any) -> Array:
    """(x_i - x_j) / (y_i - y_j), the derivative where y_i and y_j are close."""
    difference = y[:, None] - y[None, :]
    close = xp.abs(difference) <= 1e-6 * (1 + xp.abs(y)[:, None] + xp.abs(y)[None, :])
    safe = xp.where(close, xp.ones_like(difference), difference)
    return xp.where(close, (slope[:, None] + slope[None, :]) / 2, (x[:, None] - x[None, :]) / safe)


def _minimize(function: Callable[[float], float], low: float, high: float, steps: int) -> float:
    """Golden-section search for the minimiser of a convex function of one number."""
    ratio = (math.sqrt(5) - 1) / 2
    inner = [high - ratio * (high - low), low + ratio * (high - low)]
    values = [function(inner[0]), function(inner[1])]
    for _ in range(steps):
        if values[0] < values[1]:
            high, inner[1], values[1] = inner[1], inner[0], values[0]
            inner[0] = high - ratio * (high - low)
            values[0] = function(inner[0])
        else:
            low, inner[0], values[0] = inner[0], inner[1], values[1]
            inner[1] = low + ratio * (high - low)
            values[1] = function(inner[1])
    return inner[0] if values[0] < values[1] else inner[1]
