"""metric-learn's LMNN and ITML and scikit-learn's NCA beside our methods, all through `sweep run`.

They go in by dotted path like any estimator of a user. Every method gets the same splits, folds and number of values to
tune; scores are on the test part, seconds are those of all its fits, tuning included. Median over splits with range.
BENCH_RUNS splits; BENCH_DATASETS="wine" makes it small enough to try it out.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from tests.benchmarks.conftest import print_table
from tests.conftest import ROOT

pytestmark = [pytest.mark.bench, pytest.mark.timeout(7200)]
RUNS = int(os.environ.get("BENCH_RUNS", "5"))
DATASETS = os.environ.get("BENCH_DATASETS", "iris wine cancer digits").split()
LOADERS = {"iris": load_iris, "wine": load_wine, "cancer": load_breast_cancer, "digits": load_digits}
METHODS: list[Any] = [
    "euc",
    {"name": "metric-learn LMNN", "estimator": "metric_peers:LMNN", "tune": {"n_neighbors": [1, 3, 5]}},
    {"name": "lmnn", "tune": {"n_neighbors": [1, 3, 5]}},
    {"name": "metric-learn ITML", "estimator": "metric_peers:ITML", "tune": {"gamma": [0.1, 1.0, 10.0]}},
    {"name": "itml", "tune": {"slack_weight": [0.1, 1.0, 10.0]}},  # what metric-learn calls gamma
    {
        "name": "scikit-learn NCA",
        "estimator": "sklearn.neighbors:NeighborhoodComponentsAnalysis",
        "tune": {"n_components": [2, 5, 10]},
    },
    "mdml-csfn",
    "mdml-cvnd",
]


def methods(n_features: int) -> list[Any]:
    """`METHODS`, projections onto no more dimensions than there are."""
    return [
        each
        if isinstance(each, str) or "n_components" not in each.get("tune", {})
        else each | {"tune": {"n_components": sorted({min(k, n_features) for k in each["tune"]["n_components"]})}}
        for each in METHODS
    ]


def spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


@pytest.mark.parametrize("dataset", DATASETS)
def test_scores_and_seconds_beside_other_packages(dataset: str, tmp_path: Path) -> None:
    pytest.importorskip("metric_learn", reason="needs the bench extra: pip install 'orthosweep[bench]'")
    X, y = LOADERS[dataset](return_X_y=True)
    np.savez(tmp_path / f"{dataset}.npz", X=X, y=y)
    shutil.copy(Path(__file__).with_name("metric_peers.py"), tmp_path)
    document = {
        "name": "peers",
        "datasets": [{"name": f"{dataset}.npz", "scaling": "minmax"}],
        "splits": RUNS,
        "folds": 3,
        "methods": methods(X.shape[1]),
        "grid": {"gamma": [0.001, 0.01, 0.1]},
        "code": ["metric_peers.py"],
        "tracking": {"mlflow": "none"},
    }
    (tmp_path / "peers.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

    def sweep(*arguments: str) -> str:
        command = [sys.executable, "-m", "sweep", *arguments, "--home", "home"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    sweep("run", "peers.yaml")
    found = json.loads(sweep("results", "peers", "--format", "json"))
    rows = []
    for method in (each if isinstance(each, str) else each["name"] for each in METHODS):
        own = [row for row in found if row["method"] == method]
        assert len(own) == RUNS, method
        aucs, seconds = [row["test_score"] for row in own], [row["fit_seconds"] for row in own]
        rows.append((method, spread(aucs, 4), spread(seconds, 2)))
    n, d = X.shape
    print_table(f"{dataset}, {n} x {d}, {RUNS} splits", ("method", "AUC on the test part", "s of all fits"), rows)
