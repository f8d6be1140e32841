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
from solvers.scores.ranking import Ranking


@dataclass(frozen=True)
class QueryScores:
    """Scores of each query, in the order of the rows of Z.

    Parameters
    ----------
    labels : (n,) label of each row.
    auc : (n,) ROC AUC of each query, ties at half credit; NaN where no other row has the label.
    average_precision : (n,) likewise; tied items enter together.
    """

    labels: np.ndarray
    auc: np.ndarray
    average_precision: np.ndarray

    def summary(self, frequent: Collection[Any] | None = None) -> dict[str, float | int | None]:
        """Means over queries: all of them, those of the `frequent` labels, and the others.

        None stands for a mean over no query, and for the two groups if `frequent` is None.
        """
        scored = ~np.isnan(self.auc)
        groups = {"all": scored}
        if frequent is not None:
            in_frequent = np.isin(self.labels, np.asarray(list(frequent)))
            groups |= {"frequent": scored & in_frequent, "infrequent": scored & ~in_frequent}
        result: dict[str, float | int | None] = {}
        for score, values in (("auc", self.auc), ("ap", self.average_precision)):
            for group in ("all", "frequent", "infrequent"):
                chosen = values[groups[group]] if group in groups else values[:0]
                result[f"{score}_{group}"] = float(chosen.mean()) if chosen.size else None
        result["balance_score"] = balance_score(result["auc_infrequent"], result["auc_frequent"])
        result["n_queries"] = int(scored.sum())
        result["n_skipped"] = int(scored.size - scored.sum())
        return result

    def class_auc(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Labels (K,), number of rows of each (K,), and the mean AUC of its queries (K,)."""
        classes, codes, sizes = np.unique(self.labels, return_inverse=True, return_counts=True)
        return classes, sizes, np.bincount(codes, weights=self.auc) / sizes


def retrieval_scores(
    Z: Array, y: Any, frequent: Collection[Any] | None = None, *, pooled: bool = False
) -> dict[str, float | int | None]:
    """Retrieval scores of an embedding, by squared Euclidean distance between rows of Z.

    Parameters
    ----------
    Z : (n, k) embedding on any device; distances are float64 whatever its type.
    y : (n,) labels.
    frequent : labels of the frequent classes; None if classes are not told apart.
    pooled : also rank all pairs in one list (exact; several passes over the distances).

    Returns
    -------
    dict
        `auc_*` and `ap_*` (`all`, `frequent`, `infrequent`), `balance_score`, `n_queries`,
        `n_skipped` (queries without another example of their class), `pooled_auc`, `pooled_ap`.
        None stands for what was not asked for or has no query.
    """
    ranking = Ranking(Z, y)
    pooled_auc, pooled_ap = ranking.pooled() if pooled else (None, None)
    scores = QueryScores(ranking.labels, *ranking.query_scores())
    return scores.summary(frequent) | {"pooled_auc": pooled_auc, "pooled_ap": pooled_ap}


def query_scores(Z: Array, y: Any) -> QueryScores:
    """ROC AUC and average precision of each row of Z (n, k) as a query, for labels y (n,)."""
    ranking = Ranking(Z, y)
    return QueryScores(ranking.labels, *ranking.query_scores())


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
