"""What one machine of a cluster has. Runs there, in a process of its own.

A driver and a CuPy that do not fit together may take their process with them; so may a broken GPU.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweep.studies.devices import Work

EIGH_SIZE = 1000
_DEFAULT_PORTS = {"http": 80, "https": 443, "postgresql": 5432}


def examine(urls: dict[str, str], works: Sequence[Work] = ()) -> dict[str, Any]:
    """What one machine has: versions, GPUs with a timed eigendecomposition each, threads, room, ways out.

    With `works`, the kinds of fits of a sweep, also what an iteration of each takes on every device.
    """
    import numpy as np
    import threadpoolctl

    seconds = _eigh_seconds(np, np.linalg.eigh)
    gpus = _gpus()
    return {
        "code": code_fingerprint(),
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
        "blas_threads": max((pool["num_threads"] for pool in threadpoolctl.threadpool_info()), default=1),
        "cpu_eigh_seconds": seconds,
        "driver": _driver(),
        "gpus": gpus,
        "kernels": _kernels(works, len(gpus["devices"])) if works else [],
        "disk_free_gb": shutil.disk_usage(Path.home()).free / 1e9,
        "shared_memory_gb": shutil.disk_usage("/dev/shm").free / 1e9 if Path("/dev/shm").is_dir() else None,
        "unreachable": {name: reason for name, url in urls.items() if (reason := _unreachable(url))},
    }


def _kernels(works: Sequence[Work], gpus: int) -> list[dict[str, Any]]:
    """Milliseconds of an iteration of each kind of fit, by part, on a core and on every GPU."""
    from sweep.engine.measuring import time_device

    rows = []
    for device in ("cpu", *(f"cuda:{index}" for index in range(gpus))):
        for work, parts in zip(works, time_device(works, device).parts, strict=True):
            shown = {f"{name}, ms": round(1000 * seconds, 3) for name, seconds in (parts or {}).items()}
            rows.append({"device": device, **vars(work.kind), **shown})
    return rows


def code_fingerprint() -> str:
    """Version and content of the installed project: equal numbers may hide different code."""
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
        lines = (answer.stderr or answer.stdout).strip().splitlines()
        return {"error": lines[-1] if lines else "nvidia-smi lists no GPU"}
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
    try:
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme.split("+")[0])
    except ValueError:  # a variable stands in its place
        return ""
    if not parts.hostname or not port:
        return ""
    try:
        socket.create_connection((parts.hostname, port), timeout=5).close()
    except OSError as error:
        return f"{parts.hostname}:{port}: {error.strerror or error}"
    return ""


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    sys.stdout.write(json.dumps(examine(asked["urls"], [Work.from_dict(each) for each in asked["works"]])))
