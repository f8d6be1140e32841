"""Looks at every node of a Ray cluster and says what is wrong and what to do about it.

`find_problems` is a plain function over what `sweep.remote.node_facts` found on each node.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sweep.errors import last_line
from sweep.remote.home_facts import VOLATILE, HomeFacts
from sweep.remote.node_facts import EIGH_SIZE
from sweep.studies.devices import Work
from sweep.urls import origin

_MIN_DISK_GB = 5.0
_MIN_STORE_GB = 0.5
# Start and end of fits are compared across nodes; beyond this the figures mislead.
_MAX_SKEW_SECONDS = 1.0
_EXAMINE_SECONDS = 180


@dataclass(frozen=True)
class Problem:
    """Something that would make a sweep fail or mislead, with the way out."""

    node: str
    what: str
    remedy: str


@dataclass(frozen=True)
class Node:
    """A node as Ray declares it, and what `examine` found there."""

    name: str
    declared_gpus: int
    object_store_gb: float
    skew_seconds: float = 0.0
    found: dict[str, Any] = field(default_factory=dict)
    error: str = ""


def find_problems(nodes: list[Node], expected_gpus: int) -> list[Problem]:
    """Everything that is wrong with these nodes."""
    problems = []
    total = sum(node.declared_gpus for node in nodes)
    if total < expected_gpus:
        problems.append(
            Problem(
                "cluster",
                f"{expected_gpus} GPUs expected, {total} there",
                "look for nodes that did not come up",
            )
        )
    usual = Counter(node.found["code"] for node in nodes if node.found).most_common(1)
    for node in nodes:
        if node.error:
            problems.append(
                Problem(node.name, node.error, "install the project there, in the environment that runs Ray")
            )
            continue
        problems += _node_problems(node, usual[0][0])
    return problems


def _node_problems(node: Node, usual_code: str) -> list[Problem]:
    found, problems = node.found, _gpu_problems(node)

    def add(what: str, remedy: str) -> None:
        problems.append(Problem(node.name, what, remedy))

    if found["code"] != usual_code:
        add(
            f"project {found['code']}, the others have {usual_code}",
            "run the cluster's setup again on this node",
        )
    if abs(node.skew_seconds) > _MAX_SKEW_SECONDS:
        add(
            f"clock is off by {node.skew_seconds:+.1f} s",
            "turn on time synchronisation (chrony, systemd-timesyncd)",
        )
    if found["disk_free_gb"] < _MIN_DISK_GB:
        add(f"{found['disk_free_gb']:.1f} GB of disk left", f"free at least {_MIN_DISK_GB:g} GB")
    if node.object_store_gb < _MIN_STORE_GB:
        add(
            f"object store of {node.object_store_gb:.2f} GB",
            "start Ray there with a larger --object-store-memory",
        )
    shared = found["shared_memory_gb"]
    if shared is not None and shared < node.object_store_gb / 2:
        add(
            f"{shared:.1f} GB free in /dev/shm for an object store of {node.object_store_gb:.1f} GB",
            "enlarge /dev/shm (docker: --shm-size), else Ray uses the slow disk",
        )
    for name, reason in found["unreachable"].items():
        add(f"cannot reach {name} at {reason}", f"check tracking.{name}, the firewall and the server")
    return problems


def _gpu_problems(node: Node) -> list[Problem]:
    """Declared GPUs against the driver and CuPy."""
    if not node.declared_gpus:
        return []
    gpus, driver = node.found["gpus"], node.found["driver"]
    usable = [device for device in gpus["devices"] if "error" not in device]
    broken = [device for device in gpus["devices"] if "error" in device]
    problems = [Problem(node.name, f"{d['name']}: {d['error']}", _remedy(d["error"])) for d in broken]
    if len(gpus["devices"]) >= node.declared_gpus:
        return problems
    what = f"{node.declared_gpus} GPU(s) declared to Ray, {len(usable)} usable"
    if "version" not in driver:
        why, remedy = (
            f"no NVIDIA driver answers ({driver['error']})",
            "install the driver, or start Ray with --num-gpus=0",
        )
    elif "cupy" not in gpus:
        why, remedy = gpus["error"], "install orthosweep[gpu] (CUDA 12) or orthosweep[gpu-cuda13]"
    elif _major(gpus["driver_cuda"]) < _major(gpus["cuda"]):
        known, built = f"CUDA {gpus['driver_cuda']}", gpus["cuda"]
        why = f"driver {driver['version']} knows {known}, CuPy {gpus['cupy']} is built for {built}"
        remedy = "update the driver, or install the CuPy of its CUDA version (orthosweep[gpu] is CUDA 12)"
    elif "error" in gpus:
        why, remedy = f"CuPy {gpus['cupy']}: {gpus['error']}", "look at nvidia-smi and dmesg there"
    else:
        why, remedy = f"the driver lists {len(driver['gpus'])}", "start Ray with the right --num-gpus"
    return [*problems, Problem(node.name, f"{what}: {why}", remedy)]


def _remedy(error: str) -> str:
    """The driver alone does not bring CUDA's libraries; whatever else breaks a device is in its logs."""
    if re.search(r"lib(nvrtc|cublas|cusolver|cusparse|curand|cufft)|DynamicLibNotFound|cannot open shared", error):
        return "install CUDA's libraries: pip install 'cupy-cuda12x[ctk]' (or cuda13x)"
    return "look at nvidia-smi and dmesg there"


def _major(version: str | None) -> int:
    return int(version.split(".")[0]) if version else 0


def home_problems(home: HomeFacts) -> list[Problem]:
    """Everything that is wrong with the place of the records."""
    problems = []
    if not home.writable:
        problems.append(Problem("home", f"{home.folder} cannot be written to", "name another with --home"))
    if home.free_gb < _MIN_DISK_GB:
        problems.append(Problem("home", f"{home.free_gb:.1f} GB of disk left", f"free at least {_MIN_DISK_GB:g} GB"))
    if home.filesystem in VOLATILE:
        what = f"{home.folder} is on {home.filesystem} and {VOLATILE[home.filesystem]}"
        problems.append(Problem("home", what, "name a folder on a disk with --home"))
    if home.writable and not home.locks and not home.network:
        what = f"file locks do nothing on {home.filesystem}, so a second driver would not be kept out"
        problems.append(Problem("home", what, "name a folder on another file system with --home"))
    return problems


def node_rows(nodes: list[Node]) -> list[dict[str, Any]]:
    """One row per node for people."""
    return [
        {
            "node": node.name,
            "GPUs declared": node.declared_gpus,
            "GPUs": "; ".join(_describe(d) for d in node.found.get("gpus", {}).get("devices", [])) or "none",
            "driver": node.found.get("driver", {}).get("version"),
            "CuPy": node.found.get("gpus", {}).get("cupy"),
            "CUDA": node.found.get("gpus", {}).get("cuda"),
            "CPUs": node.found.get("cpus"),
            "BLAS threads": node.found.get("blas_threads"),
            f"eigh {EIGH_SIZE} on CPU, s": node.found.get("cpu_eigh_seconds"),
            "project": node.found.get("code"),
            "Python": node.found.get("python"),
            "clock, s": round(node.skew_seconds, 3),
            "disk, GB": node.found.get("disk_free_gb"),
            "object store, GB": node.object_store_gb,
        }
        for node in nodes
    ]


def _describe(device: dict[str, Any]) -> str:
    if "error" in device:
        return f"{device['name']}: {device['error']}"
    return f"{device['name']} {device['memory_gb']:.0f} GB, eigh {device['eigh_seconds']:.3f} s"


def look(
    address: str | None, *, gpus: int, wait: float, urls: dict[str, str], works: Sequence[Work] = ()
) -> list[Node]:
    """Join the cluster (or start a Ray here), wait for its GPUs and examine every node; `works` are timed there."""
    from sweep.engine.cluster import connect

    asked = {"urls": {name: origin(url) for name, url in urls.items()}, "works": [asdict(work) for work in works]}
    ray = connect(address)
    try:
        _wait_for_gpus(ray, gpus, wait)
        return [_look_at(ray, node, asked) for node in ray.nodes() if node["Alive"]]
    finally:
        ray.shutdown()


def _wait_for_gpus(ray: Any, gpus: int, seconds: float) -> None:
    """Until the cluster has this many GPUs; an autoscaler is told that they are wanted."""
    if ray.cluster_resources().get("GPU", 0) >= gpus:
        return
    from ray.autoscaler.sdk import request_resources

    sys.stderr.write(f"waiting for {gpus} GPU(s), up to {seconds:.0f} s\n")
    request_resources(bundles=[{"GPU": 1}] * gpus)
    deadline = time.monotonic() + seconds
    while ray.cluster_resources().get("GPU", 0) < gpus and time.monotonic() < deadline:
        time.sleep(1)
    request_resources(bundles=[])


def _look_at(ray: Any, node: dict[str, Any], asked: dict[str, Any]) -> Node:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    resources = node["Resources"]
    seen = {
        "name": f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})",
        "declared_gpus": int(resources.get("GPU", 0)),
        "object_store_gb": resources.get("object_store_memory", 0) / 1e9,
    }
    task = ray.remote(num_cpus=0, max_retries=0)(_examine_apart).options(
        scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    )
    try:
        found = ray.get(task.remote(asked), timeout=_EXAMINE_SECONDS)
        sent = time.time()
        clock = ray.get(task.remote(None), timeout=_EXAMINE_SECONDS)["time"]
        return Node(**seen, found=found, skew_seconds=_skew(sent, clock, time.time()))
    except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError) as error:
        return Node(**seen, error=f"cannot be examined: {last_line(str(error), type(error).__name__)}")


def _skew(sent: float, clock: float, received: float) -> float:
    """Least clock difference that explains an answer sent between two moments here."""
    return clock - received if clock > received else clock - sent if clock < sent else 0.0


def _examine_apart(asked: dict[str, Any] | None) -> dict[str, Any]:
    """What a Ray task runs: `examine` in a process that sees all GPUs; asked nothing, only the time."""
    if asked is None:
        return {"time": time.time()}
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    answer = subprocess.run(
        # Not as an argument: everybody on the machine can read those.
        [sys.executable, "-m", "sweep.remote.node_facts"], input=json.dumps(asked),
        env=environment, capture_output=True, text=True, timeout=_EXAMINE_SECONDS,
    )  # fmt: skip
    if answer.returncode:
        raise RuntimeError(last_line(answer.stderr, f"exit code {answer.returncode}"))
    found: dict[str, Any] = json.loads(answer.stdout)
    return found
