"""`sweep stop` ends a running sweep after the fits that run; `run` goes on from there."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweep.cli import main
from sweep.store.home import Home
from tests.sweep.commands.homes import one_line, sweep, write_sweep
from tests.sweep.engine.test_kill import committed

GAMMAS = [10.0 ** -(k / 8) for k in range(32)]


def wait_for_fits(home: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while len(committed(home)) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.serial
def test_a_running_sweep_finishes_what_runs_commits_it_and_ends(tmp_path: Path) -> None:
    # Fits of the published algorithm take their steps, so that the sweep cannot end by itself before.
    slow = {"algorithm": "paper", "settings": {"n_pairs": 200, "max_iter": 400}}
    file = write_sweep(tmp_path, methods=["mdml-csfn"], grid={"gamma": GAMMAS}, **slow)
    home = tmp_path / "home"
    command = [sys.executable, "-m", "sweep", "run", str(file), "--home", str(home), "--address", "inline"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_fits(home, process)
    answer = sweep("stop", "tiny", "--home", str(home))
    assert answer.returncode == 0, answer.stderr
    assert "tiny: asked to stop" in one_line(answer.stderr)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 3, errors
    assert "ended early: `sweep stop` asked for it; run again to go on" in errors
    before = committed(home)
    assert 2 <= len(before) < 64
    assert not Home(home).is_locked()
    # The request is of the run that it stopped: the next one goes on.
    few = write_sweep(tmp_path, methods=["mdml-csfn"], grid={"gamma": GAMMAS[-2:]}, **slow)
    done = sweep("run", str(few), "--home", str(home), "--address", "inline")
    assert done.returncode == 0, done.stderr
    assert before.items() <= committed(home).items()


def test_where_nothing_runs_there_is_nothing_to_stop(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop", "tiny", "--home", str(finished / "home")]) == 2
    assert "tiny: no sweep is running in" in one_line(capsys.readouterr().err)
