"""A sweep file is understood, or answered with one line that says what is wrong where."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweep.errors import UserError
from sweep.studies.spec import SweepSpec
from sweep.studies.sweepfile import load_spec, parse_spec, preset_names, validated
from tests.sweep.conftest import tiny


def parse(**changes: Any) -> SweepSpec:
    return parse_spec(yaml.safe_dump(tiny(**changes), sort_keys=False), "my.yaml")


def complaint(text: str) -> str:
    with pytest.raises(UserError) as caught:
        parse_spec(text, "my.yaml")
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    assert message.count("my.yaml") == 1
    return message


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_and_survives_its_own_dump(name: str) -> None:
    spec = load_spec(name)
    assert spec.methods
    assert SweepSpec.model_validate(spec.model_dump(mode="json")) == spec
    assert yaml.safe_load(yaml.safe_dump(spec.model_dump(mode="json"))) == spec.model_dump(mode="json")


def test_quickstart_has_the_papers_grid_shape() -> None:
    spec = load_spec("quickstart")
    assert isinstance(spec.grid.gamma, list)
    assert isinstance(spec.grid.rank, list)
    assert (len(spec.grid.gamma), len(spec.grid.rank), spec.folds, spec.restarts) == (4, 6, 3, 5)


def test_lists_of_values_are_sorted_and_each_stands_once() -> None:
    spec = parse(grid={"gamma": [1, 0.1, 1.0], "rank": [8, 4, 8]})
    assert (spec.grid.gamma, spec.grid.rank) == ([0.1, 1.0], [4, 8])
    entry = parse(methods=[{"name": "lmnn", "tune": {"n_neighbors": [3, 1, 3]}}]).methods[0]
    assert entry.tune == {"n_neighbors": [3, 1]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Names, with what was probably meant.
        (
            {"methods": ["mdml-csfn", "mdml-cvdn"]},
            "my.yaml:6: methods[1]: unknown method 'mdml-cvdn'. Did you mean 'mdml-cvnd'?",
        ),
        ({"methods": ["nothing-*"]}, "methods[0]: unknown method 'nothing-*'. Valid: euc,"),
        ({"score": "auc_al"}, "score: unknown score 'auc_al'. Did you mean 'auc_all'?"),
        # Unknown keys at every level.
        ({"fold": 3}, "fold: unknown key. Did you mean 'folds'?"),
        ({"grid": {"gama": [1]}}, "grid.gama: unknown key. Did you mean 'gamma'?"),
        ({"grid": {"gamma": {"low": 0.1, "hihg": 1}}}, ":10: grid.gamma.hihg: unknown key. Did you mean 'high'?"),
        ({"settings": {"npairs": 1}}, "settings.npairs: unknown key. Did you mean 'n_pairs'?"),
        ({"budget": {"gpu_hour": 1}}, "budget.gpu_hour: unknown key. Did you mean 'gpu_hours'?"),
        ({"resources": {"gpus": 1}}, "resources.gpus: unknown key. Valid: device, gpus_per_fit, fit_timeout_seconds."),
        ({"tracking": {"mlfow": "x"}}, "tracking.mlfow: unknown key. Did you mean 'mlflow'?"),
        ({"notify": {"ulr": "x"}}, "notify.ulr: unknown key. Did you mean 'url'?"),
        ({"search": {"optnua": {}}}, "search.optnua: unknown key. Did you mean 'optuna'?"),
        ({"search": {"optuna": {"trails": 3}}}, "search.optuna.trails: unknown key. Did you mean 'trials'?"),
        ({"datasets": [{"name": "digits", "scalin": "l2"}]}, "datasets[0].scalin: unknown key. Did you mean 'scaling'"),
        ({"methods": [{"name": "lmnn", "tun": {}}]}, "methods[0].tun: unknown key. Did you mean 'tune'?"),
        # What is missing or empty.
        ({"methods": [{"tune": {"x": [1]}}]}, "methods[0].name: this key is required"),
        ({"datasets": [{"scaling": "l2"}]}, "datasets[0].name: this key is required"),
        ({"methods": []}, "methods: expected at least one, got an empty list"),
        ({"datasets": []}, "datasets: expected at least one, got an empty list"),
        ({"grid": {"gamma": []}}, "grid.gamma: expected at least one value, got an empty list"),
        ({"methods": [{"name": "lmnn", "tune": {"n_neighbors": []}}]}, "expected at least one value, got an empty"),
        # Values that cannot be.
        ({"grid": {"gamma": [0.1, -1]}}, "grid.gamma[1]: expected greater than 0, got -1"),
        ({"grid": {"gamma": [float("inf")]}}, "grid.gamma[0]: expected a finite number, got inf"),
        ({"grid": {"rank": [0]}}, "grid.rank[0]: expected greater than or equal to 1, got 0"),
        ({"folds": 1}, "folds: expected greater than or equal to 2, got 1"),
        ({"folds": "many"}, "folds: expected a valid integer"),
        ({"settings": {"tol": 0}}, "settings.tol: expected greater than 0, got 0"),
        ({"settings": {"tol": float("inf")}}, "settings.tol: expected a finite number, got inf"),
        ({"settings": {"tol": float("nan")}}, "settings.tol: expected a finite number, got nan"),
        ({"name": "../../etc/passwd"}, "name: expected text to match pattern"),
        ({"mode": "fast"}, "mode: expected 'production' or 'benchmark', got 'fast'"),
        ({"select": "two-se"}, "select: expected 'best' or 'one-se', got 'two-se'"),
        ({"search": "gird"}, "search: expected 'grid' or 'path', got 'gird'"),
        ({"search": {"optuna": {"sampler": "cma"}}}, "search.optuna.sampler: expected 'tpe' or 'gp', got 'cma'"),
        ({"notify": {"url": "x", "on": ["dne"]}}, "notify.on[0]: expected 'done', 'failed', 'budget' or 'stopped'"),
        ({"datasets": [{"name": "digits", "scaling": "l3"}]}, "datasets[0].scaling: expected 'minmax', 'l2' or 'none'"),
        ({"methods": "mdml"}, "methods: expected a list, got 'mdml'"),
        ({"methods": [3]}, "methods[0]: expected a mapping, got 3"),
        ({"grid": 3}, "grid: expected a mapping, got 3"),
        ({"methods": [{"name": "mdml-csfn", "tune": {"tol": 3}}]}, "methods[0].tune.tol: expected a list, got 3"),
        # More than any sweep needs.
        ({"splits": 10**9}, "splits: expected less than or equal to 1000, got 1000000000"),
        ({"folds": 101}, "folds: expected less than or equal to 100, got 101"),
        ({"restarts": 10**6}, "restarts: expected less than or equal to 1000, got 1000000"),
        ({"search": {"optuna": {"trials": 10**9}}}, "search.optuna.trials: expected less than or equal to 100000"),
        ({"grid": {"gamma": list(range(1, 2000))}}, "grid.gamma: expected at most 1000 values, got 1999"),
        ({"seed": 2**63}, "seed: expected less than 9223372036854775808"),
        # Ranges.
        ({"grid": {"gamma": {"low": 1, "high": 0.1}}}, "grid.gamma: expected low below high, got 1 and 0.1"),
        ({"grid": {"gamma": {"low": 0, "high": 1}}}, "grid.gamma.low: expected greater than 0, got 0"),
        ({"grid": {"gamma": {"low": 0.1, "high": 1, "least": 0.5}}}, "grid.gamma: expected least at most low"),
        # What does not go together.
        ({"mode": "benchmark", "resources": {"gpus_per_fit": 0.5}}, "a benchmark runs one fit per GPU"),
        ({"warm": True, "mode": "benchmark"}, "warm: chains of warm starts go with mode: production"),
        ({"warm": True, "search": "path"}, "warm: chains of warm starts go with mode: production"),
        ({"eliminate": True, "select": "one-se"}, "eliminate: goes with mode: production, search: grid"),
        ({"eliminate": True, "score": "balance_score"}, "eliminate: score balance_score has no bound"),
        ({"eliminate": True, "score": "mypkg:score"}, "eliminate: score mypkg:score has no bound"),
        ({"search": "path", "algorithm": "paper"}, "search: a path needs algorithm: certified"),
    ],
)  # fmt: skip
def test_a_mistake_gets_one_line_with_its_place(changes: dict[str, Any], expected: str) -> None:
    message = complaint(yaml.safe_dump(tiny(**changes), sort_keys=False))
    assert message.startswith("my.yaml")
    assert expected in message


def test_the_line_number_points_at_the_mistake() -> None:
    text = "name: a\ndatasets: [digits]\nmethods:\n  - mdml-csfn\n  - nonsense\n"
    assert complaint(text).startswith("my.yaml:5: methods[1]")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: [unclosed", "my.yaml:1: not valid YAML"),
        ("- a\n- b\n", "expected a mapping"),
        ("", "expected a mapping"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("name: a\ndatasets: [digits]\n", "methods: this key is required"),
        ("name: 2020-13-45\n", "not a sweep file: month must be in 1..12"),
        ("name: a\0b\n", "not valid YAML: unacceptable character"),
        ("{1: 2, [a]: 3}", "not valid YAML"),
        ("name: a\ndatasets: [digits]\nfolds: 3\nname: b\n", "my.yaml:4: name stands here and in line 1; keep one"),
        ("grid:\n  gamma: [1]\n  gamma: [2]\n", "my.yaml:3: gamma stands here and in line 2; keep one"),
        ("methods:\n- {name: lmnn, name: itml}\n", "my.yaml:2: name stands here and in line 2; keep one"),
        ("seed: " + "1" * 5000, "not a sweep file: a number with thousands of digits"),
        ("a: " + "[" * 30 + "]" * 30, "nested more than 20 levels deep"),
        ("a: " + "[" * 5000, "nested more than 20 levels deep"),
        ("a: &a [*a]\n", "nested more than 20 levels deep"),
    ],
)
def test_a_broken_file_gets_one_line(text: str, expected: str) -> None:
    assert expected in complaint(text)


def test_aliases_that_multiply_are_refused_in_no_time() -> None:
    names = "abcdefghij"
    lines = ["a: &a [" + ", ".join("x" * 9) + "]"]
    lines += [f"{k}: &{k} [{', '.join([f'*{before}'] * 9)}]" for before, k in itertools.pairwise(names)]
    start = time.perf_counter()
    assert "more than 100,000 values" in complaint("\n".join(lines))
    assert time.perf_counter() - start < 2


def test_values_from_python_get_the_same_answers_without_a_line() -> None:
    with pytest.raises(UserError, match=r"^sweep: grid\.gama: unknown key\. Did you mean 'gamma'\?$"):
        validated(tiny(grid={"gama": [1]}), "sweep")


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(UserError, match="Did you mean 'quickstart'"):
        load_spec("quikstart")


@pytest.mark.parametrize(
    ("content", "expected"), [(b"name: \xff\xfe", "expected UTF-8"), (b"#" * 2**21, "at most 1,048,576")]
)
def test_a_file_that_is_no_sweep_file_is_not_parsed(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=expected):
        load_spec(str(path))


def test_dataset_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(tiny(datasets=["mine.csv", "digits", "~/other.csv"])))
    names = [choice.name for choice in load_spec(str(path)).datasets]
    assert names == [str(tmp_path / "mine.csv"), "digits", str(Path.home() / "other.csv")]


def test_no_secret_of_a_file_is_kept() -> None:
    spec = parse(
        tracking={"mlflow": "https://me:hunter2@host/x", "ledger": "postgresql+psycopg://me:hunter2@db/x"},
        search={"optuna": {"storage": "postgresql://me:hunter2@db/optuna"}},
        notify={"url": "https://me:hunter2@hooks/x?token=hunter2"},
    )
    kept = str(spec.without_secrets())
    assert "hunter2" not in kept
    assert "host/x" in kept


def test_a_method_is_dumped_as_short_as_it_was_written() -> None:
    entries = ["mdml-csfn", {"name": "lmnn", "tune": {"n_neighbors": [1, 3]}}]
    assert parse(methods=entries).model_dump(mode="json")["methods"] == entries
