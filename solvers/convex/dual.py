"""The convex problem on fixed pairs: its objective F, its dual D and what certifies a solution.

    F(M) = <C_S, M> + mean_k max(0, margin - z_k' M z_k) + gamma sum_j h(lambda_j(M)),   M psd

Any weights alpha in [0, 1] on the dissimilar pairs give the lower bound

    D(alpha) = margin mean(alpha) - gamma sum_i h*(-g_i / gamma),   g = eig(G),   G = C_S - mean_k alpha_k z_k z_k'
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from solvers.backend import Array, Backend, eigh
from solvers.pairs import PairProblem
from solvers.regularizers.spectral import Spectral


@dataclass(frozen=True)
class DualPoint:
    """Weights alpha with the eigendecomposition of their G, the bound D and the gamma that it holds for."""

    alpha: Array
    G: Array
    g: Array
    U: Array
    value: float
    gamma: float
    proven: bool  # whether G was made from alpha in the data's precision, not by steps
    error: float = 0.0  # how far g may be from the eigenvalues of G: those of an earlier, nearly equal one


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
    dual: DualPoint | None = None  # what proves the bound, and starts a fit with another gamma
    exact_rank: int | None = None  # of M(alpha): eigenvalues of G below the threshold -gamma h'(0)


def relative_gap(objective: float, dual: float) -> float:
    """(F - D) / max(1, |F|)."""
    return (objective - dual) / max(1.0, abs(objective))


class SpectralProblem:
    """F and D on fixed pairs, counting eigendecompositions."""

    def __init__(self, problem: PairProblem, penalty: Spectral, gamma: float, backend: Backend) -> None:
        self.pairs, self.C_S, self.margin = problem.dissimilar, problem.similar_scatter, problem.margin
        self.penalty, self.gamma, self.backend, self.xp = penalty, gamma, backend, backend.xp
        self.n_eigh = 0

    def eigh(self, M: Array) -> tuple[Array, Array]:
        self.n_eigh += 1
        return eigh(M, xp=self.xp)

    def point(self, alpha: Array, G: Array, *, proven: bool) -> DualPoint:
        """Evaluate the dual; -inf where the conjugate is infinite."""
        g, U = self.eigh(G)
        return DualPoint(alpha, G, g, U, self.bound(alpha, g, self.gamma), self.gamma, proven)

    def bound(self, alpha: Array, g: Array, gamma: float) -> float:
        """D from the eigenvalues of G in ascending order; smaller ones give a smaller value."""
        xp, y = self.xp, -g / gamma
        if float(y[0]) >= self.penalty.dual_limit:
            return -math.inf
        x = self.penalty.maximizer(y, xp=xp)
        conjugate = gamma * float(xp.sum(x * y - self.penalty.value(x, xp=xp)))
        return self.margin * float(xp.mean(alpha)) - conjugate

    def gradient(self, alpha: Array) -> Array:
        """G(alpha)."""
        return self.C_S - self.pairs.scatter(alpha / len(self.pairs))

    def dual(self, alpha: Array) -> tuple[Array, float]:
        """Eigenvalues of G and the bound D for a given alpha, pulled towards zero until it is feasible."""
        point = self.feasible(alpha, self.gradient(alpha))
        return point.g, point.value

    def feasible(self, alpha: Array, G: Array) -> DualPoint:
        """The dual point at alpha, or at the part of it that is sure to be feasible.

        The least eigenvalue of G is concave in alpha, and that of C_S is not negative.
        """
        point = self.point(alpha, G, proven=True)
        if math.isfinite(point.value):
            return point
        part = 0.9 * self.gamma * self.penalty.dual_limit / -float(point.g[0])
        return self.point(part * alpha, part * G + (1 - part) * self.C_S, proven=True)

    def resume(self, start: DualPoint) -> DualPoint:
        """A point of another fit at this gamma: on the same pairs its decomposition serves again."""
        G = self.gradient(start.alpha)
        # Eigenvalues of G made afresh are at most the norm of the difference below those at hand.
        error = start.error + _norm(G - start.G, xp=self.xp)
        if error > 1e-5 * _norm(G, xp=self.xp):
            return self.feasible(start.alpha, G)
        value = self.bound(start.alpha, start.g - error, self.gamma)
        return replace(start, G=G, value=value, gamma=self.gamma, proven=True, error=error)

    def objective(self, M: Array, values: Array, distances: Array) -> float:
        """F(M) from M, its eigenvalues and the dissimilar pairs' distances."""
        xp = self.xp
        hinge = xp.mean(xp.clip(self.margin - distances, 0.0, None))
        penalty = self.gamma * xp.sum(self.penalty.value(values, xp=xp)) if self.gamma > 0 else 0.0
        return float(xp.sum(self.C_S * M) + hinge + penalty)

    def factor(self, values: Array, vectors: Array) -> Array:
        """(D, k) with factor factor' = U diag(values) U'; what is zero costs nothing."""
        xp = self.xp
        kept = xp.nonzero(values > 0)[0]
        return xp.take(vectors, kept, axis=1) * xp.sqrt(xp.take(values, kept))[None, :]

    def distances(self, factor: Array) -> Array:
        """z' M z of the dissimilar pairs for M = factor factor'."""
        if factor.shape[1] == 0:
            return self.xp.zeros((len(self.pairs),), dtype=factor.dtype, device=self.backend.device)
        return self.pairs.projected_distances(self.pairs.X @ factor)


def _norm(M: Array, *, xp: Any) -> float:
    """Frobenius norm, which bounds every eigenvalue."""
    return float(xp.sqrt(xp.sum(M * M)))
