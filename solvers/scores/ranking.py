"""Ranks of items by distance, a block of queries at a time, in bounded memory.

Distances come from one matrix product per block. The sort that ranks them carries one more bit,
whether an item is relevant, so that no permutation is needed: that is what makes it fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from solvers.backend import Array, Namespace, choose_backend, is_host_data, to_numpy

# A block of distances, in numbers: small enough for a CPU's caches, large enough to fill a GPU.
_BLOCK_HOST, _BLOCK_DEVICE = 1 << 21, 1 << 23
# Pairs that the pooled scores hold and sort at a time (8 bytes each).
_POOL = 1 << 25
# Rounding to 40 bits makes one value of distances that differ by rounding alone (about 1e-12), and
# leaves room for the mark that relevant items carry through the sort.
_SPLIT = 2.0**13 + 1
_MARK = 1 + 2.0**-46


class Ranking:
    """Points sorted by class, classes of one example last, ready for blocks of distances."""

    def __init__(self, Z: Array, y: Any) -> None:
        self.block = _BLOCK_HOST if is_host_data(Z) else _BLOCK_DEVICE
        backend = choose_backend(Z, "cpu" if is_host_data(Z) else "auto")
        xp = self.xp = backend.xp
        self.device = backend.device
        points = xp.asarray(Z, dtype=xp.float64, device=self.device)
        self.labels = to_numpy(y)
        if points.ndim != 2 or self.labels.shape != (points.shape[0],):
            raise ValueError(
                f"retrieval: expected Z of shape (n, k) and y of shape (n,), "
                f"got {tuple(points.shape)} and {self.labels.shape}"
            )
        if points.shape[0] == 0:
            raise ValueError("retrieval: expected at least one row of Z, got none")
        if not bool(xp.all(xp.isfinite(points))):
            raise ValueError("retrieval: Z contains NaN or infinity; remove or impute those values")
        _, codes, sizes = np.unique(self.labels, return_inverse=True, return_counts=True)
        self.order = np.lexsort((codes, sizes[codes] == 1))
        codes = codes[self.order]
        self.starts = np.flatnonzero(np.diff(codes, prepend=-1))  # first row of each class
        self.ends = np.append(self.starts[1:], codes.size)
        self.n_queries = int(np.sum(sizes[sizes > 1]))
        points = _centred(xp.take(points, xp.asarray(self.order, device=self.device), axis=0), xp=xp)
        norms = xp.sum(points * points, axis=1)[:, None]
        # The offset 1 is of the size of a typical distance. Relative rounding of offset + distance
        # is then absolute near zero, where a matrix product has absolute errors.
        ones = xp.ones_like(norms)
        self._queries = xp.concat([-2 * points, norms + 1, ones], axis=1)
        self._items = xp.matrix_transpose(xp.concat([points, ones, norms], axis=1))

    def _distances(self, start: int, stop: int, first_item: int = 0) -> Array:
        """1 + squared distance of rows start..stop to rows first_item.., in 40 bits."""
        distance = self._queries[start:stop, :] @ self._items[:, first_item:]
        return _round(distance)

    def query_scores(self) -> tuple[np.ndarray, np.ndarray]:
        """ROC AUC and average precision of each row, (n,) each, in the order given; NaN if undefined."""
        n = self.labels.size
        auc, average_precision = np.full(n, np.nan), np.full(n, np.nan)
        relevant = np.repeat(self.ends - self.starts, self.ends - self.starts) - 1
        step = max(1, self.block // n)
        for start in range(0, self.n_queries, step):
            stop = min(start + step, self.n_queries)
            wrong, precision = self._block_scores(start, stop, relevant[start:stop])
            rows, count = self.order[start:stop], relevant[start:stop]
            others = n - 1 - count
            auc[rows] = 1 - wrong / np.where(others > 0, count * others, np.nan)
            average_precision[rows] = precision / count
        return auc, average_precision

    def _segments(self, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """Classes among the rows start..stop: its rows there (two bounds), all its rows (two bounds)."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, stop, side="left"))
        for low, high in zip(self.starts[first:last].tolist(), self.ends[first:last].tolist(), strict=True):
            yield max(low, start), min(high, stop), low, high

    def _block_scores(self, start: int, stop: int, relevant: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each query: irrelevant items ahead of relevant ones, summed; precision at them, summed."""
        xp, n_items = self.xp, self.labels.size - 1
        keys = self._distances(start, stop)
        segments = list(self._segments(start, stop))
        for low, high, first, last in segments:
            keys[low - start : high - start, first:last] *= _MARK
        # The query itself goes to the end of its row, and is cut off there.
        diagonal = xp.eye(stop - start, dtype=xp.bool, device=self.device)
        keys[:, start:stop] = xp.where(diagonal, xp.inf, keys[:, start:stop])
        keys = xp.sort(keys, axis=1, stable=False)[:, :-1]
        values = _round(keys)
        hits = xp.nonzero(xp.reshape(keys != values, (-1,)))[0]
        row = hits // n_items
        offsets = xp.asarray(np.cumsum(relevant) - relevant, device=self.device)
        earlier = xp.take(offsets, row)  # hits in the rows before
        changes = values[:, 1:] != values[:, :-1]
        if bool(xp.all(changes)):
            tie_first = tie_last = hits
            before = xp.arange(hits.shape[0], device=self.device) - earlier
            upto = before + 1
        else:
            row_end = xp.ones((stop - start, 1), dtype=xp.bool, device=self.device)
            ends = xp.nonzero(xp.reshape(xp.concat([changes, row_end], axis=1), (-1,)))[0]
            tie = xp.searchsorted(ends, hits, side="left")
            tie_last = xp.take(ends, tie)
            tie_first = xp.where(tie > 0, xp.take(ends, xp.clip(tie - 1, 0, None)) + 1, 0)
            before = xp.searchsorted(hits, tie_first, side="left") - earlier
            upto = xp.searchsorted(hits, tie_last, side="right") - earlier
        ahead = tie_first - row * n_items - before
        level = tie_last - tie_first + 1 - (upto - before)
        precision = xp.astype(upto, xp.float64) / xp.astype(tie_last - row * n_items + 1, xp.float64)
        return self._row_sums(2 * ahead + level, segments) / 2, self._row_sums(precision, segments)

    def _row_sums(self, values: Array, segments: list[tuple[int, int, int, int]]) -> np.ndarray:
        """Sums over each query's relevant items, of which rows of one class have equally many."""
        sums, offset = [], 0
        for low, high, first, last in segments:
            shape = (high - low, last - first - 1)
            size = shape[0] * shape[1]
            sums.append(self.xp.sum(self.xp.reshape(values[offset : offset + size], shape), axis=1))
            offset += size
        return to_numpy(self.xp.concat(sums))

    def pooled(self) -> tuple[float | None, float | None]:
        """AUC and average precision of all pairs in one list; None without pairs of either kind.

        Exact in bounded memory: ranges of distance are collected and sorted one after the other,
        each by a pass over all distances. Pairs that lie at the end of a range are only counted,
        so that a distance shared by very many pairs (hash codes) takes no memory.
        """
        xp = self.xp
        sizes = self.ends - self.starts
        n_similar = int(np.sum(sizes * (sizes - 1)) // 2)
        n_dissimilar = self.labels.size * (self.labels.size - 1) // 2 - n_similar
        if n_similar == 0 or n_dissimilar == 0:
            return None, None
        nearer, nearer_dissimilar, wrong, precision = 0, 0, 0, 0.0
        for low, high in pairwise(self._cuts(n_similar + n_dissimilar)):
            similar, dissimilar, tied, tied_dissimilar = self._pairs_between(low, high)
            left = xp.searchsorted(dissimilar, similar, side="left")
            right = xp.searchsorted(dissimilar, similar, side="right")
            wrong += int(xp.sum(left) + xp.sum(right)) + 2 * nearer_dissimilar * similar.shape[0]
            hits = xp.astype(nearer + xp.searchsorted(similar, similar, side="right"), xp.float64)
            precision += float(xp.sum(hits / (hits + xp.astype(nearer_dissimilar + right, xp.float64))))
            nearer += similar.shape[0]
            nearer_dissimilar += dissimilar.shape[0]
            wrong += tied * (2 * nearer_dissimilar + tied_dissimilar)
            nearer += tied
            nearer_dissimilar += tied_dissimilar
            precision += tied * nearer / max(1, nearer + nearer_dissimilar)
        return 1 - wrong / (2 * n_similar * n_dissimilar), precision / n_similar

    def _cuts(self, n_pairs: int) -> list[float]:
        """Ends of ranges of distance that hold fewer than _POOL pairs each, from a sample of rows."""
        n, n_ranges = self.labels.size, math.ceil(1.25 * n_pairs / _POOL)
        rows = np.unique(np.linspace(0, n - 1, max(2, self.block // n)).astype(np.int64))
        queries = self.xp.take(self._queries, self.xp.asarray(rows, device=self.device), axis=0)
        sample = np.sort(to_numpy(_round(queries @ self._items)), axis=None)
        inner = sample[np.arange(1, n_ranges) * sample.size // n_ranges]
        return [-math.inf, *np.unique(inner).tolist(), math.inf]

    def _pairs_between(self, low: float, high: float) -> tuple[Array, Array, int, int]:
        """Sorted distances between the bounds, and numbers of pairs at `high`: similar, dissimilar."""
        xp, n = self.xp, self.labels.size
        found: tuple[list[Array], list[Array]] = ([], [])
        at_high = [0, 0]
        step = max(1, self.block // n)
        for start in range(0, n, step):
            stop = min(start + step, n)
            distance = self._distances(start, stop, start)
            for first, last, _, class_end in self._segments(start, stop):
                rows = distance[first - start : last - start, :]
                same, other = rows[:, first - start : class_end - start], rows[:, class_end - start :]
                # Each pair once: of its own class, a row meets only the rows behind it.
                row, column = (xp.arange(size, device=self.device) for size in same.shape)
                same = same[column[None, :] > row[:, None]]
                for kind, values in enumerate((same, other)):
                    found[kind].append(values[(values > low) & (values < high)])
                    at_high[kind] += int(xp.sum(xp.astype(values == high, xp.int64)))
        similar, dissimilar = (xp.sort(xp.concat(pieces), stable=False) for pieces in found)
        return similar, dissimilar, at_high[0], at_high[1]


def _round(values: Array) -> Array:
    """Nearest numbers of 40 bits (Dekker's splitting)."""
    shifted = values * _SPLIT
    return shifted - (shifted - values)


def _centred(points: Array, *, xp: Namespace) -> Array:
    """Points moved and scaled so that their mean squared norm is near 1; order of distances is kept.

    Columns move by a multiple of a power of two below their range, and the scale is a power of two:
    integer codes stay exact, and so do their ties.
    """
    points = points * _power_of_two(1 / max(float(xp.max(xp.abs(points))), 1e-300))
    spread = xp.max(points, axis=0) - xp.min(points, axis=0)
    varies = spread > 0
    unit = xp.where(varies, 2.0 ** xp.floor(xp.log2(xp.where(varies, spread, 1.0))), 1.0)
    shift = xp.where(varies, xp.round(xp.mean(points, axis=0) / unit) * unit, points[0, :])
    points = points - shift
    mean_norm = float(xp.mean(xp.sum(points * points, axis=1)))
    return points * _power_of_two(1 / math.sqrt(mean_norm)) if mean_norm > 0 else points


def _power_of_two(value: float) -> float:
    return 2.0 ** round(math.log2(value))
