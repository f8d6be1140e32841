"""The same sweep, undisturbed and under random kills of workers, nodes and driver, ends the same."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.sweep.engine.chaos import Pool, fork_driver, hunt, start, storm
from tests.sweep.engine.test_kill import mlflow_state, state

# The published algorithm takes its steps however easy the problem is: fits long enough to be hit.
SLOW_FITS = {"algorithm": "paper", "settings": {"n_pairs": 300, "max_iter": 1200}}


def run_both(file: Path, tmp_path: Path, kills: int, seed: int) -> None:
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    pool = Pool(nodes=2)
    try:
        assert start(file, calm, "--address", pool.address).wait(600) == 0
        done = storm(file, stormy, pool, kills, seed, fits=len(raw_keys(calm)))
        last = start(file, stormy, "--address", pool.address)
        assert last.wait(600) == 0
    finally:
        pool.close()
    kinds = Counter(done)
    print(f"\nseed {seed}: {len(done)} kills: {dict(kinds)}, in this order: {' '.join(done)}")
    assert len(done) >= kills
    assert all(kinds[kind] > 0 for kind in ("worker", "node", "driver"))
    compare(stormy, calm)


def compare(stormy: Path, calm: Path) -> None:
    """Nothing is missing, nothing there twice, nothing different, in the ledger and in MLflow."""
    keys = raw_keys(stormy)
    assert len(keys) == len(set(keys))
    assert set(keys) == set(raw_keys(calm))
    assert state(stormy) == state(calm)
    assert mlflow_state(stormy) == mlflow_state(calm)
    assert {status for _, status, _, _ in mlflow_state(stormy)} == {"FINISHED"}


def raw_keys(home: Path) -> list[str]:
    with sqlite3.connect(home / "ledger.sqlite") as connection:
        return [key for (key,) in connection.execute("SELECT key FROM fits")]


def chosen_seed() -> int:
    seed = int(os.environ.get("CHAOS_SEED") or int.from_bytes(os.urandom(2)))
    print(f"\nCHAOS_SEED={seed} repeats this run's choices")
    return seed


@pytest.mark.timeout(900)
def test_a_few_random_kills_change_nothing(sweep_file: Any, tmp_path: Path) -> None:
    run_both(sweep_file(**SLOW_FITS), tmp_path, kills=3, seed=7)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_twenty_random_kills_change_nothing(sweep_file: Any, tmp_path: Path) -> None:
    seed = chosen_seed()
    grid = {"gamma": [0.001, 0.01, 0.1, 1], "rank": [4, 8, 16]}
    file = sweep_file(grid=grid, methods=["mdml-csfn", "mdml-cldd", "pdml-sfn", "pdml-vnd"], **SLOW_FITS)
    run_both(file, tmp_path, kills=20, seed=seed)


@pytest.mark.chaos
@pytest.mark.timeout(6 * 3600)
def test_drivers_killed_at_any_moment_change_nothing(sweep_file: Any, tmp_path: Path) -> None:
    """CHAOS_KILLS drivers, 20 by default, from their first moment to their last, over as many homes as that takes."""
    kills, choice = int(os.environ.get("CHAOS_KILLS") or 20), random.Random(chosen_seed())
    file, calm = sweep_file(), tmp_path / "calm"
    for home in (tmp_path / "first", calm):  # the first one also waits for the imports
        began, process = time.monotonic(), fork_driver(file, home)
        process.join(3600)
        assert process.exitcode == 0
    seconds, homes = time.monotonic() - began, 0
    moments: Counter[str] = Counter()
    while moments.total() < kills:
        home, homes = tmp_path / f"home-{homes}", homes + 1
        killed = hunt(file, home, seconds, kills - moments.total(), choice)
        moments.update(f"{_part(moment, seconds)} third" for moment in killed)
        compare(home, calm)
        shutil.rmtree(home)
        print(f"{moments.total()} drivers killed over {homes} homes", flush=True)
    print(f"killed in which part of an undisturbed run's {seconds:.1f} s: {dict(sorted(moments.items()))}")


def _part(moment: float, seconds: float) -> str:
    return ("first", "second", "last")[min(2, int(3 * moment / seconds))]
