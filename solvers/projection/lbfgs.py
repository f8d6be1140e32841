"""Limited-memory BFGS for a stack of independent problems.

All restarts take one trial point per round, evaluated together. Each has its own step length,
memory, smoothing level and end; those that ended leave the stack. Nothing in one restart's
arithmetic depends on the others, so that a stack gives what a loop gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import array_api_compat
import numpy as np

from solvers.backend import Array, Namespace
from solvers.projection.restarts import OnCheck, Restarts, StackResult, choose, dot, fresh_restarts, run_stack

Evaluate = Callable[[Array, Array], tuple[Array, Array]]

_MEMORY = 8
_SUFFICIENT_DECREASE = 1e-4
_MAX_SHRINKS = 15


@dataclass(frozen=True)
class _State(Restarts):
    """A stack between two rounds."""

    gradient: Array
    direction: Array
    slope: Array  # <gradient, direction>, negative
    step: Array
    scale: Array  # of the initial inverse Hessian
    level: Array  # position in the sequence of smoothing levels
    fresh: Array  # the value at `point` is not known yet: first round, or first at a new level
    shrinks: Array  # failed trials in a row
    steps: Array  # (r, memory, k D): past moves, zero where one was refused
    changes: Array  # (r, memory, k D): past changes of the gradient


def minimize(
    evaluate: Evaluate,
    start: Array,
    *,
    levels: Sequence[float],
    tol: float,
    max_iter: int,
    xp: Namespace,
    on_check: OnCheck | None = None,
) -> StackResult:
    """Minimise each matrix of a stack, through a falling sequence of smoothing levels.

    Parameters
    ----------
    evaluate : (A (r, k, D), smoothing (r,)) -> values (r,), gradients (r, k, D).
    start : (r, k, D).
    levels : smoothing of each stage; a restart goes on to the next where its gradient is small.
    tol : a gradient is small where ||gradient|| ||A|| <= tol max(1, |value|): the relative gain
        that moving A by its own length would promise. The last level asks this, those before
        it ten times less.
    max_iter : evaluations per restart, at most.
    """
    device, dtype = array_api_compat.device(start), start.dtype
    count, k, D = start.shape
    smoothing = xp.asarray(list(levels), dtype=dtype, device=device)
    tolerances = xp.asarray([10 * tol] * (len(levels) - 1) + [tol], dtype=dtype, device=device)
    zeros = xp.zeros((count,), dtype=dtype, device=device)
    integers = xp.zeros((count,), dtype=xp.int64, device=device)
    memory = xp.zeros((count, _MEMORY, k * D), dtype=dtype, device=device)
    state = _State(
        **fresh_restarts(start, xp=xp),
        gradient=xp.zeros_like(start),
        direction=xp.zeros_like(start),
        slope=zeros,
        step=zeros,
        scale=zeros,
        level=integers,
        fresh=xp.ones((count,), dtype=xp.bool, device=device),
        shrinks=integers,
        steps=memory,
        changes=xp.zeros_like(memory),
    )

    def advance(state: _State, round_: int) -> _State:
        return _round(
            state,
            evaluate,
            xp.take(smoothing, state.level),
            xp.take(tolerances, state.level),
            last=len(levels) - 1,
            slot=round_ % _MEMORY,
            xp=xp,
        )

    return run_stack(state, advance, max_iter=max_iter, xp=xp, on_check=on_check)


def _round(
    state: _State,
    evaluate: Evaluate,
    smoothing: Array,
    tolerance: Array,
    *,
    last: int,
    slot: int,
    xp: Namespace,
) -> _State:
    """One trial point for every restart."""
    move = state.step[:, None, None] * state.direction
    trial = state.point + move
    value, gradient = evaluate(trial, smoothing)
    running = ~state.ended
    enough = value <= state.value + _SUFFICIENT_DECREASE * state.step * state.slope
    accepted = running & xp.isfinite(value) & (state.fresh | enough)
    refused = running & ~accepted

    change = gradient - state.gradient
    curvature, change_square = dot(move, change, xp=xp), dot(change, change, xp=xp)
    # A pair without positive curvature would make the model of the inverse Hessian indefinite.
    useful = accepted & ~state.fresh & (curvature > 1e-10 * change_square * state.scale)
    _remember(state.steps, slot, move, useful, xp=xp)
    _remember(state.changes, slot, change, useful, xp=xp)

    point = choose(accepted, trial, state.point, xp=xp)
    new_gradient = choose(accepted, gradient, state.gradient, xp=xp)
    new_value = xp.where(accepted, value, state.value)
    gradient_norm = xp.sqrt(dot(new_gradient, new_gradient, xp=xp))
    size = xp.sqrt(dot(point, point, xp=xp))
    scale = xp.where(useful, curvature / xp.where(useful, change_square, xp.ones_like(value)), state.scale)
    # Without any curvature known, a first step moves A by a tenth of its length.
    scale = xp.where(scale > 0, scale, 0.1 * size / xp.clip(gradient_norm, 1e-30, None))

    small = accepted & (gradient_norm * size <= tolerance * xp.clip(xp.abs(new_value), 1.0, None))
    stuck = refused & (state.shrinks >= _MAX_SHRINKS)
    over = (small | stuck) & (state.level == last)
    advance = (small | stuck) & ~over
    direction, slope = _direction(state, new_gradient, scale, slot, xp=xp)
    unchanged = refused & ~stuck
    return replace(
        state,
        point=point,
        value=new_value,
        gradient=new_gradient,
        direction=choose(unchanged, state.direction, direction, xp=xp),
        slope=xp.where(unchanged, state.slope, slope),
        step=xp.where(unchanged, _shorter(state, value, xp=xp), xp.astype(~advance, value.dtype)),
        scale=scale,
        level=state.level + xp.astype(advance, xp.int64),
        fresh=advance,
        shrinks=xp.where(unchanged, state.shrinks + 1, xp.zeros_like(state.shrinks)),
        n_iter=state.n_iter + xp.astype(running, xp.int64),
        ended=state.ended | over,
        converged=state.converged | (small & (state.level == last)),
    )


def _shorter(state: _State, value: Array, *, xp: Namespace) -> Array:
    """Next trial step: minimiser of the parabola through what is known, within [0.1, 0.5] of the last."""
    bend = value - state.value - state.step * state.slope
    usable = xp.isfinite(bend) & (bend > 0)
    ratio = -state.step * state.slope / (2 * xp.where(usable, bend, xp.ones_like(bend)))
    return state.step * xp.where(usable, xp.clip(ratio, 0.1, 0.5), xp.full_like(ratio, 0.1))


def _direction(state: _State, gradient: Array, scale: Array, slot: int, *, xp: Namespace) -> tuple[Array, Array]:
    """-H gradient by the compact form of L-BFGS, and its slope.

    With R the upper triangle of S Y' in order of age, u = R^-1 S g and c the scale:
    H g = c (g - Y' u) + S' R^-T (diag(R) u - c Y (g - Y' u)). Slots are not in order of age;
    a permuted triangle is as good to a general solver.
    """
    S, Y = state.steps, state.changes
    g = xp.reshape(gradient, (gradient.shape[0], -1, 1))
    c = scale[:, None, None]
    age = (slot - np.arange(_MEMORY)) % _MEMORY
    device = array_api_compat.device(gradient)
    in_order = xp.asarray(age[:, None] >= age[None, :], device=device)
    products = S @ xp.matrix_transpose(Y)
    diagonal = xp.linalg.diagonal(products)[..., None]
    identity = xp.eye(_MEMORY, dtype=gradient.dtype, device=device)
    R = xp.where(in_order, products, xp.zeros_like(products))
    R = R + identity * xp.astype(diagonal == 0, gradient.dtype)  # empty slots must not be singular
    inverse = xp.linalg.inv(R)
    u = inverse @ (S @ g)
    rest = g - xp.matrix_transpose(Y) @ u
    inner = xp.matrix_transpose(inverse) @ (diagonal * u - c * (Y @ rest))
    direction = -xp.reshape(c * rest + xp.matrix_transpose(S) @ inner, gradient.shape)
    slope = dot(direction, gradient, xp=xp)
    steepest = -scale[:, None, None] * gradient
    downhill = xp.isfinite(slope) & (slope < 0)
    return (
        choose(downhill, direction, steepest, xp=xp),
        xp.where(downhill, slope, dot(steepest, gradient, xp=xp)),
    )


def _remember(memory: Array, slot: int, vectors: Array, useful: Array, *, xp: Namespace) -> None:
    """Write one slot of every restart, in place: copying the whole memory would cost more than the step."""
    kept = choose(useful, vectors, xp.zeros_like(vectors), xp=xp)
    memory[:, slot, :] = xp.reshape(kept, (vectors.shape[0], -1))
