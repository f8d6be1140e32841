"""A node that is taken away is told from one that dies under its fit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweep.engine.failures import is_preemption

pytestmark = pytest.mark.serial


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without CPUs, so that every task runs on a node that can be taken away."""
    import ray
    from ray.cluster_utils import Cluster

    before = os.environ.get("RAY_AUTH_MODE")
    os.environ["RAY_AUTH_MODE"] = "disabled"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()
    os.environ.pop("RAY_AUTH_MODE")
    if before is not None:
        os.environ["RAY_AUTH_MODE"] = before


def fails(cluster: Any, end: Callable[[Any, Any], None], begun: Path) -> BaseException:
    """What Ray says of a task whose node `end` takes away."""
    import ray

    node = cluster.add_node(num_cpus=1)

    @ray.remote(max_retries=0, num_cpus=1)
    def sleep() -> None:
        begun.touch()
        time.sleep(100)

    reference = sleep.remote()
    while not begun.exists():
        time.sleep(0.1)
    end(cluster, node)
    with pytest.raises(ray.exceptions.RayError) as caught:
        ray.get(reference, timeout=60)
    return caught.value


def preempted(cluster: Any, node: Any) -> None:
    """As a cloud does it: a notice, and soon the plug is pulled."""
    from ray._raylet import GcsClient
    from ray.core.generated import autoscaler_pb2

    reason = autoscaler_pb2.DrainNodeReason.DRAIN_NODE_REASON_PREEMPTION
    accepted, _ = GcsClient(address=cluster.address).drain_node(
        node.node_id, reason, "spot", int(time.time() * 1000) + 5000
    )
    assert accepted
    time.sleep(0.5)
    cluster.remove_node(node, allow_graceful=False)


def removed(cluster: Any, node: Any) -> None:
    cluster.remove_node(node, allow_graceful=True)


def killed(cluster: Any, node: Any) -> None:
    cluster.remove_node(node, allow_graceful=False)


@pytest.mark.parametrize(("end", "expected"), [(preempted, True), (removed, True), (killed, False)])
def test_only_a_node_that_was_taken_away_is_not_the_fits_fault(
    cluster: Any, end: Callable[[Any, Any], None], expected: bool, tmp_path: Path
) -> None:
    error = fails(cluster, end, tmp_path / "begun")
    assert type(error).__name__ == "NodeDiedError"
    assert is_preemption(error) is expected


def test_a_fit_that_kills_its_worker_is_at_fault(cluster: Any) -> None:
    import ray

    node = cluster.add_node(num_cpus=1)

    @ray.remote(max_retries=0, num_cpus=1)
    def crash() -> None:
        os._exit(9)

    with pytest.raises(ray.exceptions.WorkerCrashedError) as caught:
        ray.get(crash.remote(), timeout=60)
    assert not is_preemption(caught.value)
    cluster.remove_node(node)


def test_an_ordinary_error_is_no_preemption() -> None:
    assert not is_preemption(ValueError("node ID: abc"))
