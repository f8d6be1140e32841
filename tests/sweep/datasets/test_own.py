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
    refused(path, "no label column 'kind'. It has species, size, flag", label="kind")


def test_columns_that_are_no_features_are_dropped(tmp_path: Path) -> None:
    columns = {"": np.arange(6), "size": X[:, 0], "note": ["x"] * 6, "label": ["a", "b"] * 3}
    for suffix in (".csv", ".parquet"):
        path = write(tmp_path / f"t{suffix}", columns)
        dataset = load_dataset(path, cache=tmp_path, drop=["", "note"])
        assert (dataset.X.shape, dataset.feature_names) == ((6, 1), ("size",))
        refused(path, "column 1 has no name", drop=["note"])
        refused(path, "drop: no column 'Notes'. Did you mean 'note'", drop=["Notes"])
        refused(path, "no label column 'label'", drop=["", "note", "label"], label="label")


def test_a_mistyped_column_is_found_among_a_thousand(tmp_path: Path) -> None:
    columns = {f"feature {i}": X[:, 0] for i in range(1000)} | {"Species": ["a", "b"] * 3}
    path = write(tmp_path / "t.csv", columns)
    refused(path, "no label column 'specie'. Did you mean 'Species'", label="specie")
    refused(path, "no label column; set label to one of feature 0, .*, feature 19, ...$")


SEMICOLONS = "a;b;label\n1,5;2;x\n2,5;3;y\n1,25;4;x\n"


def test_semicolons_and_decimal_commas_are_recognised_and_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(SEMICOLONS)
    refused(path, "columns are separated by ';'; set sep: ';' and decimal: ','")
    refused(path, "column 'a' has decimal commas; set decimal: ','", sep=";")
    refused(path, "columns are separated by ';'; set sep: ';'", sep="|")
    dataset = load_dataset(path, cache=tmp_path, sep=";", decimal=",")
    np.testing.assert_array_equal(dataset.X, [[1.5, 2], [2.5, 3], [1.25, 4]])
    path.write_text(SEMICOLONS.replace(",", ".").replace(";", "\t"))
    refused(path, r"separated by '\\t'; set sep: '\\t'$")
    np.testing.assert_array_equal(load_dataset(path, cache=tmp_path, sep="\t").X, dataset.X)
    # A separator inside quotes is none.
    path.write_text('"a;b","c;d",label\n1,2,x\n3,4,y\n')
    assert load_dataset(path, cache=tmp_path).feature_names == ("a;b", "c;d")
    refused(write(tmp_path / "t.parquet", {"a": X[:, 0]}), "'sep' and 'decimal' are for .csv files only", sep=";")


def test_quoted_decimal_commas_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,label\n"1,5",x\n"2,5",y\n')
    refused(path, "column 'a' has decimal commas; set decimal: ','")
    assert load_dataset(path, cache=tmp_path, decimal=",").X[0, 0] == 1.5


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_named(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("a,label\n1,x\n2,y\n".encode(encoding))
    refused(path, "UTF-16 text")


def test_a_byte_order_mark_in_front_is_no_part_of_a_name(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("label,a\nx,1\ny,2\n".encode("utf-8-sig"))
    assert load_dataset(path, cache=tmp_path).classes == ("x", "y")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_blank_labels_are_no_class(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"t{suffix}", {"a": X[:, 0], "label": ["x", "", "y", " ", "x", "y"]})
    refused(path, "column 'label': 2 labels are blank")
    path.unlink()
    np.savez(tmp_path / "t.npz", X=X, y=["x", "", "y", " ", "x", "y"])
    refused(tmp_path / "t.npz", r"2 labels are blank \(first in row 1\)")


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_continuous_labels_are_recognised(suffix: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / f"t{suffix}"
    for values in (rng.normal(size=40), rng.integers(0, 20, size=40) / 2, rng.permutation(40)):
        if suffix == ".npz":
            np.savez(path, X=rng.normal(size=(40, 2)), y=values)
        else:
            write(path, {"a": rng.normal(size=40), "target": values})
        refused(path, "different numbers in 40 rows: continuous, not classes")
    # Pairs of images of twenty people: many classes, but classes.
    write(tmp_path / "t.csv", {"a": rng.normal(size=40), "target": np.arange(40) // 2})
    assert len(load_dataset(tmp_path / "t.csv", cache=tmp_path).classes) == 20


def test_labels_may_differ_between_the_parts_of_a_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({"x": X[:, 0], "label": ["c", "a", "b", "b", "c", "a"]})
    parquet.write_table(table, path, row_group_size=2)
    dataset = load_dataset(path, cache=tmp_path)
    assert dataset.classes == ("a", "b", "c")
    assert dataset.y.tolist() == [2, 0, 1, 1, 2, 0]


def test_categories_without_examples_are_no_classes(tmp_path: Path) -> None:
    labels = pa.DictionaryArray.from_arrays(pa.array([2, 0] * 3), pa.array(["b", "unused", "a"]))
    dataset = load_dataset(write(tmp_path / "t.parquet", {"x": X[:, 0], "label": labels}), cache=tmp_path)
    assert dataset.classes == ("a", "b")
    assert dataset.y.tolist() == [0, 1] * 3


def test_the_home_folder_may_be_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "t.csv", {"a": X[:, 0], "label": [0, 1] * 3})
    assert load_dataset("~/t.csv", cache=tmp_path).name == "t.csv"
    with pytest.raises(UserError, match="no such user"):
        load_dataset("~nobody-of-that-name/t.csv", cache=tmp_path)


def test_a_sparse_file_of_scipy_is_named(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "t.npz", sp.csr_matrix(X))
    refused(tmp_path / "t.npz", "as scipy.sparse.save_npz writes it, without labels; save them with it: np.savez")


def test_frequent_classes_are_those_above_the_mean_size(tmp_path: Path) -> None:
    y = np.repeat(["a", "b", "c"], [59, 71, 48])
    path = write(tmp_path / "t.csv", {"x": np.arange(178.0), "label": y})
    dataset = load_dataset(path, cache=tmp_path)
    assert dataset.frequent_above == 59
    assert "the mean size of a class" in dataset.notes
    even = load_dataset(write(tmp_path / "e.csv", {"x": X[:, 0], "label": ["a", "b"] * 3}), cache=tmp_path)
    assert even.notes.startswith("frequent: no class, all have 3 examples")


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


def test_single_precision_stays_single(tmp_path: Path) -> None:
    single = X.astype(np.float32) / 3
    path = write(tmp_path / "t.parquet", {"a": single[:, 0], "b": single[:, 1], "label": [0, 1] * 3})
    dataset = load_dataset(path, cache=tmp_path)
    assert dataset.X.dtype == np.float32
    np.savez(tmp_path / "t.npz", X=single.astype(np.float64), y=[0, 1] * 3)
    assert dataset.fingerprint == load_dataset(tmp_path / "t.npz", cache=tmp_path).fingerprint


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
