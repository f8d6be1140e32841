"""Ranks of items by distance, a block of queries at a time, in bounded memory.

Distances come from one matrix product per block. The sort that ranks them carries one more bit,
whether an item is relevant, so that no permutation is needed: that is what makes it fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from array_api_compat import device

from solvers.backend import Array, Namespace, choose_backend, in_blocks, is_host_data, to_numpy

# A block of distances, in numbers: small enough for a CPU's caches, large enough to fill a GPU.
_BLOCK_HOST, _BLOCK_DEVICE = 1 << 21, 1 << 23
# Rounding to 40 bits makes one value of distances that differ by rounding alone (about 1e-12), and
# leaves room for the mark that relevant items carry through the sort.
_SPLIT = 2.0**13 + 1
_MARK = 1 + 2.0**-46
RECALL_AT = (1, 5, 10)
NEIGHBOURS = 5  # that vote in knn_accuracy
PER_QUERY = ("auc", "ap", *(f"recall_at_{k}" for k in RECALL_AT), "map_at_r", "knn_accuracy")


@dataclass(frozen=True)
class _Segment:
    """Queries of one class that stand together in a block."""

    low: int  # the queries are low..high of the list of queries
    high: int
    first: int  # the class is first..last of the sorted rows
    last: int


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
        self.codes = codes[self.order]
        self.starts = np.flatnonzero(np.diff(self.codes, prepend=-1))  # first row of each class
        self.ends = np.append(self.starts[1:], codes.size)
        # Without two classes there is nothing to tell apart, so nothing to ask.
        self.n_queries = int(np.sum(sizes[sizes > 1])) if sizes.size > 1 else 0
        points = _centred(xp.take(points, xp.asarray(self.order, device=self.device), axis=0), xp=xp)
        norms = xp.sum(points * points, axis=1)[:, None]
        # The offset 1 is of the size of a typical distance. Relative rounding of offset + distance
        # is then absolute near zero, where a matrix product has absolute errors.
        ones = xp.ones_like(norms)
        self._queries = xp.concat([-2 * points, norms + 1, ones], axis=1)
        self._items = xp.matrix_transpose(xp.concat([points, ones, norms], axis=1))

    def distances(self, rows: np.ndarray | slice, first_item: int = 0) -> Array:
        """1 + squared distance of some sorted rows to the sorted rows first_item.., in 40 bits."""
        if isinstance(rows, slice):
            queries = self._queries[rows, :]
        else:
            queries = self.xp.take(self._queries, self.xp.asarray(rows, device=self.device), axis=0)
        return round_to_40_bits(queries @ self._items[:, first_item:])

    def segments(self, rows: np.ndarray) -> Iterator[_Segment]:
        """Classes of ascending sorted `rows`, in order."""
        classes = np.searchsorted(self.starts, rows, side="right") - 1
        cuts = np.flatnonzero(np.diff(classes, prepend=-1))
        for low, high in zip(cuts.tolist(), [*cuts[1:].tolist(), rows.size], strict=True):
            own = classes[low]
            yield _Segment(low, high, int(self.starts[own]), int(self.ends[own]))

    def query_scores(self, rows: np.ndarray, names: Collection[str] = PER_QUERY) -> dict[str, np.ndarray]:
        """Some scores of the queries at ascending sorted `rows`, each (q,)."""
        step = max(1, self.block // self.labels.size)
        blocks = in_blocks(lambda part: self._block_scores(rows[part], names), rows.size, step, xp=self.xp)
        return {name: np.concatenate([np.zeros(0), *(block[name] for block in blocks)]) for name in names}

    def _block_scores(self, rows: np.ndarray, names: Collection[str]) -> dict[str, np.ndarray]:
        xp, n_items = self.xp, self.labels.size - 1
        keys = self.distances(rows)
        segments = list(self.segments(rows))
        own = xp.asarray(rows, device=self.device)[:, None]
        for part in segments:
            marked = keys[part.low : part.high, part.first : part.last] * _MARK
            # The query itself goes to the end of its row, and is cut off there.
            itself = xp.arange(part.first, part.last, device=self.device)[None, :] == own[part.low : part.high, :]
            keys[part.low : part.high, part.first : part.last] = xp.where(itself, xp.inf, marked)
        ranked = xp.sort(keys, axis=1, stable=False)[:, :-1]
        values = round_to_40_bits(ranked)
        hits = xp.nonzero(xp.reshape(ranked != values, (-1,)))[0]
        counts = np.concatenate([np.full(part.high - part.low, part.last - part.first - 1) for part in segments])
        begins = np.cumsum(counts) - counts  # place of each query's first hit in the list of all
        row = hits // n_items
        ties = _ties(values, hits, row, xp.asarray(begins, device=self.device), xp=xp)

        def sums(per_hit: Array) -> np.ndarray:
            return _row_sums(per_hit, segments, xp=xp)

        def map_at_r() -> np.ndarray:
            relevant = xp.take(xp.asarray(counts, device=self.device), row)
            return sums(_precision_within(ties, relevant, self._harmonic, xp=xp)) / counts

        scores: dict[str, Callable[[], np.ndarray]] = {
            "auc": lambda: 1 - sums(_irrelevant_ahead(ties)) / (2 * counts * (n_items - counts)),
            "ap": lambda: sums(xp.astype(ties.upto, xp.float64) / xp.astype(ties.last + 1, xp.float64)) / counts,
            **{f"recall_at_{k}": partial(_recall, ties.take(begins, xp=xp), k) for k in RECALL_AT},
            "map_at_r": map_at_r,
            "knn_accuracy": lambda: self._vote(keys, values, rows),
        }
        return {name: scores[name]() for name in names}

    @cached_property
    def _harmonic(self) -> Array:
        """1 + 1/2 + ... + 1/i at i = 0..n."""
        sums = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, self.labels.size + 1))])
        return self.xp.asarray(sums, device=self.device)

    def _vote(self, keys: Array, values: Array, rows: np.ndarray) -> np.ndarray:
        """Whether the nearest items elect a query's own class.

        Items tied for the last place share it; classes tied for the most votes share the credit.
        """
        xp, n = self.xp, self.labels.size
        n_voters = min(NEIGHBOURS, n - 1)
        border = values[:, n_voters - 1 : n_voters]
        flat = to_numpy(xp.nonzero(xp.reshape(keys <= border * _MARK, (-1,)))[0])
        query, item = flat // n, flat % n
        nearer = to_numpy(xp.sum(xp.astype(values < border, xp.int64)[:, :n_voters], axis=1))
        level = np.bincount(query, minlength=rows.size) - nearer
        strictly = to_numpy(xp.take(xp.reshape(keys, (-1,)), xp.asarray(flat, device=self.device)))
        strictly = strictly < to_numpy(border)[query, 0]
        weights = np.where(strictly, 1.0, ((n_voters - nearer) / level)[query])
        ballots, place = np.unique(query * (self.codes.max() + 1) + self.codes[item], return_inverse=True)
        votes = np.bincount(place, weights=weights)
        voter, candidate = np.divmod(ballots, self.codes.max() + 1)
        most = np.zeros(rows.size)
        np.maximum.at(most, voter, votes)
        elected = votes > most[voter] - 1e-9
        shared = np.bincount(voter, weights=elected, minlength=rows.size)
        own = np.bincount(voter, weights=elected & (candidate == self.codes[rows][voter]), minlength=rows.size)
        return np.asarray(own / shared)


@dataclass(frozen=True)
class _Ties:
    """For each hit (relevant item) the group of equal distances it is in; places count from 0 in its row."""

    first: Array  # places of the group's ends
    last: Array
    before: Array  # hits of the row ahead of the group
    upto: Array  # and up to its end

    def take(self, places: np.ndarray, *, xp: Namespace) -> _Ties:
        """Those of some hits, on the host."""
        chosen = xp.asarray(places, device=device(self.first))
        return _Ties(*(to_numpy(xp.take(a, chosen)) for a in (self.first, self.last, self.before, self.upto)))


def _ties(values: Array, hits: Array, row: Array, begins: Array, *, xp: Namespace) -> _Ties:
    """Groups of the `hits`, places in the flattened rows of `values`; `begins` says where a row's hits begin."""
    n_items = values.shape[1]
    earlier, offset = xp.take(begins, row), row * n_items
    changes = values[:, 1:] != values[:, :-1]
    if bool(xp.all(changes)):
        before = xp.arange(hits.shape[0], device=device(hits)) - earlier
        return _Ties(hits - offset, hits - offset, before, before + 1)
    row_end = xp.ones((values.shape[0], 1), dtype=xp.bool, device=device(hits))
    ends = xp.nonzero(xp.reshape(xp.concat([changes, row_end], axis=1), (-1,)))[0]
    group = xp.searchsorted(ends, hits, side="left")
    last = xp.take(ends, group)
    first = xp.where(group > 0, xp.take(ends, xp.clip(group - 1, 0, None)) + 1, 0)
    before = xp.searchsorted(hits, first, side="left") - earlier
    upto = xp.searchsorted(hits, last, side="right") - earlier
    return _Ties(first - offset, last - offset, before, upto)


def _irrelevant_ahead(ties: _Ties) -> Array:
    """Twice the irrelevant items ahead of each hit, tied ones counting half."""
    return 2 * (ties.first - ties.before) + (ties.last - ties.first + 1) - (ties.upto - ties.before)


def _recall(first_hit: _Ties, k: int) -> np.ndarray:
    """Chance that one of the k nearest items is relevant, tied ones in random order."""
    size = first_hit.last - first_hit.first + 1
    irrelevant = size - first_hit.upto
    missed = np.ones(size.shape)
    for drawn in range(k):
        within = first_hit.first + drawn < k
        missed *= np.where(within, np.clip(irrelevant - drawn, 0, None) / np.maximum(size - drawn, 1), 1.0)
    return 1 - missed


def _precision_within(ties: _Ties, relevant: Array, harmonic: Array, *, xp: Namespace) -> Array:
    """Each hit's precision if it stands among the first `relevant` places, else 0; tied ones in random order.

    At place f + j of a group of t items, of which r are hits, behind f items with b hits, precision is
    (b + 1 + (j - 1) c) / (f + j) on average, c = (r - 1) / (t - 1), where a hit stands there: sums of 1 / (f + j).
    """
    size, hits = ties.last - ties.first + 1, ties.upto - ties.before
    inside = xp.clip(xp.minimum(relevant - ties.first, size), 0, None)
    first, before, share = (xp.astype(a, xp.float64) for a in (ties.first, ties.before, hits - 1))
    c = share / xp.astype(xp.clip(size - 1, 1, None), xp.float64)
    inverses = xp.take(harmonic, ties.first + inside) - xp.take(harmonic, ties.first)
    total = xp.astype(inside, xp.float64) * c + (before + 1 - c * (1 + first)) * inverses
    return total / xp.astype(size, xp.float64)


def _row_sums(values: Array, segments: list[_Segment], *, xp: Namespace) -> np.ndarray:
    """Sums over each query's relevant items, of which rows of one class have equally many."""
    sums, offset = [], 0
    for part in segments:
        shape = (part.high - part.low, part.last - part.first - 1)
        size = shape[0] * shape[1]
        sums.append(xp.sum(xp.reshape(values[offset : offset + size], shape), axis=1))
        offset += size
    return to_numpy(xp.concat(sums))


def round_to_40_bits(values: Array) -> Array:
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
