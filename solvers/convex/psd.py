"""Smooth losses on pair distances over the psd cone, by accelerated proximal gradient steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solvers.backend import Array, Backend, eigh, to_numpy
from solvers.pairs import PairSet
from solvers.regularizers.spectral import NoPenalty, Spectral

# From squared distances (m,) to the loss and its derivative by each distance (m,).
Loss = Callable[[Array], tuple[float, Array]]

_STEP_GROWTH = 1.15
_CHECK_EVERY = 10


@dataclass
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


def minimize_psd(
    loss: Loss,
    pairs: PairSet,
    start: Iterate,
    *,
    max_iter: int,
    tol: float,
    backend: Backend,
    penalty: Spectral | None = None,
    finished: Callable[[Iterate], bool] | None = None,
) -> tuple[Iterate, bool]:
    """argmin over psd M of  loss(squared distances) + sum_j h(eigenvalue_j), h the penalty.

    Distances are linear in M, so those of the extrapolated point are the same combination of stored
    ones: each step makes one pass over the pairs for distances and one for the scatter matrix.
    Stops where `finished`, asked every few steps, says so; without it, where the value falls by
    less than `tol` of itself in each of three steps running.

    Returns
    -------
    The last iterate and whether it stopped before `max_iter` steps.
    """
    xp = backend.xp
    regularizer = penalty or NoPenalty()
    rounding = 10 * float(xp.finfo(backend.dtype).eps)
    current = previous = start
    momentum, quiet, step = 1.0, 0, start.step
    for _ in range(max_iter):
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        pull = (momentum - 1) / following
        Y = current.M + pull * (current.M - previous.M)
        value, weights = loss(current.distances + pull * (current.distances - previous.distances))
        if not math.isfinite(value):  # extrapolated out of the loss's domain
            Y = current.M
            value, weights = loss(current.distances)
        gradient = pairs.scatter(weights)
        size = float(xp.linalg.vector_norm(gradient))
        if step == 0:
            step = float(xp.linalg.vector_norm(Y)) / (4 * size) if size > 0 else 1.0
        n_eigh = current.n_eigh
        while True:
            eigenvalues, vectors = eigh(Y - step * gradient, xp=xp)
            eigenvalues = regularizer.prox(eigenvalues, step, xp=xp)
            n_eigh += 1
            L = _factor(eigenvalues, vectors, backend=backend)
            M = xp.matrix_transpose(L) @ L
            distances = pairs.distances(L)
            new_value, _ = loss(distances)
            move = M - Y
            bound = value + float(xp.sum(gradient * move)) + float(xp.sum(move * move)) / (2 * step)
            if new_value <= bound + rounding * abs(value) or step * size < rounding:
                break
            step /= 2
        total = new_value + float(xp.sum(regularizer.value(eigenvalues, xp=xp)))
        previous, current = current, Iterate(M, L, distances, total, step, current.n_iter + 1, n_eigh)
        # Momentum that points uphill is worse than none.
        momentum = 1.0 if float(xp.sum((Y - M) * (M - previous.M))) > 0 else following
        step *= _STEP_GROWTH
        quiet = quiet + 1 if previous.value - total <= tol * abs(total) else 0
        done = quiet >= 3 if finished is None else current.n_iter % _CHECK_EVERY == 0 and finished(current)
        if done:
            return current, True
    return current, False


def _factor(eigenvalues: Array, vectors: Array, *, backend: Backend) -> Array:
    """L (k, D) of the eigenvalues above zero, at least one: only they cost a pass over the pairs."""
    xp = backend.xp
    alive = np.flatnonzero(to_numpy(eigenvalues) > 0)
    kept = backend.indices(alive if alive.size else np.asarray([eigenvalues.shape[0] - 1]))
    roots = xp.sqrt(xp.take(eigenvalues, kept))
    return xp.matrix_transpose(xp.take(vectors, kept, axis=1) * roots[None, :])
