"""Datasets that need no file: the handwritten digits that scikit-learn carries."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np

from sweep.datasets.base import Dataset
from sweep.datasets.catalog import DATASETS

# Class c of the long-tailed cut keeps its first max(SMALLEST, floor(LARGEST * 0.7 ** c)) examples:
# 170, 119, 83, 58, 40, 28, 20, 14, 10, 10.
LARGEST, SMALLEST = 170, 10


def load_embedded(name: str) -> Dataset:
    """`digits`: 1,797 images of 8 x 8 pixels in 10 classes of about 180.

    `digits-imbalanced`: its long-tailed cut, 552 images, four classes above 50 examples.
    """
    X, y = _digits()
    if name == "digits-imbalanced":
        kept = np.sort(np.concatenate([np.flatnonzero(y == c)[:n] for c, n in enumerate(imbalanced_sizes())]))
        X, y = X[kept], y[kept]
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.int64)
    return Dataset(name=name, X=X, y=y, classes=tuple("0123456789"), **DATASETS[name].defaults(len(y)))


def _digits() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's digits, from its file where it is at its place: the import takes ten times as long."""
    found = importlib.util.find_spec("sklearn")
    path = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz" if found and found.origin else None
    if path is None or not path.exists():
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        return X, y
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    return table[:, :-1], table[:, -1]


def imbalanced_sizes() -> list[int]:
    """Examples per class of the long-tailed cut."""
    # Integers, because 170 * 0.7 in floating point falls just below 119.
    return [max(SMALLEST, LARGEST * 7**c // 10**c) for c in range(10)]
