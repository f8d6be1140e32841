"""One runner of many calls of one function, in a process of its own: how long, with and without its start.

python -m tests.benchmarks.orchestrators WHO COUNT SECONDS WORKERS FOLDER

Prints two numbers: seconds of all calls with processes that are up and waiting, and seconds from before the first
process was started. Python's own imports are in neither.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator


def work(seconds: float) -> float:
    time.sleep(seconds)
    return 0.0


def ours(count: int, seconds: float, workers: int, folder: str) -> tuple[float, float]:
    """Every result in the ledger, on disk, before the next is counted."""
    from sweep.engine.ray_executor import RayExecutor
    from tests.benchmarks.bench_orchestration import by_value, drive, many, sleeping_fit

    fits, task = many(count, seconds), by_value(sleeping_fit)

    def executor() -> RayExecutor:
        return RayExecutor(None, gpus_per_fit=0, function=task)

    whole = drive(Path(folder) / "whole", fits, executor, warm=False)
    return drive(Path(folder) / "warm", fits, executor), whole


def ray_tune(count: int, seconds: float, workers: int, folder: str) -> tuple[float, float]:
    """Actors are used again from trial to trial. The start counted is Ray's alone, which favours Tune a little."""
    import ray
    from ray import tune

    def trainable(config: dict[str, Any]) -> dict[str, float]:
        return {"score": work(seconds)}

    def fit(name: str, number: int) -> None:
        tune.Tuner(
            trainable,
            param_space={"k": tune.grid_search(list(range(number)))},
            tune_config=tune.TuneConfig(reuse_actors=True),
            run_config=tune.RunConfig(storage_path=folder, name=name, verbose=0),
        ).fit()

    began = time.perf_counter()
    ray.init(address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
    started = time.perf_counter() - began
    fit("first", workers)  # worker processes are up and have imported Tune
    began = time.perf_counter()
    fit("all", count)
    warm = time.perf_counter() - began
    return warm, started + warm


class Sleeper(BaseEstimator):  # type: ignore[misc]
    def __init__(self, k: int = 0, seconds: float = 0.0) -> None:
        self.k = k
        self.seconds = seconds

    def fit(self, X: Any, y: Any = None) -> Sleeper:
        work(self.seconds)
        return self

    def score(self, X: Any, y: Any = None) -> float:
        return 0.0


def grid_search(count: int, seconds: float, workers: int, folder: str) -> tuple[float, float]:
    """The second search finds joblib's workers of the first one."""
    from sklearn.model_selection import GridSearchCV

    whole = [(np.arange(4), np.arange(4))]
    times = []
    for _ in range(2):
        search = GridSearchCV(
            Sleeper(seconds=seconds), {"k": list(range(count))}, cv=whole, n_jobs=workers, refit=False
        )
        began = time.perf_counter()
        search.fit(np.zeros((4, 1)), np.zeros(4))
        times.append(time.perf_counter() - began)
    return times[1], times[0]


def dask(count: int, seconds: float, workers: int, folder: str) -> tuple[float, float]:
    from distributed import Client, LocalCluster

    began = time.perf_counter()
    options = {"n_workers": workers, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**options, local_directory=folder) as cluster, Client(cluster) as client:
        client.wait_for_workers(workers)
        started = time.perf_counter() - began
        client.gather(client.map(work, [0.0] * workers, pure=False))
        began = time.perf_counter()
        client.gather(client.map(work, [seconds] * count, pure=False))
        warm = time.perf_counter() - began
    return warm, started + warm


def optuna(count: int, seconds: float, workers: int, folder: str) -> tuple[float, float]:
    """Processes that share a journal, each with its part of the trials; values drawn at random, which costs least."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(workers + 1)
    began = time.perf_counter()
    processes = [
        context.Process(target=_optimize, args=(count // workers, seconds, folder, number, ready))
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    ready.wait()
    warm_began = time.perf_counter()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    ended = time.perf_counter()
    return ended - warm_began, ended - began


def _optimize(count: int, seconds: float, folder: str, seed: int, ready: Any) -> None:
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        study_name="s",
        storage=JournalStorage(JournalFileBackend(f"{folder}/journal")),
        sampler=optuna.samplers.RandomSampler(seed=seed),
        load_if_exists=True,
    )

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_float("k", 0, 1)
        return work(seconds)

    ready.wait()
    study.optimize(objective, n_trials=count)


RUNNERS: dict[str, Callable[[int, float, int, str], tuple[float, float]]] = {
    "orthosweep": ours,
    "Ray Tune": ray_tune,
    "GridSearchCV": grid_search,
    "dask.distributed": dask,
    "Optuna": optuna,
}

if __name__ == "__main__":
    who, count, seconds, workers, folder = sys.argv[1:]
    print(*RUNNERS[who](int(count), float(seconds), int(workers), folder))
