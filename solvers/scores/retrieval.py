"""Retrieval scores: every example queries all others, nearest first.

An item is relevant to a query if both have the same label. Scores are computed where the
embedding is, a block of queries at a time; the n x n matrix of distances never exists.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from solvers.backend import Array, to_numpy
from solvers.scores.pooled import pooled_scores
from solvers.scores.ranking import PER_QUERY, Ranking
from solvers.scores.sampling import QuerySample, sample_queries
from solvers.scores.table import SCORES

# More queries than this are sampled, unless asked otherwise.
MAX_QUERIES = 5000


@dataclass(frozen=True)
class QueryScores:
    """Scores of each query.

    Parameters
    ----------
    labels : (n,) label of each row of Z.
    rows : (q,) rows of Z that were asked: those with another row of their label, or a sample of them.
    values : name -> (q,): `auc` (ties at half credit), `ap` (tied items enter together), `recall_at_1`,
        `recall_at_5`, `recall_at_10`, `map_at_r` (tied items in random order, on average), `knn_accuracy`.
    sample : how the rows were drawn.
    """

    labels: np.ndarray
    rows: np.ndarray
    values: dict[str, np.ndarray]
    sample: QuerySample

    def summary(self, frequent: Collection[Any] | None = None) -> dict[str, float | int | None]:
        """Means over queries: all of them, those of the `frequent` labels, and the others.

        None stands for a mean over no query, and for the two groups if `frequent` is None. Each score
        has its standard error beside it, `<score>_se`: what sampling adds, 0 where all were asked.
        """
        everyone = np.ones(self.rows.size, dtype=bool)
        groups = {"all": everyone, "frequent": ~everyone, "infrequent": ~everyone}
        if frequent is not None:
            in_frequent = np.isin(self.labels[self.rows], np.asarray(list(frequent)))
            groups |= {"frequent": in_frequent, "infrequent": ~in_frequent}
        result: dict[str, float | int | None] = {}
        for name, values in self.values.items():
            for group in groups if name in ("auc", "ap") else ("",):
                mean = self.sample.mean(values, groups[group or "all"])
                score = f"{name}_{group}".rstrip("_")
                result[score], result[f"{score}_se"] = mean or (None, None)
        if "auc" in self.values:
            means = [result["auc_infrequent"], result["auc_frequent"]]
            errors = [result["auc_infrequent_se"], result["auc_frequent_se"]]
            result["balance_score"] = balance_score(*means)
            result["balance_score_se"] = _ratio_error(means, errors)
        result["n_queries"] = int(self.rows.size)
        result["n_skipped"] = int(self.labels.size - self.sample.stratum_sizes.sum())
        result["n_rows"] = int(self.labels.size)
        return result

    def class_auc(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Labels (K,), number of rows of each (K,), and the mean AUC of its queries (K,), NaN without any."""
        classes, codes, sizes = np.unique(self.labels, return_inverse=True, return_counts=True)
        asked = codes[self.rows]
        counts = np.bincount(asked, minlength=classes.size)
        sums = np.bincount(asked, weights=self.values["auc"], minlength=classes.size)
        return classes, sizes, np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def retrieval_scores(
    Z: Array,
    y: Any,
    frequent: Collection[Any] | None = None,
    *,
    max_queries: int | None = MAX_QUERIES,
    seed: int = 0,
    pooled: bool = False,
    only: Collection[str] = tuple(SCORES),
) -> dict[str, float | int | None]:
    """Retrieval scores of an embedding, by squared Euclidean distance between rows of Z.

    Parameters
    ----------
    Z : (n, k) embedding on any device; distances are float64 whatever its type.
    y : (n,) labels.
    frequent : labels of the frequent classes; None if classes are not told apart.
    max_queries : rows that query all others; where there are more, a sample of them does, drawn by class so
        that rare classes keep theirs and means stay unbiased. None: all of them, exactly.
    seed : of that sample; equal labels and seeds give equal samples, whatever Z.
    pooled : also rank all pairs in one list (exact; several passes over the distances).
    only : names of scores that are asked for; what none of them is made from is left out.

    Returns
    -------
    dict
        All of `solvers.scores.SCORES`, `ap_frequent` and `ap_infrequent`, each with its standard error
        `<score>_se`; `n_rows`, `n_queries` (asked), `n_skipped` (rows without another of their class,
        which cannot be asked), `pooled_auc`, `pooled_ap`. None stands for what was not asked for or has
        no query.
    """
    unknown = sorted(set(only) - SCORES.keys())
    if unknown:
        raise ValueError(f"only: expected names of {', '.join(SCORES)}, got {unknown[0]!r}")
    ranking = Ranking(Z, y)
    pooled_auc, pooled_ap = pooled_scores(ranking) if pooled else (None, None)
    needed = {SCORES[name].of or name for name in only}
    scores = _query_scores(ranking, max_queries, seed, [name for name in PER_QUERY if name in needed])
    return scores.summary(frequent) | {"pooled_auc": pooled_auc, "pooled_ap": pooled_ap}


def query_scores(Z: Array, y: Any, *, max_queries: int | None = None, seed: int = 0) -> QueryScores:
    """Scores of each row of Z (n, k) as a query, for labels y (n,), or of a sample as in `retrieval_scores`."""
    return _query_scores(Ranking(Z, y), max_queries, seed)


def _query_scores(
    ranking: Ranking, max_queries: int | None, seed: int, names: Collection[str] = PER_QUERY
) -> QueryScores:
    sizes = ranking.ends - ranking.starts
    sample = sample_queries(sizes[ranking.ends <= ranking.n_queries], max_queries, seed)
    values = ranking.query_scores(sample.rows, names)
    return QueryScores(ranking.labels, ranking.order[sample.rows], values, sample)


def _ratio_error(means: list[float | int | None], errors: list[float | int | None]) -> float | None:
    """Standard error of means[0] / means[1], which come from different queries."""
    (top, bottom), (top_error, bottom_error) = means, errors
    if top is None or not bottom or top_error is None or bottom_error is None:
        return None
    return math.hypot(top_error / bottom, top * bottom_error / bottom**2)


def frequent_classes(y: Any, more_than: int = 1000) -> np.ndarray:
    """Labels with more than `more_than` examples in y."""
    classes, sizes = np.unique(to_numpy(y), return_counts=True)
    return classes[sizes > more_than]


def balance_score(auc_infrequent: float | None, auc_frequent: float | None) -> float | None:
    """|A-IF / A-F - 1|: 0 if infrequent classes are retrieved as well as frequent ones."""
    if auc_infrequent is None or not auc_frequent:
        return None
    return abs(auc_infrequent / auc_frequent - 1)


def compactness(auc_all: float, n_vectors: int) -> float:
    """AUC per projection vector."""
    return auc_all / n_vectors


def train_test_gap(auc_train: float, auc_test: float) -> float:
    """How much better the training set is retrieved than the test set."""
    return auc_train - auc_test


def standard_error(values: Any) -> float | None:
    """Standard error of the mean of `values`; None for fewer than two."""
    array = np.asarray(values, dtype=np.float64)
    return float(array.std(ddof=1) / math.sqrt(array.size)) if array.size > 1 else None
