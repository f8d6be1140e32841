"""Times the kernels of a plan's fits on a cluster: on one core, and on one GPU if there is any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sweep.engine.executors import classify
from sweep.fits.run import gpu_name
from sweep.studies.devices import Devices, Parts, Timed, Work


@dataclass(frozen=True)
class DeviceTimes:
    """A device's name and memory, and an iteration of each kind of work there; None where it could not run."""

    name: str
    memory: int
    parts: Sequence[Parts | None]


def time_device(works: Sequence[Work], device: str) -> DeviceTimes:
    """What runs on a worker. Kinds with equal kernels and sizes are timed once."""
    import numpy as np
    from threadpoolctl import threadpool_limits

    from solvers.backend import choose_backend, device_bytes, gpu_count
    from solvers.kernels import kernels_of, time_kernels

    if device != "cpu" and not gpu_count():
        return DeviceTimes("no GPU that CuPy can use", 0, [None] * len(works))
    backend = choose_backend(np.zeros((1, 1)), device)
    known: dict[Any, Parts | None] = {}
    with threadpool_limits(1):  # as a fit has it
        for work in works:
            key = kernels_of(work.kind.method), work.size
            if key not in known:
                try:
                    known[key] = asdict(time_kernels(*key, device))
                except Exception as error:
                    if classify(error) not in ("out of memory", "lost device"):
                        raise
                    known[key] = None
    parts = [known[kernels_of(work.kind.method), work.size] for work in works]
    return DeviceTimes(gpu_name(backend.device) or "CPU", device_bytes(backend), parts)


def devices_for(ray: Any, works: Sequence[Work], gpus_per_fit: float, known: Devices | None) -> Devices:
    """What is known already, if it is of the same work on as many devices: a sweep that goes on chooses alike."""
    present = ray.cluster_resources()
    same = known is not None and (known.cpus, known.gpus, known.gpus_per_fit, [each.work for each in known.timed]) == (
        int(present.get("CPU", 0)), present.get("GPU", 0.0), gpus_per_fit, list(works),
    )  # fmt: skip
    return known if known is not None and same else measure(ray, works, gpus_per_fit)


def measure(
    ray: Any, works: Sequence[Work], gpus_per_fit: float, function: Callable[..., DeviceTimes] = time_device
) -> Devices:
    """Time all kinds of work on a core, and on a GPU, as Ray hands them out."""
    present = ray.cluster_resources()
    gpus = present.get("GPU", 0.0) if gpus_per_fit else 0.0
    task = ray.remote(num_cpus=1, max_retries=0)(function)
    waiting = [task.remote(works, "cpu")]
    if gpus:
        waiting.append(task.options(num_gpus=1).remote(works, "cuda:0"))
    on_cpu, *on_gpu = ray.get(waiting)
    timed = [Timed(work, parts) for work, parts in zip(works, on_cpu.parts, strict=True)]
    devices = Devices(int(present.get("CPU", 0)), gpus, gpus_per_fit, timed=timed)
    if not on_gpu:
        return devices
    timed = [replace(each, gpu=parts) for each, parts in zip(timed, on_gpu[0].parts, strict=True)]
    return replace(devices, gpu=on_gpu[0].name, gpu_bytes=on_gpu[0].memory, timed=timed)
