"""What is to be seen of a device before a sweep is trusted to it, each check by itself.

All of it runs on NumPy and, but for the sweeps and kernels, on any other array library, so that the program itself is
tested without a GPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from solvers.backend import choose_backend, free_device_memory
from solvers.kernels import time_kernels
from solvers.memory import ProblemSize
from tests.conftest import ROOT
from tests.solvers import on_device

# Two runs of the same fit may differ by the order of sums on a GPU, and by no more than this part of the distances.
_ALIKE = 1e-6
_KERNELS = [
    ("newton", ProblemSize(5000, 100, 20_000)),
    ("newton", ProblemSize(5000, 500, 20_000)),
    ("newton", ProblemSize(5000, 1000, 20_000)),
    ("stack, eigh", ProblemSize(5000, 500, 20_000, 100, 5)),
    ("stack, eigh", ProblemSize(5000, 500, 20_000, 500, 5)),
]
_SMALL_KERNELS = [("newton", ProblemSize(200, 20, 200)), ("stack, eigh", ProblemSize(200, 20, 200, 5, 2))]
SWEEP: dict[str, Any] = {
    "datasets": ["digits-imbalanced"],
    "methods": ["mdml-csfn", "mdml-cvnd", "pdml-sfn", "pdml-vnd"],
    "grid": {"gamma": [0.001, 0.1], "rank": [10, 20]},
    "folds": 2,
    "restarts": 2,
    "settings": {"n_pairs": 2000},
    "tracking": {"mlflow": "none"},
}


@dataclass(frozen=True)
class Check:
    """What was found: a table, and whether it is as it should be."""

    name: str
    passed: bool
    told: str
    rows: list[dict[str, Any]] = field(default_factory=list)


def machine(library: str) -> Check:
    """Driver, devices, versions; whether MPS or MIG is there, which share a GPU in other ways than Ray does."""
    from sweep.remote.node_facts import examine

    found = examine({})
    driver = shutil.which("nvidia-smi")
    listed = subprocess.run([driver, "-L"], capture_output=True, text=True).stdout if driver else ""
    mps = bool(os.environ.get("CUDA_MPS_PIPE_DIRECTORY")) or Path("/tmp/nvidia-mps").exists()
    facts = {
        "project": found["code"], "python": found["python"], "CPUs": found["cpus"], "numpy": np.__version__,
        "driver": found["driver"].get("version", found["driver"].get("error")), "CuPy": found["gpus"].get("cupy"),
        "CUDA": found["gpus"].get("cuda"), "MIG": "MIG" in listed, "MPS": mps,
    }  # fmt: skip
    rows = [{"what": name, "found": value} for name, value in facts.items()]
    rows += [{"what": "GPU", "found": str(device)} for device in found["gpus"]["devices"]]
    broken = [device for device in found["gpus"]["devices"] if "error" in device]
    return Check("machine", not broken, f"{len(found['gpus']['devices'])} GPU(s), {len(broken)} broken", rows)


def gpu_tests(library: str) -> Check:
    """The tests that are skipped where there is no GPU."""
    run = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()[-40:]
    return Check("tests", done.returncode == 0, lines[-1] if lines else "no output", [{"line": line} for line in lines])


def methods(library: str, names: list[str]) -> Check:
    """Every method on NumPy and on the device, which certificates or distances must allow to be the same."""
    X, y = on_device.data()
    there, rows = on_device.moved(X, library), []
    for name in names:
        seconds, expected = _timed(name, X, y)
        on_it, found = _timed(name, there, y)
        rows.append(
            {
                "method": name, "agrees": on_device.agree(expected, found),
                "distances off by": on_device.apart(expected, found), "NumPy, s": seconds, f"{library}, s": on_it,
                "auc on NumPy": expected.scores["auc_all"], f"auc on {library}": found.scores["auc_all"],
            }
        )  # fmt: skip
    wrong = [row["method"] for row in rows if not row["agrees"]]
    return Check("methods", not wrong, f"{len(rows) - len(wrong)} of {len(rows)} methods agree with NumPy", rows)


def determinism(library: str, names: list[str]) -> Check:
    """The same fit twice."""
    X, y = on_device.data()
    there = on_device.moved(X, library)
    rows = [{"method": n, "apart": on_device.apart(*(on_device.found(n, there, y) for _ in range(2)))} for n in names]
    worst = max(row["apart"] for row in rows)
    return Check("determinism", worst <= _ALIKE, f"two runs differ by {worst:.1e} of the largest distance", rows)


def memory(library: str, fits: int) -> Check:
    """Memory in use after many fits in one process, against that after the first few."""
    X, y = on_device.data()
    there, rows = on_device.moved(X, library), []
    for number in range(1, fits + 1):
        on_device.found("mdml-csfn" if number % 2 else "pdml-vnd", there, y)
        free_device_memory(choose_backend(there).xp)
        if number in (max(1, fits // 5), fits):
            rows.append({"after fits": number, "MB in use": used_bytes(library) / 1e6})
    grown = rows[-1]["MB in use"] - rows[0]["MB in use"]
    return Check("memory", grown <= 16 + 0.05 * rows[0]["MB in use"], f"{grown:.1f} MB more after {fits} fits", rows)


def used_bytes(library: str) -> int:
    """Of the GPU, whoever uses it; else of this process."""
    if library == "cupy":
        import cupy

        free, total = cupy.cuda.runtime.memGetInfo()
        return int(total - free)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def kernels(library: str, small: bool) -> Check:
    """What `resources: {device: measured}` would choose by."""
    rows = []
    for kind, size in _SMALL_KERNELS if small else _KERNELS:
        for device in ("cpu", "cuda") if library == "cupy" else ("cpu",):
            parts = vars(time_kernels(kind, size, device))
            shown = {f"{name}, ms": 1000 * value for name, value in parts.items()}
            rows.append({"kernels": kind, **vars(size), "device": device, **shown})
    return Check("kernels", True, "milliseconds of an iteration, by part", rows)


def sweeps(library: str, folder: Path, address: str | None) -> Check:
    """One sweep on cores, one with a GPU for each fit, one with two fits to a GPU: same choices, seconds by phase."""
    import sweep

    shares = {"cpu": 0.0} | ({"a GPU each": 1.0, "two to a GPU": 0.5} if library == "cupy" else {"cpu, again": 0.0})
    rows, settings, wrong = [], [], 0
    for name, gpus in shares.items():
        run = sweep.run(SWEEP, name="acceptance", home=folder / name, address=address, resources={"gpus_per_fit": gpus})
        fits, results = run.fits, run.results.sort_values("method")
        # A fit that failed, or that was given a GPU and computed without it.
        wrong += (run.outcome.tally.failed if run.outcome else 0) + int((fits["gpu"].notna() != bool(gpus)).sum())
        settings.append([*zip(results["method"], results["gamma"], results["rank"].fillna(0), strict=True)])
        for method, of_method in fits.groupby("method"):
            phases = {f"{p}, s": float(of_method[f"{p}_seconds"].sum()) for p in ("transfer", "solve", "score")}
            rows.append({"sweep": name, "method": method, "device": ", ".join(set(of_method["device"])), **phases})
    alike = all(each == settings[0] for each in settings)
    told = f"{wrong} fits failed or missed their GPU; the sweeps chose {'the same' if alike else 'other'} settings"
    return Check("sweeps", alike and not wrong, told, rows)


def run_all(library: str, folder: Path, *, quick: bool = False) -> Iterator[Check]:
    """Every check in turn; one that raises has failed, and the others go on."""
    few = ["mdml-cvnd", "pdml-vnd", "euc"]
    names = few if quick else on_device.NAMES
    wanted = [
        (machine, ()),
        *([(gpu_tests, ())] if library == "cupy" else []),
        (methods, (names,)),
        (determinism, (few,)),
        (memory, (5 if quick else 50,)),
    ]
    if library in ("numpy", "cupy"):
        wanted += [(kernels, (quick or library == "numpy",)), (sweeps, (folder, "inline" if quick else None))]
    for check, arguments in wanted:
        try:
            yield check(library, *arguments)  # type: ignore[operator]
        except Exception as error:
            yield Check(check.__name__, False, f"{type(error).__name__}: {error}")


def _timed(name: str, X: Any, y: np.ndarray) -> tuple[float, on_device.Found]:
    began = time.perf_counter()
    found = on_device.found(name, X, y)
    return time.perf_counter() - began, found
