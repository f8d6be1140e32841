"""The live view says how far each method is, what runs where and what failed."""

from __future__ import annotations

import io
import time
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from sweep.api import Run, open_run
from sweep.cli import main
from sweep.commands.watch import sweep_view, take_snapshot
from sweep.store.home import Home
from sweep.store.ledger import open_ledger
from sweep.store.rows import Failure
from tests.sweep.commands.homes import write_sweep
from tests.sweep.engine.test_driver import CountingExecutor


def shown(run: Run) -> str:
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(sweep_view(run, take_snapshot(run)))
    return console.export_text()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home whose sweep was interrupted: mdml-csfn is complete, pdml-sfn is not."""
    from sweep.api import _drive, read_source
    from sweep.engine.progress import Silence

    folder = tmp_path_factory.mktemp("watch")
    home, source = Home(folder / "home"), read_source(str(write_sweep(folder)))
    with home.lock():
        ledger = open_ledger("sqlite", home)
        with pytest.raises(KeyboardInterrupt):
            _drive(source, home, ledger, Silence(), lambda plan: lambda: CountingExecutor(Counter(), 6))
        ledger.release()
    return home


def test_a_running_sweep_shows_progress_devices_failures_and_the_best(stopped: Home) -> None:
    ledger = open_ledger("sqlite", stopped)
    spec = next(spec for spec, _ in ledger.records("tiny") if spec.method == "mdml-csfn")
    failure = Failure.of(
        spec, attempt=1, kind="lost worker", message="NodeDiedError: gone", traceback="", seconds=3.0, final=False
    )
    ledger.fail("tiny", failure)
    state = {
        "done": 7, "total": 23, "exact": False, "failed": 0, "left": 16, "rate_per_second": 0.5, "seconds_left": 185.0,
        "running": ["a fit"], "since": [time.time()], "updated": time.time(),
        "devices": [{"device": "node GPU 3", "label": "digits pdml-sfn gamma=1", "since": time.time() - 70}],
    }  # fmt: skip
    with stopped.lock():
        stopped.write_state("tiny", state)
        text = shown(open_run("tiny", stopped.folder))
    assert "tiny: running" in text
    assert "6 of 14 tasks, 7 of at most 23 fits, 0 failed; 30/min" in text
    assert "in 3 min 05 s" in text
    assert "node GPU 3" in text
    assert "1 min 10 s" in text
    assert "NodeDiedError: gone" in text
    done = Counter(spec.method for spec, _ in ledger.records("tiny"))
    assert f"{done['mdml-csfn']}/5" in text
    assert f"{done['pdml-sfn']}/9" in text


def test_a_stopped_sweep_shows_no_devices_and_counts_no_more_tasks_than_fits(
    stopped: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped.write_state("tiny", {"done": 7, "total": 23, "left": 16, "failed": 0, "updated": time.time() - 5})
    text = shown(open_run("tiny", stopped.folder))
    assert "tiny: stopped" in text
    assert "device" not in text
    assert main(["status", "--home", str(stopped.folder)]) == 0
    line = capsys.readouterr().out.splitlines()[-1].split()
    assert line[:4] == ["tiny", "stopped", "6/14", "7/23"]


def test_without_a_terminal_the_view_is_printed_once(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--watch", "--home", str(finished / "home")]) == 0
    text = capsys.readouterr().out
    assert "tiny: complete" in text
    assert "after: complete" in text
    assert "14 of 14 tasks, 23 of 23 fits, 0 failed" in text
    rows = open_run("tiny", finished / "home").rows
    assert all(f"{row.test_score:.4f}" in text for row in rows)


def test_tasks_are_those_that_the_plan_counted(finished: Path) -> None:
    run = open_run("after", finished / "home")
    text = shown(run)
    planned = Counter[str]()
    for study in run.ledger.about("after")["studies"]:
        planned[study["method"]] += study["tasks"]
    assert planned == {"mdml-csfn": 2 * 5, "euc": 2}
    assert "10/10" in text
    assert "2/2" in text
