"""`sweep results`: the contract's columns in every format, one row per study or per fit."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import pandas as pd
import pytest

from sweep.api import open_run
from sweep.cli import main
from tests.sweep.commands.homes import one_line, sweep

COLUMNS = (
    "dataset split method family gamma rank cv_auc cv_auc_se auc_all auc_frequent auc_infrequent balance_score npv "
    "compactness train_test_gap n_fits n_restarts fit_seconds wall_seconds n_eigh relative_gap params score"
)


def output(capsys: pytest.CaptureFixture[str], home: Path, *arguments: str) -> str:
    capsys.readouterr()
    assert main(["results", *arguments, "--home", str(home)]) == 0
    return capsys.readouterr().out


def test_rows_have_the_contracts_columns_in_json_and_csv(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(output(capsys, finished / "home", "tiny", "--format", "json"))
    assert [row["method"] for row in rows] == ["pdml-sfn", "mdml-csfn"]
    for row in rows:
        assert set(COLUMNS.split()) <= set(row)
        assert row["gpu"] is None
    assert [row["n_fits"] for row in rows] == [2 * 2 * 2 * 2, 2 * 2]
    assert rows[1]["params"] == {"gamma": 0.01}
    table = csv.DictReader(io.StringIO(output(capsys, finished / "home", "tiny", "--format", "csv")))
    as_csv = list(table)
    assert [r["method"] for r in as_csv] == [r["method"] for r in rows]
    assert float(as_csv[0]["auc_all"]) == rows[0]["auc_all"]


def test_one_row_per_fit_with_every_hyperparameter_as_a_column(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = finished / "home"
    fits = json.loads(output(capsys, home, "tiny", "--fits", "--format", "json"))
    assert len(fits) == 14
    assert {fit["method"] for fit in fits} == {"mdml-csfn", "pdml-sfn"}
    expected = "key fold gamma rank restarts value auc_all solve_seconds busy_seconds relative_gap converged host"
    assert set(expected.split()) <= set(fits[0])
    refits = [fit for fit in fits if fit["fold"] is None]
    assert len(refits) == 2
    assert all(fit["rank"] is None for fit in fits if fit["method"] == "mdml-csfn")
    assert "NaN" not in output(capsys, home, "tiny", "--fits", "--format", "json")
    table = list(csv.DictReader(io.StringIO(output(capsys, home, "tiny", "--fits", "--format", "csv"))))
    assert [row["key"] for row in table] == [fit["key"] for fit in fits]


@pytest.mark.parametrize("of_fits", [True, False])
def test_parquet_holds_the_same_typed(finished: Path, tmp_path: Path, of_fits: bool) -> None:
    path = tmp_path / "x.parquet"
    arguments = ["results", "tiny", "--format", "parquet", "--home", str(finished / "home"), "-o", str(path)]
    assert main(arguments + ["--fits"] * of_fits) == 0
    frame = pd.read_parquet(path)
    run = open_run("tiny", finished / "home")
    expected = run.fits if of_fits else run.results
    assert len(frame) == len(expected)
    assert list(frame.columns) == list(expected.columns)
    assert frame["auc_all"].dtype == "float64"
    for column in ("auc_all", "gamma"):
        pairs = zip(frame[column], expected[column], strict=True)
        assert all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in pairs)


def test_parquet_goes_through_a_pipe(finished: Path, tmp_path: Path) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "sweep", "results", "tiny", "--fits", "--format", "parquet"]
    with (tmp_path / "x.parquet").open("wb") as file:
        subprocess.run([*command, "--home", str(finished / "home")], stdout=file, check=True, timeout=60)
    assert len(pd.read_parquet(tmp_path / "x.parquet")) == 14


def test_other_formats_go_to_a_file_as_well(finished: Path, tmp_path: Path) -> None:
    for name in ("csv", "json"):
        path = tmp_path / f"x.{name}"
        base = ["results", "tiny", "--home", str(finished / "home"), "--format", name, "-o", str(path)]
        assert main(base) == 0
        assert "mdml-csfn" in path.read_text()
    assert [row["params"] for row in json.loads((tmp_path / "x.json").read_text())][1] == {"gamma": 0.01}


def test_a_search_says_how_many_fits_it_took_to_match_the_grid(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.sweep.commands.homes import write_sweep

    home = tmp_path / "home"
    for changes in ({"name": "grid"}, {"name": "search", "search": {"optuna": {"trials": 4, "prune_folds": False}}}):
        file = write_sweep(tmp_path, methods=["mdml-csfn"], **changes)
        assert main(["run", str(file), "--home", str(home), "--address", "inline"]) == 0
    (row,) = json.loads(output(capsys, home, "search", "--format", "json"))
    (grid,) = json.loads(output(capsys, home, "grid", "--format", "json"))
    assert row["grid_cv_score"] == grid["cv_score"]
    matched = row["fits_to_match_grid"]
    assert (matched is not None) == (row["cv_score"] >= grid["cv_score"] - 1e-12)
    assert matched is None or 2 <= matched <= row["n_fits"]


def test_messages_and_data_do_not_mix(finished: Path) -> None:
    answer = sweep("results", "tiny", "--home", str(finished / "home"), "--format", "json")
    assert json.loads(answer.stdout)
    assert answer.stderr == ""
    wrong = sweep("results", "tiny", "--format", "xml", "--home", str(finished / "home"))
    assert wrong.returncode == 2
    assert "invalid choice: 'xml'" in wrong.stderr


def test_an_unreadable_format_for_a_terminal_is_refused(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["results", "tiny", "--home", str(finished / "home"), "--format", "parquet"]) == 2
    assert "not for a terminal" in one_line(capsys.readouterr().err)
