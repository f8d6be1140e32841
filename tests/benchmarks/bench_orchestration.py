"""What the orchestration costs beside the fits: overhead, reading back, recording, scaling, forecasts."""

from __future__ import annotations

import multiprocessing
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from sweep.api import about
from sweep.datasets.card import open_split
from sweep.engine.driver import Driver
from sweep.engine.executors import Executor, Finished, InlineExecutor, Job
from sweep.engine.progress import Progress
from sweep.engine.ray_executor import RayExecutor
from sweep.fits import FitOutcome, FitRecord, FitSpec, Place, Scores, Seconds, Solved, SplitData, Trial
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.store.recording import Recorder
from sweep.studies.adaptive import AdaptiveStudy, search_space
from sweep.studies.base import Size, Told
from sweep.studies.forecast import simulate
from sweep.studies.plan import make_plan
from sweep.studies.spec import Optuna
from sweep.studies.sweepfile import parse_spec
from tests.benchmarks.conftest import print_table
from tests.sweep.conftest import tiny

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]
# For every Ray of this process: its core remembers the mode of the first, and would refuse nodes of another.
os.environ["RAY_AUTH_MODE"] = "disabled"


def seconds_of(fit: FitSpec) -> float:
    return float(fit.trial.get("gamma") or 0.0)


def kept(fit: FitSpec, solve: float = 0.1) -> FitRecord:
    """A record as a fit would leave it."""
    scores = Scores(auc_all=0.5, auc_frequent=0.5, auc_infrequent=0.5, balance_score=0.0, ap_all=0.4, n_queries=9)
    if fit.fold is None:
        scores = replace(scores, npv=4, train_auc_all=0.6)
    place = Place(os.uname().nodename, os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES", ""), python="3", numpy="2")
    return FitRecord(fit.key, scores, Solved(objective=1.0), Seconds(solve=solve), place, time.time(), value=0.5)


def sleeping_fit(fit: FitSpec, data: SplitData, order: Any, help: Any = None) -> FitOutcome:
    """A fit that takes exactly as long as its gamma says."""
    time.sleep(seconds_of(fit))
    return FitOutcome(kept(fit, seconds_of(fit)), {})


def one_second_fit(fit: FitSpec, data: SplitData, order: Any, help: Any = None) -> FitOutcome:
    time.sleep(1.0)
    return FitOutcome(kept(fit, 1.0), {})


@dataclass
class ManyFits:
    """A study of independent fits, nothing to choose."""

    template: FitSpec
    fits: list[FitSpec]

    @property
    def size(self) -> Size:
        return Size(len(self.fits), len(self.fits))

    def start(self) -> list[FitSpec]:
        return self.fits

    def tell(self, spec: FitSpec, told: Told | None) -> list[FitSpec]:
        return []

    def withdrawn(self) -> list[str]:
        return []


def by_value(function: Callable[..., FitOutcome]) -> Callable[..., FitOutcome]:
    """Sent whole, not by its name: nodes started elsewhere than here cannot import the tests."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
    return function


def drive(folder: Path, study: Any, make_executor: Callable[[], Executor], *, warm: bool = True) -> float:
    """Seconds from the first fit to the last commit; the start of Ray and its processes is included if not `warm`."""
    home = Home(folder)
    home.create()
    ledger = Ledger(home.ledger_url)
    plan = make_plan(parse_spec(yaml.safe_dump(tiny()), "t.yaml"), home.data)
    ledger.open_sweep(plan.spec.name, plan.spec.without_secrets(), {})
    fit = study.template
    split = open_split(plan.choices[fit.dataset], home.data, 0, 2, 0, label=fit.dataset, fingerprint=fit.data)
    driver = Driver(
        replace(plan, studies=[study]), home=home, ledger=ledger, make_executor=make_executor, display=Progress("b")
    )
    driver._splits[fit.dataset, fit.split] = split
    executor = driver._executor_now() if warm else None
    waiting = executor.slots if executor else 0
    for k in range(waiting):  # at the same time, so that all processes are up before the clock starts
        executor.submit(Job(replace(fit, trial=Trial.of({"gamma": 3.0}), seed=k), lambda: split))
    while waiting:
        waiting -= len(executor.wait(1.0))
    began = time.time()
    driver.run()
    with sqlite3.connect(home.folder / "ledger.sqlite") as connection:
        return float(connection.execute("SELECT MAX(committed) FROM fits").fetchone()[0]) - began


def template() -> FitSpec:
    """The first study of the small sweep, on two folds."""
    with tempfile.TemporaryDirectory() as folder:
        plan = make_plan(parse_spec(yaml.safe_dump(tiny()), "t.yaml"), Path(folder))
    return plan.studies[0].template


def many(count: int, seconds: float) -> ManyFits:
    first = template()
    trials = [Trial.of({"gamma": seconds + 1e-9 * k}) for k in range(count)]  # a trial each
    return ManyFits(first, [replace(first, trial=trial, fold=0) for trial in trials])


def test_twenty_thousand_finished_fits_are_read_back_in_seconds(tmp_path: Path) -> None:
    grid = {"gamma": [round(1e-4 * 1.005**k, 9) for k in range(1000)], "rank": list(range(1, 11))}
    document = tiny(methods=["pdml-sfn"], grid=grid, restarts=1, folds=2, tracking={"mlflow": "none"})
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(document))
    home = Home(tmp_path / "home")
    home.create()
    ledger = Ledger(home.ledger_url)
    plan = make_plan(parse_spec(yaml.safe_dump(document), "s.yaml"), home.data)
    fits = plan.studies[0].start()
    assert len(fits) == 20_000

    chosen = Trial.of({"gamma": max(grid["gamma"]), "rank": 1})
    fits = [*fits, replace(fits[0], trial=chosen, fold=None)]
    ledger.commit_all((fit, kept(fit)) for fit in fits)
    ledger.open_sweep("tiny", plan.spec.without_secrets(), about(plan))
    ledger.adopt("tiny", [fit.key for fit in fits])
    ledger.close()
    seconds = {}
    for name, command in {"run": ["run", str(tmp_path / "s.yaml")], "status": ["status"]}.items():
        began = time.perf_counter()
        full = [sys.executable, "-m", "sweep", *command, "--home", str(home.folder)]
        # Writing 10,000 trials into MLflow is measured below.
        done = subprocess.run(full, capture_output=True, text=True)
        seconds[name] = time.perf_counter() - began
        assert done.returncode == 0, done.stderr
        assert name == "status" or " 0 fits computed" in done.stderr
    print(f"\n20,000 finished fits: run {seconds['run']:.1f} s, status {seconds['status']:.2f} s")
    assert seconds["run"] < 5
    assert seconds["status"] < 1


def test_recording_a_thousand_trials_costs_little(tmp_path: Path) -> None:
    """Against a sweep of 1,000 trials of one second on two workers."""
    home = Home(tmp_path)
    home.create()
    ledger = Ledger(home.ledger_url)
    document = tiny(grid={"gamma": [round(1e-4 * 1.01**k, 9) for k in range(1000)]}, methods=["mdml-csfn"])
    plan = make_plan(parse_spec(yaml.safe_dump(document), "s.yaml"), home.data)
    fits = plan.studies[0].start()
    ledger.open_sweep("tiny", plan.spec.without_secrets(), {})
    ledger.adopt("tiny", [fit.key for fit in fits])
    ledger.commit_all((fit, kept(fit, 0.5)) for fit in fits)
    recorder = Recorder("tiny", "sqlite", None, home, ledger, print)
    began = time.perf_counter()
    assert recorder.sync() == 1000
    seconds = time.perf_counter() - began
    sweep_seconds = len(fits) * 0.5 / 2
    share = 100 * seconds / sweep_seconds
    print(f"\n1,000 trials recorded in {seconds:.1f} s: {share:.1f} % of a sweep of {sweep_seconds:.0f} s")
    assert seconds < 0.1 * sweep_seconds


class Instant(InlineExecutor):
    """Fits that take no time, with the memory of this process as they come in."""

    def __init__(self) -> None:
        super().__init__()
        self.done, self.megabytes = 0, {}

    def wait(self, seconds: float) -> list[Finished]:
        if not self._queue:
            return []
        job = self._queue.popleft()
        self.done += 1
        if self.done % 10_000 == 0:
            self.megabytes[self.done] = psutil.Process().memory_info().rss / 1e6
        return [Finished(job.spec, FitOutcome(kept(job.spec, 0.0), {}))]


def test_the_drivers_memory_stays_flat(tmp_path: Path) -> None:
    executor = Instant()
    drive(tmp_path, many(100_000, 0.0), lambda: executor)
    print_table("Memory over 100,000 fits", ("fits", "MB"), [(n, f"{mb:.0f}") for n, mb in executor.megabytes.items()])
    assert executor.megabytes[100_000] < 1.1 * executor.megabytes[10_000]


def test_scaling_over_declared_gpus(tmp_path: Path) -> None:
    import ray
    from ray.cluster_utils import Cluster

    rows = []
    for gpus in (2, 4, 8, 16):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
        for _ in range(2):
            cluster.add_node(num_cpus=gpus, num_gpus=gpus // 2)
        try:
            seconds = drive(
                tmp_path / str(gpus), many(240, 1.0),
                lambda address=cluster.address: RayExecutor(address, gpus_per_fit=1, function=by_value(sleeping_fit)),
            )  # fmt: skip
        finally:
            ray.shutdown()
            cluster.shutdown()
        rows.append((gpus, f"{seconds:.1f}", f"{240 / gpus / seconds:.2f}"))
    paper = simulate([([1.0] * 240, [])], 40, 0.0)
    rows.append(("40, simulated", f"{paper:.1f}", f"{240 / 40 / paper:.2f}"))
    print_table("240 fits of one second", ("GPUs", "seconds", "efficiency"), rows)
    assert all(float(row[2]) > 0.9 for row in rows[:-1])


def test_one_adaptive_study_fills_eight_gpus(tmp_path: Path) -> None:
    import ray
    from ray.cluster_utils import Cluster

    first = replace(template(), folds=2)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    for _ in range(2):
        cluster.add_node(num_cpus=4, num_gpus=4)
    study = AdaptiveStudy(first, search_space({"gamma": [1e-4, 1.0]}), Optuna(trials=120, prune_folds=False))
    try:
        seconds = drive(
            tmp_path, study, lambda: RayExecutor(cluster.address, gpus_per_fit=1, function=by_value(one_second_fit))
        )
    finally:
        ray.shutdown()
        cluster.shutdown()
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        fits = int(connection.execute("SELECT COUNT(*) FROM fits").fetchone()[0])
    efficiency = fits / 8 / seconds
    print(
        f"\none Optuna study, {fits} one-second fits on 8 declared GPUs: {seconds:.1f} s, efficiency {efficiency:.2f}"
    )
    assert efficiency > 0.85


def run_beside(folder: Path, address: str, count: int) -> None:
    """A user's sweep of one-second fits, in a process of its own."""
    task = by_value(sleeping_fit)
    drive(folder, many(count, 1.0), lambda: RayExecutor(address, gpus_per_fit=1, function=task))


def commits(folder: Path) -> list[float]:
    try:
        with sqlite3.connect(f"file:{folder / 'ledger.sqlite'}?mode=ro", uri=True) as connection:
            return [float(t) for (t,) in connection.execute("SELECT committed FROM fits ORDER BY committed")]
    except sqlite3.OperationalError:  # not there yet
        return []


def test_two_users_share_a_cluster(tmp_path: Path) -> None:
    """The second comes while the first has more fits than the cluster has GPUs."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 8, "num_gpus": 4})
    first, second = tmp_path / "first", tmp_path / "second"
    context = multiprocessing.get_context("spawn")
    users = [
        context.Process(target=run_beside, args=(first, cluster.address, 4000)),
        context.Process(target=run_beside, args=(second, cluster.address, 40)),
    ]
    try:
        users[0].start()
        while len(commits(first)) < 12:
            assert users[0].is_alive()
            time.sleep(0.5)
        users[1].start()
        users[1].join()
        assert users[0].is_alive()  # it had fits all the time
    finally:
        users[0].kill()
        cluster.shutdown()
    assert users[1].exitcode == 0
    theirs = commits(second)
    begin, end = theirs[0], theirs[-1]
    mine = [t for t in commits(first) if begin <= t <= end]
    share = len(theirs) / (len(theirs) + len(mine))
    print(f"\nsecond user: {share:.2f} of the fits while both had some, in {end - begin:.0f} s")
    assert 0.33 < share < 0.67


def test_the_forecast_is_within_a_quarter(tmp_path: Path) -> None:
    grid = {"gamma": [0.001, 0.01, 0.1, 1], "rank": [4, 8, 16, 24]}
    document = tiny(grid=grid, folds=3, restarts=5, settings={"n_pairs": 1000})
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(document))
    home = str(tmp_path / "home")
    run = [sys.executable, "-m", "sweep"]
    subprocess.run([*run, "plan", str(tmp_path / "s.yaml"), "--pilot", "--gpus", "2", "--home", home], check=True)
    command = [*run, "run", str(tmp_path / "s.yaml"), "--home", home]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    line = next(line for line in done.stderr.splitlines() if "predicted" in line)
    print("\n" + line)
    predicted, took = (
        sum(float(v) * {"s": 1, "min": 60, "h": 3600}[u] for v, u in re.findall(r"(\d+) (s|min|h)\b", part))
        for part in (line.split("predicted ")[1].split(" (")[0], line.split("took ")[1])
    )
    assert abs(predicted - took) <= 0.25 * took
