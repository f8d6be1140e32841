"""Certified minimisation of the convex problem by a Newton method on its dual (see `solvers.convex.dual`).

One eigendecomposition G = U diag(g) U' gives the bound, the metric M(alpha) = U diag(x*(-g / gamma)) U'
that attains it, the gradient (margin - z_k' M z_k) / m, and through the divided differences of x*
the Hessian. Each iteration maximises the quadratic model of D over the box without any further
eigendecomposition and searches along the result; it stops when F and D are `tol` apart.

Far from the optimum M(alpha) is of little use: it may be huge, or not exist. The same decomposition gives the
metric U diag(x*(-g / sigma)) U' of any sigma > gamma, too, and one of these has the least F. There the
conditions of optimality at gamma are linearised instead: alpha then follows the path of optima from sigma
down to gamma. The bound holds for any alpha, so nothing depends on how it was found.

The loop may work in single precision; what it returns is measured in the precision of the data.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from solvers.backend import Array, Backend
from solvers.convex.boxmodel import maximize_model, spread
from solvers.convex.curvature import MODEL_RANK, divided_differences, pair_model, step_length
from solvers.convex.dual import DualPoint, Solution, SpectralProblem, relative_gap
from solvers.pairs import PairProblem, PairSet
from solvers.regularizers.spectral import Spectral

# The hinge is smoothed by this many times the gap still open.
_SMOOTHING = 3.0
_LEAST_SMOOTHING = 1e-3
# Settled pairs stay where they are while moving them would gain less than this share of the gap.
_IDLE = 0.02
# Metrics that a mixture holds before they are added up.
_TERMS = 8
# On the path, sigma is chosen among so many by so many pairs, and the next step aims at this part of it.
_SIGMAS = 16
_JUDGES = 4096
_DESCENT = 3.0
# The path is left after so many steps that lower F by less than this.
_PATIENCE = 3
_PROGRESS = 1e-3
# Single precision serves down to this tolerance.
_SINGLE_TOL = 1e-4


@dataclass(frozen=True)
class _Metric:
    """A metric that shares the eigenvectors of G: the optimal one at sigma, were alpha optimal there.

    Attributes
    ----------
    sigma : the gamma that it belongs to.
    target : the gamma that a step from here aims at.
    y, x : (D,) arguments of the conjugate at sigma, and eigenvalues; falling.
    XU : (n, d) the points along the leading eigenvectors. The others are far beyond the metric's own.
    distances : (m,) of the pairs.
    predicted : (m,) to first order, the distances of the metric at `target` if alpha stayed the same.
    """

    sigma: float
    target: float
    y: Array
    x: Array
    XU: Array
    distances: Array
    predicted: Array


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
        # Centred: pairs stay the same, and single precision is not spent on where the points lie.
        self.X = self.xp.astype(p.pairs.X - self.xp.mean(p.pairs.X, axis=0)[None, :], self.kind)
        self.tight = tol < _SINGLE_TOL
        self.line_steps = 40 if self.tight else 16
        self.best: _Parts | None = None
        self.metric = _Mixture()  # that of `best`
        self.dual: DualPoint | None = None  # the best so far, its metric's eigenvalues, and F at their best multiple
        self.own: tuple[Array, float] | None = None

    def run(self, start: DualPoint | Array | None) -> Solution:
        p = self.p
        point = self._first(start)
        top = 2 * start.gamma if isinstance(start, DualPoint) else max(p.gamma, 10 * float(point.g[-1]))
        least = p.bound(0 * point.alpha, 0 * point.g, p.gamma)  # F is never below gamma Omega at its minimum
        iteration, factor, stuck, previous = 0, _SMOOTHING, 0, math.inf
        while True:
            iteration += 1
            metric = self._metric(point, top if stuck < _PATIENCE else p.gamma)
            own = self._improve(point, metric)
            if self.dual is None or point.value > self.dual.value:
                self.dual, self.own = point, (metric.x, own)
            assert self.best is not None
            objective, bound = self._value(self.best), max(self.dual.value, least)
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
            if metric.sigma > p.gamma:
                stuck = stuck + 1 if objective > previous - _PROGRESS * max(1.0, abs(objective)) else 0
                previous, top = objective, 2 * metric.sigma
                following = None if stuck == _PATIENCE else self._descend(point, metric)
                if following is None:
                    stuck, following = _PATIENCE, self._leave_the_path(point)
                point = following
                continue
            top = 2 * p.gamma
            smoothing = min(p.margin, max(factor * (objective - bound), 1e-12 * p.margin))
            following = self._ascend(point, metric, smoothing, objective - bound)
            if following is None:  # the smoothed problem is solved: only less smoothing helps
                factor /= 4
            else:
                point = following

    def _first(self, start: DualPoint | Array | None) -> DualPoint:
        """Where to begin: at another fit's weights, else at alpha = 0."""
        p, xp = self.p, self.xp
        if isinstance(start, DualPoint):
            return p.resume(start)
        if start is not None:
            return p.point(start, p.gradient(start), proven=True)
        alpha = xp.zeros((len(p.pairs),), dtype=p.backend.dtype, device=p.backend.device)
        return p.point(alpha, p.C_S, proven=True)

    def _metric(self, point: DualPoint, top: float) -> _Metric:
        """Of the metrics for sigma from gamma to `top`, the one with the least F."""
        p, xp = self.p, self.xp
        steepest, limit = -float(point.g[0]), p.penalty.dual_limit
        least = p.gamma
        if top > p.gamma or not math.isfinite(point.value):  # from where it exists to where it is not huge
            least, top = max(least, 1.02 * steepest / limit), max(top, 1.5 * steepest / min(limit, 10.0))
        ratio = max(1.0, top / least) ** (1 / (_SIGMAS - 1))
        found = []
        for k in range(_SIGMAS if ratio > 1 else 1):
            sigma = least * ratio**k
            y, target = -point.g / sigma, max(p.gamma, sigma / _DESCENT)
            x = p.penalty.maximizer(y, xp=xp)
            towards = x + p.penalty.maximizer_slope(y, xp=xp) * y * (sigma / target - 1)
            found.append((sigma, target, y, x, towards))
        rank = max(int(xp.sum(xp.astype(x > 0, xp.int64))) for *_, x, _ in found)
        near = min(rank + 2 * MODEL_RANK, point.g.shape[0])
        XU = self.X @ xp.astype(point.U[:, :near], self.kind)

        def forms(pairs: PairSet, eigenvalues: list[Array]) -> Array:
            W = xp.astype(xp.stack([each[:near] for each in eigenvalues], axis=1), self.kind)
            return xp.astype(pairs.diagonal_forms(XU, W), point.g.dtype)

        best = 0
        if len(found) > 1:  # some of the pairs tell which is best
            chosen = xp.arange(0, len(p.pairs), -(-len(p.pairs) // _JUDGES), device=p.backend.device)
            judged = forms(p.pairs.subset(chosen, XU), [x for *_, x, _ in found])
            alpha = xp.take(point.alpha, chosen)
            values = [self._value(self._parts(point.g, alpha, x, judged[:, k])) for k, (*_, x, _) in enumerate(found)]
            best = values.index(min(values))
        sigma, target, y, x, towards = found[best]
        both = forms(p.pairs, [x, towards])
        return _Metric(sigma, target, y, x, XU, both[:, 0], both[:, 1])

    def _leave_the_path(self, point: DualPoint) -> DualPoint:
        """Where Newton's method on the dual goes on: the best feasible point at hand."""
        if not math.isfinite(point.value):
            point = self.p.feasible(point.alpha, self.p.gradient(point.alpha))
        assert self.dual is not None
        return point if point.value > self.dual.value else self.dual

    # -- primal ---------------------------------------------------------------------------------

    def _value(self, parts: _Parts) -> float:
        xp = self.xp
        hinge = xp.mean(xp.clip(self.p.margin - parts.distances, 0.0, None))
        return parts.similar + float(hinge) + parts.penalty

    def _parts(self, g: Array, alpha: Array, x: Array, distances: Array) -> _Parts:
        """Those of U diag(x) U', from the distances of pairs with the weights alpha."""
        p, xp = self.p, self.xp
        # <C_S, M> = <G, M> + mean(alpha d), and M shares the eigenvectors of G.
        similar = float(xp.sum(g * x)) + float(xp.mean(alpha * distances))
        return _Parts(similar, distances, p.gamma * float(xp.sum(p.penalty.value(x, xp=xp))))

    def _improve(self, point: DualPoint, metric: _Metric) -> float:
        """Take the best multiple of the metric, then the best point between it and the best metric so far.

        Returns F at the multiple.
        """
        xp, x = self.xp, metric.x
        scale, candidate = self._multiple(x, self._parts(point.g, point.alpha, x, metric.distances))
        own, share, best = self._value(candidate), 1.0, self.best
        if best is not None:
            inner = _minimize(lambda share: self._value(best.mixed(candidate, share)), 0.0, 1.0, self.line_steps)
            share = min((0.0, inner, 1.0), key=lambda share: self._value(best.mixed(candidate, share)))
            candidate = best.mixed(candidate, share)
        if share > 0:
            self.metric.blend(share, scale, point.U, x, xp=xp)
            self.best = candidate
        return own

    def _multiple(self, x: Array, parts: _Parts) -> tuple[float, _Parts]:
        """The scale at which the metric with eigenvalues x has the least F, and its parts there."""
        p, xp = self.p, self.xp

        def scaled(log_scale: float) -> _Parts:
            scale = math.exp(log_scale)
            penalty = p.gamma * float(xp.sum(p.penalty.value(scale * x, xp=xp)))
            return _Parts(scale * parts.similar, scale * parts.distances, penalty)

        best = _minimize(lambda s: self._value(scaled(s)), -3.0, 1.0, self.line_steps)
        best = min((0.0, best), key=lambda s: self._value(scaled(s)))
        return math.exp(best), scaled(best)

    # -- dual -----------------------------------------------------------------------------------

    def _descend(self, point: DualPoint, metric: _Metric) -> DualPoint | None:
        """A step along the path, from the optimum at sigma towards the one at the metric's target."""
        p, xp = self.p, self.xp
        hinge = p.margin - metric.distances
        gap = float(xp.mean(xp.clip(hinge, 0.0, None) - point.alpha * hinge))  # F - D at sigma
        smoothing = min(p.margin, max(_SMOOTHING * gap, 1e-4 * p.margin))
        change, direction, slope, share = self._step(point, metric, smoothing, max(gap, 1e-3 * p.margin))
        if slope <= 0:
            return None
        return p.point(point.alpha + share * change, point.G + share * direction, proven=False)

    def _ascend(self, point: DualPoint, metric: _Metric, smoothing: float, gap: float) -> DualPoint | None:
        """A Newton step on the smoothed dual; G is linear in its length, so each trial is one eigendecomposition."""
        p, xp = self.p, self.xp

        def smoothed(at: DualPoint) -> float:
            return at.value - smoothing / 2 * float(xp.mean(at.alpha * at.alpha))

        change, direction, slope, share = self._step(point, metric, smoothing, gap)
        base = smoothed(point)
        while slope > 0 and p.n_eigh < self.max_iter and share > 1e-4:
            trial = p.point(point.alpha + share * change, point.G + share * direction, proven=False)
            gain = smoothed(trial) - base
            if gain >= 1e-4 * share * slope:
                return trial
            if math.isfinite(gain):
                share *= min(max(0.5 * share * slope / (share * slope - gain), 0.2), 0.5)
            else:
                share *= 0.25
        return None

    def _step(
        self, point: DualPoint, metric: _Metric, smoothing: float, gap: float
    ) -> tuple[Array, Array, float, float]:
        """Change of alpha that maximises the model of the smoothed dual, that of G, the slope, how much to take."""
        p, xp = self.p, self.xp
        near = metric.XU.shape[1]
        y = xp.astype(metric.y[:near], self.kind)
        x = xp.astype(metric.x[:near], self.kind)
        T = divided_differences(y, x, p.penalty.maximizer_slope(y, xp=xp), xp=xp) / metric.target
        change, slope = self._proposal(point, metric, T, smoothing, gap)
        direction = self._direction(change)
        U = xp.astype(point.U[:, :near], self.kind)
        rotated = xp.matrix_transpose(U) @ (direction @ U)
        bend = float(xp.sum(T * rotated * rotated)) + smoothing * float(xp.mean(change * change))
        most = min(1.0, max(slope, 0.0) / max(bend, 1e-300))
        rotated = xp.astype(rotated, point.g.dtype)
        share = 0.0
        if most > 0:
            share = step_length(p, point, change, rotated, gamma=metric.target, smoothing=smoothing, most=most)
        return change, xp.astype(direction, p.backend.dtype), slope, share

    def _proposal(
        self, point: DualPoint, metric: _Metric, T: Array, smoothing: float, gap: float
    ) -> tuple[Array, float]:
        """Change of alpha that maximises the quadratic model of the smoothed dual, and its slope."""
        p, xp, alpha, distances = self.p, self.xp, point.alpha, metric.predicted
        target = xp.clip((p.margin - distances) / smoothing, 0.0, 1.0)
        # Pairs far from the margin that are where they belong go onto their bound; the rest is in play.
        reach = p.margin * min(1.0, math.sqrt(max(gap, 0.0) / p.margin)) + smoothing
        settled = (xp.abs(p.margin - distances) >= reach) & (xp.abs(target - alpha) <= 0.02)
        whole = pair_model(p.pairs, metric.XU, T / len(p.pairs))
        for fixed in (settled, xp.zeros_like(settled)):
            chosen = xp.nonzero(~fixed)[0]
            moved = xp.where(fixed, target - alpha, xp.zeros_like(alpha))
            in_play = distances
            if float(xp.sum(xp.abs((p.margin - distances) * moved))) <= _IDLE * gap * len(p.pairs):
                moved = xp.zeros_like(moved)  # not worth a pass over them
            else:
                in_play = in_play + whole.response(moved)
            proposal = maximize_model(
                whole.subset(chosen),
                xp.take(alpha, chosen),
                xp.take(in_play, chosen),
                margin=p.margin,
                smoothing=smoothing,
                tight=self.tight,
            )
            change = moved + spread(proposal - xp.take(alpha, chosen), ~fixed, xp=xp)
            slope = float(xp.mean((p.margin - distances - smoothing * alpha) * change))
            if slope > 0:
                break  # else settling the far pairs overshot: near the dual's limit it bends sharply
        return change, slope

    def _direction(self, change: Array) -> Array:
        """Change of G that a change of alpha makes."""
        p, xp = self.p, self.xp
        moving = xp.nonzero(change != 0)[0]
        weights = xp.astype(xp.take(change, moving) / len(p.pairs), self.kind)
        return -p.pairs.subset(moving, self.X).scatter(weights)

    # -- result ---------------------------------------------------------------------------------

    def _finish(self, iteration: int) -> Solution:
        """Measure the result in the data's precision: D at a G made afresh, F at the metric that is returned."""
        p, xp = self.p, self.xp
        assert self.dual is not None
        assert self.best is not None
        assert self.own is not None
        single = self.kind != p.backend.dtype
        tol = self.tol / 0.95 if single else self.tol
        dual = self.dual
        if not math.isfinite(dual.value):  # nowhere on the path feasible at gamma
            dual = self._first(None)
        elif single and not dual.proven:
            dual = p.resume(dual)
            if relative_gap(self._value(self.best), dual.value) > tol:
                dual = p.feasible(dual.alpha, dual.G)
        bound, (x, own) = dual.value, self.own
        found = None
        if relative_gap(own, bound) <= tol:  # the metric of the dual point, decomposed already, may do
            found = self._own_metric(dual, x)
        if found is None or relative_gap(found[0], bound) > tol:
            M = self.metric.dense(xp=xp)
            values, vectors = p.eigh(M)
            values = xp.clip(values, 0.0, None)
            distances = p.distances(p.factor(values, vectors))
            found = p.objective(M, values, distances), M, values, vectors
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
            int(xp.sum(xp.astype(-dual.g / p.gamma > p.penalty.slope_at_zero, xp.int64))),
        )

    def _own_metric(self, dual: DualPoint, x: Array) -> tuple[float, Array, Array, Array]:
        """F, M and its eigenpairs (ascending) for the best multiple of U diag(x) U'."""
        p, xp = self.p, self.xp
        values, vectors = xp.flip(x), xp.flip(dual.U, axis=1)
        factor = p.factor(values, vectors)
        M, distances = factor @ xp.matrix_transpose(factor), p.distances(factor)
        scale, _ = self._multiple(values, _Parts(float(xp.sum(p.C_S * M)), distances, 0.0))
        M, values = scale * M, scale * values
        return p.objective(M, values, scale * distances), M, values, vectors


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
