"""From raw features to what a fit sees; every step is fitted on the training part only.

Word counts become tf-idf over the words of largest document frequency (and averaged word
vectors where the dataset asks for them); then comes the scaling, then PCA.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from sweep.datasets.base import VOCABULARY, Dataset
from sweep.datasets.components import principal_components, word_vectors
from sweep.errors import UserError, nearest

SCALINGS = ("minmax", "l2", "none")

# Rows are worked on in blocks of about this size, so that no step holds a second copy of them all.
_BLOCK_BYTES = 64 << 20


@dataclass(frozen=True, eq=False)
class Words:
    """Tf-idf as fitted on a training part.

    Attributes
    ----------
    columns : (V,) which of the word counts are in the dictionary, ascending.
    idf : (V,) their weights.
    vectors : (n_words, size) word vectors to average over a document, None for none.
    """

    columns: np.ndarray
    idf: np.ndarray
    vectors: np.ndarray | None

    def features(self, counts: Any) -> Any:
        """Counts (n, n_words) -> tf-idf rows of unit length, then the averaged vectors, as CSR."""
        counts = sp.csr_matrix(counts)
        weighted = _unit_rows(_times(counts[:, self.columns], self.idf))
        if self.vectors is None:
            return weighted
        known = np.any(self.vectors != 0, axis=1).astype(np.float64)
        average = np.asarray(counts @ self.vectors) / np.maximum(counts @ known, 1.0)[:, None]
        return sp.hstack([weighted, sp.csr_matrix(average)], format="csr")


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """All steps from a dataset's raw rows to a fit's features, as fitted on a training part.

    x -> words -> unit length if `scaling` is "l2" -> x * factor - offset -> x @ components, with what
    is None left out. The offset is the scaled minimum for "minmax", and the mean where PCA follows.

    Attributes
    ----------
    n_raw : number of raw columns, word counts included; the last `n_words` are those.
    feature_names : their names, None where unknown.
    factor, offset : (d,) with d the number of features after `words`.
    components : (d, k) directions of PCA.
    whole : which of the columns that are no word counts hold whole numbers only, None where not asked for.
    """

    n_raw: int
    n_words: int
    scaling: str
    feature_names: tuple[str, ...] | None = None
    words: Words | None = None
    factor: np.ndarray | None = None
    offset: np.ndarray | None = None
    components: np.ndarray | None = None
    whole: np.ndarray | None = None

    @property
    def n_features(self) -> int:
        """Number of features before PCA."""
        if self.words is None:
            return self.n_raw
        vector_size = 0 if self.words.vectors is None else self.words.vectors.shape[1]
        return self.n_raw - self.n_words + len(self.words.columns) + vector_size

    def transform(self, raw: Any, rows: np.ndarray | None = None) -> np.ndarray:
        """Features (n, k), dense float64, of the raw rows (n, n_raw), or of those that `rows` names."""
        rows = np.arange(raw.shape[0]) if rows is None else rows
        result = np.empty((len(rows), self.n_features if self.components is None else self.components.shape[1]))
        offset = self.offset
        if offset is not None and self.components is not None:
            offset = offset @ self.components  # subtracted at the end, so that sparse rows stay sparse
        for start, block in _blocks(raw, rows):
            scaled = self.scaled(block)
            if self.components is not None:
                scaled = scaled @ self.components
            out = result[start : start + block.shape[0]]
            out[:] = scaled.toarray() if sp.issparse(scaled) else scaled
            if offset is not None:
                out -= offset
        return result

    def scaled(self, block: Any) -> Any:
        """Raw rows after words and scaling, before the offset; sparse if the rows are."""
        block = block.astype(np.float64, copy=False)
        if self.words is not None:
            n_other = self.n_raw - self.n_words
            parts = [sp.csr_matrix(block[:, :n_other]), self.words.features(block[:, n_other:])]
            block = sp.hstack(parts, format="csr")
        if self.scaling == "l2":
            block = _unit_rows(block)
        return block if self.factor is None else _times(block, self.factor)


def fit_preprocessing(dataset: Dataset, train: np.ndarray, *, scaling: str, pca: int | None) -> Preprocessing:
    """Words, scaling and PCA, fitted on the rows `train` of a dataset.

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
    steps = Preprocessing(dataset.X.shape[1], dataset.n_words, scaling, dataset.feature_names)
    if dataset.n_words:
        steps = replace(steps, words=_fit_words(dataset, train))

    def scaled() -> Iterator[Any]:
        # Sparse rows all at once: they take little room, and PCA then needs one product of them.
        blocks = [(0, dataset.X[train])] if sp.issparse(dataset.X) else _blocks(dataset.X, train)
        return (steps.scaled(block) for _, block in blocks)

    if scaling == "minmax":
        low, factor = _ranges(scaled())
        steps = replace(steps, factor=factor, offset=low * factor)
    if pca is None or steps.n_features <= pca:
        return steps
    mean, components = principal_components(scaled, min(pca, len(train) - 1))
    # PCA centres, which makes the shift by the minimum immaterial.
    return replace(steps, offset=mean, components=components)


def split_features(
    dataset: Dataset, train: np.ndarray, test: np.ndarray, *, scaling: str, pca: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Features of the training and the test part, (n_train, d) and (n_test, d); see `fit_preprocessing`."""
    steps = fit_preprocessing(dataset, train, scaling=scaling, pca=pca)
    return steps.transform(dataset.X, train), steps.transform(dataset.X, test)


def _blocks(X: Any, rows: np.ndarray) -> Iterator[tuple[int, Any]]:
    """The rows of X in blocks, each with its place among them."""
    size = max(1, _BLOCK_BYTES // (8 * X.shape[1]))
    for start in range(0, len(rows), size):
        yield start, X[rows[start : start + size]]


def _fit_words(dataset: Dataset, train: np.ndarray) -> Words:
    counts = sp.csr_matrix(dataset.X[train][:, dataset.X.shape[1] - dataset.n_words :])
    document_frequency = counts.getnnz(axis=0)
    # Stable, so that ties go to the earlier column on every machine.
    columns = np.sort(np.argsort(-document_frequency, kind="stable")[:VOCABULARY])
    # One added to numerator and denominator, as if one more document held every word: no division
    # by zero, and a word that all documents hold keeps a weight of one.
    idf = np.log((1 + counts.shape[0]) / (1 + document_frequency[columns])) + 1
    vectors = dataset.vectors
    if dataset.vector_size and vectors is None:
        vectors = np.zeros((dataset.n_words, dataset.vector_size))
        vectors[columns] = word_vectors(counts[:, columns], dataset.vector_size)
    return Words(columns, idf, vectors)


def _ranges(blocks: Iterable[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Minimum and 1 / (maximum - minimum) per feature, the latter 0 for a constant feature."""
    lows: list[np.ndarray] = []
    highs: list[np.ndarray] = []
    for block in blocks:
        for bounds, bound in ((lows, block.min(axis=0)), (highs, block.max(axis=0))):
            bounds.append(np.asarray(bound.todense() if sp.issparse(bound) else bound, dtype=np.float64).ravel())
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    span = high - low
    return low, np.divide(1.0, span, out=np.zeros_like(span), where=span > 0)


def _times(X: Any, factor: np.ndarray) -> Any:
    return (X @ sp.diags(factor)).tocsr() if sp.issparse(X) else X * factor


def _unit_rows(X: Any) -> Any:
    squares = X.multiply(X) if sp.issparse(X) else X * X
    length = np.sqrt(np.asarray(squares.sum(axis=1), dtype=np.float64)).ravel()
    inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    return (sp.diags(inverse) @ X).tocsr() if sp.issparse(X) else X * inverse[:, None]
