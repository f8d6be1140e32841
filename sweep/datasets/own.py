"""A user's own data: an .npz with X and y, or a .csv or .parquet table with a label column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from sweep.datasets.arrays import checked_dataset, encode_labels
from sweep.datasets.base import Dataset
from sweep.datasets.columns import LABEL_NAMES, Reading, label_column, shown
from sweep.datasets.npz import NPZ_DAMAGE, read_npz
from sweep.errors import UserError

SPARSE_PARTS = ("data", "indices", "indptr", "shape")


def load_own(path: Path, reading: Reading | None = None) -> Dataset:
    """A dataset from one file; its name is the file's.

    Parameters
    ----------
    path : .npz with `X` (n, D) and `y` (n,), or with `y` and the arrays `data`, `indices`, `indptr`,
        `shape` of a CSR matrix; .csv, .csv.gz or .parquet with numeric columns and a label column.
    """
    reading = reading or Reading()
    if not path.is_file():
        raise UserError(f"{path}: no such file; give the path of an .npz, .csv or .parquet file")
    kind = path.suffix.lower()
    if kind in (".npz", ".parquet") and (reading.sep or reading.decimal):
        raise UserError(f"{path}: 'sep' and 'decimal' are for .csv files only; remove them")
    if kind == ".npz":
        if reading.drop:
            raise UserError(f"{path}: 'drop' is for tables only; leave the columns out of X")
        return _from_npz(path, reading.label)
    from sweep.datasets.own_tables import load_table

    return load_table(path, reading)


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file; arrays of Python objects are refused, they could run code."""
    try:
        return read_npz(path)
    except UserError:
        raise
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise UserError(f"{path}: not an .npz file ({str(error)[:200]})") from error
        raise UserError(f"{path}: holds Python objects; save labels as text with y.astype(str)") from error
    except NPZ_DAMAGE as error:
        raise UserError(f"{path}: not an .npz file, or damaged ({str(error)[:200]})") from error


def _from_npz(path: Path, label: str | None) -> Dataset:
    arrays = load_arrays(path)
    sparse = set(SPARSE_PARTS) <= set(arrays)
    if sparse and label is None and not set(LABEL_NAMES) & set(arrays):
        raise UserError(
            f"{path}: a sparse matrix as scipy.sparse.save_npz writes it, without labels; save them with it:"
            f" np.savez(path, y=y, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape)"
        )
    label_name = label_column(list(arrays), label, str(path))
    if "X" in arrays:
        X: Any = arrays["X"]
    elif sparse:
        X = _sparse_matrix(arrays, path)
    else:
        raise UserError(f"{path}: no array 'X' (or {', '.join(SPARSE_PARTS)}); it has {shown(list(arrays))}")
    y, classes = encode_labels(arrays[label_name], f"{path}: {label_name}")
    names = arrays.get("feature_names")
    return checked_dataset(path.name, X, y, classes, None if names is None else names.tolist(), where=str(path))


def _sparse_matrix(arrays: dict[str, np.ndarray], path: Path) -> Any:
    kind = arrays.get("format", np.array("csr")).item()
    if kind not in ("csr", b"csr"):
        raise UserError(f"{path}: the sparse matrix is stored as {kind!r}, expected 'csr'; use X.tocsr()")
    try:
        X = sp.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"].tolist()))
        X.check_format()
    except (ValueError, TypeError) as error:
        raise UserError(f"{path}: {', '.join(SPARSE_PARTS)} are no CSR matrix ({error})") from error
    return X
