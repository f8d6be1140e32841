"""Minimisation over matrices with orthonormal rows, A A' = I, for a stack of restarts.

The feasible method of Wen and Yin: with the skew matrix W = G' A - A' G of the gradient G, the
Cayley curve A(t)' = (I + t/2 W)^-1 (I - t/2 W) A' keeps A(t) A(t)' = I and starts downhill. Step
lengths are Barzilai and Borwein's, in turn the long and the short one; a step is taken if it lies
below Zhang and Hager's running average of past values, so that single steps may go up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import array_api_compat

from solvers.backend import Array, Namespace, to_numpy
from solvers.projection.restarts import OnCheck, Restarts, StackResult, choose, dot, fresh_restarts, run_stack

_FIRST_STEP = 1e-3
_SUFFICIENT_DECREASE = 1e-4
_SHRINK = 0.1
_MAX_SHRINKS = 10
_AVERAGING = 0.85


@dataclass(frozen=True)
class _State(Restarts):
    """A stack between two rounds. `point` is the best so far, `current` where the curve starts."""

    current: Array
    current_value: Array
    gradient: Array
    tangent: Array  # gradient - A gradient' A, the Riemannian gradient
    step: Array
    reference: Array  # Zhang and Hager's average
    reference_weight: Array
    shrinks: Array
    accepted_steps: Array


def minimize_orthonormal(
    evaluate: Callable[[Array], tuple[Array, Array]],
    start: Array,
    *,
    tol: float,
    max_iter: int,
    xp: Namespace,
    on_check: OnCheck | None = None,
) -> StackResult:
    """Minimise each matrix of a stack over orthonormal rows.

    Parameters
    ----------
    evaluate : A (r, k, D) -> values (r,), gradients (r, k, D).
    start : (r, k, D) with orthonormal rows.
    tol : a restart ends where ||tangent|| ||A|| <= tol max(1, |value|).
    max_iter : evaluations per restart, at most, not counting the one at the start.

    Returns
    -------
    StackResult with the best point of each restart.
    """
    device = array_api_compat.device(start)
    values, gradients = evaluate(start)
    count = start.shape[0]
    integers = xp.zeros((count,), dtype=xp.int64, device=device)
    common = fresh_restarts(start, max_iter, xp=xp) | {"value": values}
    state = _State(
        **common,
        current=start,
        current_value=values,
        gradient=gradients,
        tangent=_tangent(start, gradients, xp=xp),
        step=xp.full((count,), _FIRST_STEP, dtype=start.dtype, device=device),
        reference=values,
        reference_weight=xp.ones_like(values),
        shrinks=integers,
        accepted_steps=integers,
    )
    result = run_stack(state, lambda state, _: _round(state, evaluate, tol, xp=xp), xp=xp, on_check=on_check)
    values, gradients = evaluate(result.points)
    return replace(
        result,
        stationarity=to_numpy(_stationarity(values, _tangent(result.points, gradients, xp=xp), xp=xp)),
    )


def cayley(A: Array, gradient: Array, step: Array, *, xp: Namespace) -> Array:
    """Point (r, k, D) of the Cayley curve from A along -gradient at `step` (r,)."""
    k, D = A.shape[-2:]
    t = step[:, None, None]
    device = array_api_compat.device(A)
    if 2 * k < D:
        # W has rank 2k: invert in that subspace (Sherman, Morrison, Woodbury).
        U = xp.concat([gradient, A], axis=-2)
        V = xp.concat([A, -gradient], axis=-2)
        inner = xp.eye(2 * k, dtype=A.dtype, device=device) + t / 2 * (V @ xp.matrix_transpose(U))
        moved = A - t * xp.matrix_transpose(xp.linalg.solve(inner, V @ xp.matrix_transpose(A))) @ U
    else:
        W = xp.matrix_transpose(gradient) @ A
        half = t / 2 * (W - xp.matrix_transpose(W))
        identity = xp.eye(D, dtype=A.dtype, device=device)
        turned = xp.linalg.solve(identity + half, (identity - half) @ xp.matrix_transpose(A))
        moved = xp.matrix_transpose(turned)
    # One Newton step towards the nearest orthonormal rows squares what rounding left over.
    return 1.5 * moved - 0.5 * (moved @ xp.matrix_transpose(moved)) @ moved


def _tangent(A: Array, gradient: Array, *, xp: Namespace) -> Array:
    return gradient - (A @ xp.matrix_transpose(gradient)) @ A


def _stationarity(value: Array, tangent: Array, *, xp: Namespace) -> Array:
    """||tangent|| ||A|| / max(1, |value|), (r,); rows have length one."""
    return xp.sqrt(dot(tangent, tangent, xp=xp) * tangent.shape[-2]) / xp.clip(xp.abs(value), 1.0, None)


def _round(state: _State, evaluate: Callable[[Array], tuple[Array, Array]], tol: float, *, xp: Namespace) -> _State:
    """One trial point for every restart."""
    trial = cayley(state.current, state.gradient, state.step, xp=xp)
    value, gradient = evaluate(trial)
    tangent = _tangent(trial, gradient, xp=xp)
    running = ~state.ended
    slope = dot(state.tangent, state.tangent, xp=xp)
    enough = value <= state.reference - _SUFFICIENT_DECREASE * state.step * slope
    accepted = running & xp.isfinite(value) & enough
    refused = running & ~accepted

    move, change = trial - state.current, tangent - state.tangent
    cross = xp.abs(dot(move, change, xp=xp))
    tiny = float(xp.finfo(value.dtype).smallest_normal)
    long_step = dot(move, move, xp=xp) / xp.clip(cross, tiny, None)
    short_step = cross / xp.clip(dot(change, change, xp=xp), tiny, None)
    step = xp.where(state.accepted_steps % 2 == 0, long_step, short_step)
    weight = _AVERAGING * state.reference_weight + 1
    average = (_AVERAGING * state.reference_weight * state.reference + value) / weight

    small = accepted & (_stationarity(value, tangent, xp=xp) <= tol)
    better = accepted & (value < state.value)
    return replace(
        state,
        point=choose(better, trial, state.point, xp=xp),
        value=xp.where(better, value, state.value),
        current=choose(accepted, trial, state.current, xp=xp),
        current_value=xp.where(accepted, value, state.current_value),
        gradient=choose(accepted, gradient, state.gradient, xp=xp),
        tangent=choose(accepted, tangent, state.tangent, xp=xp),
        step=xp.where(accepted, xp.clip(step, 1e-20, 1e20), _SHRINK * state.step),
        reference=xp.where(accepted, average, state.reference),
        reference_weight=xp.where(accepted, weight, state.reference_weight),
        shrinks=xp.where(refused, state.shrinks + 1, xp.zeros_like(state.shrinks)),
        accepted_steps=state.accepted_steps + xp.astype(accepted, xp.int64),
        n_iter=state.n_iter + xp.astype(running, xp.int64),
        ended=state.ended | small | (refused & (state.shrinks >= _MAX_SHRINKS)),
        converged=state.converged | small,
    )
