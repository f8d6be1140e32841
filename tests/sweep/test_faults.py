"""Things that go wrong around a sweep: each is said, nothing is lost, the end is the same."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sweep.executors import InlineExecutor
from sweep.fits import FitSpec, SplitData
from sweep.home import Home
from sweep.ledger import Ledger, open_ledger
from tests.sweep.chaos import kill_worker
from tests.sweep.test_driver import BreakingExecutor, CountingExecutor, run, scores
from tests.sweep.test_kill import committed

SLOW = {"algorithm": "paper", "settings": {"n_pairs": 200, "max_iter": 1500}, "methods": ["mdml-csfn"]}


def sweep(file: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sweep", "run", str(file), "--home", str(home), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


def test_a_killed_worker_costs_one_attempt(sweep_file: Any, tmp_path: Path) -> None:
    file, home = sweep_file(**SLOW), tmp_path / "home"
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
    assert failure.seconds > 0
    assert {record.attempts for spec, record in ledger.records("tiny") if spec.key == failure.key} == {2}


def test_a_fit_that_hangs_is_ended_by_its_time_limit(sweep_file: Any, tmp_path: Path) -> None:
    settings = {"n_pairs": 200, "max_iter": 10**7}
    file = sweep_file(
        **(SLOW | {"settings": settings, "resources": {"fit_timeout_seconds": 3}, "grid": {"gamma": [0.1]}})
    )
    done = sweep(file, tmp_path / "home")
    assert done.returncode == 1
    assert "timeout: no result after 3 s" in done.stderr


def test_memory_is_saved_on_the_second_attempt(tmp_path: Path) -> None:
    leans: list[bool] = []

    class Watching(BreakingExecutor):
        def submit(self, spec: FitSpec, data: SplitData, *, warm: Any = None, lean: bool = False) -> None:
            if chosen(spec):
                leans.append(lean)
            super().submit(spec, data, warm=warm, lean=lean)

    def chosen(spec: FitSpec) -> bool:
        return spec.method == "mdml-csfn" and spec.gamma == 0.1 and spec.fold == 1

    tally, _ = run(Home(tmp_path), Watching(Counter(), "out of memory", 1, chosen))
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
    file, home = sweep_file(tracking={"mlflow": "http://127.0.0.1:9"}), small_disk / "home"
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
    assert all(seconds >= 0 for _, record in ledger.records("tiny") for seconds in record.seconds.values())


def test_mlflow_dead_until_the_end_is_caught_up_with_later(sweep_file: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    dead = sweep(sweep_file(tracking={"mlflow": "http://127.0.0.1:9"}), home, "--address", "inline")
    assert dead.returncode == 0, dead.stderr
    assert dead.stderr.count("cannot be reached") == 1
    back = sweep(sweep_file(), home, "--address", "inline")
    assert back.returncode == 0
    assert "0 fits computed" in back.stderr
    from tests.sweep.test_kill import mlflow_state

    assert {status for _, status, _, _ in mlflow_state(home)} == {"FINISHED"}
    assert len(mlflow_state(home)) == 8


def test_a_budget_stops_cleanly_and_more_of_it_goes_on(sweep_file: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    stopped = sweep(sweep_file(budget={"gpu_hours": 1e-6}), home, "--address", "inline")
    assert stopped.returncode == 0, stopped.stderr
    assert "budget.gpu_hours: 1e-06 is used up" in stopped.stderr
    some = committed(home)
    assert 0 < len(some) < 14
    done = sweep(sweep_file(), home, "--address", "inline")
    assert done.returncode == 0
    assert some.items() <= committed(home).items()
    assert len(committed(home)) == 14
