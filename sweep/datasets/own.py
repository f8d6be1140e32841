"""A user's own data: an .npz with X and y, or a .csv or .parquet table with a label column."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from sweep.datasets.arrays import checked_dataset, encode_labels
from sweep.datasets.base import Dataset
from sweep.errors import UserError

LABEL_NAMES = ("label", "y", "class", "target")

# Features, class codes, class names, feature names.
Content = tuple[Any, np.ndarray, tuple[str, ...], list[Any] | None]


def load_own(path: Path, *, label: str | None = None) -> Dataset:
    """A dataset from one file; its name is the file's.

    Parameters
    ----------
    path : .npz with `X` (n, D) and `y` (n,), or with `y` and the arrays `data`, `indices`, `indptr`,
        `shape` of a CSR matrix; .csv, .csv.gz or .parquet with numeric columns and a label column.
    label : name of the label column (or of the label array); by default the one of `LABEL_NAMES`
        that is there.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; give the path of an .npz, .csv or .parquet file")
    X, y, classes, names = _from_npz(path, label) if path.suffix == ".npz" else _from_table(path, label)
    return checked_dataset(path.name, X, y, classes, names, where=str(path))


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file; arrays of Python objects are refused, they could run code."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise UserError(f"{path}: not an .npz file ({error})") from error
        raise UserError(f"{path}: holds Python objects; save labels as text with y.astype(str)") from error
    except (OSError, EOFError, KeyError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path}: not an .npz file, or damaged ({error})") from error


def _from_npz(path: Path, label: str | None) -> Content:
    arrays = load_arrays(path)
    label_name = _label_name(list(arrays), label, path)
    if "X" in arrays:
        X: Any = arrays["X"]
    elif {"data", "indices", "indptr", "shape"} <= set(arrays):
        if arrays.get("format", np.array("csr")).item() not in ("csr", b"csr"):
            raise UserError(f"{path}: the sparse matrix is stored as {arrays['format'].item()!r}, expected 'csr'")
        try:
            X = sp.csr_matrix(
                (arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"].tolist())
            )
            X.check_format()
        except (ValueError, TypeError) as error:
            raise UserError(f"{path}: data, indices, indptr and shape are no CSR matrix ({error})") from error
    else:
        raise UserError(f"{path}: no array 'X' (or data, indices, indptr, shape); it has {', '.join(arrays)}")
    y, classes = encode_labels(arrays[label_name], f"{path}: {label_name}")
    names = arrays.get("feature_names")
    return X, y, classes, None if names is None else names.tolist()


def _from_table(path: Path, label: str | None) -> Content:
    import pyarrow as pa

    table = _read_table(path)
    names = [name for name in table.column_names if not name.startswith("__index_level_")]
    if "" in names:
        raise UserError(f"{path}: column {names.index('') + 1} has no name; is it a row number? Name it or drop it")
    if len(set(names)) < len(names):
        raise UserError(f"{path}: column {max(names, key=names.count)!r} occurs more than once; rename one")
    label_name = _label_name(names, label, path)
    features = [name for name in names if name != label_name]
    X = np.empty((table.num_rows, len(features)))
    for place, name in enumerate(features):
        kind = table.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise UserError(
                f"{path}: column {name!r} is {kind}, expected numbers; encode or drop it (labels: set label)"
            )
        # Through integers: Arrow does not turn true and false into floats.
        values = table[name].cast(pa.int8()) if pa.types.is_boolean(kind) else table[name]
        X[:, place] = values.cast(pa.float64(), safe=False).to_numpy()
    labels = table[label_name]
    if labels.null_count:
        raise UserError(f"{path}: column {label_name!r}: {labels.null_count} labels are missing; drop those rows")
    y, classes = encode_labels(np.array(labels.to_pylist()), f"{path}: {label_name}")
    return X, y, classes, features


def _read_table(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        table = parquet.read_table(path) if path.suffix == ".parquet" else csv.read_csv(path)
        # Arrow reads text that is not UTF-8 as bytes, and names of columns not at all until asked.
        kinds = zip(table.column_names, table.schema.types, strict=True)
        unreadable = [name for name, kind in kinds if pa.types.is_binary(kind)]
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: a column's name is not UTF-8; save the table as UTF-8") from error
    except (pa.ArrowException, OSError) as error:
        text = str(error).split("\n", 1)[0]
        raise UserError(f"{path}: not a readable {path.suffix[1:]} table ({text})") from error
    if unreadable:
        raise UserError(f"{path}: column {unreadable[0]!r} is not UTF-8; save the table as UTF-8")
    return table


def _label_name(names: list[str], label: str | None, path: Path) -> str:
    """The label column that was asked for, or the only one with a usual name."""
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    if label is not None:
        if label not in names:
            raise UserError(f"{path}: no label column {label!r}; it has {shown}")
        return label
    usual = [name for name in LABEL_NAMES if name in names]
    if len(usual) != 1:
        what = f"both {usual[0]!r} and {usual[1]!r} could be the label" if usual else "no label column"
        raise UserError(f"{path}: {what}; set label to one of {shown}")
    return usual[0]
