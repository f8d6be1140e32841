"""Limited-memory BFGS for a stack of independent problems.

All restarts take one trial point per round, evaluated together. Each has its own step length,
memory and end; those that ended leave the stack. Nothing in one restart's arithmetic depends on
the others, so that a stack gives what a loop gives, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import array_api_compat
import numpy as np

from solvers.backend import Array, Namespace
from solvers.projection.restarts import OnCheck, Restarts, StackResult, choose, dot, fresh_restarts, run_stack

Evaluate = Callable[[Array], tuple[Array, Array]]

_MEMORY = 8
_SUFFICIENT_DECREASE = 1e-4
_MAX_SHRINKS = 15
# Steps over which a fall of the value is asked for.
_WINDOW = 10


@dataclass(frozen=True)
class _State(Restarts):
    """A stack between two rounds."""

    gradient: Array
    direction: Array
    slope: Array  # <gradient, direction>, negative
    step: Array
    scale: Array  # of the initial inverse Hessian
    shrinks: Array  # failed trials in a row
    recent: Array  # (r, window): values of the last steps, infinite before the first
    memory: Array  # (r, 2 memory, k D): past moves, then past changes of the gradient; zero where refused
    moves_changes: Array  # (r, memory, memory): <move i, change j> where i is not younger than j, else 0
    changes_changes: Array  # (r, memory, memory)


def minimize(
    evaluate: Evaluate,
    start: Array,
    *,
    tol: float,
    max_iter: int | np.ndarray,
    xp: Namespace,
    stall: float = 0.0,
    on_check: OnCheck | None = None,
) -> StackResult:
    """Minimise each matrix of a stack.

    Parameters
    ----------
    evaluate : A (r, k, D) -> values (r,), gradients (r, k, D).
    start : (r, k, D).
    tol : a restart has converged where its `stationarity` is at most this,
    stall : or where its last ten steps lowered the value by no more than this part of it.
    max_iter : evaluations per restart, at most; one number, or one for each.
    """
    device, dtype = array_api_compat.device(start), start.dtype
    count, k, D = start.shape
    zeros = xp.zeros((count,), dtype=dtype, device=device)
    square = xp.zeros((count, _MEMORY, _MEMORY), dtype=dtype, device=device)
    state = _State(
        **(fresh_restarts(start, max_iter, xp=xp) | {"value": xp.full_like(zeros, xp.inf)}),
        gradient=xp.zeros_like(start),
        direction=xp.zeros_like(start),
        slope=zeros,
        step=zeros,
        scale=zeros,
        shrinks=xp.zeros((count,), dtype=xp.int64, device=device),
        recent=xp.full((count, _WINDOW), xp.inf, dtype=dtype, device=device),
        memory=xp.zeros((count, 2 * _MEMORY, k * D), dtype=dtype, device=device),
        moves_changes=square,
        changes_changes=xp.zeros_like(square),
    )

    def advance(state: _State, round_: int) -> _State:
        return _round(state, evaluate, tol, stall, first=round_ == 0, slot=round_ % _MEMORY, xp=xp)

    return run_stack(state, advance, xp=xp, on_check=on_check)


def stationarity(A: Array, value: Array, gradient: Array, *, xp: Namespace) -> Array:
    """What moving every row by its own length can gain to first order, in parts of max(1, |value|); (r,).

    Row by row, because a function of a row's direction alone is the steeper the shorter the row.
    """
    rows = xp.sqrt(xp.sum(gradient * gradient, axis=-1) * xp.sum(A * A, axis=-1))
    return xp.sum(rows, axis=-1) / xp.clip(xp.abs(value), 1.0, None)


def _round(
    state: _State, evaluate: Evaluate, tol: float, stall: float, *, first: bool, slot: int, xp: Namespace
) -> _State:
    """One trial point for every restart; in the first round the start itself."""
    move = state.step[:, None, None] * state.direction
    trial = state.point + move
    value, gradient = evaluate(trial)
    running = ~state.ended
    enough = value <= state.value + _SUFFICIENT_DECREASE * state.step * state.slope
    accepted = running & xp.isfinite(value) & (enough | first)
    refused = running & ~accepted

    change = gradient - state.gradient
    curvature, change_square = dot(move, change, xp=xp), dot(change, change, xp=xp)
    # A pair without positive curvature would make the model of the inverse Hessian indefinite.
    useful = accepted & (curvature > 1e-10 * change_square * state.scale) & (not first)

    point = choose(accepted, trial, state.point, xp=xp)
    new_gradient = choose(accepted, gradient, state.gradient, xp=xp)
    new_value = xp.where(accepted, value, state.value)
    scale = xp.where(useful, curvature / xp.where(useful, change_square, xp.ones_like(value)), state.scale)
    # Without any curvature known, a first step moves A by a tenth of its length.
    lengths = [xp.sqrt(dot(V, V, xp=xp)) for V in (point, new_gradient)]
    scale = xp.where(scale > 0, scale, 0.1 * lengths[0] / xp.clip(lengths[1], 1e-30, None))

    flat = state.recent[:, 0] - new_value <= stall * xp.abs(new_value)
    small = stationarity(point, new_value, new_gradient, xp=xp) <= tol
    met = accepted & (small | flat)
    stuck = refused & (state.shrinks >= _MAX_SHRINKS)
    shifted = xp.concat([state.recent[:, 1:], new_value[:, None]], axis=1)
    direction, slope = _direction(state, new_gradient, move, change, scale, useful, slot, xp=xp)
    return replace(
        state,
        point=point,
        value=new_value,
        gradient=new_gradient,
        direction=choose(refused, state.direction, direction, xp=xp),
        slope=xp.where(refused, state.slope, slope),
        step=xp.where(refused, _shorter(state, value, xp=xp), xp.ones_like(value)),
        scale=scale,
        shrinks=xp.where(refused, state.shrinks + 1, xp.zeros_like(state.shrinks)),
        recent=xp.where(accepted[:, None], shifted, state.recent),
        n_iter=state.n_iter + xp.astype(running, xp.int64),
        ended=state.ended | met | stuck,
        converged=state.converged | met,
    )


def _shorter(state: _State, value: Array, *, xp: Namespace) -> Array:
    """Next trial step: minimiser of the parabola through what is known, within [0.1, 0.5] of the last."""
    bend = value - state.value - state.step * state.slope
    usable = xp.isfinite(bend) & (bend > 0)
    ratio = -state.step * state.slope / (2 * xp.where(usable, bend, xp.ones_like(bend)))
    return state.step * xp.where(usable, xp.clip(ratio, 0.1, 0.5), xp.full_like(ratio, 0.1))


def _direction(
    state: _State, gradient: Array, move: Array, change: Array, scale: Array, useful: Array, slot: int, *, xp: Namespace
) -> tuple[Array, Array]:
    """-H gradient by the compact form of L-BFGS, and its slope; writes move and change into the memory's slot.

    With R the triangle of S Y' in order of age, u = R^-1 S g and c the scale:
    H g = c (g - Y' u) + S' R^-T (diag(R) u + c Y Y' u - c Y g). Slots are not in order of age; a permuted
    triangle is as good to a general solver. The memory is by far the largest array here: it is read
    twice, once for all products and once for the sum, and written in place.
    """
    count = gradient.shape[0]
    g = xp.reshape(gradient, (count, -1))
    new = [xp.reshape(choose(useful, V, xp.zeros_like(V), xp=xp), (count, -1)) for V in (move, change)]
    for place, vectors in zip((slot, _MEMORY + slot), new, strict=True):
        state.memory[:, place, :] = vectors
    products = state.memory @ xp.stack([g, new[1]], axis=-1)
    R, squares = state.moves_changes, state.changes_changes
    R[:, slot, :] = xp.zeros_like(R[:, slot, :])
    R[:, :, slot] = products[:, :_MEMORY, 1]
    squares[:, slot, :] = products[:, _MEMORY:, 1]
    squares[:, :, slot] = products[:, _MEMORY:, 1]

    c = scale[:, None, None]
    diagonal = xp.linalg.diagonal(R)[..., None]
    identity = xp.eye(_MEMORY, dtype=g.dtype, device=array_api_compat.device(g))
    # Empty slots must not be singular.
    inverse = xp.linalg.inv(R + identity * xp.astype(diagonal == 0, g.dtype))
    u = inverse @ products[:, :_MEMORY, :1]
    inner = xp.matrix_transpose(inverse) @ (diagonal * u + c * (squares @ u - products[:, _MEMORY:, :1]))
    parts = xp.matrix_transpose(xp.concat([inner, -c * u], axis=1)) @ state.memory
    direction = -xp.reshape(scale[:, None] * g + parts[:, 0, :], gradient.shape)
    slope = dot(direction, gradient, xp=xp)
    steepest = -c * gradient
    downhill = xp.isfinite(slope) & (slope < 0)
    return (
        choose(downhill, direction, steepest, xp=xp),
        xp.where(downhill, slope, dot(steepest, gradient, xp=xp)),
    )
