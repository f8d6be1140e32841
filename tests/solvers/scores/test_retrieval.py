"""Retrieval scores against scikit-learn, one query at a time."""

from __future__ import annotations

import json
import tracemalloc

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import average_precision_score, roc_auc_score

from solvers.scores import ranking
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
    np.testing.assert_allclose(scores.auc, auc, rtol=0, atol=1e-12)
    np.testing.assert_allclose(scores.average_precision, precision, rtol=0, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_ties_get_half_credit_in_any_small_set(data):
    n = data.draw(st.integers(2, 14))
    Z = data.draw(arrays(np.float64, (n, 2), elements=st.integers(-3, 3).map(float)))
    y = data.draw(arrays(np.int64, n, elements=st.integers(0, 3)))
    auc, precision = brute_force(Z, y)
    scores = query_scores(Z, y)
    np.testing.assert_allclose(scores.auc, auc, rtol=0, atol=1e-12)
    scored = ~np.isnan(auc)
    np.testing.assert_allclose(scores.average_precision[scored], precision[scored], rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pool", [1 << 25, 400])
@pytest.mark.parametrize("name", ["continuous", "hash codes", "duplicates", "all equal"])
def test_pooled_scores_rank_all_pairs_in_one_list(name, pool, backend, monkeypatch):
    monkeypatch.setattr(ranking, "_POOL", pool)  # 400 pairs at a time: many ranges of distance
    Z = embeddings()[name]
    y = np.random.default_rng(2).integers(0, 12, size=60)
    scores = retrieval_scores(BACKENDS[backend](Z), y, pooled=True)
    assert (scores["pooled_auc"], scores["pooled_ap"]) == pytest.approx(brute_force_pooled(Z, y), abs=1e-12)


def test_codes_of_any_scale_tie_like_the_codes():
    rng = np.random.default_rng(3)
    codes, y = rng.integers(0, 2, size=(200, 12)), rng.integers(0, 4, size=200)
    exact = query_scores(codes, y).auc
    for scale in (0.1, 1 / np.sqrt(12), 1e-150, 1e150):
        np.testing.assert_allclose(query_scores(scale * codes, y).auc, exact, rtol=0, atol=1e-12)


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
    assert auc[1] == pytest.approx(scores.auc[y == "y"].mean())
    assert sizes @ auc / 60 == pytest.approx(scores.summary()["auc_all"])


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
