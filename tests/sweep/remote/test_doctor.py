"""The doctor names each problem with the way out, and finds nothing where nothing is wrong."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweep.remote.doctor import Node, Problem, _skew, find_problems, home_problems
from sweep.remote.home_facts import HomeFacts, home_facts
from sweep.remote.node_facts import _unreachable, code_fingerprint, examine
from sweep.store.filesystem import FileSystem

GPU = {"name": "NVIDIA L4", "memory_gb": 24.0, "eigh_seconds": 0.1}
HEALTHY = Node(
    name="a (10.0.0.1)",
    declared_gpus=1,
    object_store_gb=6.0,
    found={
        "code": "0.1.0 (abc)",
        "driver": {"version": "570.1", "gpus": [GPU]},
        "gpus": {"cupy": "14.2.0", "cuda": "12.9", "driver_cuda": "12.8", "devices": [GPU]},
        "disk_free_gb": 100.0,
        "shared_memory_gb": 8.0,
        "unreachable": {},
    },
)


def with_found(**changes: Any) -> Node:
    return replace(HEALTHY, found=HEALTHY.found | changes)


def gpus(**changes: Any) -> dict[str, Any]:
    return HEALTHY.found["gpus"] | changes


SICK = {
    "declared but absent": (
        with_found(driver={"error": "nvidia-smi is not there"}, gpus=gpus(devices=[], error="no driver")),
        "1 GPU(s) declared to Ray, 0 usable: no NVIDIA driver answers (nvidia-smi is not there)",
        "--num-gpus=0",
    ),
    "no CuPy": (
        with_found(gpus={"error": "CuPy is not installed", "devices": []}),
        "CuPy is not installed",
        "orthosweep[gpu]",
    ),
    "CuPy newer than the driver": (
        with_found(gpus=gpus(cuda="13.0", devices=[], error="insufficient driver")),
        "driver 570.1 knows CUDA 12.8, CuPy 14.2.0 is built for 13.0",
        "update the driver",
    ),
    "fewer than declared": (
        replace(HEALTHY, declared_gpus=2),
        "2 GPU(s) declared to Ray, 1 usable",
        "--num-gpus",
    ),
    "a broken device": (
        with_found(gpus=gpus(devices=[{"name": "GPU 0", "error": "ECC error"}])),
        "ECC error",
        "nvidia-smi",
    ),
    "no CUDA libraries": (
        with_found(gpus=gpus(devices=[{"name": "GPU 0", "error": "ImportError: libcusolver.so.11: cannot open"}])),
        "libcusolver.so.11",
        "cupy-cuda12x[ctk]",
    ),
    "other code": (with_found(code="0.1.0 (xyz)"), "the others have 0.1.0 (abc)", "setup again"),
    "wrong clock": (replace(HEALTHY, skew_seconds=-7.0), "clock is off by -7.0 s", "time synchronisation"),
    "full disk": (with_found(disk_free_gb=1.0), "1.0 GB of disk left", "free at least"),
    "small object store": (
        replace(HEALTHY, object_store_gb=0.1),
        "object store of 0.10 GB",
        "--object-store-memory",
    ),
    "small shared memory": (with_found(shared_memory_gb=0.06), "0.1 GB free in /dev/shm", "--shm-size"),
    "no way to MLflow": (
        with_found(unreachable={"mlflow": "ml:5000: refused"}),
        "cannot reach mlflow at ml:5000: refused",
        "tracking.mlflow",
    ),
    "not examined": (
        replace(HEALTHY, found={}, error="cannot be examined: No module named 'sweep'"),
        "sweep",
        "install",
    ),
}


@pytest.mark.parametrize("illness", SICK)
def test_each_problem_comes_with_the_way_out(illness: str) -> None:
    node, what, remedy = SICK[illness]
    sick = replace(node, name="b (10.0.0.2)")
    problems = find_problems([HEALTHY, replace(HEALTHY, name="c (10.0.0.3)"), sick], 0)
    assert [problem.node for problem in problems] == ["b (10.0.0.2)"]
    assert what in problems[0].what
    assert remedy in problems[0].remedy


def test_a_healthy_cluster_has_no_problems() -> None:
    assert find_problems([HEALTHY, replace(HEALTHY, name="b")], 2) == []


def test_nodes_without_declared_gpus_need_none() -> None:
    node = with_found(driver={"error": "nvidia-smi is not there"}, gpus={"error": "no CuPy", "devices": []})
    assert find_problems([replace(node, declared_gpus=0)], 0) == []


def test_missing_gpus_are_a_problem_of_the_cluster() -> None:
    expected = Problem("cluster", "3 GPUs expected, 1 there", "look for nodes that did not come up")
    assert find_problems([HEALTHY], 3) == [expected]


@pytest.mark.parametrize(("sent", "clock", "received", "skew"), [(10, 10.5, 11, 0), (10, 13, 11, 2), (10, 7, 11, -3)])
def test_only_what_the_delay_cannot_explain_counts_as_skew(
    sent: float, clock: float, received: float, skew: float
) -> None:
    assert _skew(sent, clock, received) == skew


def test_a_server_is_reachable_or_it_is_said_why_not() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert _unreachable(f"postgresql+psycopg://user:secret@127.0.0.1:{port}/sweeps") == ""
    reason = _unreachable(f"postgresql+psycopg://user:secret@127.0.0.1:{port}/sweeps")
    assert reason.startswith(f"127.0.0.1:{port}: ")
    assert "secret" not in reason
    assert _unreachable("sqlite") == ""


def test_examine_sees_this_machine() -> None:
    found = examine({})
    assert found["code"] == code_fingerprint()
    assert found["cpu_eigh_seconds"] > 0
    assert found["disk_free_gb"] > 0
    assert found["unreachable"] == {}


def test_a_declared_but_absent_gpu_is_found_on_a_real_node() -> None:
    import ray

    from solvers.backend import gpu_count
    from sweep.remote.doctor import _look_at

    if gpu_count():
        pytest.skip("this machine has a GPU")
    ray.init(address="local", num_cpus=1, num_gpus=1, include_dashboard=False, log_to_driver=False)
    try:
        nodes = [_look_at(ray, node, {"urls": {"mlflow": "http://127.0.0.1:9"}, "works": []}) for node in ray.nodes()]
    finally:
        ray.shutdown()
    problems = find_problems(nodes, 1)
    assert ["1 GPU(s) declared to Ray, 0 usable" in p.what for p in problems] == [True, False]
    assert "cannot reach mlflow at 127.0.0.1:9" in problems[1].what
    assert abs(nodes[0].skew_seconds) < 1


# -- the home -----------------------------------------------------------------------------------------

GOOD_HOME = HomeFacts("/data/home", "ext4", network=False, writable=True, locks=True, free_gb=100.0, consequence="")


@pytest.mark.parametrize(
    ("changes", "what", "remedy"),
    [
        ({"writable": False, "locks": False}, "cannot be written to", "--home"),
        ({"free_gb": 1.0}, "1.0 GB of disk left", "free at least"),
        ({"filesystem": "tmpfs"}, "gone when the machine restarts", "--home"),
        ({"filesystem": "overlay"}, "gone with the container", "--home"),
        ({"locks": False}, "second driver", "--home"),
    ],
)
def test_what_is_wrong_with_the_home_comes_with_the_way_out(changes: dict[str, Any], what: str, remedy: str) -> None:
    assert home_problems(GOOD_HOME) == []
    problems = home_problems(replace(GOOD_HOME, **changes))
    assert what in problems[0].what
    assert remedy in problems[0].remedy


def test_a_network_file_system_is_no_problem_but_has_consequences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert home_problems(replace(GOOD_HOME, filesystem="nfs4", network=True, locks=False)) == []
    found = home_facts(tmp_path / "not" / "there")
    assert found.writable
    assert found.locks
    assert "write-ahead log" in found.consequence
    monkeypatch.setattr("sweep.remote.home_facts.filesystem_of", lambda path: FileSystem("lustre", network=True))
    assert "without a write-ahead log" in home_facts(tmp_path).consequence
    assert not list(tmp_path.iterdir())  # it only looked
