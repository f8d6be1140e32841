"""Each task sees exactly the device it was given, and CPU work sees none. GPUs are declared, not real."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sweep.engine.executors import Job
from sweep.engine.ray_executor import RayExecutor
from sweep.engine.sharing import Neighbours, _taken, fair_share, whole
from sweep.fits import FitOutcome, FitRecord, FitSpec, Help, Place, Scores, Seconds, Solved, SplitData
from tests.sweep.studies.playing import template

pytestmark = pytest.mark.serial


def probe(fit: FitSpec, data: SplitData, order: Any, help: Help) -> FitOutcome:
    """Report what a task sees instead of fitting."""
    import ray

    began = time.time()
    time.sleep(0.3)
    seen = {
        "given": ",".join(map(str, ray.get_gpu_ids())),
        "writable": bool(data.X_train.flags.writeable),
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }
    place = Place(pid=os.getpid(), visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"))
    seconds = Seconds(solve=time.time() - began)
    return FitOutcome(FitRecord(fit.key, Scores(auc_all=0.5), Solved(params=seen), seconds, place, began, 0.5))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """One node with four declared GPUs."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "1"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 6, "num_gpus": 4})
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def outcomes(cluster: Any) -> list[tuple[FitSpec, FitRecord]]:
    """Twelve GPU fits and four CPU fits."""
    executor = RayExecutor(cluster.address, gpus_per_fit=1, function=probe)
    try:
        zeros = np.zeros((4, 2)), np.zeros(4, dtype=int)
        data = SplitData(*zeros, *zeros, fold_of=np.zeros(4, dtype=int), class_sizes=np.array([4]))
        waiting = [replace(template(), seed=k, method="ilhd" if k % 4 == 3 else "mdml-csfn") for k in range(16)]
        found = []
        assert executor.slots == 4
        while waiting or len(found) < 16:
            while waiting and executor.room("") > 0:
                executor.submit(Job(waiting.pop(), lambda: data))
            for finished in executor.wait(1.0):
                assert finished.outcome is not None, finished.message
                found.append((finished.spec, finished.outcome.record))
        return found
    finally:
        executor.close()


def test_a_gpu_fit_sees_exactly_its_own_device(outcomes: list[tuple[FitSpec, FitRecord]]) -> None:
    on_gpu = [record for fit, record in outcomes if fit.method != "ilhd"]
    assert {record.place.visible_devices for record in on_gpu} <= {"0", "1", "2", "3"}
    assert len({record.place.visible_devices for record in on_gpu}) > 1
    assert all(record.place.visible_devices == record.fit.params["given"] for record in on_gpu)


def test_two_fits_never_share_a_device_at_a_time(outcomes: list[tuple[FitSpec, FitRecord]]) -> None:
    on_gpu = sorted((r for fit, r in outcomes if fit.method != "ilhd"), key=lambda r: r.started)
    for earlier, later in itertools.pairwise(on_gpu):
        overlap = later.started < earlier.started + earlier.seconds.solve - 0.01
        assert not (overlap and later.place.visible_devices == earlier.place.visible_devices)


def test_a_cpu_fit_sees_no_gpu(outcomes: list[tuple[FitSpec, FitRecord]]) -> None:
    assert {record.place.visible_devices for fit, record in outcomes if fit.method == "ilhd"} == {""}


def test_data_is_shared_read_only_and_processes_are_reused(outcomes: list[tuple[FitSpec, FitRecord]]) -> None:
    assert not any(record.fit.params["writable"] for _, record in outcomes)
    assert len({record.place.pid for _, record in outcomes}) < len(outcomes)
    assert {record.fit.params["threads"] for _, record in outcomes} == {"1"}


def test_a_driver_leaves_its_share_to_another_and_takes_it_back(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.engine.ray_executor._LOOK_SECONDS", 0.0)
    executor = RayExecutor(cluster.address, gpus_per_fit=1, function=probe)
    try:
        alone = executor.room("")
        assert alone > 4  # some wait at Ray, for the next free worker
        other = Neighbours()
        assert other.tell({"GPU": 1.0}) == [{"GPU": 0.0}]
        assert executor.room("") == 3  # it needs no more
        other.tell({"GPU": 4.0})
        assert executor.room("") == 2
        other.leave()
        assert executor.room("") == alone
    finally:
        executor.close()


@pytest.mark.parametrize(
    "entry",
    [None, b"", b"no json", b"[]", b'{"at": 9e99}', b'{"at": 0, "taken": {"GPU": 1}}', b'{"at": 9e99, "taken": 3}'],
)
def test_what_cannot_be_read_or_is_old_counts_for_nothing(entry: bytes | None) -> None:
    assert _taken(entry) is None


@pytest.mark.parametrize(
    ("others", "share"), [([], 8), ([8.0], 4), ([1.0], 7), ([0.0], 8), ([8.0, 8.0], 3), ([0.5], 8)]
)
def test_shares_are_equal_and_leave_nothing_idle(others: list[float], share: int) -> None:
    assert whole(fair_share(8, others)) == share
