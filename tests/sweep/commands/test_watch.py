"""The live view says how far each method is, what runs where and what failed."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from sweep.cli import main
from sweep.commands.watch import expected_tasks, sweep_view, take_snapshot
from sweep.store.home import Home
from sweep.store.ledger import Failure, Ledger
from tests.dashboards.synthetic import fill, sweep_spec


def shown(home: Home, ledger: Ledger, name: str) -> str:
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(sweep_view(home, ledger, name, ledger.sweeps()[name], take_snapshot(ledger, name)))
    return console.export_text()


def test_a_running_sweep_shows_progress_devices_failures_and_the_best(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ledger = fill(home, "live", methods=["mdml-csfn", "pdml-sfn"], keep=0.3)
    ledger.fail(
        "live",
        Failure("k", "digits pdml-sfn", "pdml-sfn", 1, "lost worker", "NodeDiedError: gone", "", 3.0, False, 0.0),
    )
    with home.lock():
        state = {
            "done": 30,
            "total": 400,
            "failed": 0,
            "left": 370,
            "rate_per_second": 2.0,
            "seconds_left": 185.0,
            "running": ["a fit"],
            "updated": time.time(),
            "devices": [{"device": "node GPU 3", "label": "digits pdml-sfn gamma=1", "since": time.time() - 70}],
        }
        home.write_state("live", state)
        text = shown(home, ledger, "live")
    assert "live: running" in text
    assert "in 3 min 05 s" in text
    assert "mdml-csfn" in text
    assert "13/13" in text
    assert "13/73" in text
    assert "node GPU 3" in text
    assert "1 min 10 s" in text
    assert "NodeDiedError: gone" in text
    best = next(row for row in ledger.records("live") if row[0].fold is None)[1].score
    assert f"{best:.4f}" in text


def test_a_stopped_and_a_complete_sweep_are_told_apart(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ledger = fill(home, "part", methods=["mdml-csfn"], keep=0.5)
    fill(home, "whole", methods=["mdml-cvnd"])
    assert "part: stopped" in shown(home, ledger, "part")
    assert "whole: complete" in shown(home, ledger, "whole")


def test_without_a_terminal_the_view_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(Home(tmp_path), "one", methods=["mdml-csfn"])
    assert main(["status", "--watch", "--home", str(tmp_path)]) == 0
    assert "one: complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("method", "tasks"),
    [("euc", 1), ("mdml-csfn", 4 * 3 + 1), ("pdml", 6 * 3 + 1), ("pdml-vnd", 4 * 6 * 3 + 1)],
)
def test_expected_tasks_follow_from_what_a_method_tunes(method: str, tasks: int) -> None:
    spec = sweep_spec("x", ["digits", "act"], [method], splits=5, folds=3)
    assert expected_tasks(spec, method) == tasks * 5 * 2
