"""What is said of a user's own file, and that the sweep file to start from works as it stands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from sweep.datasets import DatasetChoice
from sweep.datasets.card import open_cards, open_split
from sweep.datasets.describe import OwnFile, describe_own
from sweep.errors import UserError
from sweep.studies.spec import SweepSpec
from sweep.studies.sweepfile import parse_spec

RNG = np.random.default_rng(0)


def write_flowers(path: Path, sep: str = ",", decimal: str = ".") -> Path:
    """A table as people have them: a row number, texts, gaps, a constant, and the class last."""
    lines = [sep.join(["", "sepal", "petal", "colour", "weight", "site", "Species"])]
    for row in range(60):
        sepal, petal = (f"{value:.3f}".replace(".", decimal) for value in RNG.normal(size=2))
        weight = "" if row == 7 else str(row % 9)
        lines.append(sep.join([str(row), sepal, petal, f"shade {row}", weight, "1", "setosa" if row < 40 else "other"]))
    path.write_text("\n".join(lines) + "\n")
    return path


def started(description: OwnFile, folder: Path) -> SweepSpec:
    """The suggested sweep file, read as `sweep run` would, and its data opened."""
    spec = parse_spec(description.sweep_file, "start.yaml")
    choices = [choice.located(folder) for choice in spec.datasets]
    (card,) = open_cards(choices, folder / "cache").values()
    data = open_split(choices[0], folder / "cache", 0, spec.folds, 0, label=card.label)
    assert data.X_train.shape == (card.train_size, card.dimension)
    assert max(spec.grid.rank) <= card.dimension
    return spec


@pytest.mark.parametrize(("sep", "decimal"), [(",", "."), (";", ","), ("\t", "."), ("|", ",")])
def test_columns_classes_and_a_sweep_file_that_works(sep: str, decimal: str, tmp_path: Path) -> None:
    described = describe_own(write_flowers(tmp_path / "Flowers (1).csv", sep, decimal))
    assert described.n_rows == 60
    assert {c.name: (c.kind, c.role, c.note) for c in described.columns} == {
        "": ("int64", "drop", "counts the rows"),
        "sepal": ("double", "feature", ""),
        "petal": ("double", "feature", ""),
        "colour": ("string", "drop", "not numbers"),
        "weight": ("int64", "drop", "1 missing or infinite: fill to keep"),
        "site": ("int64", "feature", "constant"),
        "Species": ("string", "label", ""),
    }
    assert (described.label, described.guessed) == ("Species", True)
    assert described.classes == (("setosa", 40), ("other", 20))
    assert described.frequent_above == 30
    assert described.problems == ()
    spec = started(described, tmp_path)
    (choice,) = spec.datasets
    assert spec.name == "flowers-1"
    assert choice.drop == described.dropped == ("", "colour", "weight")
    assert (choice.sep, choice.decimal) == (sep if sep != "," else None, decimal if decimal != "." else None)


def test_a_usual_label_is_no_guess_and_another_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,class,kind\n" + "".join(f"{i / 7},{i % 2},{i % 3}\n" for i in range(30)))
    assert (describe_own(path).label, describe_own(path).guessed) == ("class", False)
    assert describe_own(path, label="kind").classes == (("0", 10), ("1", 10), ("2", 10))
    with pytest.raises(UserError, match="Did you mean 'kind'"):
        describe_own(path, label="Kinds")
    started(describe_own(path), tmp_path)


def test_quoted_decimal_commas_are_found_among_the_values(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,label\n" + "".join(f'"{i % 7},5",{i % 2}\n' for i in range(20)))
    spec = started(describe_own(path), tmp_path)
    assert (spec.datasets[0].decimal, spec.datasets[0].drop) == (",", None)


def test_arrays_are_described_too(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, X=RNG.normal(size=(30, 12)), y=np.repeat([0, 1, 2], [15, 10, 5]))
    described = describe_own(path)
    assert [(c.name, c.kind) for c in described.columns] == [("X", "float64, 30 x 12")]
    assert described.classes == (("0", 15), ("1", 10), ("2", 5))
    started(described, tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n" + "".join(f"{i / 7},{i / 3}\n" for i in range(30)), "no column looks like classes"),
        ("name,label\nx,1\ny,2\nz,1\n", "no column is left as a feature"),
        ("a,label\n1,x\n2.5,\n4,y\n", "1 labels are blank"),
        ("a,label\n1,x\n2.5,x\n4,y\n", "1 of 2 classes have one example"),
        ("a,a,label\n1,2,x\n2.5,4,x\n4,9,y\n", "column 'a' occurs more than once"),
        ("a,target\n" + "".join(f"{i % 5},{i / 3}\n" for i in range(30)), "continuous, not classes"),
    ],
)
def test_what_stands_in_the_way_is_said(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    described = describe_own(path)
    assert any(said in problem for problem in described.problems), described.problems
    assert yaml.safe_load(described.sweep_file)["name"] == "t"


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"")
    for path in (tmp_path / "t.csv", tmp_path / "absent.csv", tmp_path / "t.txt"):
        with pytest.raises(UserError) as caught:
            describe_own(path)
        assert "\n" not in str(caught.value)


def test_a_choice_knows_how_its_table_is_read(tmp_path: Path) -> None:
    path = write_flowers(tmp_path / "t.csv", ";", ",")
    choice = DatasetChoice.model_validate(
        {"name": str(path), "label": "Species", "sep": ";", "decimal": ",", "drop": ["", "colour", "weight"]}
    )
    (card,) = open_cards([choice], tmp_path).values()
    assert (card.n_features, card.class_sizes) == (3, (20, 40))
    for bad in ({"sep": ";;"}, {"decimal": "x"}, {"drop": "colour"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            DatasetChoice.model_validate({"name": str(path), **bad})
