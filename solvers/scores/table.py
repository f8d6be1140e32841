"""The scores that tuning may follow, by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """What is known of a score: which way it is better, the largest value it can have, what it means.

    `of` is what it is made from, of each query (`solvers.scores.ranking.PER_QUERY`); empty for its own name.
    """

    larger_is_better: bool
    upper_bound: float | None
    meaning: str
    of: str = ""


SCORES: dict[str, Score] = {
    "auc_all": Score(True, 1.0, "area under the ROC curve, mean over all queries", of="auc"),
    "auc_frequent": Score(True, 1.0, "the same over queries of frequent classes", of="auc"),
    "auc_infrequent": Score(True, 1.0, "the same over queries of infrequent classes", of="auc"),
    "balance_score": Score(False, None, "|auc_infrequent / auc_frequent - 1|, 0 if both are served alike", of="auc"),
    "ap_all": Score(True, 1.0, "average precision, mean over all queries", of="ap"),
    "recall_at_1": Score(True, 1.0, "share of queries whose nearest item is of their class"),
    "recall_at_5": Score(True, 1.0, "share of queries with an item of their class among the 5 nearest"),
    "recall_at_10": Score(True, 1.0, "share of queries with an item of their class among the 10 nearest"),
    "map_at_r": Score(True, 1.0, "mean of the precision at each hit among the R nearest, R items of the class in all"),
    "knn_accuracy": Score(True, 1.0, "share of queries whose class has most of the 5 nearest items"),
}
