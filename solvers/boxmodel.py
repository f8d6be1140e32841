"""The quadratic model of the dual over the box, maximised without an eigendecomposition.

A change q of the pair weights changes the distances by H q with
(H q)_k = z_k' (T o sum_l q_l z_l z_l') z_k, z in the model's few coordinates. The model is

    max over b in [0, 1]:   sum_k (margin - d_k) (b_k - a_k) - smoothing/2 b_k^2 - 1/2 (b - a)' H (b - a) .
"""

from __future__ import annotations

from dataclasses import dataclass, field

from solvers.backend import Array
from solvers.pairs import PairSet

# The Newton system is solved on at most so many of the free pairs and extended to the others.
_SAMPLE = 3000


@dataclass
class PairModel:
    """The operator H on the pairs in play.

    Attributes
    ----------
    Y : (n, r) points in the model's coordinates.
    T : (r, r) weights of the coordinates' products.
    mask, chosen : which pairs are in play, as a mask (m,) and as indices (p,).
    """

    pairs: PairSet
    Y: Array
    T: Array
    mask: Array
    chosen: Array = field(init=False)
    _place: Array = field(init=False)

    def __post_init__(self) -> None:
        xp = self.pairs.xp
        self.chosen = xp.nonzero(self.mask)[0]
        # Place of each pair among the chosen ones; anything for the others.
        self._place = xp.clip(xp.cumulative_sum(xp.astype(self.mask, xp.int64)) - 1, 0, None)

    def spread(self, values: Array) -> Array:
        """Values of the chosen pairs as a vector over all pairs, zero elsewhere."""
        xp = self.pairs.xp
        if self.chosen.shape[0] == 0:
            return xp.zeros(self.mask.shape, dtype=values.dtype, device=self.pairs.graph.device)
        everywhere = xp.take(values, self._place)
        return xp.where(self.mask, everywhere, xp.zeros_like(everywhere))

    def response(self, weights: Array) -> Array:
        """Change of the chosen pairs' distances when the weights of all pairs change by `weights` (m,)."""
        S = self.T * self.pairs.scatter(weights, self.Y)
        return self.pairs.quadratic_forms(self.Y, S, self.chosen)

    def apply(self, q: Array) -> Array:
        """H q for q (p,) over the chosen pairs, in the precision of q."""
        xp = self.pairs.xp
        return xp.astype(self.response(self.spread(xp.astype(q, self.Y.dtype))), q.dtype)

    def differences(self, chosen: Array) -> Array:
        """z of a few pairs in the model's coordinates, (p, r)."""
        xp, graph = self.pairs.xp, self.pairs.graph
        return xp.take(self.Y, xp.take(graph.first, chosen), axis=0) - xp.take(
            self.Y, xp.take(graph.second, chosen), axis=0
        )


def maximize_model(
    model: PairModel, start: Array, distances: Array, *, margin: float, smoothing: float, tight: bool
) -> Array:
    """Weights (p,) that maximise the model, by an active-set method with a Newton step on free pairs.

    `tight` solves the model accurately, which pays when little is left to gain.
    """
    xp = model.pairs.xp
    rounds, enough = (40, 0.005) if tight else (10, 0.05)
    b, d, total = start, distances, 0.0
    if model.chosen.shape[0] == 0:
        return b
    for _ in range(rounds):
        wanted = (margin - d) / smoothing
        bounded = xp.clip(wanted, 0.0, 1.0)
        step = bounded - b
        response = model.apply(step)
        free = xp.nonzero((wanted > 0) & (wanted < 1))[0]
        if free.shape[0] > 0:
            corrected = _newton_target(model, free, wanted, bounded, response, smoothing, tight)
            newton = corrected - b
            if float(xp.sum((margin - d - smoothing * b) * newton)) > 0:
                step, response = newton, model.apply(newton)
        slope = float(xp.sum((margin - d - smoothing * b) * step))
        bend = float(xp.sum((smoothing * step + response) * step))
        if slope <= 0:
            break
        length = min(1.0, slope / max(bend, 1e-300))
        b, d = b + length * step, d + length * response
        gain = length * slope - length * length * bend / 2
        total += gain
        if gain < enough * total:
            break
    return b


def _newton_target(
    model: PairModel,
    free: Array,
    wanted: Array,
    bounded: Array,
    response: Array,
    smoothing: float,
    tight: bool,
) -> Array:
    """Weights at which the free pairs' own change of distance is accounted for."""
    xp = model.pairs.xp
    stride = -(-int(free.shape[0]) // _SAMPLE)
    sample = free[::stride]
    Z = model.differences(xp.take(model.chosen, sample))
    weight = int(free.shape[0]) / int(sample.shape[0]) / smoothing

    def apply(q: Array) -> Array:
        S = model.T * (xp.matrix_transpose(Z) @ (xp.astype(q, Z.dtype)[:, None] * Z))
        return xp.astype(xp.sum((Z @ S) * Z, axis=1), q.dtype)

    right = xp.take(response, sample)
    q = _conjugate_gradient(lambda v: v + weight * apply(v), right, 40 if tight else 10, 0.01 if tight else 0.1, xp=xp)
    if stride > 1:
        S = model.T * (xp.matrix_transpose(Z) @ (xp.astype(weight * q, Z.dtype)[:, None] * Z))
        forms = model.pairs.quadratic_forms(model.Y, S, xp.take(model.chosen, free))
        q = xp.take(response, free) - xp.astype(forms, response.dtype)
    targets = xp.clip(xp.take(wanted, free) - q / smoothing, 0.0, 1.0)
    is_free = (wanted > 0) & (wanted < 1)
    place = xp.clip(xp.cumulative_sum(xp.astype(is_free, xp.int64)) - 1, 0, None)
    return xp.where(is_free, xp.take(targets, place), bounded)


def _conjugate_gradient(apply, right: Array, most: int, accuracy: float, *, xp) -> Array:  # type: ignore[no-untyped-def]
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
