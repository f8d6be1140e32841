"""Things that go wrong around a sweep: each is said, nothing is lost, the end is the same."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest

from sweep.cli import main
from sweep.engine.executors import Finished, InlineExecutor, Job
from sweep.engine.ray_executor import RayExecutor, gpu_models
from sweep.engine.whereabouts import announced
from sweep.fits import FitOutcome, FitRecord, FitSpec, Help, Place, Scores, Seconds, Solved, SplitData
from sweep.store.home import Home
from sweep.store.ledger import Ledger, open_ledger
from sweep.store.results import result_rows
from tests.sweep.conftest import NO_MLFLOW
from tests.sweep.engine.chaos import Pool, kill_worker, start
from tests.sweep.engine.test_driver import BreakingExecutor, CountingExecutor, one_fold, run, scores
from tests.sweep.engine.test_kill import committed, state, wait_for

SLOW = {"algorithm": "paper", "settings": {"n_pairs": 200, "max_iter": 1500}, "methods": ["mdml-csfn"]} | NO_MLFLOW


def sweep(file: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sweep", "run", str(file), "--home", str(home), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


def test_a_killed_worker_costs_one_attempt(sweep_file: Any, tmp_path: Path) -> None:
    file, home, began = sweep_file(**SLOW), tmp_path / "home", time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "sweep", "run", str(file), "--home", str(home)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not (committed(home) and kill_worker(random.Random(0))):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    ledger = Ledger(Home(home).ledger_url)
    (failure,) = ledger.failures("tiny")
    assert (failure.kind, failure.final) == ("lost worker", False)
    assert 0 < failure.seconds < time.monotonic() - began
    (row,) = result_rows(ledger.records("tiny"), ledger.failures("tiny"))
    assert row.wasted_seconds == failure.seconds
    assert {record.attempts for spec, record in ledger.records("tiny") if spec.key == failure.key} == {2}


def test_a_fit_that_hangs_is_ended_by_its_time_limit(sweep_file: Any, tmp_path: Path) -> None:
    settings = {"n_pairs": 200, "max_iter": 10**7}
    file = sweep_file(
        **(SLOW | {"settings": settings, "resources": {"fit_timeout_seconds": 3}, "grid": {"gamma": [0.1]}})
    )
    done = sweep(file, tmp_path / "home")
    assert done.returncode == 1
    assert "timeout: no result after 3 s" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_lost_head_is_said_and_a_new_cluster_goes_on(
    sweep_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "10")
    file, calm, home = sweep_file(**SLOW), tmp_path / "calm", tmp_path / "home"
    pool = Pool(nodes=1)
    try:
        assert start(file, calm, "--address", pool.address).wait(120) == 0
        process = start(file, home, "--address", pool.address)
        wait_for(home, 1, process)
        pool.kill_head()
        assert process.wait(60) == 2
    finally:
        pool.close()
    last = (tmp_path / "home.log").read_text().splitlines()[-1]
    assert last.startswith(f"sweep: lost the head of the Ray cluster at {pool.address}")
    before = committed(home)
    assert 0 < len(before) < len(committed(calm))
    pool = Pool(nodes=1)
    try:
        assert start(file, home, "--address", pool.address).wait(120) == 0
    finally:
        pool.close()
    assert before.items() <= committed(home).items()
    assert state(home) == state(calm)


def hungry_fit(spec: FitSpec, data: SplitData, order: Any, help: Help) -> FitOutcome:
    """A fit in a process that may have 500 MB more: 3,000 blocks fit in only if they are small, ten times that never.

    The kernel keeps the limit; a limit on the machine's memory would hit whoever else works there.
    """
    import resource

    from solvers.backend import block_bytes, small_blocks

    with announced(spec.key, spec.label, order.gpus), small_blocks() if help.lean else contextlib.nullcontext():
        time.sleep(0.3)
        blocks = 3_000 if spec.trial.get("gamma") == 0.01 else 30_000
        resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + 500_000_000, -1))
        try:
            np.empty(blocks * block_bytes(np), dtype=np.uint8)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        record = FitRecord(
            spec.key, Scores(auc_all=0.5), Solved(objective=1.0), Seconds(solve=0.1), Place(host="h"), time.time(), 0.5
        )
        return FitOutcome(record)


@pytest.mark.serial
def test_a_host_out_of_memory_is_retried_once_in_small_blocks_then_given_up(tmp_path: Path) -> None:
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    executor = RayExecutor(None, gpus_per_fit=0, function=hungry_fit)
    tally, ledger = run(Home(tmp_path), executor, methods=["mdml-csfn"])
    assert (tally.failed, len(ledger.keys())) == (2, 3)  # two folds and the refit of the smaller gamma
    failures = ledger.failures("tiny")
    assert {f.kind for f in failures} == {"out of memory"}
    assert all(0.3 <= f.seconds < 30 for f in failures)
    for gamma, finals in (("0.01", [False]), ("0.1", [False, True])):
        for fold in (0, 1):
            ends = [f.final for f in failures if f.label.endswith(f"gamma={gamma} fold {fold}")]
            assert ends == finals
    assert {record.attempts for _, record in ledger.records("tiny")} == {2}


def test_memory_is_saved_on_the_second_attempt(tmp_path: Path) -> None:
    leans: list[bool] = []

    class Watching(BreakingExecutor):
        def submit(self, job: Job) -> None:
            if one_fold(job.spec):
                leans.append(job.help.lean)
            super().submit(job)

    tally, _ = run(Home(tmp_path), Watching(Counter(), "out of memory", 1, one_fold), methods=["mdml-csfn"])
    assert leans == [False, True]
    assert tally.failed == 0


def test_a_cut_off_ledger_keeps_what_is_whole(tmp_path: Path) -> None:
    home = Home(tmp_path)
    _, ledger = run(home, InlineExecutor())
    before = scores(ledger)
    ledger.close()
    with sqlite3.connect(home.ledger_path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode=DELETE")
    content = home.ledger_path.read_bytes()
    home.ledger_path.write_bytes(content[: len(content) // 2])
    notes: list[str] = []
    open_ledger("sqlite", home, notes.append).close()
    assert "damaged" in notes[0]
    submitted: Counter[str] = Counter()
    _, ledger = run(home, CountingExecutor(submitted))
    assert scores(ledger) == before
    assert (tmp_path / "ledger.sqlite.damaged-1").exists()


def test_an_altered_row_is_computed_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    _, ledger = run(home, InlineExecutor())
    before = scores(ledger)
    key = next(spec.key for spec, _ in ledger.records("tiny") if spec.fold == 0)
    with sqlite3.connect(home.ledger_path) as connection:
        connection.execute("UPDATE fits SET record = replace(record, '0.9', '0.8') WHERE key = ?", (key,))
    submitted: Counter[str] = Counter()
    _, ledger = run(home, CountingExecutor(submitted))
    assert dict(submitted) == {key: 1}
    assert scores(ledger) == before


def test_a_locked_database_is_waited_for(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    Ledger(home.ledger_url).close()
    holder = sqlite3.connect(home.ledger_path, check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    threading.Timer(2.0, holder.rollback).start()
    tally, _ = run(home, InlineExecutor(), methods=["mdml-csfn"])
    assert tally.failed == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of one megabyte."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("this machine does not let us mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_stops_cleanly_and_the_sweep_goes_on_when_there_is_room(
    sweep_file: Any, small_disk: Path, tmp_path: Path
) -> None:
    file, home = sweep_file(**NO_MLFLOW), small_disk / "home"
    home.mkdir()
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 900_000)
    stopped = sweep(file, home, "--address", "inline")
    assert stopped.returncode == 2, stopped.stderr
    assert "Traceback" not in stopped.stderr
    filler.unlink()
    done = sweep(file, home, "--address", "inline")
    assert done.returncode == 0, done.stderr
    other = tmp_path / "roomy"
    assert sweep(file, other, "--address", "inline").returncode == 0
    assert committed(home).keys() == committed(other).keys()


def test_a_clock_that_runs_backwards_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, expected = run(Home(tmp_path / "a"), InlineExecutor())
    now = [2e9]

    def backwards() -> float:
        now[0] -= 60
        return now[0]

    monkeypatch.setattr(time, "time", backwards)
    _, ledger = run(Home(tmp_path / "b"), InlineExecutor())
    assert scores(ledger) == scores(expected)
    assert all(seconds >= 0 for _, record in ledger.records("tiny") for seconds in asdict(record.seconds).values())


def test_mlflow_dead_until_the_end_is_caught_up_with_later(sweep_file: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    dead = sweep(sweep_file(tracking={"mlflow": "http://127.0.0.1:9"}), home, "--address", "inline")
    assert dead.returncode == 0, dead.stderr
    assert dead.stderr.count("cannot be reached") == 1
    back = sweep(sweep_file(), home, "--address", "inline")
    assert back.returncode == 0
    assert "0 fits computed" in back.stderr
    from tests.sweep.engine.test_kill import mlflow_state

    assert {status for _, status, _, _ in mlflow_state(home)} == {"FINISHED"}
    assert len(mlflow_state(home)) == 8


def test_a_budget_stops_cleanly_and_more_of_it_goes_on(sweep_file: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    stopped = sweep(sweep_file(budget={"gpu_hours": 1e-6}, **NO_MLFLOW), home, "--address", "inline")
    assert stopped.returncode == 3, stopped.stderr
    assert "budget.gpu_hours: 1e-06 is used up" in stopped.stderr
    some = committed(home)
    assert 0 < len(some) < 14
    done = sweep(sweep_file(**NO_MLFLOW), home, "--address", "inline")
    assert done.returncode == 0
    assert some.items() <= committed(home).items()
    assert len(committed(home)) == 14


def test_wasted_seconds_are_charged_to_the_method_that_caused_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def chosen(spec: FitSpec) -> bool:
        return one_fold(spec) and spec.split == 1

    run(Home(tmp_path), BreakingExecutor(Counter(), "lost worker", 2, chosen), splits=2)
    capsys.readouterr()
    assert main(["results", "tiny", "--home", str(tmp_path), "--format", "json"]) == 0
    wasted = {(row["method"], row["split"]): row["wasted_seconds"] for row in json.loads(capsys.readouterr().out)}
    assert wasted == {("mdml-csfn", 0): 0, ("mdml-csfn", 1): 1.0, ("pdml-sfn", 0): 0, ("pdml-sfn", 1): 0}
    assert main(["compare", "tiny", "--home", str(tmp_path)]) == 0
    assert "wasted s" in capsys.readouterr().out
    assert main(["report", "tiny", "--home", str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / "reports" / "tiny-files" / "seconds.csv", index_col="method")
    assert table["wasted"].to_dict() == {"mdml-csfn": 1.0, "pdml-sfn": 0.0, "all methods": 1.0}


class TwoModels(InlineExecutor):
    """As if each fold had run on a GPU of another model."""

    def wait(self, seconds: float) -> list[Finished]:
        (end,) = super().wait(seconds)
        assert end.outcome is not None
        record = end.outcome.record
        place = replace(record.place, gpu="A100" if end.spec.fold else "H100")
        return [replace(end, outcome=replace(end.outcome, record=replace(record, place=place)))]


def test_times_of_two_gpu_models_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(Home(tmp_path), TwoModels())
    capsys.readouterr()
    assert main(["compare", "tiny", "--home", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sweep: compare: these fits differ in gpu (A100, H100)")
    assert main(["results", "tiny", "--home", str(tmp_path)]) == 0


def test_a_benchmark_sees_the_models_of_nodes_that_are_up() -> None:
    def node(model: str, alive: bool = True) -> dict[str, Any]:
        return {"Alive": alive, "Resources": {"CPU": 4.0, "GPU": 1.0, f"accelerator_type:{model}": 1.0}}

    assert gpu_models([node("A100"), node("H100", alive=False), {"Alive": True, "Resources": {"CPU": 1.0}}]) == {"A100"}
    assert gpu_models([node("A100"), node("H100")]) == {"A100", "H100"}
