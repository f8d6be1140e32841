"""Data of the size of MIMIC and eICU through plan, run and report: five splits, a few fits, the driver's memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.benchmarks.conftest import print_table
from tests.conftest import ROOT
from tests.sweep.datasets.test_memory import SIZES, WRITE

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

MOST_GIB = 3.0

# The peak of this program's own memory (looked at ten times a second), and with what it shares with its workers, Ray's
# object store. Workers are processes of their own.
SWEEP = """
import sys, threading, time
from pathlib import Path
from sweep.cli import main

own = 0.0

def kept(what):
    return int(Path("/proc/self/status").read_text().split(what + ":")[1].split()[0]) / 2**20

def look():
    global own
    while True:
        own = max(own, kept("RssAnon"))
        time.sleep(0.1)

threading.Thread(target=look, daemon=True).start()
code = main()
print("peak", own, kept("VmHWM"), file=sys.stderr)
sys.exit(code)
"""


def test_five_splits_go_through_plan_run_and_report(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    for name, (n, n_train) in SIZES.items():
        subprocess.run([sys.executable, "-c", WRITE, name, str(n), str(n_train), str(home / "data")], check=True)
    document = {
        "name": "large",
        "datasets": list(SIZES),
        "splits": 5,
        "methods": ["euc", {"name": "pdml", "params": {"max_iter": 5}}],
        "grid": {"rank": [10]},
        "restarts": 1,
        "settings": {"n_pairs": 1000},
    }
    (tmp_path / "large.yaml").write_text(yaml.safe_dump(document))
    rows = []
    for arguments in (("plan", "large.yaml"), ("run", "large.yaml"), ("report", "large", "-o", "large.html")):
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", SWEEP, *arguments, "--home", str(home)],
            env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        own, shared = (float(peak) for peak in done.stderr.rsplit("peak", 1)[1].split()[:2])
        rows.append((arguments[0], f"{time.perf_counter() - began:.0f}", f"{own:.2f}", f"{shared:.2f}"))
    columns = ("sweep", "seconds", "driver's own GiB", "with the object store")
    print_table("39,000 and 53,000 x 1000 to learn from, five splits", columns, rows)
    assert all(float(row[2]) < MOST_GIB for row in rows)
