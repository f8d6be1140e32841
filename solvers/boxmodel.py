"""The quadratic model of the dual over the box, maximised without an eigendecomposition.

A change q of the pair weights changes the distances by H q with
(H q)_k = z_k' (T o sum_l q_l z_l z_l') z_k, z in the model's few coordinates. The model is

    max over b in [0, 1]:   sum_k (margin - d_k) (b_k - a_k) - smoothing/2 b_k^2 - 1/2 (b - a)' H (b - a) .

H is steep and the box has many corners, so a step also pays for its length, by damping/2 |b' - b|^2. The
damping grows where the model stops rising early on the way, and falls where it rises to the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from solvers.backend import Array
from solvers.pairs import PairSet

# The Newton system is solved on at most so many of the free pairs and extended to the others.
_SAMPLE = 3000
# So few pairs in play have their differences at hand.
_FEW = 8192
# Damping at first, in margins, and the factor by which it changes.
_DAMPING = 0.3
_DAMPING_FACTOR = 6.0


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

    @cached_property
    def _differences(self) -> Array | None:
        """z of every pair, (p, r), where they are few: products with it are faster than passes over the graph."""
        return self.differences() if len(self.pairs) <= _FEW else None

    def differences(self, chosen: Array | None = None) -> Array:
        """z of the pairs, or of those chosen."""
        xp, X, ends = self.pairs.xp, self.pairs.X, (self.pairs.graph.first, self.pairs.graph.second)
        first, second = ends if chosen is None else (xp.take(each, chosen) for each in ends)
        return xp.take(X, first, axis=0) - xp.take(X, second, axis=0)

    def curvature(self, q: Array) -> Array:
        """T o sum_l q_l z_l z_l', (r, r)."""
        q, Z = self.pairs.xp.astype(q, self.T.dtype), self._differences
        return self.T * (self.pairs.scatter(q) if Z is None else _scatter(Z, q, xp=self.pairs.xp))

    def response(self, S: Array, chosen: Array | None = None) -> Array:
        """z' S z of the pairs in play, or of those chosen: with S the curvature of q, that is H q."""
        xp, Z = self.pairs.xp, self._differences
        if Z is None:
            return (self.pairs if chosen is None else self.pairs.subset(chosen, self.pairs.X)).quadratic_forms(S)
        return _forms(Z if chosen is None else xp.take(Z, chosen, axis=0), S, xp=xp)


def _scatter(Z: Array, q: Array, *, xp: Any) -> Array:
    """sum_l q_l z_l z_l'."""
    return xp.matrix_transpose(Z) @ (q[:, None] * Z)


def _forms(Z: Array, S: Array, *, xp: Any) -> Array:
    """z_l' S z_l."""
    return xp.vecdot(Z @ S, Z)


def maximize_model(
    model: PairModel, start: Array, distances: Array, *, margin: float, smoothing: float, tight: bool
) -> Array:
    """Weights (p,) that maximise the model, by an active-set method with a Newton step on free pairs.

    `tight` solves the model accurately, which pays when little is left to gain.
    """
    xp = model.pairs.xp
    rounds, enough = (40, 0.005) if tight else (10, 0.05)
    if len(model.pairs) == 0:
        return start
    b, d, total, damping = start, distances, 0.0, _DAMPING * margin
    for _ in range(rounds):
        width = smoothing + damping
        wanted = (margin - d + damping * b) / width
        bounded = xp.clip(wanted, 0.0, 1.0)
        rise = margin - d - smoothing * b
        step = bounded - b
        S = model.curvature(step)
        if bool(xp.any((wanted > 0) & (wanted < 1))):
            newton = _newton_target(model, wanted, bounded, S, width, tight) - b
            if float(xp.sum(rise * newton)) > 0:
                step, S = newton, model.curvature(newton)
        slope = float(xp.sum(rise * step))
        if slope <= 0:
            break
        response = xp.astype(model.response(S), b.dtype)
        bend = float(xp.sum((smoothing * step + response) * step))
        length = min(1.0, slope / max(bend, 1e-300))
        b, d = b + length * step, d + length * response
        gain = length * slope - length * length * bend / 2
        total += gain
        if length < 0.5:
            damping = max(_DAMPING_FACTOR * damping, smoothing)
        elif gain < enough * total:
            break
        elif length > 0.9:
            damping /= _DAMPING_FACTOR
    return b


def _newton_target(model: PairModel, wanted: Array, bounded: Array, S: Array, width: float, tight: bool) -> Array:
    """Weights at which the free pairs' own change of distance is accounted for; S belongs to `bounded`.

    A free pair's weight falls by its distance / `width`.
    """
    xp = model.pairs.xp
    is_free = (wanted > 0) & (wanted < 1)
    free = xp.nonzero(is_free)[0]
    stride = -(-int(free.shape[0]) // _SAMPLE)
    sample = free[::stride]
    Z = model.differences(sample)
    weight = int(free.shape[0]) / int(sample.shape[0]) / width

    def curvature(q: Array) -> Array:
        return model.T * _scatter(Z, xp.astype(q, Z.dtype), xp=xp)

    def forms(matrix: Array) -> Array:
        return xp.astype(_forms(Z, matrix, xp=xp), wanted.dtype)

    def system(q: Array) -> Array:
        return q + weight * forms(curvature(q))

    q = _conjugate_gradient(system, forms(S), 40 if tight else 10, 0.01 if tight else 0.1, xp=xp)
    if stride > 1:
        q = xp.astype(model.response(S - curvature(weight * q), free), wanted.dtype)
    targets = xp.clip(xp.take(wanted, free) - q / width, 0.0, 1.0)
    place = xp.clip(xp.cumulative_sum(xp.astype(is_free, xp.int64)) - 1, 0, None)
    return xp.where(is_free, xp.take(targets, place), bounded)


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
