"""All pairs in one list: its AUC and average precision, exact and in bounded memory."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from solvers.backend import Array, to_numpy
from solvers.scores.ranking import Ranking

# Pairs held and sorted at a time (8 bytes each).
_POOL = 1 << 25


def pooled_scores(ranking: Ranking) -> tuple[float | None, float | None]:
    """AUC and average precision of all pairs in one list; None without pairs of either kind.

    Ranges of distance are collected and sorted one after the other, each by a pass over all
    distances. Pairs that lie at the end of a range are only counted, so that a distance shared by
    very many pairs (hash codes) takes no memory.
    """
    xp, n = ranking.xp, ranking.labels.size
    sizes = ranking.ends - ranking.starts
    n_similar = int(np.sum(sizes * (sizes - 1)) // 2)
    n_dissimilar = n * (n - 1) // 2 - n_similar
    if n_similar == 0 or n_dissimilar == 0:
        return None, None
    nearer, nearer_dissimilar, wrong, precision = 0, 0, 0, 0.0
    for low, high in pairwise(_cuts(ranking, n_similar + n_dissimilar)):
        similar, dissimilar, tied, tied_dissimilar = _pairs_between(ranking, low, high)
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


def _cuts(ranking: Ranking, n_pairs: int) -> list[float]:
    """Ends of ranges of distance that hold fewer than _POOL pairs each, from a sample of rows."""
    n, n_ranges = ranking.labels.size, math.ceil(1.25 * n_pairs / _POOL)
    rows = np.unique(np.linspace(0, n - 1, max(2, ranking.block // n)).astype(np.int64))
    sample = np.sort(to_numpy(ranking.distances(rows)), axis=None)
    inner = sample[np.arange(1, n_ranges) * sample.size // n_ranges]
    return [-math.inf, *np.unique(inner).tolist(), math.inf]


def _pairs_between(ranking: Ranking, low: float, high: float) -> tuple[Array, Array, int, int]:
    """Sorted distances between the bounds, and numbers of pairs at `high`: similar, dissimilar."""
    xp, n = ranking.xp, ranking.labels.size
    found: tuple[list[Array], list[Array]] = ([], [])
    at_high = [0, 0]
    step = max(1, ranking.block // n)
    for start in range(0, n, step):
        stop = min(start + step, n)
        distance = ranking.distances(slice(start, stop), start)
        for part in ranking.segments(np.arange(start, stop)):
            rows, class_end = distance[part.low : part.high, :], part.last - start
            same, other = rows[:, part.low : class_end], rows[:, class_end:]
            # Each pair once: of its own class, a row meets only the rows behind it.
            row, column = (xp.arange(size, device=ranking.device) for size in same.shape)
            same = same[column[None, :] > row[:, None]]
            for kind, values in enumerate((same, other)):
                found[kind].append(values[(values > low) & (values < high)])
                at_high[kind] += int(xp.sum(xp.astype(values == high, xp.int64)))
    similar, dissimilar = (xp.sort(xp.concat(pieces), stable=False) for pieces in found)
    return similar, dissimilar, at_high[0], at_high[1]
