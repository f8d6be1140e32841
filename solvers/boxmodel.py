"""The quadratic model of the dual over the box, maximised without an eigendecomposition.

A change q of the pair weights changes the distances by H q with
(H q)_k = z_k' (T o sum_l q_l z_l z_l') z_k, z in the model's few coordinates. The model is

    max over b in [0, 1]:   sum_k (margin - d_k) (b_k - a_k) - smoothing/2 b_k^2 - 1/2 (b - a)' H (b - a) .
"""

from __future__ import annotations

from dataclasses import dataclass

from solvers.backend import Array
from solvers.pairs import PairSet

# The Newton system is solved on at most so many of the free pairs and extended to the others.
_SAMPLE = 3000


@dataclass
class PairModel:
    """The operator H on the pairs in play.

    Attributes
    ----------
    pairs : the pairs in play, between points in the model's coordinates.
    T : (r, r) weights of the coordinates' products.
    """

    pairs: PairSet
    T: Array

    def curvature(self, q: Array) -> Array:
        """T o sum_l q_l z_l z_l', (r, r)."""
        return self.T * self.pairs.scatter(self.pairs.xp.astype(q, self.T.dtype))

    def apply(self, q: Array) -> Array:
        """H q for q (p,), in the precision of q."""
        return self.pairs.xp.astype(self.pairs.quadratic_forms(self.curvature(q)), q.dtype)


def maximize_model(
    model: PairModel, start: Array, distances: Array, *, margin: float, smoothing: float, tight: bool
) -> Array:
    """Weights (p,) that maximise the model, by an active-set method with a Newton step on free pairs.

    `tight` solves the model accurately, which pays when little is left to gain.
    """
    xp = model.pairs.xp
    rounds, enough = (40, 0.005) if tight else (10, 0.05)
    b, d, total = start, distances, 0.0
    if len(model.pairs) == 0:
        return b
    for _ in range(rounds):
        wanted = (margin - d) / smoothing
        bounded = xp.clip(wanted, 0.0, 1.0)
        step = bounded - b
        response = model.apply(step)
        free = xp.nonzero((wanted > 0) & (wanted < 1))[0]
        if free.shape[0] > 0:
            newton = _newton_target(model, free, wanted, bounded, response, smoothing, tight) - b
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
    sampled = model.pairs.subset(sample, model.pairs.X)
    Z = xp.take(sampled.X, sampled.graph.first, axis=0) - xp.take(sampled.X, sampled.graph.second, axis=0)
    weight = int(free.shape[0]) / int(sample.shape[0]) / smoothing

    def curvature(q: Array) -> Array:
        return model.T * (xp.matrix_transpose(Z) @ (xp.astype(q, Z.dtype)[:, None] * Z))

    def system(q: Array) -> Array:
        return q + weight * xp.astype(xp.vecdot(Z @ curvature(q), Z), q.dtype)

    right = xp.take(response, sample)
    q = _conjugate_gradient(system, right, 40 if tight else 10, 0.01 if tight else 0.1, xp=xp)
    if stride > 1:
        others = model.pairs.subset(free, model.pairs.X)
        forms = others.quadratic_forms(curvature(weight * q))
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
