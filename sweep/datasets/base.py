"""A dataset as the sweep sees it: features before any fitted step, labels, and the dataset's defaults."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

# The paper's dictionary: the words of largest document frequency.
VOCABULARY = 5000

_PIECE_BYTES = 16 << 20


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples and labels, with nothing fitted yet.

    Scaling, PCA, the choice of the words and their weights depend on the training part, so
    `sweep.datasets.features` fits them there; `X` holds what comes before.

    Attributes
    ----------
    name : the name in the catalog, or the file name of a user's own data.
    X : (n, D) float64 or float32 array or CSR matrix. The last `n_words` columns are word counts.
    y : (n,) int64 class codes 0..K-1.
    classes : K class names; `classes[y[i]]` is the label of example i.
    frequent_above : a class with more examples than this, over all n, counts as frequent.
    train_size : number of training examples in each random split.
    scaling : "minmax", "l2" or "none", applied after tf-idf and before PCA.
    pca : number of dimensions after PCA, None for no PCA.
    n_words : how many columns at the end of `X` are word counts.
    vector_size : dimension of the averaged word vectors added as features, 0 for none.
    vectors : (n_words, vector_size) word vectors made elsewhere, None to fit them on the training part.
    notes : what a reader of results must know about these features.
    feature_names : D names of the columns of `X` (of word counts: the words), None where unknown.
    """

    name: str
    X: Any
    y: np.ndarray
    classes: tuple[str, ...]
    frequent_above: int
    train_size: int
    scaling: str = "minmax"
    pca: int | None = None
    n_words: int = 0
    vector_size: int = 0
    vectors: np.ndarray | None = None
    notes: str = ""
    feature_names: tuple[str, ...] | None = None

    @property
    def n_examples(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features before PCA: of all words, only the `VOCABULARY` most frequent count."""
        return int(self.X.shape[1]) - self.n_words + min(self.n_words, VOCABULARY) + self.vector_size

    @cached_property
    def fingerprint(self) -> str:
        """Hex SHA-256 over all that fits see: features, labels, classes, roles of the columns; not their names."""
        import numpy as np

        described = [list(self.X.shape), list(self.classes), self.n_words, self.vector_size]
        hasher = hashlib.sha256(json.dumps(described).encode())
        for name, array in arrays_of(self).items():
            kind = "<f8" if array.dtype.kind == "f" else "<i8"
            hasher.update(f"{name} {array.shape}".encode())
            # In pieces: as a whole, an array of another type would be there twice.
            rows = max(1, _PIECE_BYTES * len(array) // max(array.nbytes, 1))
            for start in range(0, len(array), rows):
                hasher.update(np.ascontiguousarray(array[start : start + rows], dtype=kind).data)
        return hasher.hexdigest()


def arrays_of(dataset: Dataset) -> dict[str, np.ndarray]:
    """The arrays that make up a dataset, by the names under which the cache stores them."""
    import scipy.sparse as sp

    arrays: dict[str, np.ndarray] = {"y": dataset.y}
    if sp.issparse(dataset.X):
        X = dataset.X.tocsr()
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        arrays |= {"X_data": X.data, "X_indices": X.indices, "X_indptr": X.indptr}
    else:
        arrays["X"] = dataset.X
    if dataset.vectors is not None:
        arrays["vectors"] = dataset.vectors
    return arrays


def facts_of(dataset: Dataset) -> dict[str, Any]:
    """What planning needs to know of a dataset, as JSON holds it; see `DatasetCard`."""
    import numpy as np

    return {
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        "n_examples": dataset.n_examples,
        "n_features": dataset.n_features,
        "train_size": dataset.train_size,
        "class_sizes": np.bincount(dataset.y).tolist(),
        "frequent_above": dataset.frequent_above,
        "scaling": dataset.scaling,
        "pca": dataset.pca,
        "notes": dataset.notes,
    }
