"""Looks at every node of a Ray cluster and says what is wrong and what to do about it.

`examine` runs on each node, in a process of its own: a driver and a CuPy that do not fit together may
take the process with them. `find_problems` is a plain function over what came back.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EIGH_SIZE = 1000
_MIN_DISK_GB = 5.0
_MIN_STORE_GB = 0.5
# Start and end of fits are compared across nodes; beyond this the figures mislead.
_MAX_SKEW_SECONDS = 1.0
_EXAMINE_SECONDS = 180
_DEFAULT_PORTS = {"http": 80, "https": 443, "postgresql": 5432}


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


# -- on a node ------------------------------------------------------------------------------------


def examine(urls: dict[str, str]) -> dict[str, Any]:
    """What one machine has: versions, GPUs with a timed eigendecomposition each, threads, room, ways out."""
    import numpy as np
    import threadpoolctl

    seconds = _eigh_seconds(np, np.linalg.eigh)
    return {
        "code": code_fingerprint(),
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
        "blas_threads": max((pool["num_threads"] for pool in threadpoolctl.threadpool_info()), default=1),
        "cpu_eigh_seconds": seconds,
        "driver": _driver(),
        "gpus": _gpus(),
        "disk_free_gb": shutil.disk_usage(Path.home()).free / 1e9,
        "shared_memory_gb": shutil.disk_usage("/dev/shm").free / 1e9 if Path("/dev/shm").is_dir() else None,
        "unreachable": {name: reason for name, url in urls.items() if (reason := _unreachable(url))},
    }


def code_fingerprint() -> str:
    """Version and content of the installed project: equal numbers may hide different code."""
    import hashlib

    import solvers
    import sweep

    content = hashlib.sha256()
    for package in (sweep, solvers):
        root = Path(next(iter(package.__path__)))
        for path in sorted(root.rglob("*.py")):
            content.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return f"{sweep.__version__} ({content.hexdigest()[:8]})"


def _eigh_seconds(xp: Any, eigh: Any) -> float:
    """Seconds for one symmetric eigendecomposition, checked; a small one before it loads the libraries."""
    import numpy as np

    values = np.random.default_rng(0).standard_normal((EIGH_SIZE, EIGH_SIZE))
    matrix = xp.asarray(values + values.T)
    eigh(matrix[:10, :10])
    start = time.perf_counter()
    eigenvalues, vectors = eigh(matrix)
    residual = float(abs((matrix @ vectors) - vectors * eigenvalues).max())  # waits for the device
    seconds = time.perf_counter() - start
    if not residual < 1e-6 * EIGH_SIZE:
        raise ArithmeticError(f"eigendecomposition is off by {residual:g}")
    return seconds


def _driver() -> dict[str, Any]:
    """NVIDIA's driver and the GPUs that it lists."""
    query = ["nvidia-smi", "--query-gpu=driver_version,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30)
    except FileNotFoundError:
        return {"error": "nvidia-smi is not there"}
    except subprocess.TimeoutExpired:
        return {"error": "nvidia-smi did not answer within 30 s"}
    rows = [[part.strip() for part in line.split(",")] for line in answer.stdout.splitlines() if line.strip()]
    if answer.returncode or not rows:
        return {"error": (answer.stderr or answer.stdout).strip().splitlines()[-1:] or ["nvidia-smi lists no GPU"]}
    return {
        "version": rows[0][0],
        "gpus": [{"name": row[1], "memory_gb": float(row[2]) / 1000} for row in rows],
    }


def _gpus() -> dict[str, Any]:
    """What CuPy makes of the GPUs."""
    try:
        import cupy
    except ImportError as error:
        return {"error": f"CuPy is not installed ({error})", "devices": []}
    found: dict[str, Any] = {
        "cupy": cupy.__version__,
        "cuda": _cuda(cupy.cuda.runtime.runtimeGetVersion),
        "devices": [],
    }
    found["driver_cuda"] = _cuda(cupy.cuda.runtime.driverGetVersion)
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return found | {"error": str(error)}
    for index in range(count):
        try:
            with cupy.cuda.Device(index):
                name = cupy.cuda.runtime.getDeviceProperties(index)["name"].decode()
                _, total = cupy.cuda.runtime.memGetInfo()
                seconds = _eigh_seconds(cupy, cupy.linalg.eigh)
            found["devices"].append({"name": name, "memory_gb": total / 1e9, "eigh_seconds": seconds})
        except Exception as error:  # one broken device must not hide the others
            found["devices"].append({"name": f"GPU {index}", "error": f"{type(error).__name__}: {error}"})
    return found


def _cuda(version: Any) -> str | None:
    """12080 -> '12.8'; None where there is no such library."""
    try:
        number = int(version())
    except Exception:  # CuPy raises types of its own
        return None
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def _unreachable(url: str) -> str:
    """Why the host and port of a URL cannot be reached from here; empty if they can."""
    parts = urllib.parse.urlsplit(url)
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme.split("+")[0])
    if not parts.hostname or not port:
        return ""
    try:
        socket.create_connection((parts.hostname, port), timeout=5).close()
    except OSError as error:
        return f"{parts.hostname}:{port}: {error.strerror or error}"
    return ""


# -- on the driver --------------------------------------------------------------------------------


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


def look(address: str | None, *, gpus: int, wait: float, urls: dict[str, str]) -> list[Node]:
    """Join the cluster (or start a Ray here), wait for its GPUs and examine every node."""
    from sweep.ray_executor import connect

    ray = connect(address)
    try:
        _wait_for_gpus(ray, gpus, wait)
        return [_look_at(ray, node, urls) for node in ray.nodes() if node["Alive"]]
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


def _look_at(ray: Any, node: dict[str, Any], urls: dict[str, str]) -> Node:
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
        found = ray.get(task.remote(urls), timeout=_EXAMINE_SECONDS)
        sent = time.time()
        clock = ray.get(task.remote(None), timeout=_EXAMINE_SECONDS)["time"]
        return Node(**seen, found=found, skew_seconds=_skew(sent, clock, time.time()))
    except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return Node(**seen, error=f"cannot be examined: {lines[-1] if lines else type(error).__name__}")


def _skew(sent: float, clock: float, received: float) -> float:
    """Least clock difference that explains an answer sent between two moments here."""
    return clock - received if clock > received else clock - sent if clock < sent else 0.0


def _examine_apart(urls: dict[str, str] | None) -> dict[str, Any]:
    """What a Ray task runs: `examine` in a process that sees all GPUs; without URLs only the time."""
    if urls is None:
        return {"time": time.time()}
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    answer = subprocess.run(
        [sys.executable, "-m", "sweep.doctor", json.dumps(urls)],
        env=environment, capture_output=True, text=True, timeout=_EXAMINE_SECONDS,
    )  # fmt: skip
    if answer.returncode:
        raise RuntimeError((answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"])[-1])
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(examine(json.loads(sys.argv[1]))))
