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
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from solvers.backend import Array, block_bytes, in_blocks
from solvers.convex.dual import DualPoint, SpectralProblem
from solvers.convex.levels import Level
from solvers.convex.tuning import TUNING
from solvers.pairs import PairSet


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
        if rest is None and len(pairs) <= TUNING.few_pairs:
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
    if d <= TUNING.all_coordinates:
        return PairModel(PairSet(XU, first, second, xp=xp), T, None)
    block = max(1, block_bytes(xp) // (8 * d))

    def squares(rows: slice) -> Array:
        return XU[rows, :] * XU[rows, :]

    parts = in_blocks(lambda rows: xp.sum(squares(rows), axis=0), XU.shape[0], block, xp=xp)
    spread = xp.sum(xp.stack(parts), axis=0) / XU.shape[0]  # how much points differ along each eigenvector
    leading = xp.sort(xp.argsort(-(spread * (T @ spread)), stable=True)[: TUNING.model_rank])
    within = xp.take(T, leading, axis=1)
    is_rest = xp.all(xp.arange(d, device=pairs.graph.device)[:, None] != leading[None, :], axis=1)
    group = (xp.cumulative_sum(xp.astype(is_rest, xp.int64)) - 1) * TUNING.groups // (d - TUNING.model_rank)
    member = (group[:, None] == xp.arange(TUNING.groups, device=pairs.graph.device)[None, :]) & is_rest[:, None]
    member = xp.astype(member, XU.dtype)
    share = member * spread[:, None]
    share = share / xp.clip(xp.sum(share, axis=0), 1e-30, None)[None, :]
    weights = xp.concat([within * xp.astype(is_rest, XU.dtype)[:, None], member], axis=1)
    parts = in_blocks(lambda rows: squares(rows) @ weights, XU.shape[0], block, xp=xp)
    summed = xp.concat(parts, axis=0)
    energy = summed[:, TUNING.model_rank :]
    weighted = energy @ (xp.matrix_transpose(share) @ (T @ share))
    rest = _Rest(
        mixed=summed[:, : TUNING.model_rank],
        energy=energy,
        own=xp.vecdot(weighted, energy),
        twice=2 * xp.vecdot(xp.take(weighted, first, axis=0), xp.take(energy, second, axis=0)),
        alike=xp.matrix_transpose(share * share) @ xp.linalg.diagonal(T),
    )
    points = PairSet(xp.take(XU, leading, axis=1), first, second, xp=xp)
    return PairModel(points, xp.take(within, leading, axis=0), rest)


def divided_differences(y: Array, x: Array, slope: Array, *, xp: Any) -> Array:
    """(x_i - x_j) / (y_i - y_j), the derivative where y_i and y_j are equal but for rounding."""
    difference, size = y[:, None] - y[None, :], xp.abs(y)
    close = xp.abs(difference) <= 1e-6 * (size[:, None] + size[None, :]) + 1e-14 * xp.max(size)
    safe = xp.where(close, xp.ones_like(difference), difference)
    return xp.where(close, (slope[:, None] + slope[None, :]) / 2, (x[:, None] - x[None, :]) / safe)


def promised(
    p: SpectralProblem, point: DualPoint, change: Array, rotated: Array, *, level: Level, smoothing: float
) -> Callable[[float], float]:
    """About the smoothed dual at a level, as a function of the share of a change of alpha.

    `rotated` is U' (change of G) U. The least eigenvalues, at most half of them, are followed by its block for them,
    with what couples it to the others to second order; the others move straight on.
    """
    xp = p.xp
    d, k = rotated.shape[0], min(TUNING.followed, rotated.shape[0] // 2)
    g, block, coupling = point.g[:d], rotated[:k, :k], rotated[:k, k:]
    size = max(float(xp.max(xp.abs(g))), float(xp.max(xp.abs(rotated))), 1e-300)
    distance = xp.clip(g[k:] - g[0], 1e-12 * size, None)
    bent = (coupling / distance[None, :]) @ xp.matrix_transpose(coupling)
    still = xp.eye(k, dtype=g.dtype, device=p.backend.device) * g[None, :k]
    straight = xp.linalg.diagonal(rotated)[k:]

    def smoothed(share: float) -> float:
        values = g[k:] + share * straight
        if k > 0:
            values = xp.concat([xp.linalg.eigvalsh(still + share * block - share * share * bent), values])
        alpha = point.alpha + share * change
        value = p.margin * float(xp.mean(alpha)) - level.conjugate(xp.sort(values), xp=xp)
        return value - smoothing / 2 * float(xp.mean(alpha * alpha))

    return smoothed


def step_length(smoothed: Callable[[float], float], most: float) -> float:
    """The share of a step, at most `most`, at which the smoothed dual promises to be about highest."""
    best, value = most, smoothed(most)
    for _ in range(TUNING.shorter):
        shorter = TUNING.shortening * best
        there = smoothed(shorter)
        if math.isfinite(value) and there <= value:
            break
        best, value = shorter, there
    return best if math.isfinite(value) else most


def largest_eigenvalue(M: Array, *, xp: Any) -> float:
    """About the largest eigenvalue of a symmetric matrix, from below, by a few Lanczos steps."""
    d = M.shape[0]
    v = 1.1 + xp.cos(1.7 * xp.arange(d, dtype=M.dtype, device=M.device))  # nothing special about it
    basis = [v / xp.sqrt(xp.sum(v * v))]
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(min(d, TUNING.lanczos)):
        w = M @ basis[-1]
        diagonal.append(float(xp.sum(w * basis[-1])))
        for each in basis:
            w = w - xp.sum(w * each) * each
        beside.append(float(xp.sqrt(xp.sum(w * w))))
        if beside[-1] <= 1e-6 * max(abs(value) for value in diagonal):
            break
        basis.append(w / beside[-1])
    inner = np.asarray(beside[: len(diagonal) - 1])
    return float(np.linalg.eigvalsh(np.diag(diagonal) + np.diag(inner, 1) + np.diag(inner, -1))[-1])
