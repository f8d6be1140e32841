"""The published algorithm for MDML: stochastic proximal subgradient, one eigendecomposition a step.

Each step draws 50 similar and 50 dissimilar pairs, goes 0.001 down the subgradient of their mean
loss and applies the prox. The paper states neither start, length nor stopping rule: the start is
zero, the length `max_iter`, and the last iterate is returned.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from solvers.backend import Array, Backend, symmetrize
from solvers.convex.dual import Solution, SpectralProblem, relative_gap
from solvers.convex.feasible import DualCone
from solvers.pairs import PairProblem
from solvers.regularizers.spectral import NoPenalty, Spectral

STEP = 0.001
BATCH = 50
_CHECKPOINTS = 20


def solve_published(
    problem: PairProblem,
    penalty: Any,
    gamma: float,
    *,
    tol: float,
    max_iter: int,
    start: Any | None,
    drop: float,
    rng: np.random.Generator,
    backend: Backend,
) -> Solution:
    """Run the published steps, then measure the objective and the gap on all pairs.

    `penalty` is a regularizer on eigenvalues or on entries; `drop` the probability of dropping an
    entry of M in each step (0: none is dropped). Norms on entries use soft-thresholding followed by
    the psd projection, which is what a stochastic method can afford; it is not their exact prox.
    """
    xp = backend.xp
    spectral = isinstance(penalty, Spectral)
    spectrum: Any = penalty if spectral else NoPenalty()
    p = SpectralProblem(problem, spectrum, gamma if spectral else 0.0, backend)
    M = xp.zeros_like(problem.similar_scatter) if start is None else start
    values = xp.zeros((M.shape[0],), dtype=backend.dtype, device=backend.device)
    vectors = xp.eye(M.shape[0], dtype=backend.dtype, device=backend.device)
    history: list[dict[str, float]] = []
    seconds = 0.0
    every = max(1, max_iter // _CHECKPOINTS)
    for step in range(1, max_iter + 1):
        began = time.perf_counter()
        mask = _mask(M.shape[0], drop, rng, backend)
        slope = _batch_slope(problem, M if mask is None else mask * M, rng, backend)
        moved = M - STEP * (slope if mask is None else mask * slope)
        if not spectral and gamma > 0:
            # The prox of a norm is what is left after projecting on its dual ball.
            moved = symmetrize(moved - STEP * gamma * penalty.project(moved / (STEP * gamma), xp=xp), xp=xp)
        values, vectors = p.eigh(moved)
        values = _shrink(penalty, values, gamma, xp=xp) if spectral else xp.clip(values, 0.0, None)
        M = (vectors * values[None, :]) @ xp.matrix_transpose(vectors)
        seconds += time.perf_counter() - began
        if step % every == 0 or step == max_iter:  # measured outside the clock: the method does not need it
            distances = p.distances(p.factor(values, vectors))
            loss = p.loss(M, distances)
            objective = loss + (p.regularizer(values) if spectral else gamma * float(penalty.value(M, xp=xp)))
            history.append({"n_eigh": p.n_eigh, "seconds": seconds, "objective": objective})
    n_eigh, dual = p.n_eigh, None
    if spectral and gamma > 0:
        smoothings = [problem.margin * factor for factor in (1.0, 0.3, 0.1, 0.03, 0.01)]
        dual = max(p.dual(xp.clip((problem.margin - distances) / mu, 0.0, 1.0))[1] for mu in smoothings)
    elif drop == 0:
        alpha = xp.astype(distances < problem.margin, backend.dtype)
        dual = DualCone(problem, 0.0, backend).prove(alpha, None).value if spectral else 0.0
    converged = dual is not None and relative_gap(objective, dual, loss, problem.margin) <= tol
    return Solution(M, values, vectors, objective, loss, dual, max_iter, n_eigh, converged, history)


def _shrink(penalty: Any, values: Array, gamma: float, *, xp: Any) -> Array:
    return penalty.prox(values, STEP * gamma, xp=xp) if gamma > 0 else xp.clip(values, 0.0, None)


def _mask(dimension: int, drop: float, rng: np.random.Generator, backend: Backend) -> Array | None:
    """Symmetric 0/1 mask of kept entries, scaled so that its mean is 1."""
    if drop == 0:
        return None
    upper = np.triu(rng.random((dimension, dimension)) >= drop)
    return backend.asarray((upper | upper.T) / (1 - drop))


def _batch_slope(problem: PairProblem, M: Array, rng: np.random.Generator, backend: Backend) -> Array:
    """Subgradient of the loss on 50 similar and 50 dissimilar pairs."""
    xp = backend.xp
    X = problem.dissimilar.X
    similar = _differences(X, problem.draw_similar(BATCH, rng), backend)
    dissimilar = _differences(X, problem.dissimilar.draw(BATCH, rng), backend)
    active = xp.astype(xp.sum((dissimilar @ M) * dissimilar, axis=1) < problem.margin, backend.dtype)
    pull = xp.matrix_transpose(similar) @ similar
    push = xp.matrix_transpose(dissimilar) @ (active[:, None] * dissimilar)
    return (pull - push) / BATCH


def _differences(X: Array, rows: tuple[np.ndarray, np.ndarray], backend: Backend) -> Array:
    """z of a batch of pairs, (50, D)."""
    first, second = (backend.indices(indices) for indices in rows)
    return backend.xp.take(X, first, axis=0) - backend.xp.take(X, second, axis=0)
