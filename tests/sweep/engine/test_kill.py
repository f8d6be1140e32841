"""A driver killed at any moment loses nothing that was committed, and the end is the same."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mlflow
import pytest

from sweep.store.home import Home
from sweep.store.ledger import Ledger


def start(file: Path, home: Path) -> subprocess.Popen[bytes]:
    """A driver that takes SIGINT as one in a terminal does, also where the suite itself runs behind a shell's `&`."""
    return subprocess.Popen(
        [sys.executable, "-m", "sweep", "run", str(file), "--home", str(home)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def committed(home: Path) -> dict[str, float]:
    """Key -> time of the commit, of all fits so far."""
    if not (home / "ledger.sqlite").exists():
        return {}
    with sqlite3.connect(home / "ledger.sqlite") as connection:
        try:
            return dict(connection.execute("SELECT key, committed FROM fits"))
        except sqlite3.OperationalError:  # the tables are not there yet
            return {}


def wait_for(home: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while len(committed(home)) < count and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def state(home: Path) -> dict[str, Any]:
    """All that must not depend on what was killed: keys, scores and objectives."""
    ledger = Ledger(Home(home).ledger_url)
    return {spec.key: (spec, record.scores, record.fit) for spec, record in ledger.records("tiny")}


def mlflow_state(home: Path) -> list[tuple[str, str, Any, Any]]:
    client = mlflow.MlflowClient(Home(home).mlflow_url)
    found = []
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            timeless = {k: v for k, v in run.data.metrics.items() if "seconds" not in k}
            found.append((run.info.run_name, run.info.status, run.data.params, timeless))
    return sorted(found, key=lambda r: r[0])


@pytest.mark.slow  # the short storm of test_chaos.py kills a driver, too
@pytest.mark.timeout(400)
def test_sigkill_at_several_moments_changes_nothing(sweep_file: Any, tmp_path: Path) -> None:
    file = sweep_file(grid={"gamma": [0.01, 0.1], "rank": [4]})
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    assert start(file, calm).wait(180) == 0

    before: dict[str, float] = {}
    # While it starts, after the first commit, in the middle, and while it records the end.
    for target in (0, 1, 4, len(committed(calm)) - 1):
        process = start(file, stormy)
        if target:
            wait_for(stormy, target, process)
        else:
            while not Home(stormy).is_locked():
                assert process.poll() is None
                time.sleep(0.02)
        process.kill()
        process.wait()
        after = committed(stormy)
        assert before.items() <= after.items()  # nothing lost, nothing written anew
        before = after
    assert start(file, stormy).wait(180) == 0
    assert before.items() <= committed(stormy).items()
    assert state(stormy) == state(calm)
    assert mlflow_state(stormy) == mlflow_state(calm)
    assert {status for _, status, _, _ in mlflow_state(stormy)} == {"FINISHED"}


@pytest.mark.serial
def test_ctrl_c_and_sigterm_end_with_130_and_keep_what_is_there(sweep_file: Any, tmp_path: Path) -> None:
    # Minutes of fits, so that the sweep cannot end by itself before the signal has its effect.
    grid = {"gamma": [10.0**-k for k in range(10)], "rank": list(range(4, 14))}
    file, home = sweep_file(grid=grid, folds=5), tmp_path / "home"
    before: dict[str, float] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start(file, home)
        wait_for(home, len(before) + 1, process)  # the second time, the sweep goes on
        os.kill(process.pid, number)
        stopped = time.monotonic()
        assert process.wait(30) == 130
        assert time.monotonic() - stopped < 3  # what `ray job stop` allows
        after = committed(home)
        assert before.items() < after.items()
        before = after
