"""The paper's largest datasets, in size: what the driver holds while it plans, runs and reports."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml

from tests.benchmarks.conftest import print_table

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
SIZES = {"mimic-sized": (39_000, 150), "eicu-sized": (53_000, 120)}  # rows, classes


def test_five_splits_of_data_as_large_as_the_papers_stay_below_three_gigabytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, (rows, classes) in SIZES.items():
        y = rng.integers(classes, size=rows)
        X = (rng.normal(size=(classes, 1000))[y] + rng.normal(size=(rows, 1000))).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", X=X, y=y)
        del X
    document = {
        "name": "large",
        "datasets": [f"{name}.npz" for name in SIZES],
        "splits": 5,
        "methods": ["euc", "mdml-csfn"],
        "grid": {"gamma": [1.0]},
        "folds": 2,
        "settings": {"n_pairs": 2000, "tol": 0.01},
    }
    (tmp_path / "large.yaml").write_text(yaml.safe_dump(document))
    rows_shown = []
    for command in (["plan", "large.yaml"], ["run", "large.yaml"], ["report", "large"]):
        began = time.perf_counter()
        peak = peak_of([sys.executable, "-m", "sweep", *command, "--home", "home"], tmp_path)
        rows_shown.append((command[0], f"{peak / 1e9:.2f}", f"{time.perf_counter() - began:.0f}"))
        assert peak < 3e9
    print_table("39,000 and 53,000 x 1000, five splits", ("command", "GB of the driver, peak", "s"), rows_shown)


def peak_of(command: list[str], folder: Path) -> int:
    """The most memory that a process held itself, without what Ray shares between processes."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=folder, env=environment) as process:
        watched, peak = psutil.Process(process.pid), 0
        while process.poll() is None:
            try:
                memory = watched.memory_info()
                peak = max(peak, memory.rss - memory.shared)
            except psutil.NoSuchProcess:
                break
            time.sleep(0.05)
    assert process.returncode == 0
    return peak
