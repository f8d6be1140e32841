"""Certified minimisation of the convex problem by a Newton method on its dual.

    F(M) = <C_S, M> + mean_k max(0, margin - z_k' M z_k) + gamma sum_j h(lambda_j(M)),   M psd

Any weights alpha in [0, 1] on the dissimilar pairs give the lower bound

    D(alpha) = margin mean(alpha) - gamma sum_i h*(-g_i / gamma),   g = eig(G),   G = C_S - mean_k alpha_k z_k z_k'

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
from dataclasses import dataclass
from typing import Any

import array_api_compat

from solvers.backend import Array, Backend, eigh
from solvers.boxmodel import PairModel, maximize_model
from solvers.pairs import PairProblem
from solvers.regularizers.spectral import Spectral

# Coordinates of the model: those that carry most of the dual's curvature.
MODEL_RANK = 128
# The hinge is smoothed by this many times the gap still open.
_SMOOTHING = 3.0
_LEAST_SMOOTHING = 1e-3
# Single precision serves down to this tolerance.
_SINGLE_TOL = 1e-4


@dataclass
class Solution:
    """A metric with what is known about it."""

    M: Array
    eigenvalues: Array
    eigenvectors: Array
    objective: float
    dual_objective: float | None
    n_iter: int
    n_eigh: int
    converged: bool
    history: list[dict[str, float]]
    weights: Array | None = None  # alpha, for a warm start
    exact_rank: int | None = None  # of M(alpha): eigenvalues of G below the threshold -gamma h'(0)


def relative_gap(objective: float, dual: float) -> float:
    """(F - D) / max(1, |F|)."""
    return (objective - dual) / max(1.0, abs(objective))


@dataclass
class _Point:
    """A dual point with the eigendecomposition of its G."""

    alpha: Array
    G: Array
    g: Array
    U: Array
    value: float
    exact: bool  # whether G was made from alpha in the data's precision, not by steps


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


class SpectralProblem:
    """F and D on fixed pairs, counting eigendecompositions."""

    def __init__(self, problem: PairProblem, penalty: Spectral, gamma: float, backend: Backend) -> None:
        self.pairs, self.C_S, self.margin = problem.dissimilar, problem.similar_scatter, problem.margin
        self.penalty, self.gamma, self.backend, self.xp = penalty, gamma, backend, backend.xp
        self.n_eigh = 0

    def eigh(self, M: Array) -> tuple[Array, Array]:
        self.n_eigh += 1
        return eigh(M, xp=self.xp)

    def point(self, alpha: Array, G: Array, *, exact: bool) -> _Point:
        """Evaluate the dual; -inf where the conjugate is infinite."""
        g, U = self.eigh(G)
        xp, y = self.xp, -g / self.gamma
        value = -math.inf
        if float(y[0]) < self.penalty.dual_limit:
            x = self.penalty.maximizer(y, xp=xp)
            conjugate = self.gamma * float(xp.sum(x * y - self.penalty.value(x, xp=xp)))
            value = self.margin * float(xp.mean(alpha)) - conjugate
        return _Point(alpha, G, g, U, value, exact)

    def gradient(self, alpha: Array) -> Array:
        """G(alpha)."""
        return self.C_S - self.pairs.scatter(alpha / len(self.pairs))

    def dual(self, alpha: Array) -> tuple[Array, float]:
        """Eigenvalues of G and the bound D for a given alpha, pulled towards zero until it is feasible."""
        point = self.feasible(alpha, self.gradient(alpha))
        return point.g, point.value

    def feasible(self, alpha: Array, G: Array) -> _Point:
        """The dual point at alpha, halved until the conjugate is finite; alpha = 0 always is: C_S is psd."""
        point = self.point(alpha, G, exact=True)
        while not math.isfinite(point.value):
            alpha, G = alpha / 2, (G + self.C_S) / 2
            point = self.point(alpha, G, exact=True)
        return point

    def objective(self, M: Array, values: Array, distances: Array) -> float:
        """F(M) from M, its eigenvalues and the dissimilar pairs' distances."""
        xp = self.xp
        hinge = xp.mean(xp.clip(self.margin - distances, 0.0, None))
        penalty = self.gamma * xp.sum(self.penalty.value(values, xp=xp)) if self.gamma > 0 else 0.0
        return float(xp.sum(self.C_S * M) + hinge + penalty)

    def distances(self, values: Array, vectors: Array, X: Array | None = None) -> Array:
        """z' M z of the dissimilar pairs for M = U diag(values) U'; what is zero costs nothing."""
        xp = self.xp
        kept = xp.nonzero(values > 0)[0]
        X = self.pairs.X if X is None else X
        factor = xp.take(vectors, kept, axis=1) * xp.sqrt(xp.take(values, kept))[None, :]
        if kept.shape[0] == 0:
            return xp.zeros((len(self.pairs),), dtype=values.dtype, device=self.backend.device)
        return xp.astype(self.pairs.projected_distances(X @ xp.astype(factor, X.dtype)), values.dtype)


def solve_spectral(
    problem: PairProblem,
    penalty: Spectral,
    gamma: float,
    *,
    tol: float,
    max_iter: int,
    start: Array | None,
    backend: Backend,
) -> Solution:
    """Minimise F to a relative gap of `tol`; `start` is the alpha of another solution on these pairs."""
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
        start = solution.weights  # single precision was not enough: go on in the data's own
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
        self.M: Array = None
        self.step = 1.0
        self.dual: _Point | None = None  # the best so far, and F at the best multiple of its metric
        self.own_objective = math.inf

    def run(self, start: Array | None) -> Solution:
        p, xp = self.p, self.xp
        m = len(p.pairs)
        if start is None:
            alpha = xp.zeros((m,), dtype=p.backend.dtype, device=p.backend.device)
            point = p.point(alpha, p.C_S, exact=True)
        else:
            point = p.feasible(start, p.gradient(start))
        iteration, factor = 0, _SMOOTHING
        while True:
            iteration += 1
            XU = self.X @ xp.astype(point.U, self.kind)
            y = -point.g / p.gamma
            x = p.penalty.maximizer(y, xp=xp)
            distances = self._distances(XU, x)
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

    def _distances(self, XU: Array, x: Array) -> Array:
        """z' M(alpha) z from projected points; eigenvalues of M fall as those of G rise."""
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

    def _improve(self, point: _Point, x: Array, distances: Array) -> float:
        """Take the best multiple of M(alpha), then the best point between it and the best metric so far.

        Returns F at the multiple.
        """
        p, xp, U = self.p, self.xp, point.U
        M = (U * x[None, :]) @ xp.matrix_transpose(U)
        scale, candidate = self._multiple(x, float(xp.sum(p.C_S * M)), distances)
        own, share, best = self._value(candidate), 1.0, self.best
        if best is not None:
            inner = _minimize(lambda share: self._value(best.mixed(candidate, share)), 0.0, 1.0, self.line_steps)
            share = min((0.0, inner, 1.0), key=lambda share: self._value(best.mixed(candidate, share)))
            candidate = best.mixed(candidate, share)
        if share > 0:
            self.M = scale * M if share == 1 else (1 - share) * self.M + share * scale * M
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
        self, point: _Point, XU: Array, x: Array, y: Array, distances: Array, smoothing: float, gap: float
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
            if bool(xp.any(moved != 0)):
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
        p, xp = self.p, self.xp
        curvature = _divided_differences(y, x, p.penalty.maximizer_slope(y, xp=xp), xp=xp)
        spread = xp.astype(xp.var(XU, axis=0), y.dtype)  # how much pairs differ along each eigenvector
        weight = spread * (curvature @ spread)
        leading = xp.sort(xp.argsort(-weight, stable=True)[: min(MODEL_RANK, weight.shape[0])])
        T = xp.take(xp.take(curvature, leading, axis=0), leading, axis=1) / (len(p.pairs) * p.gamma)
        return xp.take(XU, leading, axis=1), xp.astype(T, self.kind)

    def _search(self, point: _Point, change: Array, slope: float, smoothing: float) -> _Point | None:
        """Backtracking on the smoothed dual; G is linear in the step, so each trial is one eigendecomposition."""
        p, xp = self.p, self.xp
        direction = xp.astype(-p.pairs.scatter(xp.astype(change / len(p.pairs), self.kind), self.X), p.backend.dtype)

        def smoothed(at: _Point) -> float:
            return at.value - smoothing / 2 * float(xp.mean(at.alpha * at.alpha))

        base, step = smoothed(point), min(1.0, 2 * self.step)
        while p.n_eigh < self.max_iter and step > 1e-4:
            trial = p.point(point.alpha + step * change, point.G + step * direction, exact=False)
            gain = smoothed(trial) - base
            if gain >= 1e-4 * step * slope:
                self.step = step
                return trial
            if math.isfinite(gain):
                step *= min(max(0.5 * step * slope / (step * slope - gain), 0.2), 0.5)
            else:
                step *= 0.25
        return None

    # -- result ---------------------------------------------------------------------------------

    def _finish(self, iteration: int) -> Solution:
        """Measure the result in the data's precision: D at a G made afresh, F at the metric that is returned."""
        p, xp = self.p, self.xp
        assert self.dual is not None
        single = self.kind != p.backend.dtype
        tol = self.tol / 0.95 if single else self.tol
        dual = self.dual
        if single and not dual.exact:
            dual = p.feasible(dual.alpha, p.gradient(dual.alpha))
        x = p.penalty.maximizer(-dual.g / p.gamma, xp=xp)
        found = None
        if relative_gap(self.own_objective, dual.value) <= self.tol:  # M(alpha) itself, decomposed already, will do
            found = self._own_metric(dual, x)
        if found is None or relative_gap(found[0], dual.value) > tol:
            values, vectors = p.eigh(self.M)
            values = xp.clip(values, 0.0, None)
            found = p.objective(self.M, values, p.distances(values, vectors)), self.M, values, vectors
        objective, M, values, vectors = found
        gap = relative_gap(objective, dual.value)
        self.history[-1] |= {"n_eigh": p.n_eigh, "objective": objective, "gap": gap}
        return Solution(
            M,
            values,
            vectors,
            objective,
            dual.value,
            iteration,
            p.n_eigh,
            gap <= tol,
            self.history,
            dual.alpha,
            int(xp.sum(xp.astype(x > 0, xp.int64))),
        )

    def _own_metric(self, dual: _Point, x: Array) -> tuple[float, Array, Array, Array]:
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
