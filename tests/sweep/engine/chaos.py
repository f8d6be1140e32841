"""A multi-node Ray on this machine, and the means to kill any part of it."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from tests.sweep.engine.test_kill import committed

ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    # Find out about a dead node in seconds, not in a minute.
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "0",
}


class Pool:
    """A head without GPUs and worker nodes with one declared GPU each, as separate raylets."""

    def __init__(self, nodes: int) -> None:
        from ray.cluster_utils import Cluster

        os.environ.update(ENVIRONMENT)
        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
        self.address = str(self._cluster.address)
        self._nodes = [self._add() for _ in range(nodes)]

    def _add(self) -> Any:
        return self._cluster.add_node(num_cpus=2, num_gpus=1)

    def kill_node(self, choice: random.Random) -> None:
        """End a node without a word, and let another one join."""
        node = self._nodes.pop(choice.randrange(len(self._nodes)))
        self._cluster.remove_node(node, allow_graceful=False)
        self._nodes.append(self._add())

    def kill_head(self) -> None:
        """End every process of the head without a word: the cluster is gone."""
        for processes in self._cluster.head_node.all_processes.values():
            for process in processes:
                process.process.kill()

    def close(self) -> None:
        self._cluster.shutdown()


def kill_worker(choice: random.Random) -> bool:
    """Kill one process that is running a fit; False if there was none."""
    workers = busy_workers()
    if not workers:
        return False
    try:
        choice.choice(workers).send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return False
    return True


def busy_workers() -> list[psutil.Process]:
    """Processes that are running a fit now."""
    # Only descendants of this process: another sweep on the machine is none of our business.
    return [process for process in psutil.Process().children(recursive=True) if _runs_a_fit(process)]


def _runs_a_fit(process: psutil.Process) -> bool:
    try:
        title = " ".join(process.cmdline())
    except psutil.Error:  # gone meanwhile
        return False
    return title.startswith("ray::") and "dml-" in title


def start(file: Path, home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    with (home.parent / f"{home.name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "sweep", "run", str(file), "--home", str(home), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=os.environ | ENVIRONMENT,
        )


def hunt(file: Path, home: Path, seconds: float, kills: int, choice: random.Random) -> list[float]:
    """Kill drivers of a sweep at moments from their start to their end, at most so many; returns the moments.

    `seconds` is how long an undisturbed run takes. The last driver is left alone.
    """
    done: list[float] = []
    before: dict[str, float] = {}
    while True:
        process = fork_driver(file, home)
        moment = choice.uniform(0.0, seconds)
        process.join(moment if len(done) < kills else 3600)
        killed = process.is_alive()
        if killed:
            assert len(done) < kills, f"{home}: a driver that nobody disturbs does not end"
            process.kill()
            process.join()
        after = committed(home)
        assert before.items() <= after.items()  # nothing lost, nothing written anew
        before = after
        if process.exitcode != -signal.SIGKILL:  # it may have ended just before
            assert process.exitcode == 0, (home.parent / f"{home.name}.log").read_text()[-2000:]
            return done
        done.append(moment)


def fork_driver(file: Path, home: Path) -> multiprocessing.process.BaseProcess:
    """A driver whose fits run in its own process, with everything imported already: all of its life is the sweep's."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mlflow.store.tracking.sqlalchemy_store", "optuna", "sweep.cli", __name__])
    process = context.Process(target=_drive, args=(file, home))
    process.start()
    return process


def _drive(file: Path, home: Path) -> None:
    from sweep.cli import main

    with (home.parent / f"{home.name}.log").open("a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.exit(main(["run", str(file), "--home", str(home), "--address", "inline"]))


def storm(file: Path, home: Path, pool: Pool, kills: int, seed: int, fits: int) -> list[str]:
    """Run a sweep of so many fits to its end while killing workers, nodes and the driver; returns what was killed.

    How many fits are committed says when, so that a fast machine is hit as often as a slow one.
    """
    choice = random.Random(seed)
    plan = (["worker", "driver", "node", "worker"] * kills)[:kills]
    choice.shuffle(plan)
    moments = sorted(choice.sample(range(fits - 2), kills))
    done: list[str] = []
    process = start(file, home, "--address", pool.address)
    before: dict[str, float] = {}
    deadline = time.monotonic() + 120 + 40 * kills
    while True:
        assert time.monotonic() < deadline, done
        if process.poll() is not None:
            if len(done) >= kills or process.returncode == 0:
                break
            process = start(file, home, "--address", pool.address)
        time.sleep(0.05)
        # A kill counts only in the middle of the work; the start of a driver has tests of its own.
        if len(done) >= kills or len(committed(home)) < moments[len(done)] or not busy_workers():
            continue
        victim = plan[len(done)]
        if victim == "worker" and not kill_worker(choice):
            continue
        if victim == "node":
            pool.kill_node(choice)
        if victim == "driver":
            process.kill()
            process.wait()
        done.append(victim)
        after = committed(home)
        assert before.items() <= after.items()  # nothing lost, nothing written anew
        before = after
    return done
