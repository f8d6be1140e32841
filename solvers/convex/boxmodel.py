"""The quadratic model of the dual over the box, maximised without an eigendecomposition.

A change q of the pair weights changes the distances by H q (see `solvers.convex.curvature`). The model is

    max over b in [0, 1]:   sum_k (margin - d_k) (b_k - a_k) - smoothing/2 b_k^2 - 1/2 (b - a)' H (b - a) .

H is steep and the box has many corners, so a step also pays for its length, by damping/2 |b' - b|^2. The
damping grows where the model stops rising early on the way, and falls where it rises to the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from solvers.backend import Array
from solvers.convex.curvature import PairModel
from solvers.convex.tuning import TUNING, Effort


def maximize_model(
    model: PairModel, start: Array, distances: Array, *, margin: float, smoothing: float, effort: Effort
) -> Array:
    """Weights (p,) that maximise the model, by an active-set method with a Newton step on free pairs."""
    xp = model.pairs.xp
    if len(model.pairs) == 0:
        return start
    b, d, total, damping = start, distances, 0.0, TUNING.damping * margin
    for _ in range(effort.rounds):
        width = smoothing + damping
        wanted = (margin - d + damping * b) / width
        rise = margin - d - smoothing * b
        step = xp.clip(wanted, 0.0, 1.0) - b
        response = model.response(step)
        if bool(xp.any((wanted > 0) & (wanted < 1))):
            newton = _newton_target(model, wanted, step, response, width, effort) - b
            if float(xp.sum(rise * newton)) > 0:
                step, response = newton, model.response(newton)
        slope = float(xp.sum(rise * step))
        if slope <= 0:
            break
        bend = float(xp.sum((smoothing * step + response) * step))
        length = min(1.0, slope / max(bend, 1e-300))
        b, d = b + length * step, d + length * response
        gain = length * slope - length * length * bend / 2
        total += gain
        if length < 0.5:
            damping = max(TUNING.damping_factor * damping, smoothing)
        elif gain < effort.enough * total:
            break
        elif length > 0.9:
            damping /= TUNING.damping_factor
    return b


def _newton_target(
    model: PairModel, wanted: Array, step: Array, response: Array, width: float, effort: Effort
) -> Array:
    """Weights at which the free pairs' own change of distance is accounted for; `response` is that of `step`.

    A free pair's weight falls by its distance / `width`.
    """
    xp = model.pairs.xp
    is_free = (wanted > 0) & (wanted < 1)
    free = xp.nonzero(is_free)[0]
    stride = -(-int(free.shape[0]) // effort.sample)
    sample = free[::stride]
    part = model.subset(sample)
    weight = int(free.shape[0]) / int(sample.shape[0]) / width

    def system(q: Array) -> Array:
        return q + weight * part.response(q)

    q = _conjugate_gradient(system, xp.take(response, sample), effort.solves, effort.solved, xp=xp)
    place = xp.cumulative_sum(xp.astype(is_free, xp.int64)) - 1
    falls = spread(q, is_free & (place % stride == 0), xp=xp)
    if stride > 1:
        falls = model.response(step - weight * falls)
    return xp.clip(xp.where(is_free, wanted - falls / width, wanted), 0.0, 1.0)


def spread(values: Array, mask: Array, *, xp: Any) -> Array:
    """Values (p,) at the p places where the mask (m,) is true, zero elsewhere."""
    if values.shape[0] == 0:
        return xp.astype(mask, values.dtype)
    place = xp.clip(xp.cumulative_sum(xp.astype(mask, xp.int64)) - 1, 0, None)
    everywhere = xp.take(values, place)
    return xp.where(mask, everywhere, xp.zeros_like(everywhere))


def _conjugate_gradient(apply: Callable[[Array], Array], right: Array, most: int, accuracy: float, *, xp: Any) -> Array:
    """Solve apply(q) = right for a positive definite map, roughly."""
    q, residual = xp.zeros_like(right), right
    direction = right
    size = first = float(xp.sum(right * right))
    for _ in range(most):
        if size <= accuracy**2 * first:
            break
        image = apply(direction)
        length = size / float(xp.sum(direction * image))
        q, residual = q + length * direction, residual - length * image
        new = float(xp.sum(residual * residual))
        direction, size = residual + (new / size) * direction, new
    return q
