"""Prepared datasets on disk: one .npz per dataset, without pickle, checked when it is read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from sweep.datasets.base import Dataset, arrays_of, facts_of
from sweep.datasets.npz import NPZ_DAMAGE, read_npz
from sweep.errors import UserError

# Raised whenever a loader gives other features for the same files: older results are then prepared anew.
VERSION = 1


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
        "feature_names": dataset.feature_names,
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
    with _naming_damage(path):
        arrays = read_npz(path)
        meta = _read_meta(arrays)
        expected = meta.pop("fingerprint")
        dataset = _dataset(meta, arrays)
        sound = dataset.fingerprint == expected
    if not sound:
        raise UserError(f"{path}: the content does not match its fingerprint; delete it and prepare the dataset again")
    return dataset


def read_description(path: Path) -> dict[str, Any]:
    """What planning needs to know of the dataset stored at `path`; the features are not read."""
    with _naming_damage(path):
        stored = read_npz(path, ("meta", "y"))
        meta = _read_meta(stored)
        expected = meta.pop("fingerprint")
        rows = np.zeros(meta["shape"][0] + 1, int)
        no_features = {"X_data": np.zeros(0), "X_indices": np.zeros(0, int), "X_indptr": rows}
        return facts_of(_dataset(meta, {"y": stored["y"], **no_features})) | {"fingerprint": expected}


def _read_meta(stored: dict[str, np.ndarray]) -> dict[str, Any]:
    meta = json.loads(str(stored["meta"]))
    meta.pop("origin")
    return dict(meta)


def _dataset(meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Dataset:
    import scipy.sparse as sp

    if "X" in arrays:
        X: Any = arrays["X"]
    else:
        X = sp.csr_matrix((arrays["X_data"], arrays["X_indices"], arrays["X_indptr"]), shape=tuple(meta["shape"]))
    # Files of earlier versions hold no names.
    names = meta.get("feature_names")
    fields = {key: value for key, value in meta.items() if key not in ("shape", "classes", "feature_names")}
    return Dataset(
        X=X,
        y=arrays["y"],
        vectors=arrays.get("vectors"),
        classes=tuple(meta["classes"]),
        feature_names=None if names is None else tuple(names),
        **fields,
    )


@contextmanager
def _naming_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except NPZ_DAMAGE as error:
        raise UserError(f"{path}: damaged ({str(error)[:200]}); delete it and prepare the dataset again") from error


def read_origin(path: Path) -> str | None:
    """What the file at `path` was made from; None if it is absent, unreadable or without the features' names."""
    try:
        meta = json.loads(str(read_npz(path, ("meta",))["meta"]))
        return str(meta["origin"]) if "feature_names" in meta else None
    except NPZ_DAMAGE:
        return None
