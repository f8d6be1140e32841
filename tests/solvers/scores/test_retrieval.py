"""Retrieval scores against scikit-learn, one query at a time."""

from __future__ import annotations

import json
import tracemalloc
from itertools import permutations

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier

from solvers.scores import SCORES, pooled, ranking
from solvers.scores.retrieval import (
    balance_score,
    compactness,
    frequent_classes,
    query_scores,
    retrieval_scores,
    standard_error,
    train_test_gap,
)

BACKENDS = {
    "numpy": np.asarray,
    "strict": lambda Z: array_api_strict.asarray(Z, device=array_api_strict.Device("device1")),
}


def brute_force(Z, y):
    """AUC and average precision of every query from scikit-learn, NaN where undefined."""
    n = len(y)
    auc, precision = np.full(n, np.nan), np.full(n, np.nan)
    for i in range(n):
        others = np.arange(n) != i
        relevant = y[others] == y[i]
        if relevant.any() and not relevant.all():
            distance = np.sum((Z[others] - Z[i]) ** 2, axis=1)
            auc[i] = roc_auc_score(relevant, -distance)
            precision[i] = average_precision_score(relevant, -distance)
    return auc, precision


def brute_force_pooled(Z, y):
    first, second = np.nonzero(~np.eye(len(y), dtype=bool))
    distance = np.sum((Z[first] - Z[second]) ** 2, axis=1)
    relevant = y[first] == y[second]
    return roc_auc_score(relevant, -distance), average_precision_score(relevant, -distance)


def embeddings():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 5))
    return {
        "continuous": points,
        "hash codes": 2.0 * rng.integers(0, 2, size=(60, 7)) - 1,
        "integers": rng.integers(0, 5, size=(60, 3)),
        "float32": points.astype(np.float32),
        "duplicates": points[rng.integers(0, 20, size=60)],
        "far from zero": points + 1e6,
        "one coordinate": points[:, :1],
        "all equal": np.ones((60, 2)),
        "one outlier": np.vstack([points[1:], np.full((1, 5), 1e4)]),
    }


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", embeddings())
def test_each_query_scores_as_in_scikit_learn(name, backend):
    Z = embeddings()[name]
    y = np.random.default_rng(1).integers(0, 12, size=60)
    auc, precision = brute_force(Z.astype(np.float64), y)
    scores = query_scores(BACKENDS[backend](Z), y)
    assert scores.rows.size == np.sum(~np.isnan(auc))
    np.testing.assert_allclose(scores.values["auc"], auc[scores.rows], rtol=0, atol=1e-12)
    np.testing.assert_allclose(scores.values["ap"], precision[scores.rows], rtol=0, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_ties_get_half_credit_in_any_small_set(data):
    n = data.draw(st.integers(2, 14))
    Z = data.draw(arrays(np.float64, (n, 2), elements=st.integers(-3, 3).map(float)))
    y = data.draw(arrays(np.int64, n, elements=st.integers(0, 3)))
    auc, precision = brute_force(Z, y)
    scores = query_scores(Z, y)
    assert np.isnan(np.delete(auc, scores.rows)).all()
    np.testing.assert_allclose(scores.values["auc"], auc[scores.rows], rtol=0, atol=1e-12)
    np.testing.assert_allclose(scores.values["ap"], precision[scores.rows], rtol=0, atol=1e-12)


def orders(distance):
    """Every order of the items that sorts them by distance."""
    items = range(len(distance))
    return [order for order in permutations(items) if all(np.diff(distance[list(order)]) >= 0)]


def by_hand(relevant, order):
    """Recall at 1, 5 and 10 and mean average precision at R of one order of the items."""
    ranked = relevant[list(order)]
    total = int(ranked.sum())
    precision = np.cumsum(ranked) / np.arange(1, ranked.size + 1)
    return [*(float(ranked[:k].any()) for k in (1, 5, 10)), (precision * ranked)[:total].sum() / total]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_top_scores_are_means_over_all_orders_of_tied_items(data):
    n = data.draw(st.integers(3, 7))
    Z = data.draw(arrays(np.float64, (n, 1), elements=st.integers(-2, 2).map(float)))
    y = data.draw(arrays(np.int64, n, elements=st.integers(0, 2)))
    scores = query_scores(Z, y)
    for place, row in enumerate(scores.rows):
        others = np.arange(n) != row
        distance, relevant = (Z[others, 0] - Z[row, 0]) ** 2, y[others] == y[row]
        expected = np.mean([by_hand(relevant, order) for order in orders(distance)], axis=0)
        names = ("recall_at_1", "recall_at_5", "recall_at_10", "map_at_r")
        np.testing.assert_allclose([scores.values[name][place] for name in names], expected, rtol=0, atol=1e-12)


def vote_by_hand(Z, y, row):
    """Credit of the query's class among its 5 nearest; the last place shared by all tied for it."""
    others = np.flatnonzero(np.arange(len(y)) != row)
    distance = np.round(np.sum((Z[others] - Z[row]) ** 2, axis=1), 9)
    border = np.sort(distance)[min(5, others.size) - 1]
    share = (min(5, others.size) - np.sum(distance < border)) / np.sum(distance == border)
    weight = np.where(distance < border, 1.0, np.where(distance == border, share, 0.0))
    votes = {label: weight[y[others] == label].sum() for label in np.unique(y)}
    elected = [label for label, vote in votes.items() if vote > max(votes.values()) - 1e-9]
    return (y[row] in elected) / len(elected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", embeddings())
def test_the_nearest_elect_a_class(name, backend):
    Z = embeddings()[name]
    y = np.random.default_rng(1).integers(0, 12, size=60)
    scores = query_scores(BACKENDS[backend](Z), y)
    expected = [vote_by_hand(Z.astype(np.float64), y, row) for row in scores.rows]
    np.testing.assert_allclose(scores.values["knn_accuracy"], expected, rtol=0, atol=1e-12)


def test_votes_are_those_of_scikit_learn_where_no_class_ties():
    rng = np.random.default_rng(8)
    Z, y = rng.normal(size=(80, 3)), rng.integers(0, 2, size=80)  # five voters, two classes: never even
    model = KNeighborsClassifier(5)
    expected = [model.fit(np.delete(Z, i, 0), np.delete(y, i)).predict(Z[i : i + 1])[0] == y[i] for i in range(80)]
    assert retrieval_scores(Z, y)["knn_accuracy"] == pytest.approx(np.mean(expected))


def test_the_table_names_every_score_and_all_are_given():
    rng = np.random.default_rng(9)
    scores = retrieval_scores(rng.normal(size=(60, 3)), rng.integers(0, 4, size=60), [0, 1])
    for name, score in SCORES.items():
        assert scores[name] is not None
        assert scores[f"{name}_se"] == 0
        assert score.upper_bound is None or 0 <= scores[name] <= score.upper_bound
        assert score.larger_is_better == (name != "balance_score")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pool", [1 << 25, 400])
@pytest.mark.parametrize("name", ["continuous", "hash codes", "duplicates", "all equal"])
def test_pooled_scores_rank_all_pairs_in_one_list(name, pool, backend, monkeypatch):
    monkeypatch.setattr(pooled, "_POOL", pool)  # 400 pairs at a time: many ranges of distance
    Z = embeddings()[name]
    y = np.random.default_rng(2).integers(0, 12, size=60)
    scores = retrieval_scores(BACKENDS[backend](Z), y, pooled=True)
    assert (scores["pooled_auc"], scores["pooled_ap"]) == pytest.approx(brute_force_pooled(Z, y), abs=1e-12)


def test_codes_of_any_scale_tie_like_the_codes():
    rng = np.random.default_rng(3)
    codes, y = rng.integers(0, 2, size=(200, 12)), rng.integers(0, 4, size=200)
    exact = query_scores(codes, y).values["auc"]
    for scale in (0.1, 1 / np.sqrt(12), 1e-150, 1e150):
        np.testing.assert_allclose(query_scores(scale * codes, y).values["auc"], exact, rtol=0, atol=1e-12)


def test_blocks_do_not_change_a_score(monkeypatch):
    rng = np.random.default_rng(4)
    Z, y = rng.normal(size=(150, 4)), rng.integers(0, 40, size=150)
    whole = retrieval_scores(Z, y, [1, 2], pooled=True)
    monkeypatch.setattr(ranking, "_BLOCK_HOST", 700)  # four queries at a time
    assert retrieval_scores(Z, y, [1, 2], pooled=True) == pytest.approx(whole, abs=1e-12)


def test_the_matrix_of_all_distances_never_exists():
    rng = np.random.default_rng(5)
    Z, y = rng.normal(size=(6000, 8)), rng.integers(0, 10, size=6000)
    tracemalloc.start()
    try:
        query_scores(Z, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6000 * 6000 * 8 / 2


@pytest.mark.parametrize("form", [set, list, np.array], ids=["set", "list", "array"])
def test_frequent_and_infrequent_queries_face_the_whole_set(form):
    rng = np.random.default_rng(6)
    Z = rng.normal(size=(90, 3))
    y = np.array(["wide", "b", "c"])[rng.choice(3, size=90, p=[0.6, 0.2, 0.2])]
    auc, precision = brute_force(Z, y)
    scores = retrieval_scores(Z, y, form(["wide"]))
    wide = y == "wide"
    assert scores["auc_frequent"] == pytest.approx(auc[wide].mean())
    assert scores["auc_infrequent"] == pytest.approx(auc[~wide].mean())
    assert scores["ap_infrequent"] == pytest.approx(precision[~wide].mean())
    assert scores["balance_score"] == pytest.approx(abs(auc[~wide].mean() / auc[wide].mean() - 1))
    assert scores["auc_all"] == pytest.approx(
        wide.mean() * scores["auc_frequent"] + (1 - wide.mean()) * scores["auc_infrequent"]
    )


def test_queries_without_a_partner_are_skipped_and_counted():
    Z = np.array([[0.0], [1.0], [2.0], [3.0], [9.0]])
    scores = retrieval_scores(Z, ["a", "a", "b", "b", "alone"])
    assert (scores["n_queries"], scores["n_skipped"]) == (4, 1)
    assert scores["auc_all"] == pytest.approx(np.mean([1, 2.5 / 3, 2.5 / 3, 1]))


@pytest.mark.parametrize(("y", "n_skipped"), [([0, 0, 0], 3), ([0, 1, 2], 3)], ids=["one class", "all alone"])
def test_nothing_to_rank_gives_none_and_still_is_json(y, n_skipped):
    scores = retrieval_scores(np.eye(3), y, [0], pooled=True)
    assert scores["auc_all"] is None
    assert scores["pooled_auc"] is None
    assert scores["balance_score"] is None
    assert scores["n_skipped"] == n_skipped
    json.dumps(scores, allow_nan=False)


def test_class_auc_is_the_mean_over_the_queries_of_a_class():
    rng = np.random.default_rng(7)
    Z, y = rng.normal(size=(60, 3)), np.array(["x", "y", "z"])[rng.integers(0, 3, size=60)]
    scores = query_scores(Z, y)
    classes, sizes, auc = scores.class_auc()
    assert classes.tolist() == ["x", "y", "z"]
    assert sizes.sum() == 60
    assert auc[1] == pytest.approx(scores.values["auc"][y[scores.rows] == "y"].mean())
    assert sizes @ auc / 60 == pytest.approx(scores.summary()["auc_all"])


@pytest.mark.parametrize("name", SCORES)
def test_a_score_alone_is_what_it_is_among_all(name):
    rng = np.random.default_rng(5)
    Z, y = rng.integers(4, size=(80, 2)).astype(float), rng.integers(6, size=80)
    everything = retrieval_scores(Z, y, frequent=[0, 1])
    alone = retrieval_scores(Z, y, frequent=[0, 1], only=(name,))
    assert alone.items() <= everything.items()
    assert {name, f"{name}_se"} <= alone.keys()
    kin = {other for other, each in SCORES.items() if (each.of or other) == (SCORES[name].of or name)}
    assert alone.keys() & SCORES.keys() == kin  # nothing else was computed


def test_a_score_that_is_none_is_named():
    with pytest.raises(ValueError, match=r"only: expected names of auc_all, .*, got 'auc'"):
        retrieval_scores(np.zeros((4, 1)), [0, 0, 1, 1], only=("auc",))


@pytest.mark.parametrize(
    ("Z", "y", "words"),
    [
        (np.zeros((3, 2)), [0, 1], "shape"),
        (np.zeros(3), [0, 1, 1], "shape"),
        (np.array([[np.nan], [0.0]]), [0, 0], "NaN"),
        (np.zeros((0, 2)), [], "at least one row"),
    ],
)
def test_wrong_input_is_named(Z, y, words):
    with pytest.raises(ValueError, match=words):
        retrieval_scores(Z, y)


def test_small_helpers():
    assert balance_score(0.9, 1.0) == pytest.approx(0.1)
    assert balance_score(None, 1.0) is None
    assert compactness(0.97, 53) == pytest.approx(0.97 / 53)
    assert train_test_gap(0.99, 0.97) == pytest.approx(0.02)
    assert standard_error([1.0, 2.0, 3.0]) == pytest.approx(1 / np.sqrt(3))
    assert standard_error([1.0]) is None
    assert frequent_classes(["a"] * 3 + ["b"] * 2, more_than=2).tolist() == ["a"]
