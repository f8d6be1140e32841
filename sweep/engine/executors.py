"""Where fits run: in this process, or as Ray tasks. The driver sees one small interface."""

from __future__ import annotations

import re
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sweep.errors import first_line
from sweep.fits import FitOutcome, FitSpec, Help, SplitData, fit_and_score


@dataclass(frozen=True)
class Finished:
    """A task's end: an outcome, or what went wrong."""

    spec: FitSpec
    outcome: FitOutcome | None
    kind: str = ""
    message: str = ""
    trace: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Job:
    """A fit that is handed to an executor: its spec, how to get its data, and what helps it."""

    spec: FitSpec
    data: Callable[[], SplitData]
    help: Help = field(default_factory=Help)

    @property
    def place(self) -> tuple[str, int]:
        """Jobs of one place share their data."""
        return self.spec.dataset, self.spec.split


class Executor(Protocol):
    """Runs fits somewhere."""

    place: str

    @property
    def slots(self) -> int:
        """Fits that run at the same time."""

    @property
    def lanes(self) -> Sequence[str]:
        """Kinds of devices that fits wait for, each by itself."""

    def lane(self, spec: FitSpec) -> str:
        """Which of them a fit waits for."""

    def room(self, lane: str) -> int:
        """Fits that may be submitted now."""

    def submit(self, job: Job) -> None:
        """Start a fit."""

    def wait(self, seconds: float) -> list[Finished]:
        """Fits that finished; waits up to `seconds` for the first."""

    def forget(self, place: tuple[str, int]) -> None:
        """No further fit of this dataset and split will come: let its data go."""

    @property
    def devices(self) -> list[dict[str, Any]]:
        """Which device runs which fit now: device, label, since."""

    def close(self) -> None: ...


class OneLane:
    """What executors share on which all fits wait for the same."""

    lanes = ("",)

    def lane(self, spec: FitSpec) -> str:
        return ""


class InlineExecutor(OneLane):
    """One fit after the other in this process: for tests, notebooks and debuggers."""

    place = "this process"
    slots = 1
    devices: list[dict[str, Any]] = []  # noqa: RUF012 - never filled: the only fit runs inside `wait`

    def __init__(self, estimators: Mapping[str, Any] | None = None) -> None:
        self._queue: deque[Job] = deque()
        self._data: dict[tuple[str, int], SplitData] = {}
        self._estimators = estimators or {}

    def room(self, lane: str) -> int:
        return 1 - len(self._queue)

    def submit(self, job: Job) -> None:
        self._queue.append(job)

    def wait(self, seconds: float) -> list[Finished]:
        from threadpoolctl import threadpool_limits

        if not self._queue:
            return []
        job = self._queue.popleft()
        start = time.perf_counter()
        try:
            help = replace(job.help, estimator=self._estimators.get(job.spec.method))
            # One thread, as in a Ray worker: sums in another order would change the last bits.
            with threadpool_limits(1):
                if job.place not in self._data:
                    self._data[job.place] = job.data()
                return [Finished(job.spec, fit_and_score(job.spec, self._data[job.place], help))]
        except Exception as error:
            return [describe_failure(job.spec, error, time.perf_counter() - start)]

    def forget(self, place: tuple[str, int]) -> None:
        self._data.pop(place, None)

    def close(self) -> None:
        self._queue.clear()


def describe_failure(spec: FitSpec, error: BaseException, seconds: float) -> Finished:
    """A fit's exception as a record that can be kept: kind, first line, traceback."""
    trace = "".join(traceback.format_exception(error))
    return Finished(spec, None, classify(error), first_line(error), trace, seconds)


_KINDS = {
    "out of memory": {"MemoryError", "OutOfMemoryError"},
    "misplaced worker": {"MisplacedWorkerError"},
    "lost device": {"LostDeviceError", "CUDARuntimeError", "CUDADriverError", "CUBLASError", "CUSOLVERError",
                    "CuSparseError"},
    "lost worker": {"WorkerCrashedError", "NodeDiedError", "ActorDiedError", "ObjectLostError", "OwnerDiedError",
                    "RaySystemError", "LocalRayletDiedError", "RayChannelError"},
    "too large": {"TooLargeError"},
    "numerical": {"LinAlgError", "FloatingPointError", "ArithmeticError"},
}  # fmt: skip
# CUDA and its libraries report memory that ran out as an error of theirs like any other.
_NO_MEMORY = re.compile("out of memory|ALLOC_FAILED|INSUFFICIENT_RESOURCES")


def classify(error: BaseException) -> str:
    """What kind of failure it is, which decides whether to try again."""
    names = {cls.__name__ for cls in type(error).__mro__}
    kind = next((kind for kind, classes in _KINDS.items() if names & classes), "bug")
    return "out of memory" if kind == "lost device" and _NO_MEMORY.search(str(error)) else kind
