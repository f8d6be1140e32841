"""How distances answer to pair weights near a dual point: the Hessian of the dual, made cheap.

With G = U diag(g) U' and a change q of the pair weights, the metric changes by
U (T o sum_l q_l z_l z_l' / m) U', z in the basis U, T the divided differences of its eigenvalues. So

    (H q)_k = sum_ij T_ij z_ki z_kj sum_l q_l z_li z_lj / m .

A few coordinates carry most of it and are taken as they are. Along each of the many others, the rest, pairs
are nearly orthogonal unless they share a point, where they have the point's own energy x_j^2 in common. Three
terms remain of the rest: between a leading coordinate and a rest one, for pairs that share a point; between
two rest coordinates, likewise; and, for all pairs, of each rest coordinate with itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from solvers.backend import Array, block_bytes, in_blocks
from solvers.convex.dual import DualPoint, SpectralProblem
from solvers.pairs import PairSet

# Coordinates that the model takes as they are, and the groups of coordinates that the rest is summed up in.
MODEL_RANK = 48
_ALL = 128  # so few coordinates are all taken
_GROUPS = 8
# So few pairs have their differences at hand.
_FEW = 8192
# Eigenvalues that are followed along a line; the others move straight on.
_FOLLOWED = 64
# How often a step is shortened before it is tried.
_SHORTER = 10


@dataclass(frozen=True)
class _Rest:
    """What points have in the rest of the coordinates.

    Attributes
    ----------
    mixed : (n, r) energy, weighted by its products with each leading coordinate.
    energy : (n, groups) energy in each group of coordinates.
    own : (n,) the quadratic form of the energy for pairs that share the point.
    twice : (m,) twice that form between a pair's two points.
    alike : (groups,) weight of a group's products with itself.
    """

    mixed: Array
    energy: Array
    own: Array
    twice: Array
    alike: Array

    def response(self, pairs: PairSet, q: Array) -> Array:
        """The part of H q among rest coordinates."""
        xp, total = pairs.xp, pairs.sums(q)
        point = self.own * total + self.energy @ (self.alike * (xp.matrix_transpose(self.energy) @ total))
        return xp.take(point, pairs.graph.first) + xp.take(point, pairs.graph.second) + self.twice * q


@dataclass
class PairModel:
    """The operator H on some pairs.

    Attributes
    ----------
    pairs : the pairs, between points in the leading coordinates.
    T : (r, r) weights of the leading coordinates' products.
    rest : the other coordinates, if any.
    """

    pairs: PairSet
    T: Array
    rest: _Rest | None

    @cached_property
    def _differences(self) -> Array:
        """z of every pair, (p, r)."""
        xp, graph = self.pairs.xp, self.pairs.graph
        return xp.take(self.pairs.X, graph.first, axis=0) - xp.take(self.pairs.X, graph.second, axis=0)

    def response(self, q: Array) -> Array:
        """H q."""
        pairs, rest, xp = self.pairs, self.rest, self.pairs.xp
        kind, q = q.dtype, xp.astype(q, self.T.dtype)
        if rest is None and len(pairs) <= _FEW:
            Z = self._differences
            change = xp.vecdot(Z @ (self.T * (xp.matrix_transpose(Z) @ (q[:, None] * Z))), Z)
        else:
            L = pairs.laplacian(q, pairs.X)
            V = pairs.X @ (self.T * (xp.matrix_transpose(pairs.X) @ L))
            change = pairs.products(V if rest is None else V + 2 * rest.mixed * L)
        return xp.astype(change if rest is None else change + rest.response(pairs, q), kind)

    def subset(self, chosen: Array) -> PairModel:
        """H on some of the pairs."""
        rest = None if self.rest is None else replace(self.rest, twice=self.pairs.xp.take(self.rest.twice, chosen))
        return PairModel(self.pairs.subset(chosen, self.pairs.X), self.T, rest)


def pair_model(pairs: PairSet, XU: Array, T: Array) -> PairModel:
    """H from centred points in the basis of eigenvectors (n, d) and the divided differences / m (d, d)."""
    xp, d = pairs.xp, XU.shape[1]
    first, second = pairs.graph.first, pairs.graph.second
    if d <= _ALL:
        return PairModel(PairSet(XU, first, second, xp=xp), T, None)
    block = max(1, block_bytes(xp) // (8 * d))

    def squares(rows: slice) -> Array:
        return XU[rows, :] * XU[rows, :]

    parts = in_blocks(lambda rows: xp.sum(squares(rows), axis=0), XU.shape[0], block, xp=xp)
    spread = xp.sum(xp.stack(parts), axis=0) / XU.shape[0]  # how much points differ along each eigenvector
    leading = xp.sort(xp.argsort(-(spread * (T @ spread)), stable=True)[:MODEL_RANK])
    within = xp.take(T, leading, axis=1)
    is_rest = xp.all(xp.arange(d, device=pairs.graph.device)[:, None] != leading[None, :], axis=1)
    group = (xp.cumulative_sum(xp.astype(is_rest, xp.int64)) - 1) * _GROUPS // (d - MODEL_RANK)
    member = (group[:, None] == xp.arange(_GROUPS, device=pairs.graph.device)[None, :]) & is_rest[:, None]
    member = xp.astype(member, XU.dtype)
    share = member * spread[:, None]
    share = share / xp.clip(xp.sum(share, axis=0), 1e-30, None)[None, :]
    weights = xp.concat([within * xp.astype(is_rest, XU.dtype)[:, None], member], axis=1)
    parts = in_blocks(lambda rows: squares(rows) @ weights, XU.shape[0], block, xp=xp)
    summed = xp.concat(parts, axis=0)
    energy = summed[:, MODEL_RANK:]
    weighted = energy @ (xp.matrix_transpose(share) @ (T @ share))
    rest = _Rest(
        mixed=summed[:, :MODEL_RANK],
        energy=energy,
        own=xp.vecdot(weighted, energy),
        twice=2 * xp.vecdot(xp.take(weighted, first, axis=0), xp.take(energy, second, axis=0)),
        alike=xp.matrix_transpose(share * share) @ xp.linalg.diagonal(T),
    )
    points = PairSet(xp.take(XU, leading, axis=1), first, second, xp=xp)
    return PairModel(points, xp.take(within, leading, axis=0), rest)


def divided_differences(y: Array, x: Array, slope: Array, *, xp: Any) -> Array:
    """(x_i - x_j) / (y_i - y_j), the derivative where y_i and y_j are close."""
    difference = y[:, None] - y[None, :]
    size = 1 + xp.abs(y)
    closeness = 1e-6 if y.dtype == xp.float64 else 1e-3
    close = xp.abs(difference) <= closeness * (size[:, None] + size[None, :])
    safe = xp.where(close, xp.ones_like(difference), difference)
    return xp.where(close, (slope[:, None] + slope[None, :]) / 2, (x[:, None] - x[None, :]) / safe)


def step_length(
    p: SpectralProblem,
    point: DualPoint,
    change: Array,
    rotated: Array,
    *,
    gamma: float,
    smoothing: float,
    most: float,
) -> float:
    """The share of a change of alpha, at most `most`, with about the highest smoothed dual at `gamma`.

    `rotated` is U' (change of G) U. The least eigenvalues are followed by its block for them, with what couples
    it to the others to second order; the others move straight on.
    """
    xp = p.xp
    d, k = rotated.shape[0], min(_FOLLOWED, rotated.shape[0])
    g, block, coupling = point.g[:d], rotated[:k, :k], rotated[:k, k:]
    bent = (coupling / xp.clip(g[k:] - g[0], 1e-12, None)[None, :]) @ xp.matrix_transpose(coupling)
    still = xp.eye(k, dtype=g.dtype, device=p.backend.device) * g[None, :k]
    straight = xp.linalg.diagonal(rotated)[k:]

    def smoothed(share: float) -> float:
        followed = xp.linalg.eigvalsh(still + share * block - share * share * bent)
        alpha = point.alpha + share * change
        values = xp.sort(xp.concat([followed, g[k:] + share * straight]))
        value = p.bound(alpha, values, gamma)
        return value - smoothing / 2 * float(xp.mean(alpha * alpha))

    best, value = most, smoothed(most)
    for _ in range(_SHORTER):
        shorter = 0.7 * best
        there = smoothed(shorter)
        if math.isfinite(value) and there <= value:
            break
        best, value = shorter, there
    return best if math.isfinite(value) else most
