"""Running a stack of independent restarts in rounds, and letting those that ended leave it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import array_api_compat
import numpy as np

from solvers.backend import Array, Namespace, to_numpy

# Asking a GPU whether anything ended makes it wait, so ask every few rounds only.
_CHECK_EVERY = 4

OnCheck = Callable[[int, np.ndarray], None]


@dataclass(frozen=True)
class Restarts:
    """What every stack keeps; subclasses add their own. The leading axis of each array is the restart."""

    index: Array  # (r,) which restart this was in the full stack
    point: Array  # (r, k, D)
    value: Array  # (r,)
    n_iter: Array  # (r,) evaluations
    ended: Array  # (r,) takes no further step
    converged: Array  # (r,) ended by the gradient criterion


State = TypeVar("State", bound=Restarts)


@dataclass(frozen=True)
class StackResult:
    """Where each restart ended: points (r, k, D), evaluations (r,), gradient criterion met (r,)."""

    points: Array
    n_iter: np.ndarray
    converged: np.ndarray


def fresh_restarts(start: Array, *, xp: Namespace) -> dict[str, Array]:
    """Fields of `Restarts` before the first round."""
    device, count = array_api_compat.device(start), start.shape[0]
    return {
        "index": xp.arange(count, device=device),
        "point": start,
        "value": xp.zeros((count,), dtype=start.dtype, device=device),
        "n_iter": xp.zeros((count,), dtype=xp.int64, device=device),
        "ended": xp.zeros((count,), dtype=xp.bool, device=device),
        "converged": xp.zeros((count,), dtype=xp.bool, device=device),
    }


def run_stack(
    state: State,
    advance: Callable[[State, int], State],
    *,
    max_iter: int,
    xp: Namespace,
    on_check: OnCheck | None = None,
) -> StackResult:
    """Apply `advance(state, round)` until every restart ended, `max_iter` rounds at most.

    `advance` must leave restarts that ended as they are: they stay in the stack until the next check.
    `on_check` hears the number of rounds so far and the values of the restarts still running.
    """
    count = state.point.shape[0]
    finished: dict[int, tuple[Array, int, bool]] = {}
    for rounds in range(1, max_iter + 1):
        state = advance(state, rounds - 1)
        if rounds % _CHECK_EVERY and rounds < max_iter:
            continue
        if on_check is not None:
            on_check(rounds, to_numpy(state.value))
        ended = to_numpy(state.ended) | (rounds == max_iter)
        if not ended.any():
            continue
        index, n_iter, converged = (to_numpy(a) for a in (state.index, state.n_iter, state.converged))
        for row in np.flatnonzero(ended):
            finished[int(index[row])] = (state.point[int(row), ...], int(n_iter[row]), bool(converged[row]))
        if ended.all():
            break
        device = array_api_compat.device(state.point)
        rows = xp.asarray(np.flatnonzero(~ended), dtype=xp.int64, device=device)
        kept: dict[str, Any] = {f.name: xp.take(getattr(state, f.name), rows, axis=0) for f in fields(state)}
        state = type(state)(**kept)
    outcomes = [finished[i] for i in range(count)]
    return StackResult(
        points=xp.stack([point for point, _, _ in outcomes]),
        n_iter=np.asarray([n for _, n, _ in outcomes]),
        converged=np.asarray([c for _, _, c in outcomes]),
    )


def dot(U: Array, V: Array, *, xp: Namespace) -> Array:
    """<U, V> of each restart, (r,)."""
    return xp.sum(U * V, axis=(-2, -1))


def choose(condition: Array, U: Array, V: Array, *, xp: Namespace) -> Array:
    """U where the restart's condition holds, else V."""
    return xp.where(condition[:, None, None], U, V)
