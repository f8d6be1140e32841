"""Where fits run: in this process, or as Ray tasks. The driver sees one small interface."""

from __future__ import annotations

import time
import traceback
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from sweep.errors import first_line
from sweep.fits import FitOutcome, FitSpec, SplitData, fit_and_score


@dataclass(frozen=True)
class Finished:
    """A task's end: an outcome, or what went wrong."""

    spec: FitSpec
    outcome: FitOutcome | None
    kind: str = ""
    message: str = ""
    trace: str = ""
    seconds: float = 0.0


class Executor(Protocol):
    """Runs fits somewhere."""

    place: str

    @property
    def slots(self) -> int:
        """Fits that run at the same time."""

    @property
    def room(self) -> int:
        """Fits that may be submitted now."""

    def submit(self, spec: FitSpec, data: SplitData, *, warm: Any = None, lean: bool = False) -> None:
        """Start a fit, from the dual weights `warm` if given.

        `lean` trades speed for memory, after an attempt that ran out of it.
        """

    def wait(self, seconds: float) -> list[Finished]:
        """Fits that finished; waits up to `seconds` for the first."""

    @property
    def devices(self) -> list[dict[str, Any]]:
        """Which device runs which fit now: device, label, since."""

    def close(self) -> None: ...


class InlineExecutor:
    """One fit after the other in this process: for tests, notebooks and debuggers."""

    place = "this process"
    slots = 1
    devices: list[dict[str, Any]] = []  # noqa: RUF012 - never filled: the only fit runs inside `wait`

    def __init__(self) -> None:
        self._queue: deque[tuple[FitSpec, SplitData, Any, bool]] = deque()

    @property
    def room(self) -> int:
        return 1 - len(self._queue)

    def submit(self, spec: FitSpec, data: SplitData, *, warm: Any = None, lean: bool = False) -> None:
        self._queue.append((spec, data, warm, lean))

    def wait(self, seconds: float) -> list[Finished]:
        from threadpoolctl import threadpool_limits

        if not self._queue:
            return []
        spec, data, warm, lean = self._queue.popleft()
        start = time.perf_counter()
        try:
            # One thread, as in a Ray worker: sums in another order would change the last bits.
            with threadpool_limits(1):
                return [Finished(spec, fit_and_score(spec, data, warm=warm, lean=lean))]
        except Exception as error:
            return [describe_failure(spec, error, time.perf_counter() - start)]

    def close(self) -> None:
        self._queue.clear()


def describe_failure(spec: FitSpec, error: BaseException, seconds: float) -> Finished:
    """A fit's exception as a record that can be kept: kind, first line, traceback."""
    trace = "".join(traceback.format_exception(error))
    return Finished(spec, None, classify(error), first_line(error), trace, seconds)


def classify(error: BaseException) -> str:
    """What kind of failure it is, which decides whether to try again."""
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & {"MemoryError", "OutOfMemoryError"}:
        return "out of memory"
    if "MisplacedWorkerError" in names:
        return "misplaced worker"
    if names & {"WorkerCrashedError", "NodeDiedError", "ActorDiedError", "ObjectLostError", "OwnerDiedError",
                "RaySystemError", "LocalRayletDiedError", "RayChannelError"}:  # fmt: skip
        return "lost worker"
    if names & {"LinAlgError", "FloatingPointError"}:
        return "numerical"
    return "bug"
