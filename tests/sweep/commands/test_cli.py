"""What users type, what they get back, and how fast."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sweep.cli import build_parser, main

pytestmark = pytest.mark.serial


def sweep(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "sweep", *arguments], capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def finished_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the tiny sweep has run, in process."""
    import yaml

    from tests.sweep.conftest import tiny

    folder = tmp_path_factory.mktemp("cli")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(tiny()))
    done = sweep("run", str(folder / "tiny.yaml"), "--home", str(folder / "home"), "--address", "inline", "--json")
    assert done.returncode == 0, done.stderr
    return folder


def test_help_is_fast_and_imports_nothing_heavy() -> None:
    heavy = {"numpy", "ray", "mlflow", "pandas", "sklearn", "pydantic"}
    code = f"import sys, sweep.cli; sweep.cli.build_parser(); print(sorted({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)  # the first import may compile bytecode
    start = time.perf_counter()
    shown = subprocess.run([sys.executable, "-m", "sweep", "--help"], capture_output=True, text=True, check=True)
    assert time.perf_counter() - start < 0.5
    assert "quickstart" in shown.stdout
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_every_command_shows_an_example() -> None:
    parser = build_parser()
    commands = parser._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert {"run", "plan", "status", "results", "compare", "methods", "datasets", "ui", "data"} <= set(commands)
    for name, command in commands.items():  # type: ignore[union-attr]
        assert f"Example: sweep {name}" in command.format_help(), name


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "nowhere.yaml"], "no such sweep file"),
        (["status"], "holds no sweep yet"),
        (["results", "x"], "holds no sweep yet"),
        (["run", "quickstart", "--name", "Not Valid"], "--name"),
        (["data", "prepare", "reutres"], "Did you mean 'reuters'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--home", str(tmp_path / "home")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in captured.err
    assert captured.err.count("\n") == 1


def test_results_have_the_contracts_columns(finished_home: Path) -> None:
    shown = sweep("results", "tiny", "--home", str(finished_home / "home"), "--format", "json")
    rows = json.loads(shown.stdout)
    columns = (
        "dataset split method family gamma rank cv_auc cv_auc_se auc_all auc_frequent auc_infrequent balance_score npv "
        "compactness train_test_gap n_fits n_restarts fit_seconds wall_seconds n_eigh relative_gap"
    )
    assert [row["method"] for row in rows] == ["pdml-sfn", "mdml-csfn"]
    for row in rows:
        assert set(columns.split()) <= set(row)
    assert [row["n_fits"] for row in rows] == [2 * 2 * 2 * 2, 2 * 2]
    as_csv = sweep("results", "tiny", "--home", str(finished_home / "home"), "--format", "csv")
    assert [r["method"] for r in csv.DictReader(io.StringIO(as_csv.stdout))] == [r["method"] for r in rows]


def test_a_finished_sweep_is_shown_again_in_seconds_without_ray(finished_home: Path) -> None:
    start = time.perf_counter()
    again = sweep("run", str(finished_home / "tiny.yaml"), "--home", str(finished_home / "home"))
    assert time.perf_counter() - start < 5
    assert again.returncode == 0, again.stderr
    assert "0 fits computed" in again.stderr
    assert "starting workers" not in again.stderr
    assert "mdml-csfn" in again.stdout


def test_compare_states_the_measured_ratio(finished_home: Path) -> None:
    shown = json.loads(sweep("compare", "tiny", "--home", str(finished_home / "home"), "--json").stdout)
    (ratio,) = shown["comparison"]
    assert ratio["runs ratio"] == 4
    assert ratio["total ratio"] == pytest.approx(ratio["runs ratio"] * ratio["time-per-run ratio"])
    assert "4 x as many fits (16 against 4)" in shown["verdict"]


def test_status_and_plan_agree_that_nothing_is_left(finished_home: Path) -> None:
    (row,) = json.loads(sweep("status", "--home", str(finished_home / "home"), "--json").stdout)
    assert (row["state"], row["tasks done"], row["left"]) == ("complete", row["tasks"], 0)
    plan = json.loads(
        sweep("plan", str(finished_home / "tiny.yaml"), "--home", str(finished_home / "home"), "--json").stdout
    )
    assert all(r["there already"] == r["fits"] for r in plan["fits"])


def test_methods_and_datasets_are_listed() -> None:
    rows: list[dict[str, Any]] = json.loads(sweep("methods", "--json").stdout)
    assert len(rows) == 31
    names = {row["name"] for row in json.loads(sweep("datasets", "--json").stdout)}
    assert {
        "digits",
        "digits-imbalanced",
        "mimic",
        "eicu",
        "reuters",
        "news",
        "cars",
        "birds",
        "act",
    } <= names


def test_a_second_driver_on_the_same_home_is_refused(finished_home: Path, tmp_path: Path) -> None:
    from sweep.store.home import Home

    with Home(finished_home / "home").lock():
        refused = sweep("run", str(finished_home / "tiny.yaml"), "--home", str(finished_home / "home"))
    assert refused.returncode == 2
    assert "already running here" in refused.stderr
