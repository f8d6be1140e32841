"""The objective of a projection A (k, D), for a stack of restarts at once.

    F(A) = mean_S ||A z||^2 + mean_D max(0, margin - ||A z||^2) + gamma Omega(A)

The hinge is smoothed for the deterministic solvers: with u = margin - ||A z||^2 it is u^2 / 2 mu
on [0, mu] and u - mu / 2 beyond, which lies below the hinge by at most mu / 2. Absolute values in
Omega are rounded off along with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import array_api_compat
import numpy as np

from solvers.backend import Array, Namespace, eigh, to_numpy
from solvers.pairs import PairProblem, PairSet
from solvers.regularizers.rows import Decorrelation, NoRowPenalty, RowRegularizer

# From this rank on, one product per restart is as near to the processor's peak as one wide product of all
# restarts, and its result is in the order that pairs are looked up in.
_WIDE_ENOUGH = 128
# Pairs for each point, up to which a gradient goes through the differences of pairs.
_FEW_PAIRS = 0.75


@dataclass(frozen=True)
class ProjectionObjective:
    """F and its smoothed form on fixed pairs; A is (r, k, D) throughout.

    No D x D matrix per restart is formed: the gradient of the hinge goes through the projected
    points Y = X A'.

    Parameters
    ----------
    basis : (D, D) W, or None for the identity: functions take B with A = B W, and `problem` is in these
        coordinates, with X W' for X and, for the scatter of similar pairs, the diagonal (D,) that W makes of it.
    """

    problem: PairProblem
    regularizer: RowRegularizer
    gamma: float
    xp: Namespace
    basis: Array | None = None

    def exact(self, A: Array) -> Array:
        """F(A), shape (r,)."""
        xp, pairs = self.xp, self.problem.dissimilar
        distances = pairs.projected_distances(project(pairs.X, A, xp=xp))
        hinge = xp.mean(xp.clip(self.problem.margin - distances, 0.0, None), axis=-1)
        similar = xp.sum(A * self._scattered(A), axis=(-2, -1))
        return similar + hinge + self._penalty(A, None)[0]

    def smoothed(self, A: Array, smoothing: Array) -> tuple[Array, Array]:
        """Smoothed F (r,) and its gradient (r, k, D), for `smoothing` mu (r,)."""
        xp, pairs = self.xp, self.problem.dissimilar
        Y = project(pairs.X, A, xp=xp)
        excess = self.problem.margin - pairs.projected_distances(Y)
        mu = smoothing[:, None]
        weights = xp.clip(excess / mu, 0.0, 1.0)
        hinge = xp.mean(weights * (excess - mu / 2 * weights), axis=-1)
        scattered = self._scattered(A)
        similar = xp.sum(A * scattered, axis=(-2, -1))
        pushed = self._pushed(weights, Y)
        value, gradient = self._penalty(A, 0.1 * smoothing / self.problem.margin)
        return similar + hinge + value, 2 * (scattered - pushed / len(pairs)) + gradient

    def _pushed(self, weights: Array, Y: Array) -> Array:
        """sum_k w_k (A z_k) z_k' for weights (r, m) and Y = X A' (r, n, k), (r, k, D).

        By the Laplacian of the pairs, whose product has a row for every point; where fewer pairs than
        points have any weight, as is usual late, by the differences of these pairs.
        """
        xp, pairs = self.xp, self.problem.dissimilar
        stack, n_pairs = weights.shape
        active = xp.nonzero(xp.reshape(weights, (-1,)) > 0)[0]
        device = array_api_compat.device(active)
        ends = to_numpy(xp.searchsorted(active, n_pairs * xp.arange(stack + 1, device=device)))
        few = np.diff(ends) <= _FEW_PAIRS * pairs.X.shape[0]
        if not few.any():
            return pull_back(pairs.X, pairs.laplacian(weights, Y), xp=xp)
        pushed = []
        for i, (low, high) in enumerate(pairwise(ends.tolist())):
            own = slice(i, i + 1)
            if few[i]:
                chosen = active[low:high] - i * n_pairs
                first, second = (xp.take(end, chosen) for end in (pairs.graph.first, pairs.graph.second))
                Z, AZ = (xp.take(V, first, axis=0) - xp.take(V, second, axis=0) for V in (pairs.X, Y[i, ...]))
                weighted = xp.take(weights[i, :], chosen)[:, None] * AZ
                pushed.append((xp.matrix_transpose(weighted) @ Z)[None, ...])
            else:
                pushed.append(pull_back(pairs.X, pairs.laplacian(weights[own, :], Y[own, ...]), xp=xp))
        return xp.concat(pushed)

    def _scattered(self, A: Array) -> Array:
        scatter = self.problem.similar_scatter
        return A @ scatter if self.basis is None else A * scatter

    def _penalty(self, A: Array, rounding: Array | None) -> tuple[Array, Array | float]:
        """gamma Omega and its gradient."""
        xp = self.xp
        if self.gamma == 0 or isinstance(self.regularizer, NoRowPenalty):
            return xp.zeros(A.shape[:-2], dtype=A.dtype, device=array_api_compat.device(A)), 0.0
        if self.basis is None:
            value, gradient = self.regularizer.value_and_gradient(A, rounding, xp=xp)
        else:
            value, gradient = self.regularizer.value_and_gradient(A @ self.basis, rounding, xp=xp)
            gradient = gradient @ xp.matrix_transpose(self.basis)
        return self.gamma * value, self.gamma * gradient

    def whitened(self) -> tuple[ProjectionObjective, Array]:
        """The same objective of B = A R in coordinates in which the data have about unit scatter; and R (D, D).

        The hinge bends as much as the data scatter, so that on raw features a few directions set the
        step length for all. What the penalty adds bends alike in all of them. Of the bases that do
        this, one makes the scatter of similar pairs diagonal: their term then takes no product.
        """
        xp, pairs = self.xp, self.problem.dissimilar
        X = pairs.X - xp.mean(pairs.X, axis=0, keepdims=True)
        scatter = 2 / X.shape[0] * (xp.matrix_transpose(X) @ X)
        ridge = 1e-3 * float(xp.linalg.trace(scatter)) / X.shape[1] + self.regularizer.curvature * self.gamma
        identity = xp.eye(X.shape[1], dtype=X.dtype, device=array_api_compat.device(X))
        root = xp.linalg.cholesky(scatter + (ridge or 1.0) * identity)
        inverse = xp.linalg.inv(root)
        values, vectors = eigh(inverse @ self.problem.similar_scatter @ xp.matrix_transpose(inverse), xp=xp)
        basis = xp.matrix_transpose(vectors) @ inverse
        points = X @ xp.matrix_transpose(basis)
        dissimilar = PairSet(points, pairs.graph.first, pairs.graph.second, xp=xp)
        problem = replace(self.problem, similar_scatter=values, dissimilar=dissimilar)
        return replace(self, problem=problem, basis=basis), root @ vectors

    def single(self) -> ProjectionObjective:
        """The same in single precision: products take half of the time."""
        xp, pairs = self.xp, self.problem.dissimilar

        def cast(values: Array) -> Array:
            return xp.astype(values, xp.float32)

        dissimilar = PairSet(cast(pairs.X), pairs.graph.first, pairs.graph.second, xp=xp)
        scatter = cast(self.problem.similar_scatter)
        regularizer = self.regularizer
        if isinstance(regularizer, Decorrelation):
            regularizer = Decorrelation(root=cast(regularizer.root))
        return replace(
            self,
            problem=replace(self.problem, similar_scatter=scatter, dissimilar=dissimilar),
            regularizer=regularizer,
            basis=None if self.basis is None else cast(self.basis),
        )


def project(X: Array, A: Array, *, xp: Namespace) -> Array:
    """X A' for every matrix of the stack, (r, n, k)."""
    stack, k, D = A.shape
    if stack == 1 or k >= _WIDE_ENOUGH:
        return X @ xp.matrix_transpose(A)
    wide = X @ xp.matrix_transpose(xp.reshape(A, (stack * k, D)))
    return xp.permute_dims(xp.reshape(wide, (X.shape[0], stack, k)), (1, 0, 2))


def pull_back(X: Array, Z: Array, *, xp: Namespace) -> Array:
    """Z' X for every matrix of the stack Z (r, n, k), (r, k, D)."""
    stack, n, k = Z.shape
    if stack == 1 or k >= _WIDE_ENOUGH:
        return xp.matrix_transpose(Z) @ X
    wide = xp.reshape(xp.permute_dims(Z, (1, 0, 2)), (n, stack * k))
    return xp.reshape(xp.matrix_transpose(wide) @ X, (stack, k, X.shape[1]))
