"""From raw features to what a fit sees; every step is fitted on the training part only.

Word counts become tf-idf over the words of largest document frequency (and averaged word
vectors where the dataset asks for them); then comes the scaling, then PCA.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh

from sweep.datasets.base import VOCABULARY, Dataset
from sweep.errors import UserError, nearest

SCALINGS = ("minmax", "l2", "none")


def split_features(
    dataset: Dataset, train: np.ndarray, test: np.ndarray, *, scaling: str, pca: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Features of the training and the test part, (n_train, d) and (n_test, d), dense float64.

    Parameters
    ----------
    scaling : "minmax" maps every feature's training range to [0, 1] (a feature that is constant
        there becomes 0), "l2" gives every example unit length, "none" changes nothing.
    pca : dimensions to keep if there are more; never more than n_train - 1, the rank of the centred
        training part. None keeps all features, uncentred.
    """
    if scaling not in SCALINGS:
        raise UserError(f"scaling: unknown choice {scaling!r}.{nearest(scaling, SCALINGS)}")
    if pca is not None and pca < 1:
        raise UserError(f"pca: expected a positive number of dimensions, got {pca}")
    X_train, X_test = dataset.X[train], dataset.X[test]
    if dataset.n_words:
        X_train, X_test = _with_word_features(dataset, X_train, X_test)
    if scaling == "l2":
        X_train, X_test = _unit_rows(X_train), _unit_rows(X_test)
    low, factor = _ranges(X_train) if scaling == "minmax" else (np.zeros(X_train.shape[1]), None)
    if factor is not None:
        X_train, X_test, low = _times(X_train, factor), _times(X_test, factor), low * factor
    if pca is None or X_train.shape[1] <= pca:
        return _dense(X_train) - low, _dense(X_test) - low
    # PCA centres, which makes the shift by the minimum immaterial: sparse rows stay sparse.
    mean, components = principal_components(X_train, min(pca, X_train.shape[0] - 1))
    return _project(X_train, mean, components), _project(X_test, mean, components)


def principal_components(X: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean (D,) and the k leading principal directions (D, k), largest variance first.

    Exact, by the eigenvectors of the smaller of the D x D scatter and the n x n Gram matrix. On
    4,152 x 5,000 sparse rows that costs what randomised projection costs and needs no seed. Signs
    are fixed: the entry of largest size in every direction is positive.
    """
    n, D = X.shape
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    if sp.issparse(X):
        if n < D:
            cross = X @ mean
            gram = (X @ X.T).toarray() - cross[:, None] - cross[None, :] + mean @ mean
        else:
            gram = (X.T @ X).toarray() - n * np.outer(mean, mean)
    else:
        centred = X - mean
        gram = centred @ centred.T if n < D else centred.T @ centred
    size = gram.shape[0]
    _, vectors = eigh(gram, subset_by_index=[size - k, size - 1], overwrite_a=True)
    vectors = vectors[:, ::-1]
    if n < D:
        # Left singular vectors -> right ones: X_c' u / sigma.
        vectors = X.T @ vectors - np.outer(mean, vectors.sum(axis=0))
        length = np.sqrt(np.sum(vectors**2, axis=0))
        vectors /= np.where(length > 0, length, 1.0)
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[largest, np.arange(k)])
    return mean, vectors * np.where(signs == 0, 1.0, signs)


def _with_word_features(dataset: Dataset, train: Any, test: Any) -> tuple[Any, Any]:
    """Replace the word counts at the end of the rows by tf-idf, and add averaged word vectors."""
    n_other = dataset.X.shape[1] - dataset.n_words
    counts, test_counts = sp.csr_matrix(train[:, n_other:]), sp.csr_matrix(test[:, n_other:])
    document_frequency = counts.getnnz(axis=0)
    # Stable, so that ties go to the earlier column on every machine.
    words = np.sort(np.argsort(-document_frequency, kind="stable")[:VOCABULARY])
    # One added to numerator and denominator, as if one more document held every word: no division
    # by zero, and a word that all documents hold keeps a weight of one.
    idf = np.log((1 + counts.shape[0]) / (1 + document_frequency[words])) + 1
    vectors = dataset.vectors
    if dataset.vector_size and vectors is None:
        vectors = np.zeros((dataset.n_words, dataset.vector_size))
        vectors[words] = word_vectors(counts[:, words], dataset.vector_size)

    def features(rows: Any, rows_counts: Any) -> Any:
        blocks = [sp.csr_matrix(rows[:, :n_other]), _unit_rows(_times(rows_counts[:, words], idf))]
        if vectors is not None:
            blocks.append(sp.csr_matrix(_average_vectors(rows_counts, vectors)))
        return sp.hstack(blocks, format="csr")

    return features(train, counts), features(test, test_counts)


def word_vectors(counts: Any, size: int) -> np.ndarray:
    """Word vectors (V, size) by factorising positive pointwise mutual information.

    That matrix, shifted, is what word2vec's skip-gram with negative sampling factorises implicitly;
    here the context of a word is the whole document. Exact and without a seed.
    """
    seen = (counts > 0).astype(np.float64)
    together = (seen.T @ seen).toarray()
    np.fill_diagonal(together, 0.0)
    total = max(together.sum(), 1.0)
    share = np.maximum(together.sum(axis=0), 1.0) / total
    with np.errstate(divide="ignore"):
        information = np.maximum(np.log(together / total / share[:, None] / share[None, :]), 0.0)
    V = information.shape[0]
    k = min(size, V)
    values, vectors = eigh(information, subset_by_index=[V - k, V - 1])
    result = np.zeros((V, size))
    result[:, :k] = vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0.0))
    return result


def _average_vectors(counts: Any, vectors: np.ndarray) -> np.ndarray:
    """Mean vector over the words of each document that have one, (n, size)."""
    known = np.any(vectors != 0, axis=1).astype(np.float64)
    return np.asarray(counts @ vectors) / np.maximum(counts @ known, 1.0)[:, None]


def _ranges(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Minimum and 1 / (maximum - minimum) per feature, the latter 0 for a constant feature."""
    if sp.issparse(X):
        low, high = (np.asarray(bound.todense(), dtype=np.float64).ravel() for bound in (X.min(axis=0), X.max(axis=0)))
    else:
        low, high = X.min(axis=0), X.max(axis=0)
    span = high - low
    return low, np.divide(1.0, span, out=np.zeros_like(span), where=span > 0)


def _times(X: Any, factor: np.ndarray) -> Any:
    return (X @ sp.diags(factor)).tocsr() if sp.issparse(X) else X * factor


def _unit_rows(X: Any) -> Any:
    squares = X.multiply(X) if sp.issparse(X) else X * X
    length = np.sqrt(np.asarray(squares.sum(axis=1), dtype=np.float64)).ravel()
    inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    return (sp.diags(inverse) @ X).tocsr() if sp.issparse(X) else X * inverse[:, None]


def _project(X: Any, mean: np.ndarray, components: np.ndarray) -> np.ndarray:
    return np.asarray(X @ components) - mean @ components


def _dense(X: Any) -> np.ndarray:
    return np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
