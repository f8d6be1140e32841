"""A sweep file is understood, or answered with one line that says what is wrong where."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from solvers.methods import METHODS
from sweep.errors import UserError
from sweep.studies.spec import load_spec, parse_spec, preset_names
from tests.sweep.conftest import tiny


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads(name: str) -> None:
    spec = load_spec(name)
    assert spec.name
    assert set(spec.methods) <= set(METHODS)


def test_quickstart_has_the_papers_grid_shape() -> None:
    spec = load_spec("quickstart")
    assert (len(spec.grid.gamma), len(spec.grid.rank), spec.folds, spec.restarts) == (4, 6, 3, 5)


def test_globs_name_methods_in_table_order() -> None:
    spec = parse_spec(yaml.safe_dump(tiny(methods=["pdml-*", "mdml-c*"])), "x.yaml")
    assert spec.methods[-3:] == ["mdml-csfn", "mdml-cvnd", "mdml-cldd"]
    assert all(m.startswith("pdml-") for m in spec.methods[:-3])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"methods": ["mdml-csfn", "mdml-cvdn"]},
            "methods[1]: unknown method 'mdml-cvdn'. Did you mean 'mdml-cvnd'?",
        ),
        ({"fold": 3}, "fold: unknown key. Did you mean 'folds'?"),
        ({"grid": {"gama": [1]}}, "grid.gama: unknown key. Did you mean 'gamma'?"),
        ({"grid": {"gamma": [0.1, -1]}}, "grid.gamma[1]: expected greater than 0, got -1"),
        ({"grid": {"gamma": []}}, "grid.gamma: expected at least one value, got an empty list"),
        ({"grid": {"rank": [0]}}, "grid.rank[0]: expected greater than or equal to 1, got 0"),
        ({"folds": 1}, "folds: expected greater than or equal to 2, got 1"),
        ({"folds": "many"}, "folds: expected a valid integer"),
        ({"mode": "fast"}, "mode: expected 'production' or 'benchmark', got 'fast'"),
        ({"name": "../../etc/passwd"}, "name: expected text to match pattern"),
        (
            {"search": {"optuna": {"sampler": "cma"}}},
            "search.optuna.sampler: expected 'tpe' or 'gp', got 'cma'",
        ),
        ({"mode": "benchmark", "resources": {"gpus_per_fit": 0.5}}, "a benchmark runs one fit per GPU"),
        ({"settings": {"tol": 0}}, "settings.tol: expected greater than 0, got 0"),
    ],
)
def test_a_mistake_gets_one_line_with_its_place(changes: dict[str, object], expected: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_spec(yaml.safe_dump(tiny(**changes), sort_keys=False), "my.yaml")
    message = str(caught.value)
    assert message.startswith("my.yaml")
    assert expected in message
    assert "\n" not in message


def test_the_line_number_points_at_the_mistake() -> None:
    text = "name: a\ndatasets: [digits]\nmethods:\n  - mdml-csfn\n  - nonsense\n"
    with pytest.raises(UserError, match=r"^my.yaml:5: methods\[1\]"):
        parse_spec(text, "my.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: [unclosed", "not valid YAML"),
        ("- a\n- b\n", "expected a mapping"),
        ("", "expected a mapping"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("name: a\ndatasets: [digits]\n", "methods: this key is required"),
    ],
)
def test_a_broken_file_gets_one_line(text: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        parse_spec(text, "my.yaml")


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(UserError, match="Did you mean 'quickstart'"):
        load_spec("quikstart")


def test_dataset_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(tiny(datasets=["mine.csv", "digits"])))
    names = [choice.name for choice in load_spec(str(path)).datasets]
    assert names == [str(tmp_path / "mine.csv"), "digits"]
