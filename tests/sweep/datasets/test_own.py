"""A user's own file: what is accepted, and one clear line for what is not."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from pyarrow import csv, parquet

from sweep.datasets import load_dataset
from sweep.errors import UserError

X = np.arange(12.0).reshape(6, 2)


def write(path: Path, columns: dict[str, Any]) -> Path:
    table = pa.table(columns)
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path)
    return path


def refused(path: Path, said: str, **options: Any) -> None:
    with pytest.raises(UserError, match=said) as caught:
        load_dataset(path, cache=path.parent, **options)
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)


LABELS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "int": (np.array([10, 9, 10, 9, 2, 2]), ("2", "9", "10")),
    "text": (np.array(["b", "a", "b", "ü", "ü", "a"]), ("a", "b", "ü")),
    "bool": (np.array([True, False] * 3), ("False", "True")),
    "float": (np.array([0.5, 1.5] * 3), ("0.5", "1.5")),
}


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_type(kind: str, suffix: str, tmp_path: Path) -> None:
    labels, classes = LABELS[kind]
    path = tmp_path / f"mine{suffix}"
    if suffix == ".npz":
        np.savez(path, X=X, y=labels)
    else:
        write(path, {"first": X[:, 0], "second": X[:, 1], "label": labels})
    dataset = load_dataset(str(path), cache=tmp_path)
    assert dataset.name == f"mine{suffix}"
    assert dataset.classes == classes
    np.testing.assert_array_equal(dataset.X, X)
    np.testing.assert_array_equal(dataset.y, np.unique(labels, return_inverse=True)[1])


def test_dates_and_categories_as_labels(tmp_path: Path) -> None:
    days = [datetime.date(2020, 1, 1 + i % 2) for i in range(6)]
    path = write(tmp_path / "days.parquet", {"a": X[:, 0], "label": days})
    assert load_dataset(path, cache=tmp_path).classes == ("2020-01-01", "2020-01-02")
    categories = pa.array(["x", "y"] * 3).dictionary_encode()
    path = write(tmp_path / "categories.parquet", {"a": X[:, 0], "label": categories})
    assert load_dataset(path, cache=tmp_path).classes == ("x", "y")


def test_a_sparse_npz_stays_sparse(tmp_path: Path) -> None:
    matrix = sp.csr_matrix(X)
    path = tmp_path / "sparse.npz"
    np.savez(path, data=matrix.data, indices=matrix.indices, indptr=matrix.indptr, shape=matrix.shape, y=[0, 1] * 3)
    dataset = load_dataset(path, cache=tmp_path)
    assert sp.issparse(dataset.X)
    np.testing.assert_array_equal(dataset.X.toarray(), X)
    np.savez(
        path,
        data=matrix.data,
        indices=matrix.indices + 7,
        indptr=matrix.indptr,
        shape=matrix.shape,
        y=[0, 1] * 3,
    )
    refused(path, "no CSR matrix")
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
    np.savez(path, format=np.array("csc".encode("ascii")), y=[0, 1] * 3, **parts)  # as scipy.sparse.save_npz
    refused(path, "stored as b'csc', expected 'csr'")


def test_the_label_column_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", {"species": ["a", "b"] * 3, "size": X[:, 0], "flag": [True, False] * 3})
    dataset = load_dataset(path, cache=tmp_path, label="species")
    np.testing.assert_array_equal(dataset.X, np.column_stack([X[:, 0], [1, 0] * 3]))
    refused(path, "no label column; set label to one of species, size, flag")
    refused(path, "no label column 'kind'; it has species, size, flag", label="kind")


def test_two_usual_label_names_are_ambiguous(tmp_path: Path) -> None:
    refused(write(tmp_path / "t.csv", {"a": X[:, 0], "y": X[:, 0], "class": [0, 1] * 3}), "both 'y' and 'class'")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_are_refused_with_the_column(bad: float, tmp_path: Path) -> None:
    values = X[:, 1].copy()
    values[2] = bad
    for suffix in (".csv", ".parquet"):
        path = write(tmp_path / f"t{suffix}", {"fine": X[:, 0], "weight": values, "label": [0, 1] * 3})
        refused(path, r"column 'weight' holds NaN or infinity \(row 2\)")
    broken = X.copy()
    broken[2, 1] = bad
    np.savez(tmp_path / "t.npz", X=broken, y=[0, 1] * 3, feature_names=["fine", "weight"])
    refused(tmp_path / "t.npz", "column 'weight'")
    matrix = sp.csr_matrix(broken)
    np.savez(
        tmp_path / "s.npz",
        data=matrix.data,
        indices=matrix.indices,
        indptr=matrix.indptr,
        shape=matrix.shape,
        y=[0, 1] * 3,
    )
    refused(tmp_path / "s.npz", "column 1 of X")


def test_empty_cells_are_refused_with_the_column(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,label\n1,2,x\n3,,y\n")
    refused(path, r"column 'b' holds NaN or infinity \(row 1\)")
    path.write_text("a,b,label\n1,2,\n3,4,1\n")
    refused(path, "column 'label': 1 labels are missing")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,word,label\n1,red,x\n2,blue,y\n", "column 'word' is string, expected numbers"),
        (",a,label\n0,1,x\n1,2,y\n", "column 1 has no name"),
        ("a,a,label\n1,2,x\n3,4,y\n", "column 'a' occurs more than once"),
        ("a,label\n1,x\n2,x\n", "2 examples, 1 features, 1 classes"),
        ("label\nx\ny\n", "2 examples, 0 features, 2 classes"),
        ("a,label\n1,x\n2,y,z\n", "not a readable csv"),
        ("", "not a readable csv"),
    ],
)
def test_broken_tables_are_one_clear_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    refused(path, said)


def test_a_table_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("a,größe,label\n1,2,x\n2,3,y\n".encode("latin-1"))
    refused(path, "a column's name is not UTF-8")
    path.write_bytes("a,label\n1,grün\n2,blau\n".encode("latin-1"))
    refused(path, "column 'label' is not UTF-8")


def test_the_row_index_of_pandas_is_no_feature(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", {"a": X[:, 0], "label": [0, 1] * 3, "__index_level_0__": np.arange(6)})
    assert load_dataset(path, cache=tmp_path).X.shape == (6, 1)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"X": X}, "no label column; set label to one of X"),
        ({"features": X, "y": [0, 1] * 3}, "no array 'X'"),
        ({"X": X, "y": [0, 1]}, "X has 6 rows but there are 2 labels"),
        ({"X": X, "y": np.eye(6)}, "expected one label per example"),
        ({"X": X[:, 0], "y": [0, 1] * 3}, "must be numbers of shape"),
        ({"X": X.astype(str), "y": [0, 1] * 3}, "must be numbers of shape"),
        ({"X": X, "y": np.array([0, 1, np.nan] * 2)}, "label of row 2 is missing"),
        ({"X": X, "y": np.array(["a", None] * 3, dtype=object)}, "holds Python objects"),
    ],
)
def test_broken_arrays_are_one_clear_line(arrays: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, **arrays)
    refused(path, said)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_truncated_files_are_one_clear_line(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"t{suffix}"
    if suffix == ".npz":
        np.savez(path, X=X, y=[0, 1] * 3)
    else:
        write(path, {"a": X[:, 0], "label": [0, 1] * 3})
    content = path.read_bytes()
    for keep in (0, 5, len(content) // 2, len(content) - 3):
        path.write_bytes(content[:keep])
        refused(path, "not a")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    refused(tmp_path / "absent.csv", "no such file")
