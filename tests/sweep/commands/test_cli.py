"""What users type, what they get back, and how fast."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sweep.cli import COMMANDS, build_parser, main
from sweep.store.home import Home
from tests.sweep.commands.homes import one_line, sweep, write_sweep

NAMES = [module.__name__.rpartition(".")[2] for module in COMMANDS]


def choices() -> dict[str, Any]:
    return build_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr,return-value]


# -- help ---------------------------------------------------------------------------------------------


@pytest.mark.serial
def test_help_is_fast_and_imports_nothing_heavy() -> None:
    heavy = {"numpy", "ray", "mlflow", "pandas", "sklearn", "pydantic", "optuna", "sqlalchemy", "rich"}
    code = f"import sys, sweep.cli; sweep.cli.build_parser(); print(sorted({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)  # the first import may compile bytecode
    times = []
    for _ in range(3):
        start = time.perf_counter()
        shown = subprocess.run([sys.executable, "-m", "sweep", "--help"], capture_output=True, text=True, check=True)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.5
    assert "quickstart" in shown.stdout
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_the_contracts_commands_are_there() -> None:
    contract = "run plan status stop results compare report ui export diff methods datasets data submit fetch doctor gc"
    assert set(contract.split()) <= set(NAMES)
    assert list(choices()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_command_shows_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr()
    assert f"Example: sweep {name}" in " ".join(shown.out.split())
    assert shown.err == ""
    for action in choices()[name]._actions:  # nothing without a word of explanation
        assert action.help or action.choices, (name, action.dest)


def test_import_costs_nothing_and_names_are_loaded_on_first_use() -> None:
    code = "import sys, sweep; print(len({'numpy', 'pydantic', 'pandas'} & set(sys.modules)), dir(sweep))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "0 ['Planned', 'Run', 'open', 'plan', 'run']\n"


# -- exit codes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "nowhere.yaml"], "no such sweep file"),
        (["plan", "quikstart"], "Did you mean 'quickstart'"),
        (["status"], "holds no sweep yet"),
        (["results", "x"], "holds no sweep yet"),
        (["compare", "x"], "holds no sweep yet"),
        (["report", "x"], "holds no sweep yet"),
        (["export", "x"], "holds no sweep yet"),
        (["stop", "x"], "holds no sweep yet"),
        (["diff", "a", "b"], "holds no sweep yet"),
        (["gc"], "holds no sweep yet"),
        (["ui"], "holds no sweep yet"),
        (["ui", "--port", "70000"], "--port: expected a number from 1 to 65535, got 70000"),
        (["run", "quickstart", "--name", "Not Valid"], "--name"),
        (["plan", "quickstart", "--gpus", "1,x"], "--gpus: expected numbers"),
        (["plan", "quickstart", "--gpus", "0"], "--gpus: expected numbers"),
        (["data", "prepare", "reutres"], "Did you mean 'reuters'"),
        (["submit", "quickstart"], "expected either --cluster FILE or --address URL"),
        (["submit", "quickstart", "--cluster", "x", "--address", "y"], "expected either --cluster FILE"),
        (["fetch"], "either --cluster FILE or --address URL"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--home", str(tmp_path / "home")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in one_line(captured.err)
    assert captured.err.startswith("sweep: ")
    assert not (tmp_path / "home" / "ledger.sqlite").exists()


def test_an_unknown_sweep_names_the_nearest(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["results"], ["compare"], ["report"], ["export"], ["status"], ["diff", "tiny"], ["stop"], ["ui"]):
        assert main([*command, "tinny", "--home", str(finished / "home")]) == 2, command
        assert "unknown sweep 'tinny' in this home. Did you mean 'tiny'?" in one_line(capsys.readouterr().err)


def test_failed_fits_are_listed_and_exit_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # No method survives features that are not numbers once squared, but the Euclidean one is not asked.
    module = tmp_path / "failing_pkg.py"
    module.write_text(
        "from sklearn.base import BaseEstimator, TransformerMixin\n"
        "class Failing(TransformerMixin, BaseEstimator):\n"
        "    def fit(self, X, y):\n"
        "        raise ValueError('on purpose')\n"
        "    def transform(self, X):\n"
        "        return X\n"
    )
    methods = ["euc", {"name": "failing", "estimator": "failing_pkg:Failing"}]
    file = write_sweep(tmp_path, methods=methods, code=["failing_pkg.py"])
    assert main(["run", str(file), "--home", str(tmp_path / "home"), "--address", "inline"]) == 1
    captured = capsys.readouterr()
    assert "euc" in captured.out
    failed = [line for line in captured.err.splitlines() if line.startswith("failed: ")]
    assert failed == ["failed: digits-imbalanced split 0 failing refit: bug: ValueError: on purpose"]
    assert "Traceback" not in captured.err


def test_a_sweep_that_could_run_nothing_exits_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_sweep(tmp_path, methods=["pdml-sfn"], grid={"gamma": [1], "rank": [65]})
    assert main(["run", str(file), "--home", str(tmp_path / "home"), "--address", "inline"]) == 3
    captured = capsys.readouterr()
    assert "rank 65 is above the 64 features" in captured.err
    assert "nothing could run: every combination was refused" in captured.err


def test_a_budget_that_ended_a_sweep_exits_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_sweep(tmp_path, methods=["mdml-csfn"], budget={"gpu_hours": 1e-9})
    arguments = ["run", str(file), "--home", str(tmp_path / "home"), "--address", "inline"]
    assert main(arguments) == 3
    assert "ended early: budget.gpu_hours: 1e-09 is used up" in capsys.readouterr().err


def test_a_defect_of_ours_exits_with_70_and_keeps_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.api.read_source", lambda *a, **k: 1 / 0)
    assert main(["run", "quickstart", "--home", str(tmp_path)]) == 70
    line = one_line(capsys.readouterr().err)
    assert "a defect of ours: ZeroDivisionError" in line
    kept = Path(line.partition("the traceback is in ")[2].partition(",")[0])
    assert "ZeroDivisionError" in kept.read_text()
    kept.unlink()


def test_ctrl_c_exits_with_130(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sweep.api.read_source", interrupted)
    assert main(["run", "quickstart", "--home", str(tmp_path)]) == 130
    assert "everything finished is kept" in one_line(capsys.readouterr().err)


def test_every_oserror_is_one_line(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = str(finished / "home")
    (tmp_path / "file").write_text("x")
    cases = [
        ["run", str(finished / "tiny.yaml"), "--home", str(tmp_path / "file")],
        ["run", str(finished / "tiny.yaml"), "--home", str(tmp_path / "file" / "home")],
        ["results", "tiny", "--home", home, "--fits", "--format", "parquet", "-o", str(tmp_path)],
        ["results", "tiny", "--home", home, "--format", "csv", "-o", str(tmp_path / "no" / "such" / "x.csv")],
        ["report", "tiny", "--home", home, "-o", str(tmp_path)],
        ["report", "tiny", "--home", home, "-o", str(tmp_path / "file" / "x.html")],
        ["run", str(tmp_path), "--home", home],
    ]
    for case in cases:
        assert main(case) == 2, case
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert one_line(captured.err).startswith("sweep: "), case

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x/y")

    monkeypatch.setattr("sweep.api.open_run", full)
    assert main(["results", "tiny", "--home", home]) == 2
    assert one_line(capsys.readouterr().err).startswith("sweep: /x/y: No space left on device; check the path")


def test_a_home_that_may_not_be_written_is_one_line(finished: Path, tmp_path: Path) -> None:
    locked = Path("/sys") if os.geteuid() == 0 else tmp_path / "locked"  # where not even root may make a folder
    locked.mkdir(mode=0o500, exist_ok=True)
    answer = sweep("run", str(finished / "tiny.yaml"), "--home", str(locked / "home"))
    assert answer.returncode == 2
    assert str(locked / "home") in one_line(answer.stderr)


def test_a_reader_that_goes_away_is_no_error(finished: Path) -> None:
    command = f"{sys.executable} -m sweep results tiny --fits --format csv --home {finished / 'home'} | head -1"
    answer = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60)
    assert answer.returncode in (0, 128 + signal.SIGPIPE)
    assert answer.stderr == ""
    assert answer.stdout.startswith("key,dataset,")


# -- tables -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["results", "tiny"], ["results", "after"], ["compare", "tiny"], ["status"], ["plan", "FILE"], ["methods"],
        ["datasets"], ["diff", "tiny", "after"], ["gc"], ["results", "tiny", "--wide"], ["run", "FILE"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("columns", [80, 100])
def test_tables_fit_the_terminal(
    finished: Path, arguments: list[str], columns: int, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", str(columns))
    words = [str(finished / "tiny.yaml") if word == "FILE" else word for word in arguments]
    assert main(words + ["--home", str(finished / "home")] * (arguments != ["methods"])) == 0
    shown = capsys.readouterr().out
    tables = [line for line in shown.splitlines() if not line.endswith((".", "ilon"))]  # sentences may be longer
    assert tables
    assert max(map(len, tables)) <= columns, max(tables, key=len)
    assert "\x1b" not in shown


def test_the_usual_table_shows_scores_with_errors_sorted_with_nothing_cut_at_80(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["results", "after", "--home", str(finished / "home")]) == 0
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "±" in shown
    rows = [line for line in shown.splitlines() if line.startswith(("mdml-csfn", "euc"))]
    values = [float(line.split()[1]) for line in rows]
    assert values == sorted(values, reverse=True)
    assert "! chosen at the end of what was searched: search further for mdml-csfn" in shown


# -- what a finished home says ------------------------------------------------------------------------


@pytest.mark.serial
def test_a_finished_sweep_is_shown_again_in_seconds_without_ray(finished: Path) -> None:
    start = time.perf_counter()
    again = sweep("run", str(finished / "tiny.yaml"), "--home", str(finished / "home"))
    assert time.perf_counter() - start < 5
    assert again.returncode == 0, again.stderr
    assert "0 fits computed" in again.stderr
    assert "starting workers" not in again.stderr
    assert "mdml-csfn" in again.stdout


def test_compare_states_the_measured_ratio(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "tiny", "--home", str(finished / "home"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    (ratio,) = shown["comparison"]
    assert ratio["runs_ratio"] == 4
    assert ratio["total_ratio"] == pytest.approx(ratio["runs_ratio"] * ratio["time_per_run_ratio"])
    assert "4 x as many fits (16 against 4)" in shown["verdict"]


def test_status_counts_fits_by_the_ledger_and_not_by_the_drivers_last_word(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path / "home")
    shutil.copytree(finished / "home", home.folder)
    home.write_state("tiny", home.read_state("tiny") | {"done": 1})
    assert main(["status", "tiny", "--home", str(home.folder), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["tasks_done"], row["fits_done"]) == (14, 23)


def test_status_and_plan_agree_that_nothing_is_left(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = str(finished / "home")
    assert main(["status", "tiny", "--home", home, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["state"], row["tasks_done"], row["tasks"], row["left"]) == ("complete", 14, 14, 0)
    assert (row["fits_done"], row["fits"]) == (23, 23)
    assert main(["plan", str(finished / "tiny.yaml"), "--home", home, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert all(r["there"] == r["fits"] and r["left"] == 0 for r in plan["fits"])
    assert plan["forecast"]["n_tasks"] == 0
    assert main(["plan", str(finished / "tiny.yaml"), "--home", home]) == 0
    assert "Everything is there: nothing is left to compute" in capsys.readouterr().err


def test_a_plan_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_sweep(tmp_path)
    assert main(["plan", str(file), "--home", str(tmp_path / "home")]) == 0
    assert "tiny: 23 fits" in capsys.readouterr().out
    assert not (tmp_path / "home").exists()


def test_a_pilot_estimates_the_time_and_its_fits_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, home = write_sweep(tmp_path), tmp_path / "home"
    pilot = ["plan", str(file), "--home", str(home), "--address", "inline", "--pilot", "--gpus", "1,8", "--json"]
    assert main(pilot) == 0
    plan = json.loads(capsys.readouterr().out)
    there = sum(row["there"] for row in plan["fits"])
    assert there > 0
    assert set(plan["forecast"]["wall_seconds"]) == {"1", "8"}
    low, expected, high = plan["forecast"]["busy_hours"]
    assert 0 < low < expected < high
    assert main(["status", "--home", str(home), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []  # a pilot is no sweep of the user's
    assert main(["run", str(file), "--home", str(home), "--address", "inline"]) == 0
    assert f"{23 - there} fits computed, {there} were there already" in capsys.readouterr().err


def test_methods_and_datasets_are_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["methods", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 31
    assert main(["datasets", "--json", "--home", str(tmp_path)]) == 0
    names = {row["name"] for row in json.loads(capsys.readouterr().out)}
    assert names >= {"digits", "digits-imbalanced", "mimic", "eicu", "reuters", "news", "cars", "birds", "act"}


def test_a_second_driver_on_the_same_home_is_refused(finished: Path) -> None:
    with Home(finished / "home").lock():
        refused = sweep("run", str(finished / "tiny.yaml"), "--home", str(finished / "home"))
    assert refused.returncode == 2
    assert "already running here" in one_line(refused.stderr)


def test_looking_changes_no_file_of_a_home(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = finished / "home"

    def files() -> dict[str, bytes]:
        ignored = (".sqlite-shm", ".sqlite-wal")
        return {
            str(path.relative_to(home)): path.read_bytes()
            for path in home.rglob("*")
            if path.is_file() and not path.name.endswith(ignored)
        }

    before = files()
    for command in (["status"], ["status", "--watch"], ["results", "tiny"], ["results", "tiny", "--fits"], ["gc"],
                    ["compare", "tiny"], ["diff", "tiny", "after"]):  # fmt: skip
        assert main([*command, "--home", str(home)]) == 0
    assert files() == before
    capsys.readouterr()


@pytest.mark.parametrize("name", ["datasets", "methods"])
def test_names_are_never_cut_for_the_sake_of_texts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    home = ["--home", str(tmp_path)] if name == "datasets" else []
    assert main([name, *home]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = {line.split()[0] for line in lines if line.strip()}
    assert (
        {"name", "digits-imbalanced", "act"} if name == "datasets" else {"method", "mdml-csfn", "pdml-vgf"}
    ) <= first
    assert max(map(len, lines)) <= 80


def test_classes_of_equal_size_have_no_balance_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "even.csv").write_text("a,b,label\n" + "".join(f"{k},{k * k},{'xy'[k % 2]}\n" for k in range(20)))
    assert main(["datasets", str(tmp_path / "even.csv")]) == 0
    assert "no balance between frequent and rare ones" in capsys.readouterr().out
