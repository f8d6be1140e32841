"""Accelerated proximal gradient steps over the psd cone, for smooth functions of M and of pair distances.

    min over psd M of  f(M, distances) + sum_j h(eigenvalue_j),   h a regularizer on eigenvalues

Distances are linear in M, so those of the extrapolated point are the same combination of stored ones: each step makes
one pass over the pairs for distances, one for the scatter matrix and, unless it has to be shortened, one decomposition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from solvers.backend import Array, Backend, Namespace, eigh, to_numpy
from solvers.pairs import PairSet
from solvers.regularizers.spectral import NoPenalty

# From M (D, D) and squared distances (m,) to f, its derivative by each distance (m,), and by M itself if it has one.
Smooth = Callable[[Array, Array], tuple[float, Array, Array | None]]
# The same for a function of the distances alone.
Loss = Callable[[Array], tuple[float, Array]]

_STEP_GROWTH = 1.15
_CHECK_EVERY = 10
# A step that was halved so often is as good as none: what is left is rounding.
_MOST_HALVINGS = 60


class Prox(Protocol):
    """What the method needs of a regularizer on eigenvalues."""

    def value(self, x: Array, *, xp: Namespace) -> Array:
        """h(x), elementwise."""

    def prox(self, l: Array, step: float, *, xp: Namespace) -> Array:
        """argmin_{x >= 0} step h(x) + (x - l)^2 / 2, elementwise."""


@dataclass(frozen=True)
class Iterate:
    """M = L'L with the squared distances of the pairs, and what was spent to get there."""

    M: Array  # (D, D)
    L: Array  # (k, D)
    distances: Array  # (m,)
    value: float = math.inf
    step: float = 0.0
    n_iter: int = 0
    n_eigh: int = 0


def scaled_identity(scale: float, pairs: PairSet, backend: Backend) -> Iterate:
    """The start M = scale I."""
    identity = backend.xp.eye(pairs.X.shape[1], dtype=backend.dtype, device=backend.device)
    return Iterate(scale * identity, math.sqrt(scale) * identity, scale * pairs.projected_distances(pairs.X))


class Accelerated:
    """The method between two steps: the last two iterates and the momentum."""

    def __init__(self, smooth: Smooth, pairs: PairSet, start: Iterate, *, penalty: Prox, backend: Backend) -> None:
        self.smooth, self.pairs, self.penalty, self.backend = smooth, pairs, penalty, backend
        self.current = self._previous = start
        self._momentum, self._step = 1.0, start.step

    def forget(self) -> None:
        """Go on without momentum, as one must where f has changed."""
        self._previous, self._momentum = self.current, 1.0

    def step(self) -> Iterate:
        """One step from the extrapolated point, shortened until f lies below its quadratic model there."""
        xp, current, previous = self.backend.xp, self.current, self._previous
        rounding = 10 * float(xp.finfo(current.M.dtype).eps)
        following = (1 + math.sqrt(1 + 4 * self._momentum**2)) / 2
        pull = (self._momentum - 1) / following
        Y = current.M + pull * (current.M - previous.M)
        value, weights, direct = self.smooth(Y, current.distances + pull * (current.distances - previous.distances))
        if not math.isfinite(value):  # extrapolated out of the domain
            Y = current.M
            value, weights, direct = self.smooth(Y, current.distances)
        gradient = self.pairs.scatter(weights)
        if direct is not None:
            gradient = gradient + direct
        if self._step == 0:
            size = float(xp.linalg.vector_norm(gradient))
            self._step = float(xp.linalg.vector_norm(Y)) / (4 * size) if size > 0 else 1.0
        n_eigh = current.n_eigh
        for _ in range(_MOST_HALVINGS):
            M, L, eigenvalues = self._prox(Y - self._step * gradient)
            n_eigh += 1
            distances = self.pairs.distances(L)
            new_value, _, _ = self.smooth(M, distances)
            move = M - Y
            bound = value + float(xp.sum(gradient * move)) + float(xp.sum(move * move)) / (2 * self._step)
            if new_value <= bound + rounding * abs(value):
                break
            self._step /= 2
        total = new_value + float(xp.sum(self.penalty.value(eigenvalues, xp=xp)))
        self.current = Iterate(M, L, distances, total, self._step, current.n_iter + 1, n_eigh)
        self._previous = current
        # Momentum that points uphill is worse than none.
        self._momentum = 1.0 if float(xp.sum((Y - M) * (M - current.M))) > 0 else following
        self._step *= _STEP_GROWTH
        return self.current

    def _prox(self, V: Array) -> tuple[Array, Array, Array]:
        """argmin over psd Z of step h(Z) + ||Z - V||^2 / 2; a factor L (k, D) of it, k its rank but at least 1."""
        xp = self.backend.xp
        values, vectors = eigh(V, xp=xp)
        values = self.penalty.prox(values, self._step, xp=xp)
        alive = np.flatnonzero(to_numpy(values) > 0)  # only they cost a pass over the pairs
        kept = self.backend.indices(alive if alive.size else np.asarray([values.shape[0] - 1]))
        roots = xp.sqrt(xp.take(values, kept))
        L = xp.matrix_transpose(xp.take(vectors, kept, axis=1) * roots[None, :])
        return xp.matrix_transpose(L) @ L, L, values


def minimize_psd(
    loss: Loss,
    pairs: PairSet,
    start: Iterate,
    *,
    max_iter: int,
    tol: float,
    backend: Backend,
    penalty: Prox | None = None,
    finished: Callable[[Iterate], bool] | None = None,
) -> tuple[Iterate, bool]:
    """argmin over psd M of  loss(squared distances) + sum_j h(eigenvalue_j), h the penalty.

    Stops where `finished`, asked every few steps, says so; without it, where the value falls by
    less than `tol` of itself in each of three steps running.

    Returns
    -------
    The last iterate and whether it stopped before `max_iter` steps.
    """

    def smooth(M: Array, distances: Array) -> tuple[float, Array, Array | None]:
        return (*loss(distances), None)

    method = Accelerated(smooth, pairs, start, penalty=penalty or NoPenalty(), backend=backend)
    quiet, value = 0, start.value
    for _ in range(max_iter):
        current = method.step()
        quiet = quiet + 1 if value - current.value <= tol * abs(current.value) else 0
        value = current.value
        done = quiet >= 3 if finished is None else current.n_iter % _CHECK_EVERY == 0 and finished(current)
        if done:
            return current, True
    return method.current, False
