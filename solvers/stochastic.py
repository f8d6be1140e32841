"""The published solver of the non-convex problem: stochastic subgradient steps on A.

Every step draws, for each restart on its own, 50 similar and 50 dissimilar pairs and moves A by
a constant step against the subgradient. There is no stopping rule; the last iterate is the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from solvers.backend import Array, Backend
from solvers.pairs import PairProblem
from solvers.regularizers.rows import RowRegularizer

Sampler = Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]

_BATCH = 50
_STEP = 1e-3
_DRAWN_AT_ONCE = 100  # steps: drawing indices one step at a time would cost more than the step


def stochastic_subgradient(
    problem: PairProblem,
    regularizer_of: Callable[[Array], RowRegularizer],
    gamma: float,
    start: Array,
    *,
    draw_similar: Sampler,
    rngs: Sequence[np.random.Generator],
    n_steps: int,
    backend: Backend,
    on_check: Callable[[int, Array], None],
) -> Array:
    """A (r, k, D) after `n_steps` steps from `start`.

    Parameters
    ----------
    regularizer_of : batch of examples (r, 200, D) -> regularizer, for those that look at inputs.
    draw_similar : (count, rng) -> row indices of both ends; dissimilar pairs come from the problem's own.
    rngs : one generator per restart, so that a restart does not depend on how many there are.
    on_check : called now and then with the number of steps so far and A.
    """
    xp, graph = backend.xp, problem.dissimilar.graph
    X, A = problem.dissimilar.X, start
    count = start.shape[0]
    for done in range(0, n_steps, _DRAWN_AT_ONCE):
        steps = min(_DRAWN_AT_ONCE, n_steps - done)
        similar, dissimilar = [], []
        for rng in rngs:
            similar.append(np.stack(draw_similar(_DRAWN_AT_ONCE * _BATCH, rng)))
            dissimilar.append(rng.integers(len(problem.dissimilar), size=_DRAWN_AT_ONCE * _BATCH))
        # ends: (steps, r, 2, 100), similar pairs first
        chosen = backend.indices(np.stack(dissimilar))
        ends = xp.concat(
            [
                backend.indices(np.stack(similar)),
                xp.stack([_pick(graph.first, chosen, backend), _pick(graph.second, chosen, backend)], axis=1),
            ],
            axis=-1,
        )
        ends = xp.reshape(ends, (count, 2, 2, _DRAWN_AT_ONCE, _BATCH))
        ends = xp.permute_dims(ends, (3, 0, 1, 2, 4))
        for step in range(steps):
            A = A - _STEP * _subgradient(A, ends[step, ...], X, problem.margin, regularizer_of, gamma, backend)
        on_check(done + steps, A)
    return A


def _pick(values: Array, positions: Array, backend: Backend) -> Array:
    """values[positions] for positions of any shape."""
    xp = backend.xp
    return xp.reshape(xp.take(values, xp.reshape(positions, (-1,))), positions.shape)


def _subgradient(
    A: Array,
    ends: Array,
    X: Array,
    margin: float,
    regularizer_of: Callable[[Array], RowRegularizer],
    gamma: float,
    backend: Backend,
) -> Array:
    """Subgradient on one batch; ends (r, 2 ends, similar or dissimilar, 50)."""
    xp = backend.xp
    count, D = A.shape[0], A.shape[-1]
    points = xp.reshape(xp.take(X, xp.reshape(ends, (-1,)), axis=0), (count, 2, 2 * _BATCH, D))
    Z = points[:, 0, :, :] - points[:, 1, :, :]
    projected = Z @ xp.matrix_transpose(A)
    distances = xp.sum(projected * projected, axis=-1)
    active = xp.astype(distances[:, _BATCH:] < margin, A.dtype)
    weights = xp.concat([xp.ones_like(active), -active], axis=-1)
    data = xp.matrix_transpose(weights[:, :, None] * projected) @ Z
    regularizer = regularizer_of(xp.reshape(points, (count, -1, D)))
    return 2 / _BATCH * data + gamma * regularizer.gradient(A, xp=xp)
