"""The objective of a projection A (k, D), for a stack of restarts at once.

    F(A) = mean_S ||A z||^2 + mean_D max(0, margin - ||A z||^2) + gamma Omega(A)

The hinge is smoothed for the deterministic solvers: with u = margin - ||A z||^2 it is u^2 / 2 mu
on [0, mu] and u - mu / 2 beyond, which lies below the hinge by at most mu / 2. Absolute values in
Omega are rounded off along with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from solvers.backend import Array, Namespace
from solvers.pairs import PairProblem
from solvers.regularizers.rows import RowRegularizer


@dataclass(frozen=True)
class ProjectionObjective:
    """F and its smoothed form on fixed pairs; A is (r, k, D) throughout.

    No D x D matrix per restart is formed: the gradient of the hinge goes through the projected
    points Y = X A' as (Lap(w) Y)' X.
    """

    problem: PairProblem
    regularizer: RowRegularizer
    gamma: float
    xp: Namespace

    def exact(self, A: Array) -> Array:
        """F(A), shape (r,)."""
        xp, pairs = self.xp, self.problem.dissimilar
        distances = pairs.projected_distances(_project(pairs.X, A, xp=xp))
        hinge = xp.mean(xp.clip(self.problem.margin - distances, 0.0, None), axis=-1)
        similar = xp.sum(A * (A @ self.problem.similar_scatter), axis=(-2, -1))
        return similar + hinge + self.gamma * self.regularizer.value(A, xp=xp)

    def smoothed(self, A: Array, smoothing: Array) -> tuple[Array, Array]:
        """Smoothed F (r,) and its gradient (r, k, D), for `smoothing` mu (r,)."""
        xp, pairs = self.xp, self.problem.dissimilar
        Y = _project(pairs.X, A, xp=xp)
        excess = self.problem.margin - pairs.projected_distances(Y)
        mu = smoothing[:, None]
        weights = xp.clip(excess / mu, 0.0, 1.0)
        hinge = xp.mean(weights * (excess - mu / 2 * weights), axis=-1)
        scattered = A @ self.problem.similar_scatter
        similar = xp.sum(A * scattered, axis=(-2, -1))
        pushed = _pull_back(pairs.X, pairs.laplacian(weights, Y), xp=xp)
        rounding = 0.1 * smoothing / self.problem.margin
        value, gradient = self.regularizer.value_and_gradient(A, rounding, xp=xp)
        return (
            similar + hinge + self.gamma * value,
            2 * scattered - 2 / len(pairs) * pushed + self.gamma * gradient,
        )


def _project(X: Array, A: Array, *, xp: Namespace) -> Array:
    """X A' for every matrix of the stack, (r, n, k), as one wide product."""
    # One product with r k columns runs nearer to the processor's peak than r products with k.
    stack, k, D = A.shape
    wide = X @ xp.matrix_transpose(xp.reshape(A, (stack * k, D)))
    return xp.permute_dims(xp.reshape(wide, (X.shape[0], stack, k)), (1, 0, 2))


def _pull_back(X: Array, Z: Array, *, xp: Namespace) -> Array:
    """Z' X for every matrix of the stack Z (r, n, k), (r, k, D), as one wide product."""
    stack, n, k = Z.shape
    wide = xp.reshape(xp.permute_dims(Z, (1, 0, 2)), (n, stack * k))
    return xp.reshape(xp.matrix_transpose(wide) @ X, (stack, k, X.shape[1]))
