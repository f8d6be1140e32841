"""Pairs: drawn uniformly, and their scatters and distances equal the definitions."""

from __future__ import annotations

import numpy as np
import pytest

from solvers.backend import choose_backend, to_numpy
from solvers.pairs import (
    PairSet,
    count_dissimilar,
    draw_dissimilar,
    draw_similar,
    problem_from_labels,
    problem_from_pairs,
    within_class_scatter,
)
from tests.conftest import ArrayBackend

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 5))
Y = np.repeat([0, 1, 2], [15, 10, 5])


def all_pairs(same: bool) -> np.ndarray:
    i, j = np.triu_indices(len(Y), 1)
    chosen = (Y[i] == Y[j]) == same
    return np.stack([i[chosen], j[chosen]], axis=1)


def differences(pairs: np.ndarray) -> np.ndarray:
    return X[pairs[:, 0]] - X[pairs[:, 1]]


@pytest.fixture
def pair_set(arrays: ArrayBackend) -> tuple[PairSet, np.ndarray]:
    pairs = all_pairs(False)[::3]
    first, second = (arrays.xp.asarray(column, device=arrays.device) for column in pairs.T.copy())
    return PairSet(arrays.asarray(X), first, second, xp=arrays.xp), pairs


def test_distances_scatter_and_laplacian_equal_their_definitions(
    arrays: ArrayBackend, pair_set: tuple[PairSet, np.ndarray]
) -> None:
    pair_set_, pairs = pair_set
    z = differences(pairs)
    L = RNG.normal(size=(2, 3, 5))  # a stack of two factors
    weights = RNG.random((2, len(pairs)))
    np.testing.assert_allclose(
        to_numpy(pair_set_.distances(arrays.asarray(L))),
        np.sum((z @ L.transpose(0, 2, 1)) ** 2, axis=-1),
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        to_numpy(pair_set_.scatter(arrays.asarray(weights[0]))),
        (z.T * weights[0]) @ z,
        rtol=1e-11,
        atol=1e-11,
    )
    few = weights[0] * (np.arange(len(pairs)) % 7 == 2)
    for some in (few, 0 * few):  # some of the points have no pair of these
        np.testing.assert_allclose(
            to_numpy(pair_set_.sparse_scatter(arrays.asarray(some))), (z.T * some) @ z, rtol=1e-11, atol=1e-11
        )
    projected = X @ L.transpose(0, 2, 1)
    expected = np.zeros_like(projected)
    for stack in range(2):
        for w, (i, j) in zip(weights[stack], pairs, strict=True):
            expected[stack, i] += w * (projected[stack, i] - projected[stack, j])
            expected[stack, j] += w * (projected[stack, j] - projected[stack, i])
    got = pair_set_.laplacian(arrays.asarray(weights), arrays.asarray(projected))
    np.testing.assert_allclose(to_numpy(got), expected, rtol=1e-11, atol=1e-11)


def test_pairs_among_others_keep_only_their_own_points(
    arrays: ArrayBackend, pair_set: tuple[PairSet, np.ndarray]
) -> None:
    pair_set_, pairs = pair_set
    chosen = np.arange(len(pairs)) % 5 == 1
    some = pair_set_.among(arrays.xp.asarray(chosen, device=arrays.device), pair_set_.X)
    assert len(some) == chosen.sum()
    assert some.X.shape[0] == len(np.unique(pairs[chosen])) < X.shape[0]
    z = X[pairs[chosen, 0]] - X[pairs[chosen, 1]]
    np.testing.assert_allclose(to_numpy(some.projected_distances(some.X)), np.sum(z * z, axis=1), rtol=1e-12)


def test_products_of_chosen_pairs(arrays: ArrayBackend, pair_set: tuple[PairSet, np.ndarray]) -> None:
    pair_set_, pairs = pair_set
    V = RNG.normal(size=X.shape)
    chosen = np.array([0, 5, 7])
    z, v = differences(pairs[chosen]), V[pairs[chosen, 0]] - V[pairs[chosen, 1]]
    subset = pair_set_.subset(arrays.xp.asarray(chosen, device=arrays.device), arrays.asarray(X))
    got = subset.products(arrays.asarray(V))
    np.testing.assert_allclose(to_numpy(got), np.sum(z * v, axis=1), rtol=1e-12)


def test_diagonal_forms_and_sums(arrays: ArrayBackend, pair_set: tuple[PairSet, np.ndarray]) -> None:
    pair_set_, pairs = pair_set
    W = RNG.normal(size=(5, 3))
    got = pair_set_.diagonal_forms(arrays.asarray(X), arrays.asarray(W))
    np.testing.assert_allclose(to_numpy(got), differences(pairs) ** 2 @ W, rtol=1e-12)
    weights = RNG.normal(size=len(pairs))
    expected = np.zeros(len(X))
    for w, (i, j) in zip(weights, pairs, strict=True):
        expected[[i, j]] += w
    np.testing.assert_allclose(to_numpy(pair_set_.sums(arrays.asarray(weights))), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("oversample", [False, True])
def test_the_closed_form_is_the_mean_over_all_similar_pairs(arrays: ArrayBackend, oversample: bool) -> None:
    backend = choose_backend(arrays.asarray(X))
    got = to_numpy(within_class_scatter(arrays.asarray(X), Y, oversample=oversample, backend=backend))
    pairs = all_pairs(True)
    z = differences(pairs)
    label = Y[pairs[:, 0]]
    weight = 1 / np.bincount(label)[label] / 3 if oversample else np.full(len(pairs), 1 / len(pairs))
    np.testing.assert_allclose(got, (z.T * weight) @ z, rtol=1e-12)


def test_few_dissimilar_pairs_are_all_taken_once() -> None:
    first, second = draw_dissimilar(Y, 10_000, rng=np.random.default_rng(0))
    assert len(first) == count_dissimilar(Y) == len(all_pairs(False))
    assert {frozenset(p) for p in zip(first, second, strict=True)} == {frozenset(p) for p in all_pairs(False).tolist()}


@pytest.mark.parametrize("oversample", [False, True])
def test_dissimilar_pairs_are_drawn_as_promised(oversample: bool) -> None:
    labels = np.repeat([2, 0, 1], [60, 30, 10])
    n_pairs = 2000 if not oversample else 20_000
    first, second = draw_dissimilar(labels, n_pairs, oversample=oversample, rng=np.random.default_rng(1))
    assert len(first) == n_pairs
    a, b = labels[first], labels[second]
    assert np.all(a != b)
    share = np.array([np.mean((a + b) == total) for total in (1, 2, 3)])  # pairs of classes 01, 02, 12
    expected = np.full(3, 1 / 3) if oversample else np.array([300, 1800, 600]) / 2700
    np.testing.assert_allclose(share, expected, atol=5 * np.sqrt(0.25 / n_pairs))


def test_similar_pairs_never_pair_an_example_with_itself() -> None:
    labels = np.repeat([0, 1, 2], [50, 2, 1])
    for oversample in (False, True):
        first, second = draw_similar(labels, 5000, oversample=oversample, rng=np.random.default_rng(2))
        assert np.all(first != second)
        assert np.all(labels[first] == labels[second])
        small = np.mean(labels[first] == 1)
        assert small == pytest.approx(0.5 if oversample else 2 / (50 * 49 + 2), abs=0.04)


def test_given_pairs_are_used_exactly_as_given(arrays: ArrayBackend) -> None:
    backend = choose_backend(arrays.asarray(X))
    similar, dissimilar = all_pairs(True)[:7], all_pairs(False)[:9]
    problem = problem_from_pairs(arrays.asarray(X), similar, dissimilar, margin=2.0, backend=backend)
    z = differences(similar)
    np.testing.assert_allclose(to_numpy(problem.similar_scatter), z.T @ z / 7, rtol=1e-12)
    assert (len(problem.dissimilar), problem.n_similar, problem.margin) == (9, 7, 2.0)


@pytest.mark.parametrize(
    ("similar", "expected"),
    [
        (np.zeros((0, 2), dtype=int), "similar: expected at least one pair"),
        (np.array([[0, 30]]), "similar: expected row indices from 0 to 29, got 0 to 30"),
        (np.array([[0.5, 1.0]]), "similar: expected an integer array"),
        (np.array([0, 1]), "similar: expected an integer array of shape"),
    ],
)
def test_wrong_pairs_get_one_line(similar: np.ndarray, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        problem_from_pairs(X, similar, np.array([[0, 20]]), margin=1.0, backend=choose_backend(X, "cpu"))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [(np.zeros(30, dtype=int), "one class only"), (np.arange(30), "every class has one example")],
)
def test_labels_without_pairs_get_one_line(labels: np.ndarray, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        problem_from_labels(
            X, labels, n_pairs=10, margin=1.0, oversample=False, rng=RNG, backend=choose_backend(X, "cpu")
        )
