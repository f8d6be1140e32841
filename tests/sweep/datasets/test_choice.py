"""Which datasets a sweep names: labels, data in memory, datasets of installed packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from sweep.datasets import DatasetChoice, labels, load_dataset, memory_choice
from sweep.errors import UserError
from sweep.seeds import source_of

X = np.arange(24.0).reshape(8, 3)
Y = np.array(["a", "b"] * 4)


def choices(*values: Any) -> list[DatasetChoice]:
    return [DatasetChoice.model_validate(value) for value in values]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (["digits", "/d/wine.csv"], ["digits", "wine.csv"]),
        (["/d/a/wine.csv", "/d/b/wine.csv", "/d/other.csv"], ["a/wine.csv", "b/wine.csv", "other.csv"]),
        (["/d/a/x/wine.csv", "/d/b/x/wine.csv"], ["a/x/wine.csv", "b/x/wine.csv"]),
        (["/wine.csv", "/d/wine.csv"], ["/wine.csv", "d/wine.csv"]),
        (["digits", {"name": "digits", "scaling": "l2"}], ["digits", "digits[scaling=l2]"]),
        ([{"name": "digits", "scaling": "l2"}], ["digits"]),
        (
            [{"name": "digits", "pca": 0}, {"name": "digits", "scaling": "l2", "frequent_above": 9}],
            ["digits[pca=0]", "digits[frequent_above=9,scaling=l2]"],
        ),
        (
            ["/a/w.csv", {"name": "/a/w.csv", "label": "x[y]"}, "/b/w.csv"],
            ["a/w.csv", "a/w.csv[label=x[y]]", "b/w.csv"],
        ),
    ],
)
def test_each_choice_of_a_sweep_has_a_label_of_its_own(named: list[Any], expected: list[str]) -> None:
    assert labels(choices(*named)) == expected


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "a/b", "b/a"]), st.sampled_from(["x.csv", "y.csv"]), st.integers(0, 2)),
        unique=True,
        max_size=10,
    )
)
def test_labels_are_unique_and_keep_the_source(entries: list[tuple[str, str, int]]) -> None:
    named = [{"name": f"/{folder}/{file}", **({"pca": pca} if pca else {})} for folder, file, pca in entries]
    found = labels(choices(*named))
    assert len(set(found)) == len(found)
    sources = {(folder, file): source_of(label) for (folder, file, _), label in zip(entries, found, strict=True)}
    assert len(set(sources.values())) == len(sources)
    for (folder, file, _), label in zip(entries, found, strict=True):
        assert source_of(label) == sources[folder, file]
        assert f"/{folder}/{file}".endswith(source_of(label))


def test_equal_choices_are_refused_however_the_path_is_written() -> None:
    with pytest.raises(UserError, match=r"datasets\[1\]: digits with the same options is datasets\[0\] already"):
        labels(choices("digits", "digits"))
    with pytest.raises(UserError, match="already"):
        labels(choices("/d/a/wine.csv", "/d/b/../a/wine.csv"))


@pytest.mark.parametrize(
    ("label", "source"),
    [
        ("digits", "digits"),
        ("digits[scaling=l2]", "digits"),
        ("a/data[1].csv", "a/data[1].csv"),
        ("data[1].csv[label=x[y=z]]", "data[1].csv"),
    ],
)
def test_seeds_come_from_the_label_without_its_options(label: str, source: str) -> None:
    assert source_of(label) == source


def test_paths_are_relative_to_the_sweep_file_and_know_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    written = choices("a/w.csv", "~/w.csv", "/w.csv", "digits")
    found = [choice.located(Path("/sweeps")).name for choice in written]
    assert found == ["/sweeps/a/w.csv", "/home/me/w.csv", "/w.csv", "digits"]


@pytest.mark.parametrize(
    "features",
    [X, X.astype(np.float32), X.astype(int), X.tolist(), sp.csr_array(X), sp.coo_matrix(X), pd.DataFrame(X)],
    ids=["float64", "float32", "int", "list", "csr", "coo", "pandas"],
)
@pytest.mark.parametrize(
    "given",
    [Y, Y.tolist(), Y.astype(object), pd.Series(Y, dtype="category"), pd.Series(Y, dtype="string")],
    ids=["array", "list", "object", "category", "string"],
)
def test_data_in_memory_come_in_many_forms(features: Any, given: Any) -> None:
    dataset = memory_choice("mine", features, given).in_memory
    assert dataset is not None
    plain = memory_choice("mine", X, Y).in_memory
    assert plain is not None
    assert dataset.classes == ("a", "b")
    assert sp.issparse(dataset.X) == sp.issparse(features)
    if not sp.issparse(features):
        assert dataset.fingerprint == plain.fingerprint


def test_names_of_columns_are_kept_and_data_are_not_copied() -> None:
    named = memory_choice("mine", pd.DataFrame(X, columns=["one", "two", "three"]), Y).in_memory
    plain = memory_choice("mine", X, Y).in_memory
    assert named is not None
    assert plain is not None
    assert named.feature_names == ("one", "two", "three")
    assert plain.feature_names is None
    assert plain.X is X


@pytest.mark.parametrize(
    ("features", "given", "said"),
    [
        (X[:, 0], Y, "must be numbers of shape"),
        (X.astype(str), Y, "must be numbers of shape"),
        (X, Y[:5], "X has 8 rows but there are 5 labels"),
        (X, ["a"] * 8, "1 classes"),
        (X, ["a", " "] * 4, "4 labels are blank .first in row 1."),
        (X, ["a", None] * 4, "label of row 1 is missing"),
        (X, ["a", 1] * 4, "mine.*labels of several types|1"),
        (X, pd.Series([1, None] * 4, dtype="Int64"), "label of row 1 is missing"),
        (np.where(X == 7, np.nan, X), Y, r"column 1 of X holds NaN or infinity \(row 2\)"),
        (sp.csr_matrix(np.where(X == 7, np.inf, X)), Y, r"column 1 of X holds NaN or infinity \(row 2\)"),
        (pd.DataFrame({"f": X[:, 0], "g": Y}), Y, "column 'g' is"),
    ],
)
def test_data_in_memory_are_checked_like_a_file(features: Any, given: Any, said: str) -> None:
    given = np.array(given, dtype=object) if isinstance(given, list) else given
    with pytest.raises(UserError, match=said) as caught:
        memory_choice("mine", features, given)
    assert str(caught.value).startswith("datasets['mine']")


@pytest.mark.parametrize("name", ["digits", "mine.csv", "a/b", "a[b=1]", "", "x" * 65, "a\nb"])
def test_a_name_in_memory_cannot_be_taken_for_something_else(name: str) -> None:
    with pytest.raises(UserError, match="cannot name data in memory"):
        memory_choice(name, X, Y)


def test_the_data_of_a_choice_are_in_no_dump_and_cannot_come_from_a_file() -> None:
    choice = memory_choice("mine", X, Y, scaling="l2")
    assert choice.model_dump(mode="json", exclude_none=True) == {"name": "mine", "scaling": "l2"}
    with pytest.raises(ValueError, match="_memory"):
        DatasetChoice.model_validate({"name": "mine", "_memory": 1})
    assert choice.model_copy(update={"pca": 2}).in_memory is choice.in_memory


PACKAGE = """
import numpy as np
def pair():
    return np.arange(24.0).reshape(8, 3), ["a", "b"] * 4
def whole():
    from sweep.datasets import load_dataset
    return load_dataset("digits", cache="unused")
def broken():
    raise OSError("the server is down")
def none():
    return 3
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "labdata.py").write_text(PACKAGE)
    info = tmp_path / "labdata-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: labdata\nVersion: 1\n")
    names = ("pair", "whole", "broken", "none")
    lines = "\n".join(f"lab-{name} = labdata:{name}" for name in names)
    (info / "entry_points.txt").write_text(f"[orthosweep.datasets]\n{lines}\nlab-gone = labgone:f\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("package")
def test_an_installed_package_brings_datasets(tmp_path: Path) -> None:
    pair = load_dataset("lab-pair", cache=tmp_path)
    assert (pair.name, pair.classes, pair.X.shape) == ("lab-pair", ("a", "b"), (8, 3))
    whole = load_dataset("lab-whole", cache=tmp_path)
    assert (whole.name, whole.n_examples) == ("lab-whole", 1797)
    for name, said in {
        "lab-broken": "the server is down",
        "lab-none": "expected .X, y. or a Dataset, got int",
        "lab-gone": "No module named 'labgone'",
        "lab-pairs": "Did you mean 'lab-pair'",
    }.items():
        with pytest.raises(UserError, match=said):
            load_dataset(name, cache=tmp_path)
