"""What a Ray worker runs: it checks its device, watches the clock and calls the plain function."""

from __future__ import annotations

import faulthandler
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from sweep.code import unbundle
from sweep.engine.executors import classify
from sweep.engine.whereabouts import announced
from sweep.errors import first_line
from sweep.fits import FitOutcome, FitSpec, Help, SplitData, fit_and_score
from sweep.fits.memory import TooLargeError, needed_bytes, too_large


@dataclass(frozen=True)
class Order:
    """How a fit is to be run; nothing here changes its result."""

    gpus: float
    submitted: float
    timeout: float | None = None


@dataclass(frozen=True)
class Luggage:
    """What all tasks of a sweep share: the user's own code, and estimators that were handed over in memory."""

    code: Mapping[str, bytes]
    estimators: Mapping[str, Any]


class MisplacedWorkerError(RuntimeError):
    """This process cannot use the GPU that it was handed: it opened another one, or is about to end."""


class LostDeviceError(RuntimeError):
    """CUDA or one of its libraries failed: whatever this process tries next on its GPU may fail, too."""


@dataclass
class _Worker:
    """State of this worker process: its start-up is paid once."""

    warm: bool = False
    devices: str | None = None  # what Ray gave the process when it opened its GPU
    has_gpu: bool = False
    ending: bool = False


_WORKER = _Worker()


def on_shared_data(function: Callable[..., FitOutcome]) -> Callable[..., FitOutcome]:
    """`function` as a task that gets references, in a list, in place of the data and the luggage.

    Ray resolves a bare reference for every task anew, which costs as much as all else about a task.
    """

    def task(spec: FitSpec, references: list[Any], order: Order, help: Help) -> FitOutcome:
        data, luggage = references
        return function(spec, _shared_data(data), order, replace(help, estimator=_unpacked(luggage).get(spec.method)))

    return task


@lru_cache(maxsize=1)
def _shared_data(reference: Any) -> SplitData:
    """The data behind a reference, kept until another split's are asked for."""
    import ray

    data: SplitData = ray.get(reference)
    return data


@lru_cache(maxsize=1)
def _unpacked(reference: Any) -> Mapping[str, Any]:
    """The luggage, its code made importable in this process; returns the estimators by method."""
    import ray

    luggage: Luggage = ray.get(reference)
    if luggage.code:
        unbundle(luggage.code, Path(tempfile.mkdtemp(prefix="sweep-code-")))
    return luggage.estimators


def run_fit(spec: FitSpec, data: SplitData, order: Order, help: Help) -> FitOutcome:
    """Run one fit on the device that Ray gave to this task."""
    began = time.time()
    if order.timeout is not None:
        # A thread of the C library: it ends the process even if the fit never returns to Python.
        faulthandler.dump_traceback_later(order.timeout, exit=True)
    try:
        with announced(spec.key, spec.label, order.gpus):
            startup = _prepare(order.gpus)
            _refuse_too_large(spec, data, order.gpus)
            outcome = fit_and_score(spec, data, replace(help, device="cuda:0" if _WORKER.has_gpu else "cpu"))
    except Exception as error:
        failure = _device_failure(error)
        if failure is None:
            raise
        _end_soon()
        raise failure from error
    finally:
        faulthandler.cancel_dump_traceback_later()
    return outcome.with_seconds(startup=startup, queue=max(0.0, began - order.submitted))


def _refuse_too_large(spec: FitSpec, data: SplitData, gpus: float) -> None:
    """Before anything is computed: a fit whose bound is above the memory of its device, or its share of it."""
    from solvers.backend import choose_backend, device_bytes

    n, dimension = data.X_train.shape
    held_out = int((data.fold_of == spec.fold).sum()) if spec.is_tuning else data.X_test.shape[0]
    backend = choose_backend(data.X_train, "cuda:0" if _WORKER.has_gpu else "cpu")
    share = gpus if _WORKER.has_gpu and gpus < 1 else 1.0
    needed = needed_bytes(spec, n - held_out if spec.is_tuning else n, held_out, dimension)
    reason = too_large(needed, int(share * device_bytes(backend)), "the GPU" if _WORKER.has_gpu else "this machine")
    if reason:
        raise TooLargeError(reason)


def _device_failure(error: Exception) -> Exception | None:
    """An error of CuPy's own as one that a driver without CuPy can read; None for all others."""
    if not type(error).__module__.startswith("cupy"):
        return None
    told = first_line(error)
    return {"lost device": LostDeviceError(told), "out of memory": MemoryError(told)}.get(classify(error))


def _end_soon() -> None:
    """End this process once Ray has taken the exception that follows: a fresh one opens its GPU anew.

    On a busy machine that takes a while; fits that come in the meantime are sent back.
    """
    _WORKER.ending = True
    threading.Timer(1.0, os._exit, [0]).start()


def _prepare(gpus: float) -> float:
    """Check the device; import everything and open the GPU the first time. Returns the seconds it took."""
    start = time.perf_counter()
    if _WORKER.ending:
        raise MisplacedWorkerError("this process lost its GPU and is about to end")
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    seen = [device for device in devices.split(",") if device and device != "-1"]
    expected = max(1, int(gpus)) if gpus else 0
    if len(seen) != expected:
        raise RuntimeError(f"expected {expected} visible GPU(s) for this task, got {devices!r}")
    if not _WORKER.warm:
        _warm_up(gpus)
        _WORKER.devices = devices
        return time.perf_counter() - start
    if _WORKER.has_gpu and devices != _WORKER.devices:
        # CUDA keeps the device it opened first, whatever the variable says later: let a fresh process do it.
        _end_soon()
        raise MisplacedWorkerError(f"opened GPU {_WORKER.devices!r}, was handed {devices!r}")
    return 0.0


def _warm_up(gpus: float) -> None:
    from threadpoolctl import threadpool_limits

    import solvers.convex.mdml
    import solvers.projection.pdml
    import solvers.scores.retrieval  # noqa: F401
    from solvers.backend import gpu_count

    threadpool_limits(1)  # for the life of this worker: one fit, one core
    _WORKER.has_gpu = bool(gpus) and gpu_count() > 0
    if _WORKER.has_gpu:
        import cupy

        cupy.zeros(1).sum().item()  # makes the device context
    _WORKER.warm = True
