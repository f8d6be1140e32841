"""The same function a thousand times, by us and by what a user would take instead.

Each runner is measured with its processes up and waiting, and with their start inside the clock, five times each in
turn; medians with their range. BENCH_TRIALS and BENCH_RUNS make it smaller to try it out.

What they do beside the calls differs: we commit every result to a database on disk, Optuna appends it to a journal,
Ray Tune writes files per trial, GridSearchCV and Dask keep results in memory.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.conftest import print_table
from tests.benchmarks.orchestrators import RUNNERS
from tests.conftest import ROOT

pytestmark = [pytest.mark.bench, pytest.mark.timeout(7200)]
SECONDS, WORKERS = 0.02, 2
TRIALS = int(os.environ.get("BENCH_TRIALS", "1000"))
RUNS = int(os.environ.get("BENCH_RUNS", "5"))


def measure(who: str, folder: Path) -> tuple[float, float]:
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "tests.benchmarks.orchestrators", who, str(TRIALS), str(SECONDS), str(WORKERS)]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    }
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    warm, whole = map(float, done.stdout.split()[-2:])
    return warm, whole


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def test_a_thousand_calls_beside_what_others_would_take(tmp_path: Path) -> None:
    for package in ("distributed", "ray.tune"):
        pytest.importorskip(package, reason="needs the bench extra: pip install 'orthosweep[bench]'")
    found: dict[str, list[tuple[float, float]]] = {who: [] for who in RUNNERS}
    for run in range(RUNS):  # in turn, so that a slow minute of the machine hits all
        for number, who in enumerate(RUNNERS):
            found[who].append(measure(who, tmp_path / f"{run}-{number}"))
    ideal = TRIALS * SECONDS / WORKERS
    rows, warm = [], {}
    for who, times in found.items():
        ups, wholes = [list(each) for each in zip(*times, strict=True)]
        warm[who] = statistics.median(ups)
        rows.append((who, spread(ups), spread(wholes), f"{1000 * (warm[who] - ideal) / TRIALS:.2f}"))
    columns = ("who", "s, processes up", "s, with their start", "ms per call over the ideal")
    title = f"{TRIALS} calls of {1000 * SECONDS:.0f} ms on {WORKERS} processes, ideal {ideal:.1f} s, median of {RUNS}"
    print_table(title, columns, rows)
    assert warm["orthosweep"] <= 1.25 * ideal
    assert warm["orthosweep"] <= 1.3 * warm["GridSearchCV"]
    assert warm["Ray Tune"] - ideal >= 5 * (warm["orthosweep"] - ideal)
