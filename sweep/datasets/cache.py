"""Prepared datasets on disk: one .npz per dataset, without pickle, checked when it is read."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from sweep.datasets.base import Dataset, arrays_of
from sweep.errors import UserError

# Raised whenever a loader gives other features for the same files: older results are then prepared anew.
VERSION = 1

# What reading a broken file may raise.
DAMAGE = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)


def cache_path(cache: Path, name: str) -> Path:
    """Where the prepared form of a dataset lies."""
    return Path(cache) / f"{name}-v{VERSION}.npz"


def write_dataset(dataset: Dataset, cache: Path, *, origin: str) -> Path:
    """Store a dataset; a reader sees the old file or the new one, never half of one.

    `origin` describes the files it was made from, so that preparing them again can stop at once.
    """
    path = cache_path(cache, dataset.name)
    meta = {
        "name": dataset.name,
        "shape": list(dataset.X.shape),
        "classes": list(dataset.classes),
        "frequent_above": dataset.frequent_above,
        "train_size": dataset.train_size,
        "scaling": dataset.scaling,
        "pca": dataset.pca,
        "n_words": dataset.n_words,
        "vector_size": dataset.vector_size,
        "notes": dataset.notes,
        "origin": origin,
        "fingerprint": dataset.fingerprint,
    }
    arrays: dict[str, Any] = {"meta": np.array(json.dumps(meta)), **arrays_of(dataset)}
    temporary = path.with_name(f".{path.stem}-{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); use another folder or make room") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return path


def read_dataset(path: Path) -> Dataset:
    """The dataset stored at `path`, its content checked against its fingerprint."""
    import scipy.sparse as sp

    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        meta = json.loads(str(arrays.pop("meta")))
        expected, shape = meta.pop("fingerprint"), tuple(meta.pop("shape"))
        meta.pop("origin")
        if "X" in arrays:
            X: Any = arrays["X"]
        else:
            X = sp.csr_matrix((arrays["X_data"], arrays["X_indices"], arrays["X_indptr"]), shape=shape)
        meta["classes"] = tuple(meta["classes"])
        dataset = Dataset(X=X, y=arrays["y"], vectors=arrays.get("vectors"), **meta)
        sound = dataset.fingerprint == expected
    except DAMAGE as error:
        raise UserError(f"{path}: damaged ({error}); delete it and prepare the dataset again") from error
    if not sound:
        raise UserError(f"{path}: the content does not match its fingerprint; delete it and prepare the dataset again")
    return dataset


def read_origin(path: Path) -> str | None:
    """What the file at `path` was made from; None if it is absent or unreadable."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return str(json.loads(str(stored["meta"]))["origin"])
    except DAMAGE:
        return None
