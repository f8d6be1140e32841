"""Certified minimisation where the dual has no Hessian to use: no regularizer, tr, l1, l21.

    F(M) = <C_S, M> + mean_k max(0, margin - z_k' M z_k) + gamma Omega(M),   Omega(M) = max_{W in B} <W, M>

An accelerated proximal gradient method on a hinge whose smoothing shrinks with the gap. For norms on
the entries, the prox of gamma Omega and the psd cone together is computed by a splitting that
alternates between the two (Dykstra). Weights alpha on the pairs, with W in B, prove the lower bound
margin mean(alpha) if C_S - mean_k alpha_k z_k z_k' + gamma W is psd; a point that misses this is
scaled into feasibility.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from solvers.backend import Array, Backend, Namespace, eigh, symmetrize, to_numpy
from solvers.convex.dual import Solution, relative_gap
from solvers.pairs import PairProblem
from solvers.regularizers.entries import EntryNorm

_CHECK_EVERY = 5
_INNER_STEPS = 30


class ConeProx(Protocol):
    """gamma Omega and the psd cone together, counting eigendecompositions."""

    n_eigh: int

    def prox(self, V: Array, step: float, accuracy: float) -> tuple[Array, Array]:
        """argmin_{Z psd} step gamma Omega(Z) + 1/2 ||Z - V||_F^2, and a factor L with L'L = Z."""

    def value(self, M: Array) -> float:
        """gamma Omega(M)."""

    def shrink(self, scatter: Array) -> float:
        """s in [0, 1] such that s alpha is feasible, given mean_k alpha_k z_k z_k'."""


@dataclass
class TraceCone:
    """gamma tr(M), also with gamma = 0: eigenvalues move down by step gamma and stop at zero."""

    C_S: Array
    gamma: float
    xp: Namespace
    n_eigh: int = 0
    _whitener: Array = field(init=False)
    _null: Array = field(init=False)

    def __post_init__(self) -> None:
        xp = self.xp
        values, vectors = eigh(self.C_S, xp=xp)
        self.n_eigh += 1
        values = values + self.gamma
        positive = to_numpy(values) > 1e-12 * float(values[-1])
        kept = xp.asarray(np.flatnonzero(positive), device=self.C_S.device)
        null = xp.asarray(np.flatnonzero(~positive), device=self.C_S.device)
        self._whitener = xp.take(vectors, kept, axis=1) / xp.sqrt(xp.take(values, kept))[None, :]
        self._null = xp.take(vectors, null, axis=1)

    def prox(self, V: Array, step: float, accuracy: float) -> tuple[Array, Array]:
        xp = self.xp
        values, vectors = eigh(V, xp=xp)
        self.n_eigh += 1
        return _rebuild(xp.clip(values - step * self.gamma, 0.0, None), vectors, xp=xp)

    def value(self, M: Array) -> float:
        return self.gamma * float(self.xp.linalg.trace(M))

    def shrink(self, scatter: Array) -> float:
        """Largest s with C_S + gamma I - s scatter psd: a generalised eigenvalue."""
        xp = self.xp
        if self._null.shape[1] and float(xp.max(xp.abs(scatter @ self._null))) > 1e-10:
            return 0.0  # a direction that costs nothing and separates: the optimum uses it
        if self._whitener.shape[1] == 0:
            return 1.0  # all points are the same
        largest = float(eigh(xp.matrix_transpose(self._whitener) @ scatter @ self._whitener, xp=xp)[0][-1])
        self.n_eigh += 1
        return min(1.0, 1 / largest) if largest > 0 else 1.0


@dataclass
class EntryCone:
    """gamma times a norm on the entries; each prox starts from the duals of the one before."""

    C_S: Array
    penalty: EntryNorm
    gamma: float
    xp: Namespace
    n_eigh: int = 0
    _W: Array = None  # dual of the norm, in B
    _cone: Array = 0.0  # dual of the psd constraint, per unit of step

    def prox(self, V: Array, step: float, accuracy: float) -> tuple[Array, Array]:
        xp, weight = self.xp, step * self.gamma
        Z = V
        for _ in range(_INNER_STEPS):
            self._W = self.penalty.project((V - step * self._cone) / weight, xp=xp)
            shifted = V - weight * symmetrize(self._W, xp=xp)
            values, vectors = eigh(shifted, xp=xp)
            self.n_eigh += 1
            previous = Z
            Z, factor = _rebuild(xp.clip(values, 0.0, None), vectors, xp=xp)
            self._cone = (shifted - Z) / step
            if float(xp.sum((Z - previous) ** 2)) <= accuracy**2 * float(xp.sum(Z * Z)):
                break
        return Z, factor

    def value(self, M: Array) -> float:
        return self.gamma * float(self.penalty.value(M, xp=self.xp))

    def shrink(self, scatter: Array) -> float:
        """With s = gamma / (gamma + violation), the point s alpha, s W + (1 - s) I is feasible."""
        slack = self.C_S - scatter + self.gamma * symmetrize(self._W, xp=self.xp)
        lowest = float(eigh(slack, xp=self.xp)[0][0])
        self.n_eigh += 1
        return self.gamma / (self.gamma + max(0.0, -lowest))


def solve_accelerated(
    problem: PairProblem, cone: ConeProx, *, tol: float, max_iter: int, start: Array | None, backend: Backend
) -> Solution:
    """Minimise F to a relative gap of `tol`, from the metric `start` or from a multiple of I."""
    xp, pairs, margin = backend.xp, problem.dissimilar, problem.margin
    begin = time.perf_counter()
    C_S, m = problem.similar_scatter, len(pairs)
    identity = xp.eye(C_S.shape[0], dtype=backend.dtype, device=backend.device)
    squares = pairs.distances(identity)
    if start is None:
        start = margin / max(float(xp.mean(squares)), 1e-300) * identity
    M, factor = _rebuild(*_clipped(start, cone, xp=xp), xp=xp)
    d = pairs.distances(factor)
    mu = 0.1 * margin
    # The smoothed hinge bends by at most the mean of ||z||^4 / mu.
    Y, d_Y, momentum, step = M, d, 1.0, mu / max(float(xp.mean(squares * squares)), 1e-300)
    best, best_M, dual = math.inf, M, -math.inf
    history: list[dict[str, float]] = []
    iteration = 0
    for iteration in range(1, max_iter + 1):
        alpha = xp.clip((margin - d_Y) / mu, 0.0, 1.0)
        slope = C_S - pairs.scatter(alpha / m)
        smooth_Y = _smoothed(margin - d_Y, mu, xp=xp)
        while True:
            new, factor = cone.prox(Y - step * slope, step, 0.1 * tol)
            d_new = pairs.distances(factor)
            change = new - Y
            bound = smooth_Y + float(xp.sum((slope - C_S) * change) + xp.sum(change * change) / (2 * step))
            if _smoothed(margin - d_new, mu, xp=xp) <= bound + 1e-12 * max(1.0, abs(bound)):
                break
            step /= 2
        if float(xp.sum((Y - new) * (new - M))) > 0:
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        beta = (momentum - 1) / following
        Y, d_Y = new + beta * (new - M), d_new + beta * (d_new - d)
        M, d, momentum, step = new, d_new, following, 1.2 * step
        if iteration % _CHECK_EVERY and iteration != max_iter:
            continue
        value = float(xp.sum(C_S * M) + xp.mean(xp.clip(margin - d, 0.0, None))) + cone.value(M)
        if value < best:
            best, best_M = value, M
        alpha = xp.clip((margin - d) / mu, 0.0, 1.0)
        bound = cone.shrink(pairs.scatter(alpha / m)) * margin * float(xp.mean(alpha))
        dual = max(dual, bound)
        gap = relative_gap(best, dual, margin)
        history.append({"n_eigh": cone.n_eigh, "seconds": time.perf_counter() - begin, "objective": best, "gap": gap})
        if gap <= tol:
            break
        mu = min(mu, max(0.5 * (best - dual), 1e-7 * margin))
    values, vectors = _clipped(best_M, cone, xp=xp)
    converged = relative_gap(best, dual, margin) <= tol
    return Solution(best_M, values, vectors, best, dual, iteration, cone.n_eigh, converged, history)


def _clipped(M: Array, cone: ConeProx, *, xp: Namespace) -> tuple[Array, Array]:
    values, vectors = eigh(M, xp=xp)
    cone.n_eigh += 1
    return xp.clip(values, 0.0, None), vectors


def _rebuild(values: Array, vectors: Array, *, xp: Namespace) -> tuple[Array, Array]:
    """U diag(values) U' and a factor L of it with L'L = U diag(values) U'."""
    factor = xp.matrix_transpose(vectors * xp.sqrt(values)[None, :])
    return xp.matrix_transpose(factor) @ factor, factor


def _smoothed(slack: Array, mu: float, *, xp: Namespace) -> float:
    """Mean of the hinge smoothed within mu of the margin."""
    alpha = xp.clip(slack / mu, 0.0, 1.0)
    return float(xp.mean(alpha * slack - mu / 2 * alpha * alpha))
