"""Zero, first and second order temporal features of items measured over time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import scipy.sparse as sp


class TemporalFeatures:
    """Mean, mean difference and mean second difference of every item's values over time.

    With values x_1..x_m in the order of time, the differences telescope: their mean is
    (x_m - x_1) / (m - 1), and that of the second differences is
    ((x_m - x_{m-1}) - (x_2 - x_1)) / (m - 2). So a sum, a count and the two first and two last
    values of an item are enough, whatever the order in which a large table brings them.
    """

    _BUFFER = 4_000_000

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._codes: dict[str, int] = {}
        self._events: list[tuple[np.ndarray, ...]] = []
        self._totals: list[tuple[np.ndarray, ...]] = []
        self._merged = self._pending = 0

    def code(self, item: str) -> int:
        """Code of one item for `add`."""
        return self._codes.setdefault(item, len(self._codes))

    def codes(self, items: pa.Array) -> np.ndarray:
        """Codes of a column of item names or numbers without nulls."""
        encoded = items.dictionary_encode()
        known = [self.code(str(item)) for item in encoded.dictionary.to_pylist()]
        return np.array(known, dtype=np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]

    def add(self, rows: np.ndarray, codes: np.ndarray, times: np.ndarray, values: np.ndarray) -> None:
        """Add measurements, each (m,): row -1 (not among the examples) and values not finite are left out."""
        use = (rows >= 0) & np.isfinite(values)
        keys = codes[use] * self._n_rows + rows[use]
        self._events.append(_ends(keys, times[use], values[use]))
        self._totals.append(_totals(keys, values[use], np.ones(len(keys), dtype=np.int64)))
        self._pending += len(self._events[-1][0])
        # Merging whenever the events have doubled keeps the whole work near linear.
        if self._pending > max(self._BUFFER, self._merged):
            self._merge()

    def finish(self) -> tuple[sp.csr_matrix, list[str]]:
        """Features (n_rows, 3 * items) and the item names, sorted.

        Three neighbouring columns per item: zero, first, second order; 0 where it was not measured
        often enough.
        """
        self._merge()
        (event_keys, _, values), (keys, sums, m) = self._events[0], self._totals[0]
        first, last = np.searchsorted(event_keys, keys), np.searchsorted(event_keys, keys, side="right") - 1
        second, before = np.minimum(first + 1, last), np.maximum(last - 1, first)
        curvature = values[last] - values[before] - values[second] + values[first]
        orders = [
            sums / m,
            (values[last] - values[first]) / np.maximum(m - 1, 1),
            np.where(m > 2, curvature, 0.0) / np.maximum(m - 2, 1),
        ]
        names = sorted(self._codes)
        place = np.empty(len(names), dtype=np.int64)
        place[[self._codes[name] for name in names]] = np.arange(len(names))
        code, row = np.divmod(keys, self._n_rows)
        column = np.concatenate([3 * place[code] + order for order in range(3)])
        matrix = sp.coo_matrix(
            (np.concatenate(orders), (np.tile(row, 3), column)), shape=(self._n_rows, 3 * len(names))
        ).tocsr()
        matrix.eliminate_zeros()
        # An item of which no example has a value says nothing.
        measured = np.isin(np.arange(len(names)), place[code])
        return matrix[:, np.repeat(measured, 3)], [name for name, use in zip(names, measured, strict=True) if use]

    def _merge(self) -> None:
        nothing = np.zeros(0, dtype=np.int64)
        empty = (nothing, np.zeros(0), np.zeros(0))
        events = [np.concatenate(column) for column in zip(*self._events or [empty], strict=True)]
        totals = [
            np.concatenate(column) for column in zip(*self._totals or [(nothing, np.zeros(0), nothing)], strict=True)
        ]
        self._events, self._totals = [_ends(*events)], [_totals(*totals)]
        self._merged, self._pending = len(self._events[0][0]), 0


def _ends(keys: np.ndarray, times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, ...]:
    """The two first and two last events of every key, by key and time; equal times keep their order."""
    order = np.lexsort((times, keys))
    keys, times, values = keys[order], times[order], values[order]
    place = np.arange(len(keys))
    from_start = place - np.searchsorted(keys, keys)
    from_end = np.searchsorted(keys, keys, side="right") - 1 - place
    kept = (from_start < 2) | (from_end < 2)
    return keys[kept], times[kept], values[kept]


def _totals(keys: np.ndarray, sums: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, ...]:
    """Sums and counts by key, keys ascending."""
    unique, inverse = np.unique(keys, return_inverse=True)
    total = np.bincount(inverse, weights=sums, minlength=len(unique))
    return unique, total, np.bincount(inverse, weights=counts, minlength=len(unique)).astype(np.int64)


def temporal_names(items: list[str]) -> list[str]:
    """Names of the three columns of every item."""
    return [f"{item} {order}" for item in items for order in ("mean", "difference", "second difference")]
