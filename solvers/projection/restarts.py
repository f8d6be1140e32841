"""Running a stack of independent restarts in rounds, and letting those that ended leave it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
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
    limit: Array  # (r,) of these, at most
    ended: Array  # (r,) takes no further step
    converged: Array  # (r,) ended by the gradient criterion


State = TypeVar("State", bound=Restarts)


@dataclass(frozen=True)
class StackResult:
    """Where each restart ended.

    points (r, k, D), evaluations (r,), whether a criterion was met (r,), and how far the gradient is from
    zero there (r,), None if that was not asked.
    """

    points: Array
    n_iter: np.ndarray
    converged: np.ndarray
    stationarity: np.ndarray | None = None


def fresh_restarts(start: Array, max_iter: int | np.ndarray, *, xp: Namespace) -> dict[str, Array]:
    """Fields of `Restarts` before the first round; `max_iter` of all or of each."""
    device, count = array_api_compat.device(start), start.shape[0]
    return {
        "index": xp.arange(count, device=device),
        "point": start,
        "value": xp.zeros((count,), dtype=start.dtype, device=device),
        "n_iter": xp.zeros((count,), dtype=xp.int64, device=device),
        "limit": xp.asarray(np.broadcast_to(max_iter, (count,)).copy(), dtype=xp.int64, device=device),
        "ended": xp.zeros((count,), dtype=xp.bool, device=device),
        "converged": xp.zeros((count,), dtype=xp.bool, device=device),
    }


def run_stack(
    state: State,
    advance: Callable[[State, int], State],
    *,
    xp: Namespace,
    on_check: OnCheck | None = None,
) -> StackResult:
    """Apply `advance(state, round)` until every restart ended or reached its limit.

    `advance` must leave restarts that ended as they are: they stay in the stack until the next check.
    `on_check` hears the number of rounds so far and the values of the restarts still running.
    """
    count, most = state.point.shape[0], int(xp.max(state.limit))
    finished: dict[int, tuple[Array, int, bool]] = {}
    for rounds in range(1, most + 1):
        state = advance(state, rounds - 1)
        state = replace(state, ended=state.ended | (state.n_iter >= state.limit))
        if rounds % _CHECK_EVERY and rounds < most:
            continue
        if on_check is not None:
            on_check(rounds, to_numpy(state.value))
        ended = to_numpy(state.ended)
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


def joined(first: StackResult, second: StackResult, *, xp: Namespace) -> StackResult:
    """Both as one."""
    both = None
    if first.stationarity is not None and second.stationarity is not None:
        both = np.concatenate([first.stationarity, second.stationarity])
    return StackResult(
        xp.concat([first.points, second.points]),
        np.concatenate([first.n_iter, second.n_iter]),
        np.concatenate([first.converged, second.converged]),
        both,
    )


def dot(U: Array, V: Array, *, xp: Namespace) -> Array:
    """<U, V> of each restart, (r,)."""
    return xp.sum(U * V, axis=(-2, -1))


def choose(condition: Array, U: Array, V: Array, *, xp: Namespace) -> Array:
    """U where the restart's condition holds, else V."""
    return xp.where(condition[:, None, None], U, V)
