"""Fits as Ray tasks, each pinned to one GPU, or to one CPU core where there are no GPUs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sweep.engine.cluster import connect
from sweep.engine.executors import Finished, Job, classify, describe_failure
from sweep.engine.failures import is_preemption
from sweep.engine.lifeline import Lifeline
from sweep.engine.metrics import FitMetrics
from sweep.engine.sharing import Neighbours, fair_share, whole
from sweep.engine.whereabouts import whereabouts, withdrawn
from sweep.engine.worker import Luggage, Order, on_shared_data, run_fit
from sweep.errors import UserError, first_line
from sweep.fits import FitOutcome, FitSpec
from sweep.methods import known_method
from sweep.studies.devices import CPU, GPU

# Tasks waiting at Ray beyond those that run, so that no worker idles while the driver commits. None beside another
# driver: it would wait behind them.
_AHEAD = 4
# How often the cluster's size and its other drivers are asked for.
_LOOK_SECONDS = 2.0
_KEPT = "everything finished is kept, run the same command again when it is back"


class RayExecutor:
    """Submits fits to a Ray cluster: one that it starts here, or the one at `address`."""

    def __init__(
        self,
        address: str | None,
        *,
        gpus_per_fit: float,
        gpus: int = 0,
        timeout: float | None = None,
        one_gpu_model: bool = False,
        code: Mapping[str, bytes] | None = None,
        estimators: Mapping[str, Any] | None = None,
        choose: Callable[[Any], Callable[[FitSpec], str]] | None = None,
        function: Callable[..., FitOutcome] = run_fit,
    ) -> None:
        """`gpus` is what an autoscaling cluster may grow to: it does so only if fits wait for more.

        `one_gpu_model` refuses a cluster on which times could not be compared. `code` and `estimators` are the user's
        own: they travel to the workers once. `choose` gets the Ray and gives a function that says which fits go to a
        GPU; without it, all that can do.
        """
        ray = connect(address)
        models = gpu_models(ray.nodes())
        if one_gpu_model and len(models) > 1:
            ray.shutdown()
            raise UserError(
                f"mode: benchmark needs one GPU model, the cluster has {', '.join(sorted(models))}; "
                "take the other nodes out, or use mode: production"
            )
        self._ray = ray
        self._timeout = timeout
        self._most_gpus = gpus
        total = self._resources()
        self._gpus_per_fit = gpus_per_fit if total["GPU"] else 0.0
        self._task = ray.remote(
            num_cpus=1,
            # The driver decides about retries, so that they are counted and charged.
            max_retries=0,
            # By default a GPU task's process ends with it, and every fit would pay for the start-up.
            max_calls=0,
        )(on_shared_data(function))
        chosen = choose(ray) if choose is not None else None
        self._device = chosen if self._gpus_per_fit else None  # without a GPU there is nothing to choose
        self.lanes = ("",) if self._device is None else (GPU, CPU)
        self._looked = float("-inf")
        self._slots = self._share = dict.fromkeys(self.lanes, 1)
        self.place = f"Ray, {total['GPU']:g} GPU(s), {total['CPU']:g} CPU(s), {len(ray.nodes())} node(s)"
        self._running: dict[Any, tuple[FitSpec, float]] = {}
        self._luggage = ray.put(Luggage(code or {}, estimators or {}))
        self._data: dict[tuple[str, int], Any] = {}
        self._neighbours = Neighbours()
        self._metrics = FitMetrics()
        self._lifeline = Lifeline(ray)

    @property
    def slots(self) -> int:
        """Fits that can run at the same time. Nodes come and go, so this changes."""
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._looked, self._slots = now, self._slots_now()
            self._share = self._share_now()
        return sum(self._slots.values())

    def _resources(self) -> dict[str, float]:
        present = self._ray.cluster_resources()
        return {"CPU": present.get("CPU", 0.0), "GPU": max(present.get("GPU", 0.0), self._most_gpus)}

    def _slots_now(self) -> dict[str, int]:
        total, per_fit = self._resources(), self._gpus_per_fit
        on_gpus = int(total["GPU"] / per_fit) if per_fit else 0
        if self._device is None:
            return {"": max(1, on_gpus if per_fit else int(total["CPU"]))}
        return {GPU: max(1, on_gpus), CPU: max(1, int(total["CPU"]) - on_gpus)}  # a fit on a GPU takes a core, too

    def _share_now(self) -> dict[str, int]:
        """Fits of each lane that this driver may have submitted, beside the other drivers of the cluster."""
        each = {lane: 1.0 if self._resource(lane) == "CPU" else self._gpus_per_fit for lane in self.lanes}
        under_way = Counter(self.lane(spec) for spec, _ in self._running.values())
        others = self._neighbours.tell({self._resource(lane): under_way[lane] * each[lane] for lane in self.lanes})
        if not others:
            return {lane: slots + _AHEAD for lane, slots in self._slots.items()}
        shares = {lane: [other.get(self._resource(lane), 0.0) / each[lane] for other in others] for lane in self.lanes}
        return {lane: whole(fair_share(self._slots[lane], taken)) for lane, taken in shares.items()}

    def _resource(self, lane: str) -> str:
        return "GPU" if lane == GPU or (not lane and self._gpus_per_fit) else "CPU"

    def lane(self, spec: FitSpec) -> str:
        if self._device is None:
            return ""
        return self._device(spec) if known_method(spec.method).device == "array" else CPU

    def room(self, lane: str) -> int:
        _ = self.slots  # looks at the cluster now and then
        return self._share[lane] - sum(self.lane(spec) == lane for spec, _ in self._running.values())

    def submit(self, job: Job) -> None:
        if job.place not in self._data:
            self._data[job.place] = self._ray.put(job.data())
        can = known_method(job.spec.method).device == "array" and self.lane(job.spec) != CPU
        gpus = self._gpus_per_fit if can else 0
        order = Order(gpus, submitted=time.time(), timeout=self._timeout)
        references = [self._data[job.place], self._luggage]
        task = self._task.options(num_gpus=gpus, name=job.spec.label)
        self._running[task.remote(job.spec, references, order, job.help)] = (job.spec, time.monotonic())
        self._metrics.started(self.slots)

    def forget(self, place: tuple[str, int]) -> None:
        self._data.pop(place, None)  # Ray frees what nobody refers to

    def wait(self, seconds: float) -> list[Finished]:
        if not self._running:
            return []
        references = list(self._running)
        try:
            ready, _ = self._ray.wait(references, num_returns=1, timeout=seconds)
        except ConnectionError as error:  # of a client (ray://); see Lifeline for the others
            raise UserError(f"lost the Ray cluster: {first_line(error)}; {_KEPT}") from None
        if ready:  # take along whatever else has finished meanwhile
            ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        finished = [self._collect(reference) for reference in ready]
        for end in finished:
            self._metrics.ended(end)
        return finished

    def _collect(self, reference: Any) -> Finished:
        spec, submitted = self._running.pop(reference)
        try:
            return Finished(spec, self._ray.get(reference))
        except self._ray.exceptions.LocalRayletDiedError:
            raise UserError(f"lost Ray on this machine; {_KEPT}") from None  # no fit can be submitted any more
        except self._ray.exceptions.RayTaskError as error:
            # Ray wraps the task's exception; its own class is a base of the wrapper's.
            cause = error.cause if isinstance(getattr(error, "cause", None), BaseException) else error
            return Finished(spec, None, classify(cause), first_line(cause), str(error), _ran(spec, submitted))
        except self._ray.exceptions.RayError as error:
            failure = describe_failure(spec, error, _ran(spec, submitted))
            if is_preemption(error):
                return replace(failure, kind="preempted")
            # Nearly: two clocks were read.
            if self._timeout and failure.kind == "lost worker" and failure.seconds >= 0.9 * self._timeout:
                return replace(failure, kind="timeout", message=f"no result after {self._timeout:g} s")
            return failure

    @property
    def devices(self) -> list[dict[str, Any]]:
        """Which device runs which fit now."""
        return whereabouts()

    def close(self) -> None:
        # Ray ends the tasks of a driver that leaves. Cancelling them first would race with the shutdown,
        # and now and then crash the driver in Ray's own core.
        self._running.clear()
        self._neighbours.leave()
        self._lifeline.close()
        self._ray.shutdown()


def _ran(spec: FitSpec, submitted: float) -> float:
    """Seconds for which a failed attempt held its worker; it may have waited for one before."""
    since = withdrawn(spec.key)
    if since is None:
        return 0.0
    return min(max(0.0, time.time() - since), time.monotonic() - submitted)  # clocks of two machines may differ


def gpu_models(nodes: list[dict[str, Any]]) -> set[str]:
    """GPU models of the nodes that are up, as Ray names them."""
    prefix = "accelerator_type:"
    names = {name for node in nodes if node["Alive"] for name in node["Resources"]}
    return {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
