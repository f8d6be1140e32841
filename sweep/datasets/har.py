"""Six activities (UCI HAR): the official archive of text files, or the same features in an .npz."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

from sweep.datasets.archive import Files, base_name, read_files, zip_files
from sweep.datasets.base import Dataset
from sweep.datasets.catalog import DATASETS
from sweep.datasets.own import load_arrays
from sweep.errors import UserError

N_FEATURES = 561
ACTIVITIES = ("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING")

# The unpacked text files take 70 MB, with the raw signals 280 MB.
_MOST_BYTES = 512 << 20
_TEXTS = ("X_train.txt", "y_train.txt", "X_test.txt", "y_test.txt")


def load_act(path: Path, progress: Callable[[str], None]) -> Dataset:
    """10,299 windows of sensor signals: official training rows first, then the test rows."""
    if path.suffix == ".npz":
        X, y, notes = _from_npz(path)
    else:
        X, y, notes = _from_texts(path, progress)
    if len(X) != len(y):
        raise UserError(f"{path}: {len(X):,} rows of features but {len(y):,} labels")
    if not np.all(np.isfinite(X)):
        raise UserError(f"{path}: a feature is NaN or infinite; get the file again")
    if not np.all((y >= 1) & (y <= len(ACTIVITIES))):
        raise UserError(f"{path}: labels must be 1 to 6, got {y.min():g} to {y.max():g}")
    return Dataset(
        name="act",
        X=X,
        y=y.astype(np.int64) - 1,
        classes=ACTIVITIES,
        notes=notes,
        **DATASETS["act"].defaults(len(X)),
    )


def _from_texts(path: Path, progress: Callable[[str], None]) -> tuple[np.ndarray, np.ndarray, str]:
    found: dict[str, np.ndarray] = {}
    with tempfile.TemporaryFile() as inner:
        for name, file in _text_files(path, inner):
            found[base_name(name)] = _numbers(file, f"{path}: {name}")
            progress(f"act: {name}: {len(found[base_name(name)]):,} rows")
    missing = [name for name in _TEXTS if name not in found]
    if missing:
        raise UserError(f"{path}: no {missing[0]} in it; expected the UCI HAR Dataset archive or folder, or an .npz")
    for name, values in found.items():
        expected = N_FEATURES if name.startswith("X") else 1
        if values.shape[1] != expected:
            raise UserError(f"{path}: {name} has {values.shape[1]} columns, expected {expected}")
    X = np.concatenate([found["X_train.txt"], found["X_test.txt"]])
    y = np.concatenate([found["y_train.txt"], found["y_test.txt"]])[:, 0]
    return X, y, "official 561 features."


def _text_files(path: Path, inner: IO[bytes]) -> Files:
    """The text files, also from the archive inside the archive that UCI hands out.

    `inner` is a temporary file for that one: a zip archive cannot be read as a stream.
    """

    def wanted(name: str) -> bool:
        return base_name(name) in _TEXTS

    for name, file in read_files(path, lambda name: wanted(name) or name.endswith(".zip"), most_bytes=_MOST_BYTES):
        if name.endswith(".zip"):
            shutil.copyfileobj(file, inner)
            yield from zip_files(inner, wanted, f"{path}: {name}", most_bytes=_MOST_BYTES)
        else:
            yield name, file


def _numbers(file: IO[bytes], where: str) -> np.ndarray:
    try:
        return np.loadtxt(file, dtype=np.float64, ndmin=2, encoding="ascii")
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{where}: expected rows of numbers ({error}); get the file again") from error


def _from_npz(path: Path) -> tuple[np.ndarray, np.ndarray, str]:
    arrays = load_arrays(path)
    missing = [name for name in ("X_train", "y_train", "X_test", "y_test") if name not in arrays]
    if missing:
        raise UserError(f"{path}: no array {missing[0]!r}, it has {', '.join(arrays)}")
    try:
        X = np.concatenate([arrays["X_train"], arrays["X_test"]]).astype(np.float64)
        y = np.concatenate([arrays["y_train"], arrays["y_test"]])
        unreliable = arrays.get("unreliable_feature", np.zeros(X.shape[1], dtype=bool))
        X = X[:, ~unreliable.astype(bool)]
    except (ValueError, IndexError) as error:
        raise UserError(f"{path}: the arrays do not fit together ({error})") from error
    return X, y, f"rebuilt features: {X.shape[1]} of {len(unreliable)}, the unreliable columns dropped."
