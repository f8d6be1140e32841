"""Exact factorisations of a training part: principal components, and word vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh


def principal_components(blocks: Callable[[], Iterable[Any]], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean (D,) and the k leading principal directions (D, k), largest variance first.

    Exact, by the eigenvectors of the smaller of the D x D scatter and the n x n Gram matrix. On
    4,152 x 5,000 sparse rows that costs what randomised projection costs and needs no seed. Signs
    are fixed: the entry of largest size in every direction is positive.

    Parameters
    ----------
    blocks : gives the rows anew at each call: several dense arrays, or one CSR matrix.
    """
    n: int = 0
    total: Any = 0.0
    for block in blocks():
        n, total = n + block.shape[0], total + np.asarray(block.sum(axis=0), dtype=np.float64).ravel()
    mean = np.asarray(total / n)
    D = mean.size
    X: Any = None
    if n < D:
        X = next(iter(blocks())) if sp.issparse(block) else np.concatenate(list(blocks()))
        if sp.issparse(X):
            cross = X @ mean
            gram = (X @ X.T).toarray() - cross[:, None] - cross[None, :] + mean @ mean
        else:
            gram = (X - mean) @ (X - mean).T
    else:
        gram = sum((_scatter(block, mean) for block in blocks()), start=np.zeros((D, D)))
    size = gram.shape[0]
    _, vectors = eigh(gram, subset_by_index=[size - k, size - 1], overwrite_a=True)
    vectors = vectors[:, ::-1]
    if X is not None:
        # Left singular vectors -> right ones: X_c' u / sigma.
        vectors = X.T @ vectors - np.outer(mean, vectors.sum(axis=0))
        length = np.sqrt(np.sum(vectors**2, axis=0))
        vectors /= np.where(length > 0, length, 1.0)
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[largest, np.arange(k)])
    return mean, vectors * np.where(signs == 0, 1.0, signs)


def _scatter(X: Any, mean: np.ndarray) -> np.ndarray:
    """Sum over rows of (x - mean)(x - mean)'."""
    if sp.issparse(X):
        return np.asarray((X.T @ X).toarray() - X.shape[0] * np.outer(mean, mean))
    centred = X - mean
    return np.asarray(centred.T @ centred)


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
