"""Arrays of a user's, from a file or from memory: checked, and turned into a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from sweep.datasets.base import Dataset
from sweep.errors import UserError

TRAIN_FRACTION = 0.7


def dataset_from_arrays(name: str, X: Any, y: Any, *, where: str) -> Dataset:
    """A dataset from features and labels in memory: NumPy, pandas or SciPy sparse.

    Parameters
    ----------
    name : the dataset's name.
    X : (n, D) numbers. The column names of a pandas DataFrame are kept.
    y : (n,) labels of any type.
    where : how error lines begin.
    """
    import pandas as pd

    names = None
    if isinstance(X, pd.DataFrame):
        names = tuple(str(column) for column in X.columns)
        for column, kind in X.dtypes.items():
            if not pd.api.types.is_numeric_dtype(kind):
                raise UserError(f"{where}: column {column!r} is {kind}, expected numbers; encode or drop it")
        X = X.to_numpy(dtype=np.float32 if (X.dtypes == np.float32).all() else np.float64, na_value=np.nan)
    if isinstance(y, pd.Series | pd.DataFrame | pd.Index | pd.api.extensions.ExtensionArray):
        y = y.to_numpy() if not isinstance(y, pd.DataFrame) or y.shape[1] != 1 else y.iloc[:, 0].to_numpy()
    X = X if sp.issparse(X) else np.asarray(X)
    codes, classes = encode_labels(np.asarray(y), f"{where}: labels")
    return checked_dataset(name, X, codes, classes, names, where=where)


def checked_dataset(
    name: str,
    X: Any,
    y: np.ndarray,
    classes: tuple[str, ...],
    feature_names: Sequence[Any] | None,
    *,
    where: str,
) -> Dataset:
    """A dataset of a user's own, after the checks that all of them share, with the defaults of own data."""
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise UserError(f"{where}: X must be numbers of shape (n, D), got {X.dtype} of shape {X.shape}")
    n, D = X.shape
    if n != len(y):
        raise UserError(f"{where}: X has {n:,} rows but there are {len(y):,} labels")
    if n < 2 or len(classes) < 2 or D < 1:
        raise UserError(f"{where}: {n} examples, {D} features, {len(classes)} classes; needs 2, 1 and 2 at least")
    if feature_names is not None and len(feature_names) != D:
        raise UserError(f"{where}: {len(feature_names)} feature names for {D} columns of X")
    X = X.tocsr() if sp.issparse(X) else X
    # Halves would overflow in sums; single precision is kept, it takes half the memory.
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    names = None if feature_names is None else tuple(str(feature) for feature in feature_names)
    if names and len(set(names)) < D:
        raise UserError(f"{where}: column {max(names, key=names.count)!r} occurs more than once; rename one")
    _refuse_missing_values(X, names, where)
    return Dataset(
        name=name,
        X=X,
        y=y,
        classes=classes,
        frequent_above=mean_class_size(y),
        train_size=min(max(round(TRAIN_FRACTION * n), 1), n - 1),
        feature_names=names,
        notes=_about_frequent(y),
    )


def mean_class_size(y: np.ndarray) -> int:
    """Examples per class on average, rounded down: above it, a class of own data counts as frequent.

    A fixed number would leave one side empty on most data; only classes of equal size have no side
    above their mean.
    """
    return max(1, len(y) // len(np.unique(y)))


def _about_frequent(y: np.ndarray) -> str:
    sizes = np.unique(y, return_counts=True)[1]
    if np.ptp(sizes) == 0:
        return f"frequent: no class, all have {sizes[0]:,} examples."
    return f"frequent: more than {mean_class_size(y):,} examples, the mean size of a class."


def encode_labels(values: np.ndarray, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Class codes (n,) int64 and class names, in the order of the values."""
    if values.ndim != 1:
        raise UserError(f"{where}: expected one label per example, (n,), got shape {values.shape}")
    if values.dtype.kind == "O":
        values = _plain_labels(values, where)
    if values.dtype.kind == "f" and not np.all(np.isfinite(values)):
        raise UserError(f"{where}: the label of row {int(np.argmin(np.isfinite(values)))} is missing; drop that row")
    if values.dtype.kind == "U":
        blank = np.flatnonzero(np.char.strip(values) == "")
        if blank.size:
            raise UserError(
                f"{where}: {blank.size:,} labels are blank (first in row {blank[0]}); fill them or drop those rows"
            )
    classes, y = np.unique(values, return_inverse=True)
    _refuse_measurements(values, len(classes), where)
    return y.astype(np.int64), tuple(str(value) for value in classes.tolist())


def _refuse_measurements(values: np.ndarray, n_distinct: int, where: str) -> None:
    n, kind = len(values), values.dtype.kind
    # Measurements as floats repeat now and then; whole numbers that hardly ever do are ids or measurements.
    if kind in "iuf" and n >= 20 and n_distinct > (n / 3 if kind == "f" else 0.9 * n):
        raise UserError(
            f"{where} holds {n_distinct:,} different numbers in {n:,} rows: continuous, not classes;"
            " give classes, or cut the values into ranges"
        )


def whole_columns(X: Any) -> np.ndarray:
    """Which columns (D,) hold whole numbers only."""
    if sp.issparse(X):
        broken = np.zeros(X.shape[1], dtype=bool)
        broken[X.indices[X.data % 1 != 0]] = True
        return ~broken
    return np.array([not np.any(X[:, column] % 1) for column in range(X.shape[1])], dtype=bool)


def _plain_labels(values: np.ndarray, where: str) -> np.ndarray:
    """Labels that came as Python objects, as an array of text or numbers."""
    import pandas as pd

    missing = np.asarray(pd.isna(values))
    if missing.any():
        raise UserError(f"{where}: the label of row {int(np.argmax(missing))} is missing; drop that row")
    kinds = {type(value).__name__ for value in values.tolist()}
    if len(kinds) > 1:
        raise UserError(f"{where}: labels of several types ({', '.join(sorted(kinds))}); make them all text")
    plain = np.array(values.tolist())
    return plain if plain.dtype.kind in "biufU" and plain.ndim == 1 else values.astype(str)


def _refuse_missing_values(X: Any, names: tuple[str, ...] | None, where: str) -> None:
    D = X.shape[1]
    if sp.issparse(X):
        wrong = ~np.isfinite(X.data)
        if not wrong.any():
            return
        place = int(np.argmax(wrong))
        column, row = int(X.indices[place]), int(np.searchsorted(X.indptr, place, side="right")) - 1
    else:
        # A sum is finite only if all of its terms are, and needs no array of the size of X.
        with np.errstate(over="ignore", invalid="ignore"):
            suspects = np.flatnonzero(~np.isfinite(X.sum(axis=0)))
        column = next((int(c) for c in suspects if not np.isfinite(X[:, c]).all()), D)
        if column == D:
            return
        row = int(np.argmin(np.isfinite(X[:, column])))
    shown = repr(names[column]) if names else f"{column} of X"
    raise UserError(f"{where}: column {shown} holds NaN or infinity (row {row}); fill or drop it")
