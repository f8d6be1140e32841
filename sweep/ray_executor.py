"""Fits as Ray tasks, each pinned to one GPU, or to one CPU core where there are no GPUs."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from sweep.errors import UserError
from sweep.executors import Finished, classify, describe_failure, first_line
from sweep.fits import FitOutcome, FitSpec, SplitData, fit_and_score
from sweep.jobs import use_token

# Tasks waiting at Ray beyond those that run, so that no worker idles while the driver commits.
_AHEAD = 2


class RayExecutor:
    """Submits fits to a Ray cluster: one that it starts here, or the one at `address`."""

    def __init__(self, address: str | None, *, gpus_per_fit: float, timeout: float | None = None) -> None:
        ray = connect(address)
        self._ray = ray
        self._timeout = timeout
        total = ray.cluster_resources()
        gpus = float(total.get("GPU", 0))
        self._gpus_per_fit = gpus_per_fit if gpus else 0.0
        per_fit = self._gpus_per_fit
        self._task = ray.remote(
            num_cpus=1,
            # The driver decides about retries, so that they are counted and charged.
            max_retries=0,
            # By default a GPU task's process ends with it, and every fit would pay for the start-up.
            max_calls=0,
        )(_run_fit)
        self.slots = max(1, int(gpus / per_fit) if per_fit else int(total.get("CPU", 1)))
        self.place = f"Ray, {gpus:g} GPU(s), {int(total.get('CPU', 0))} CPU(s), {len(ray.nodes())} node(s)"
        self._running: dict[Any, tuple[FitSpec, float]] = {}
        self._data: dict[int, Any] = {}

    @property
    def room(self) -> int:
        return self.slots + _AHEAD - len(self._running)

    def submit(self, spec: FitSpec, data: SplitData) -> None:
        from solvers.methods import METHODS

        if id(data) not in self._data:
            self._data[id(data)] = self._ray.put(data)
        gpus = self._gpus_per_fit if METHODS[spec.method].device == "array" else 0
        reference = self._task.options(num_gpus=gpus, name=spec.label).remote(
            spec, self._data[id(data)], gpus, time.time()
        )
        self._running[reference] = (spec, time.monotonic())

    def wait(self, seconds: float) -> list[Finished]:
        if not self._running:
            return []
        references = list(self._running)
        ready, _ = self._ray.wait(references, num_returns=1, timeout=seconds)
        if ready:  # take along whatever else has finished meanwhile
            ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        return [self._collect(reference) for reference in ready]

    def _collect(self, reference: Any) -> Finished:
        spec, submitted = self._running.pop(reference)
        seconds = time.monotonic() - submitted
        try:
            return Finished(spec, self._ray.get(reference))
        except self._ray.exceptions.RayTaskError as error:
            # Ray wraps the task's exception; its own class is a base of the wrapper's.
            cause = error.cause if isinstance(getattr(error, "cause", None), BaseException) else error
            return Finished(spec, None, classify(cause), first_line(cause), str(error), seconds)
        except self._ray.exceptions.RayError as error:
            return describe_failure(spec, error, seconds)

    def close(self) -> None:
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running.clear()
        self._ray.shutdown()


def _run_fit(spec: FitSpec, data: SplitData, gpus: float, submitted: float) -> FitOutcome:
    """What a Ray worker runs: checks its device, then the plain function."""
    began = time.time()
    first = not _WORKER.get("warm")
    startup = _warm_up(gpus) if first else 0.0
    device = "cuda:0" if gpus and _WORKER["gpu"] else "cpu"
    outcome = fit_and_score(spec, data, device=device)
    return outcome.with_seconds(startup=startup, queue=max(0.0, began - submitted))


_WORKER: dict[str, Any] = {}


def _warm_up(gpus: float) -> float:
    """Imports and the device context, once per worker process; returns the seconds they took."""
    from threadpoolctl import threadpool_limits

    start = time.perf_counter()
    visible = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
    if gpus and len(visible) != max(1, int(gpus)):
        raise RuntimeError(f"expected {max(1, int(gpus))} visible GPU for this task, got {visible}")
    import solvers.mdml
    import solvers.pdml
    import solvers.retrieval  # noqa: F401
    from solvers.backend import gpu_count

    threadpool_limits(1)  # for the life of this worker: one fit, one core
    _WORKER["gpu"] = bool(gpus) and gpu_count() > 0
    if _WORKER["gpu"]:
        import cupy

        cupy.zeros(1).sum().item()  # makes the device context
    _WORKER["warm"] = True
    return time.perf_counter() - start


def connect(address: str | None) -> Any:
    """Ray at `address`, else the one that RAY_ADDRESS names (Ray's jobs set it), else started here."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")  # CPU fits must not see the GPUs
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = address or os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        options["include_dashboard"] = False
    else:
        use_token()
    import ray

    try:
        # "local" and not None: the address file of a cluster that died must not be followed.
        ray.init(address=address or "local", **options)
    except (ConnectionError, ValueError) as error:
        raise UserError(
            f"--address: cannot join Ray at {address!r}: {first_line(error)}; is it up, and is its token in "
            "~/.ray/auth_token or RAY_AUTH_TOKEN?"
        ) from None
    return ray
