"""Pairs of examples: drawing them, their distances, their scatter matrices.

A pair's difference is z = x_i - x_j. No array of size pairs x D is ever built: distances go
through projected points in blocks, scatter matrices through the Laplacian of the pair graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solvers.backend import (
    Array,
    Backend,
    Namespace,
    PairGraph,
    block_bytes,
    group_sum,
    in_blocks,
    laplacian_product,
    pair_sums,
    symmetric_product,
    symmetrize,
    to_numpy,
)


class PairSet:
    """A fixed set of pairs of rows of X, with the two operations every solver needs.

    Parameters
    ----------
    X : (n, D) points on the device.
    first, second : (m,) integer row indices.
    """

    def __init__(self, X: Array, first: Array, second: Array, *, xp: Namespace, graph: PairGraph | None = None) -> None:
        self.X, self.xp = X, xp
        self.graph = graph or PairGraph(first, second, X.shape[0], xp=xp)

    def of(self, Y: Array) -> PairSet:
        """The same pairs, of the rows of Y (n, k)."""
        return PairSet(Y, self.graph.first, self.graph.second, xp=self.xp, graph=self.graph)

    def subset(self, chosen: Array, Y: Array) -> PairSet:
        """Some of the pairs, of the rows of Y (n, k) in place of those of X."""
        first, second = (self.xp.take(ends, chosen) for ends in (self.graph.first, self.graph.second))
        return PairSet(Y, first, second, xp=self.xp)

    def __len__(self) -> int:
        return int(self.graph.first.shape[0])

    def draw(self, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Row indices of a random batch of these pairs."""
        chosen = rng.integers(len(self), size=size)
        return self._host[0][chosen], self._host[1][chosen]

    @cached_property
    def _host(self) -> tuple[np.ndarray, np.ndarray]:
        return to_numpy(self.graph.first), to_numpy(self.graph.second)

    def distances(self, L: Array) -> Array:
        """Squared distances ||L z||^2, shape (..., m), for a factor L (..., k, D)."""
        return self.projected_distances(self.X @ self.xp.matrix_transpose(L))

    def projected_distances(self, Y: Array) -> Array:
        """Squared distances between rows of Y (..., n, k), shape (..., m)."""
        xp = self.xp
        n, k = Y.shape[-2:]
        # A stack is one long list of rows: blocks then walk through one restart after the other,
        # whose rows stay in the cache.
        rows = xp.reshape(Y, (-1, k))
        first, second = self.graph.stacked_ends(rows.shape[0] // n)
        block = max(1, block_bytes(xp) // (8 * max(1, k)))

        def distances(part: slice) -> Array:
            difference = xp.take(rows, first[part], axis=0) - xp.take(rows, second[part], axis=0)
            return xp.vecdot(difference, difference)

        pieces = in_blocks(distances, first.shape[0], block, xp=xp)
        return xp.reshape(xp.concat(pieces), (*Y.shape[:-2], len(self)))

    def products(self, V: Array) -> Array:
        """z_k' (v_i - v_j) for rows v of V (n, D), shape (m,); with V = X S that is z' S z."""
        xp, k = self.xp, self.X.shape[1]
        if len(self) == 0:
            return xp.zeros((0,), dtype=V.dtype, device=self.graph.device)
        both = xp.concat([self.X, V], axis=1)

        def products(part: slice) -> Array:
            first, second = self.graph.first[part], self.graph.second[part]
            difference = xp.take(both, first, axis=0) - xp.take(both, second, axis=0)
            return xp.vecdot(difference[:, :k], difference[:, k:])

        return xp.concat(in_blocks(products, len(self), max(1, block_bytes(xp) // (16 * k)), xp=xp))

    def diagonal_forms(self, Y: Array, W: Array) -> Array:
        """z' diag(w) z for differences z of rows of Y (n, k) and every column w of W (k, c), shape (m, c)."""
        xp = self.xp

        def forms(part: slice) -> Array:
            first, second = self.graph.first[part], self.graph.second[part]
            difference = xp.take(Y, first, axis=0) - xp.take(Y, second, axis=0)
            return (difference * difference) @ W

        return xp.concat(in_blocks(forms, len(self), max(1, block_bytes(xp) // (8 * Y.shape[1])), xp=xp))

    def sums(self, weights: Array) -> Array:
        """Sum of the weights (m,) of each point's pairs, (n,)."""
        return pair_sums(self.graph, weights, xp=self.xp)

    def laplacian(self, weights: Array, Y: Array) -> Array:
        """Lap(w) Y, shape (..., n, k), for weights (..., m) and Y (..., n, k)."""
        return laplacian_product(self.graph, weights, Y, xp=self.xp)

    def scatter(self, weights: Array) -> Array:
        """sum_k w_k z_k z_k', shape (D, D), for weights (m,)."""
        return symmetric_product(self.X, self.laplacian(weights, self.X), xp=self.xp)

    def sparse_scatter(self, weights: Array) -> Array:
        """The same where many weights are zero: from the other pairs, and the points that these have."""
        chosen = weights != 0
        if not bool(self.xp.any(chosen)):
            return self.xp.zeros((self.X.shape[1],) * 2, dtype=self.X.dtype, device=self.graph.device)
        return self.among(chosen, self.X).scatter(self.xp.take(weights, self.xp.nonzero(chosen)[0]))

    def among(self, chosen: Array, Y: Array) -> PairSet:
        """The pairs where a mask (m,) is true, of the rows of Y (n, k) that these have."""
        xp = self.xp
        member = self.sums(xp.astype(chosen, Y.dtype)) > 0
        place = xp.cumulative_sum(xp.astype(member, xp.int64)) - 1
        ends = (xp.take(each, xp.nonzero(chosen)[0]) for each in (self.graph.first, self.graph.second))
        return PairSet(xp.take(Y, xp.nonzero(member)[0], axis=0), *(xp.take(place, each) for each in ends), xp=xp)


@dataclass(frozen=True)
class PairProblem:
    """What a pairwise fit sees: the mean scatter of similar pairs, dissimilar pairs, the margin.

    Attributes
    ----------
    similar_scatter : C_S, (D, D).
    dissimilar : the pairs that should be apart.
    margin : squared distance that they should reach.
    n_similar : how many pairs C_S is the mean of.
    draw_similar : row indices of a random batch of similar pairs, for the stochastic algorithms.
    similar_size : how large the numbers were that C_S was summed up from: no eigenvalue of it is off by more than
        this times the number of points times the unit roundoff.
    """

    similar_scatter: Array
    dissimilar: PairSet
    margin: float
    n_similar: int
    draw_similar: Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]
    similar_size: float = math.inf


def problem_from_labels(
    X: Array,
    labels: np.ndarray,
    *,
    n_pairs: int,
    margin: float,
    oversample: bool,
    rng: np.random.Generator,
    backend: Backend,
) -> PairProblem:
    """All similar pairs (in closed form) and `n_pairs` sampled dissimilar pairs.

    `labels` are class codes 0..K-1. With `oversample`, every class counts the same, as if each
    had been resampled to the size of the largest and pairs of one example with itself left out.
    """
    counts = np.bincount(labels)
    if counts.size < 2:
        raise ValueError("pairs: y has one class only, so no dissimilar pair exists; give at least two classes")
    if counts.max() < 2:
        raise ValueError("pairs: every class has one example, so no similar pair exists; give one at least two")
    first, second = draw_dissimilar(labels, n_pairs, oversample=oversample, rng=rng)
    row_weights = backend.asarray(similar_row_weights(labels, oversample=oversample))
    return PairProblem(
        similar_scatter=within_class_scatter(X, labels, oversample=oversample, backend=backend),
        similar_size=4 * float(backend.xp.vecdot(row_weights, backend.xp.vecdot(X, X))),
        dissimilar=PairSet(X, backend.indices(first), backend.indices(second), xp=backend.xp),
        margin=margin,
        n_similar=int(np.sum(counts * (counts - 1)) // 2),
        draw_similar=lambda size, rng: draw_similar(labels, size, oversample=oversample, rng=rng),
    )


def problem_from_pairs(
    X: Array, similar: np.ndarray, dissimilar: np.ndarray, *, margin: float, backend: Backend
) -> PairProblem:
    """Exactly the pairs given: two (m, 2) arrays of row indices of X.

    Or one such array and, in place of the second, labels (m,) of +1 for similar and -1 for dissimilar.
    """
    xp = backend.xp
    n = X.shape[0]
    sets = {}
    if np.ndim(dissimilar) == 1 and np.size(dissimilar):
        similar, dissimilar = split_pairs(np.asarray(similar), np.asarray(dissimilar))
    for name, pairs in (("similar", similar), ("dissimilar", dissimilar)):
        indices = np.asarray(pairs)
        if indices.ndim != 2 or indices.shape[1] != 2 or not np.issubdtype(indices.dtype, np.integer):
            raise ValueError(f"{name}: expected an integer array of shape (m, 2), got {indices.dtype} {indices.shape}")
        if indices.shape[0] == 0:
            raise ValueError(f"{name}: expected at least one pair, got none")
        if indices.min() < 0 or indices.max() >= n:
            raise ValueError(f"{name}: expected row indices from 0 to {n - 1}, got {indices.min()} to {indices.max()}")
        sets[name] = PairSet(X, backend.indices(indices[:, 0]), backend.indices(indices[:, 1]), xp=xp)
    m = len(sets["similar"])
    weights = xp.full((m,), 1.0 / m, dtype=backend.dtype, device=backend.device)
    size = 4 * float(xp.vecdot(sets["similar"].sums(weights), xp.vecdot(X, X)))
    return PairProblem(sets["similar"].scatter(weights), sets["dissimilar"], margin, m, sets["similar"].draw, size)


def split_pairs(pairs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Similar and dissimilar pairs of an array (m, 2) with labels +1 and -1 (m,), as metric-learn has them."""
    if pairs.shape != (labels.size, 2):
        raise ValueError(f"pairs: expected shape ({labels.size}, 2), one pair for each label in y, got {pairs.shape}")
    if not np.isin(labels, (-1, 1)).all():
        found = np.unique(labels[~np.isin(labels, (-1, 1))])[0]
        raise ValueError(f"y: expected +1 (similar) or -1 (dissimilar) for each pair, got {found}")
    return pairs[labels == 1], pairs[labels == -1]


def within_class_scatter(X: Array, labels: np.ndarray, *, oversample: bool, backend: Backend) -> Array:
    """Mean of z z' over all similar pairs, (D, D); with `oversample` the mean of the classes' means.

    The sum over ordered pairs of class k is 2 n_k Xc' Xc with Xc its centred rows, so each row
    gets one weight and a single matrix product does it.
    """
    centred = X - class_means(X, labels, backend=backend)
    # A matrix by its own transpose takes BLAS half of the work.
    weighted = backend.asarray(np.sqrt(similar_row_weights(labels, oversample=oversample)))[:, None] * centred
    return symmetrize(backend.xp.matrix_transpose(weighted) @ weighted, xp=backend.xp)


def similar_row_weights(labels: np.ndarray, *, oversample: bool) -> np.ndarray:
    """(n,) weights of the class-centred rows in the mean scatter of similar pairs."""
    counts = np.bincount(labels)
    if oversample:
        usable = counts >= 2
        class_weight = np.where(usable, 2.0 / np.maximum(counts - 1, 1), 0.0) / usable.sum()
    else:
        class_weight = 2.0 * counts / np.sum(counts * (counts - 1.0))
    return np.asarray(class_weight[labels])


def class_means(X: Array, labels: np.ndarray, *, backend: Backend) -> Array:
    """Mean of each row's own class, (n, D)."""
    counts = np.bincount(labels)
    codes = backend.indices(labels)
    sums = group_sum(codes, counts.size, X, xp=backend.xp)
    means = sums / backend.asarray(np.maximum(counts, 1).astype(np.float64))[:, None]
    return backend.xp.take(means, codes, axis=0)


def count_dissimilar(labels: np.ndarray) -> int:
    """Number of unordered pairs with different labels."""
    counts = np.bincount(labels).astype(object)  # Python integers: no overflow at any size
    n = int(counts.sum())
    return int(n * n - (counts * counts).sum()) // 2


def draw_dissimilar(
    labels: np.ndarray, n_pairs: int, *, oversample: bool = False, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """`n_pairs` pairs uniform over all different-class pairs; all of them where there are no more.

    With `oversample` the two classes are uniform over distinct classes, then the examples
    uniform inside them.
    """
    if n_pairs < 1:
        raise ValueError(f"n_pairs: expected at least 1, got {n_pairs}")
    order = np.argsort(labels, kind="stable")  # rows of a class stand together
    counts = np.bincount(labels)
    n, n_classes = labels.size, counts.size
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    if not oversample and count_dissimilar(labels) <= n_pairs:
        later = [order[start + count :] for start, count in zip(starts, counts, strict=True)]
        first = [np.repeat(order[s : s + c], rest.size) for s, c, rest in zip(starts, counts, later, strict=True)]
        second = [np.tile(rest, c) for c, rest in zip(counts, later, strict=True)]
        return np.concatenate(first), np.concatenate(second)
    if oversample:
        class_a = rng.integers(n_classes, size=n_pairs)
        class_b = (class_a + rng.integers(1, n_classes, size=n_pairs)) % n_classes
        rank_a, rank_b = (
            starts[c] + np.floor(rng.random(n_pairs) * counts[c]).astype(np.int64) for c in (class_a, class_b)
        )
        return order[rank_a], order[rank_b]
    # The first end falls into a class with probability n_k (n - n_k); the second is uniform over
    # the n - n_k rows outside: skip the class's own block.
    weight = counts * (n - counts).astype(np.float64)
    class_a = rng.choice(n_classes, size=n_pairs, p=weight / weight.sum())
    rank_a = starts[class_a] + np.floor(rng.random(n_pairs) * counts[class_a]).astype(np.int64)
    rank_b = np.floor(rng.random(n_pairs) * (n - counts[class_a])).astype(np.int64)
    rank_b += np.where(rank_b >= starts[class_a], counts[class_a], 0)
    return order[rank_a], order[rank_b]


def draw_similar(
    labels: np.ndarray, n_pairs: int, *, oversample: bool = False, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """`n_pairs` pairs uniform over all same-class pairs (classes uniform with `oversample`)."""
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    weight = (counts >= 2).astype(np.float64) if oversample else counts * (counts - 1.0)
    if weight.sum() == 0:
        raise ValueError("pairs: every class has one example, so no similar pair exists")
    chosen = rng.choice(counts.size, size=n_pairs, p=weight / weight.sum())
    offset_a = np.floor(rng.random(n_pairs) * counts[chosen]).astype(np.int64)
    step = 1 + np.floor(rng.random(n_pairs) * (counts[chosen] - 1)).astype(np.int64)
    offset_b = (offset_a + step) % counts[chosen]
    return order[starts[chosen] + offset_a], order[starts[chosen] + offset_b]
