"""Splits, folds and fitted features: what is fixed, and that the test part is never looked at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from sweep.datasets.base import Dataset
from sweep.datasets.components import principal_components, word_vectors
from sweep.datasets.features import SCALINGS, split_features
from sweep.datasets.splits import fold_of, train_test_rows
from sweep.errors import UserError


def make_dataset(*, n: int = 60, D: int = 8, words: int = 0, sparse: bool = False, vector_size: int = 0) -> Dataset:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, D)) * rng.uniform(0.1, 10, size=D) * (rng.random((n, D)) < 0.6)
    counts = rng.poisson(rng.uniform(0.05, 1.5, size=words), size=(n, words))
    both = np.hstack([X, counts])
    return Dataset(
        name="made",
        X=sp.csr_matrix(both) if sparse or words else both,
        y=np.arange(n) % 4,
        classes=("a", "b", "c", "d"),
        frequent_above=10,
        train_size=round(0.7 * n),
        n_words=words,
        vector_size=vector_size,
    )


ROWS = np.arange(42), np.arange(42, 60)


def test_splits_have_the_stated_size_and_cover_all_rows() -> None:
    dataset = make_dataset()
    seen = set()
    for split in range(5):
        train, test = train_test_rows(dataset, seed=0, split=split)
        assert (len(train), len(test)) == (42, 18)
        assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(60))
        seen.add(tuple(train))
    assert len(seen) == 5


def test_splits_and_folds_are_the_same_on_every_machine() -> None:
    """Fixed numbers: a change here would silently make old and new results incomparable."""
    train, _ = train_test_rows(make_dataset(), seed=0, split=0)
    folds = fold_of(np.arange(12) % 3, 3, name="made", seed=0, split=0)
    assert train[:8].tolist() == [0, 2, 4, 5, 6, 8, 9, 10]
    assert folds.tolist() == [2, 2, 2, 0, 1, 1, 1, 2, 0, 0, 0, 1]


@pytest.mark.parametrize("change", [{"seed": 1}, {"split": 1}, {"name": "other"}])
def test_folds_depend_on_seed_split_and_name(change: dict[str, object]) -> None:
    y = np.arange(200) % 7
    base = {"name": "made", "seed": 0, "split": 0}
    assert not np.array_equal(fold_of(y, 5, **base), fold_of(y, 5, **(base | change)))  # type: ignore[arg-type]


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=40),
    folds=st.integers(2, 10),
    seed=st.integers(0, 2**31),
)
def test_folds_are_balanced_however_small_the_classes(sizes: list[int], folds: int, seed: int) -> None:
    y = np.repeat(np.arange(len(sizes)), sizes)
    if folds > len(y):
        with pytest.raises(UserError, match="folds"):
            fold_of(y, folds, name="made", seed=seed, split=0)
        return
    fold = fold_of(y, folds, name="made", seed=seed, split=0)
    for member in [np.ones(len(y), dtype=bool), *(y == c for c in range(len(sizes)))]:
        counts = np.bincount(fold[member], minlength=folds)
        assert counts.max() - counts.min() <= 1


def test_a_part_without_examples_is_refused() -> None:
    with pytest.raises(UserError, match="leave one part empty"):
        train_test_rows(replace(make_dataset(), train_size=60), seed=0, split=0)


@pytest.mark.parametrize("words", [0, 30])
@pytest.mark.parametrize("pca", [None, 5])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_the_test_part_does_not_influence_the_training_part(scaling: str, pca: int | None, words: int) -> None:
    dataset = make_dataset(words=words, vector_size=4 if words else 0)
    train, test = ROWS
    changed = dataset.X.copy()
    changed[test] = changed[test] * 1000
    first, _ = split_features(dataset, train, test, scaling=scaling, pca=pca)
    second, _ = split_features(replace(dataset, X=changed), train, test, scaling=scaling, pca=pca)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("pca", [None, 5])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_sparse_and_dense_rows_give_the_same_features(scaling: str, pca: int | None) -> None:
    parts = [split_features(make_dataset(sparse=s), *ROWS, scaling=scaling, pca=pca) for s in (False, True)]
    for dense, sparse in zip(*parts, strict=True):
        assert isinstance(sparse, np.ndarray)
        np.testing.assert_allclose(sparse, dense, atol=1e-12)


def test_minmax_uses_the_training_range_and_sets_constant_features_to_zero() -> None:
    X = np.array([[0.0, 5.0, -2.0], [4.0, 5.0, 2.0], [8.0, 7.0, 0.0]])
    dataset = Dataset("made", X, np.array([0, 1, 0]), ("a", "b"), 1, 2)
    train, test = split_features(dataset, np.array([0, 1]), np.array([2]), scaling="minmax", pca=None)
    np.testing.assert_allclose(train, [[0, 0, 0], [1, 0, 1]])
    np.testing.assert_allclose(test, [[2, 0, 0.5]])


def test_l2_gives_unit_rows_and_leaves_empty_rows_empty() -> None:
    X = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]])
    dataset = Dataset("made", X, np.array([0, 1, 0]), ("a", "b"), 1, 2)
    train, test = split_features(dataset, np.array([0, 1]), np.array([2]), scaling="l2", pca=None)
    np.testing.assert_allclose(train, [[0.6, 0.8], [0, 0]])
    np.testing.assert_allclose(test, [[0, 1]])


@pytest.mark.parametrize("shape", [(40, 12), (12, 40)])
@pytest.mark.parametrize("sparse", [False, True])
def test_principal_components_agree_with_scikit_learn(shape: tuple[int, int], sparse: bool) -> None:
    from sklearn.decomposition import PCA

    rng = np.random.default_rng(0)
    X = rng.normal(size=shape) * (rng.random(shape) < 0.5) + (0 if sparse else 3)
    blocks = [sp.csr_matrix(X)] if sparse else [X[:7], X[7:]]
    mean, components = principal_components(lambda: blocks, 6)
    expected = PCA(6, svd_solver="full").fit(X)
    np.testing.assert_allclose(mean, expected.mean_, atol=1e-12)
    np.testing.assert_allclose(np.abs(components.T), np.abs(expected.components_), atol=1e-9)
    assert np.all(np.max(components, axis=0) >= -np.min(components, axis=0))


def test_pca_keeps_no_more_than_the_training_part_spans() -> None:
    train, test = split_features(make_dataset(n=10, D=30), np.arange(6), np.arange(6, 10), scaling="none", pca=20)
    assert (train.shape, test.shape) == ((6, 5), (4, 5))
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-12)


def test_pca_is_left_out_where_there_are_few_features() -> None:
    plain, _ = split_features(make_dataset(), *ROWS, scaling="minmax", pca=8)
    without, _ = split_features(make_dataset(), *ROWS, scaling="minmax", pca=None)
    np.testing.assert_array_equal(plain, without)


def test_tfidf_agrees_with_scikit_learn() -> None:
    from sklearn.feature_extraction.text import TfidfTransformer

    dataset = make_dataset(D=0, words=30)
    train, test = ROWS
    features = split_features(dataset, train, test, scaling="none", pca=None)
    expected = TfidfTransformer().fit(dataset.X[train])
    for part, rows in zip(features, ROWS, strict=True):
        np.testing.assert_allclose(part, expected.transform(dataset.X[rows]).toarray(), atol=1e-12)


def test_the_dictionary_is_chosen_on_the_training_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.datasets.features.VOCABULARY", 2)
    #                   rare in training, common in the test part: word 0
    counts = np.array([[1, 1, 0], [0, 2, 1], [0, 1, 3], [5, 0, 0], [5, 0, 0], [5, 0, 0], [5, 0, 0]])
    dataset = Dataset("made", sp.csr_matrix(counts, dtype=float), np.arange(7) % 2, ("a", "b"), 1, 3, n_words=3)
    train, test = split_features(dataset, np.arange(3), np.arange(3, 7), scaling="none", pca=None)
    assert train.shape == (3, 2)
    assert np.all(train.sum(axis=0) > 0)
    assert not test.any()


def test_given_word_vectors_are_averaged_over_the_words_that_have_one() -> None:
    counts = sp.csr_matrix(np.array([[2.0, 1.0, 7.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]))
    vectors = np.array([[1.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    dataset = Dataset("made", counts, np.array([0, 1, 0]), ("a", "b"), 1, 2, n_words=3, vector_size=2, vectors=vectors)
    train, test = split_features(dataset, np.array([0, 1]), np.array([2]), scaling="none", pca=None)
    np.testing.assert_allclose(train[:, -2:], [[2 / 3, 1.0], [0, 0]])
    np.testing.assert_allclose(test[:, -2:], [[0.5, 1.5]])
    assert dataset.n_features == train.shape[1]


def test_words_of_the_same_documents_get_similar_vectors() -> None:
    rng = np.random.default_rng(0)
    topic = rng.integers(0, 2, size=400)
    chance = np.where(np.arange(20)[None, :] // 10 == topic[:, None], 0.4, 0.02)
    vectors = word_vectors(sp.csr_matrix((rng.random((400, 20)) < chance).astype(float)), 4)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    similarity = unit @ unit.T
    same = np.arange(20)[:, None] // 10 == np.arange(20)[None, :] // 10
    assert similarity[same].mean() > similarity[~same].mean() + 0.3


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(UserError, match="Did you mean 'minmax'"):
        split_features(make_dataset(), *ROWS, scaling="minmx", pca=None)
    with pytest.raises(UserError, match="pca"):
        split_features(make_dataset(), *ROWS, scaling="none", pca=0)
