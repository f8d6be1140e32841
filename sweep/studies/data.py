"""From a dataset choice in a sweep file to the splits that its fits share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sweep.datasets.choice import DatasetChoice
from sweep.fits import SplitData

if TYPE_CHECKING:
    from sweep.datasets import Dataset


@dataclass(frozen=True)
class SweepData:
    """A loaded dataset with the sweep file's choices resolved against its defaults."""

    dataset: Dataset
    scaling: str
    pca: int | None
    frequent_above: int

    @property
    def name(self) -> str:
        return self.dataset.name

    @property
    def dimension(self) -> int:
        """Number of features that a fit sees."""
        features = self.dataset.n_features
        # Centred training points span one dimension less than there are of them.
        return min(features, self.pca, self.dataset.train_size - 1) if self.pca else features

    @property
    def sizes(self) -> dict[str, int]:
        """What the paper's tables of datasets list, of the data as it is fitted."""
        counts = np.bincount(self.dataset.y)
        counts = counts[counts > 0]
        frequent = counts > self.frequent_above
        n_train = self.dataset.train_size
        return {
            "n_train": n_train,
            "n_test": self.dataset.n_examples - n_train,
            "dimension": self.dimension,
            "n_classes": counts.size,
            "n_frequent_classes": int(frequent.sum()),
            "n_infrequent_classes": int((~frequent).sum()),
            "n_examples": self.dataset.n_examples,
            "n_frequent_examples": int(counts[frequent].sum()),
            "n_infrequent_examples": int(counts[~frequent].sum()),
        }

    def split(self, split: int, folds: int, seed: int) -> SplitData:
        """Training and test part of one random split, preprocessing fitted on the training part."""
        from sweep.datasets.features import split_features
        from sweep.datasets.splits import fold_of, train_test_rows

        y = self.dataset.y
        train, test = train_test_rows(self.dataset, seed=seed, split=split)
        X_train, X_test = split_features(self.dataset, train, test, scaling=self.scaling, pca=self.pca)
        return SplitData(
            X_train=X_train,
            y_train=y[train],
            X_test=X_test,
            y_test=y[test],
            fold_of=fold_of(y[train], folds, name=self.name, seed=seed, split=split),
            class_sizes=np.bincount(y),
        )


def open_data(choice: DatasetChoice, cache: Path) -> SweepData:
    """Load a dataset and resolve the choices that the sweep file leaves to it."""
    from sweep.datasets.card import load_choice

    dataset = load_choice(choice, cache)
    return SweepData(
        dataset=dataset,
        scaling=choice.scaling or dataset.scaling,
        pca=dataset.pca if choice.pca is None else choice.pca or None,
        frequent_above=choice.frequent_above or dataset.frequent_above,
    )
