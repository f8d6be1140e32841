"""A sample of queries in place of all, and how far off the means over it may be.

Queries are drawn by class, about sqrt(size) of each: large classes get most, small ones more than
their share, those that this would exhaust are asked completely. Classes too small to give three
queries are joined with others of about their size. Each query counts for as many as it stands
for, so that means stay unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_LEAST = 3.0  # expected queries of a stratum: two after rounding, which a variance needs


@dataclass(frozen=True)
class QuerySample:
    """Which rows are asked.

    Parameters
    ----------
    rows : (q,) ascending positions among the rows that can be asked.
    stratum : (q,) what each was drawn from.
    stratum_sizes : (s,) rows in each stratum.
    """

    rows: np.ndarray
    stratum: np.ndarray
    stratum_sizes: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        """Rows that each query stands for, (q,); 1 where all are asked."""
        drawn = np.bincount(self.stratum, minlength=self.stratum_sizes.size)
        return np.asarray((self.stratum_sizes / np.maximum(drawn, 1))[self.stratum])

    def mean(self, values: np.ndarray, inside: np.ndarray) -> tuple[float, float] | None:
        """Mean of the values (q,) over the queries `inside` (q,) and its standard error; None over none.

        The error is that of stratified sampling without replacement, for a mean of part of the
        strata (or of parts of them) by linearisation; 0 where all rows are asked.
        """
        weights = np.where(inside, self.weights, 0.0)
        if not weights.any():
            return None
        total = weights.sum()
        mean = float(weights @ np.where(inside, values, 0.0) / total)
        residuals = np.where(inside, values - mean, 0.0) / total
        drawn = np.bincount(self.stratum, minlength=self.stratum_sizes.size)
        centre = np.bincount(self.stratum, weights=residuals, minlength=drawn.size) / np.maximum(drawn, 1)
        squares = np.bincount(self.stratum, weights=(residuals - centre[self.stratum]) ** 2, minlength=drawn.size)
        # A few queries that all succeed do not show that all would: one more counts as all strata's spread.
        concerned = np.bincount(self.stratum, weights=inside, minlength=drawn.size) > 0
        prior = np.where(concerned, np.mean(residuals[inside] ** 2), 0.0)
        variances = (squares + prior) / np.maximum(drawn, 1)
        left_out = self.stratum_sizes - drawn
        return mean, float(np.sqrt(np.sum(self.stratum_sizes * left_out * variances / np.maximum(drawn, 1))))


def sample_queries(class_sizes: np.ndarray, max_queries: int | None, seed: int) -> QuerySample:
    """Sample of at most `max_queries` rows that stand class by class; None for all of them."""
    if max_queries is not None and max_queries < 2:
        raise ValueError(f"max_queries: expected None (all) or at least 2, got {max_queries}")
    n = int(class_sizes.sum())
    if max_queries is None or n <= max_queries:
        return QuerySample(np.arange(n), np.zeros(n, dtype=np.int64), np.array([n]))
    strata, targets = _strata(class_sizes, _targets(class_sizes, max_queries))
    sizes = np.bincount(strata, weights=class_sizes).astype(np.int64)
    drawn = np.minimum(np.diff(np.round(np.cumsum(targets)), prepend=0).astype(np.int64), sizes)
    # Rows in random order within their stratum, of which the first ones are taken.
    stratum_of_row = np.repeat(strata, class_sizes)
    order = np.lexsort((np.random.default_rng(seed).random(n), stratum_of_row))
    place = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows = np.sort(order[place < np.repeat(drawn, sizes)])
    return QuerySample(rows, stratum_of_row[rows], sizes)


def _targets(class_sizes: np.ndarray, total: int) -> np.ndarray:
    """min(size, c sqrt(size)) for each class, with the c that makes their sum `total`."""
    rising = np.argsort(class_sizes, kind="stable")
    sizes = class_sizes[rising].astype(np.float64)
    roots = np.sqrt(sizes)
    complete = np.concatenate([[0.0], np.cumsum(sizes)[:-1]])  # if all smaller classes are asked completely
    factors = (total - complete) / np.cumsum(roots[::-1])[::-1]
    n_complete = int(np.argmax(factors * roots < sizes))
    targets = np.where(np.arange(sizes.size) < n_complete, sizes, factors[n_complete] * roots)
    result = np.empty_like(targets)
    result[rising] = targets
    return result


def _strata(class_sizes: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Stratum of each class, and the expected queries of each stratum."""
    strata = np.empty(class_sizes.size, dtype=np.int64)
    collected: list[float] = []
    pending = 0.0
    for number in np.argsort(class_sizes, kind="stable").tolist():
        strata[number] = len(collected)
        pending += targets[number]
        if pending >= _LEAST or targets[number] == class_sizes[number]:
            collected.append(pending)
            pending = 0.0
    if pending > 0:  # the largest classes were too few queries for a stratum of their own
        strata = np.minimum(strata, max(len(collected) - 1, 0))
        collected = [*collected[:-1], (collected[-1] if collected else 0.0) + pending]
    return strata, np.asarray(collected)
