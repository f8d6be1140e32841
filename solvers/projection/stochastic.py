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

_BATCH = 50
_STEP = 1e-3
_DRAWN_AT_ONCE = 100  # steps: drawing indices one step at a time would cost more than the step


def stochastic_subgradient(
    problem: PairProblem,
    regularizer_of: Callable[[Array], RowRegularizer],
    gamma: float,
    start: Array,
    *,
    rngs: Sequence[np.random.Generator],
    n_steps: int,
    backend: Backend,
    on_check: Callable[[int, Array], None],
) -> Array:
    """A (r, k, D) after `n_steps` steps from `start`.

    Parameters
    ----------
    regularizer_of : batch of examples (r, 200, D) -> regularizer, for those that look at inputs.
    rngs : one generator per restart, so that a restart does not depend on how many there are.
    on_check : called now and then with the number of steps so far and A.
    """
    X, A = problem.dissimilar.X, start
    sources = (problem.draw_similar, problem.dissimilar.draw)
    shape = (start.shape[0], 2, 2, _DRAWN_AT_ONCE, _BATCH)
    for done in range(0, n_steps, _DRAWN_AT_ONCE):
        drawn = [[draw(_DRAWN_AT_ONCE * _BATCH, rng) for draw in sources] for rng in rngs]
        # From (restart, kind, end, step, pair) to one array of ends per step.
        ends = backend.indices(np.moveaxis(np.asarray(drawn).reshape(shape), 3, 0).copy())
        steps = min(_DRAWN_AT_ONCE, n_steps - done)
        for step in range(steps):
            gradient = _subgradient(A, ends[step, ...], X, problem.margin, regularizer_of, gamma, backend)
            A = A - _STEP * gradient
        on_check(done + steps, A)
    return A


def _subgradient(
    A: Array,
    ends: Array,
    X: Array,
    margin: float,
    regularizer_of: Callable[[Array], RowRegularizer],
    gamma: float,
    backend: Backend,
) -> Array:
    """Subgradient on one batch; ends (r, similar and dissimilar, first and second, 50)."""
    xp = backend.xp
    count, D = A.shape[0], A.shape[-1]
    points = xp.reshape(xp.take(X, xp.reshape(ends, (-1,)), axis=0), (count, 2, 2, _BATCH, D))
    Z = xp.reshape(points[:, :, 0, :, :] - points[:, :, 1, :, :], (count, 2 * _BATCH, D))
    projected = Z @ xp.matrix_transpose(A)
    distances = xp.sum(projected * projected, axis=-1)
    active = xp.astype(distances[:, _BATCH:] < margin, A.dtype)
    weights = xp.concat([xp.ones_like(active), -active], axis=-1)
    data = xp.matrix_transpose(weights[:, :, None] * projected) @ Z
    regularizer = regularizer_of(xp.reshape(points, (count, -1, D)))
    return 2 / _BATCH * data + gamma * regularizer.gradient(A, xp=xp)
