"""Random training and test parts, and stratified folds: functions of names and seeds only.

No method appears among the coordinates, so every method sees the same examples in the same folds.
"""

from __future__ import annotations

import numpy as np

from sweep.datasets.base import Dataset
from sweep.errors import UserError
from sweep.seeds import derive_seed


def train_test_rows(dataset: Dataset, *, seed: int, split: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the training and of the test part of one random split, each ascending.

    The draw is uniform, as in the paper: it ignores classes, and a standard split where there is one.
    """
    n, n_train = dataset.n_examples, dataset.train_size
    if not 0 < n_train < n:
        raise UserError(
            f"{dataset.name}: {n_train} of {n} examples for training leave one part empty; use more examples"
        )
    order = np.random.default_rng(derive_seed(seed, dataset.name, split, "split")).permutation(n)
    return np.sort(order[:n_train]), np.sort(order[n_train:])


def fold_of(y: np.ndarray, folds: int, *, name: str, seed: int, split: int) -> np.ndarray:
    """Fold 0..folds-1 of each training example, (n_train,) int64.

    Examples are shuffled within their class, classes laid end to end in random order, and folds
    dealt round the whole row: folds differ by at most one example in all and by at most one in
    every class, and a class with fewer members than folds simply misses some folds.
    """
    n = len(y)
    if not 2 <= folds <= n:
        raise UserError(f"{name}: folds must be between 2 and the {n} training examples, got {folds}")
    rng = np.random.default_rng(derive_seed(seed, name, split, "folds"))
    shuffled = rng.permutation(n)
    class_order = rng.permutation(int(y.max()) + 1)
    dealt = shuffled[np.argsort(class_order[y[shuffled]], kind="stable")]
    fold = np.empty(n, dtype=np.int64)
    fold[dealt] = np.arange(n) % folds
    return fold
