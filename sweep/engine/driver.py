"""The loop that turns a plan into committed fits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy

from sweep.engine.executors import Executor, Finished
from sweep.engine.order import FitQueue
from sweep.engine.progress import Progress
from sweep.errors import UserError, first_line
from sweep.fits import CHAIN, COLD, FitRecord, FitSpec, SplitData
from sweep.seeds import derive_seed
from sweep.store.home import Home
from sweep.store.ledger import Failure, Ledger
from sweep.store.recording import Recorder
from sweep.studies.grid import Study
from sweep.studies.plan import Plan, expected_cost, n_fits

# How often a fit is tried again after each kind of failure. What is not listed would fail again.
RETRIES = {"lost worker": 3, "misplaced worker": 20, "out of memory": 1}


@dataclass
class Tally:
    """Where a sweep stands, in fits as the paper counts them (each restart is one)."""

    total: int = 0
    done: int = 0
    cached: int = 0
    failed: int = 0


class Driver:
    """Runs a plan: ready fits first, each finished fit committed before anything else happens.

    `make_executor` is called when the first fit really has to run; a sweep that is complete
    already starts nothing.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        home: Home,
        ledger: Ledger,
        make_executor: Callable[[], Executor],
        recorder: Recorder | None,
        progress: Progress,
    ) -> None:
        self.plan, self.home, self.ledger, self.recorder, self.progress = (
            plan,
            home,
            ledger,
            recorder,
            progress,
        )
        self.sweep = plan.spec.name
        self.tally = Tally()
        self.workers = 0  # fits that run at the same time
        self._started: float | None = None
        self.stopped: str | None = None  # why it ended before everything ran
        self._hours = 0.0  # that fits of this sweep have kept a worker busy, in all runs
        self._began = time.monotonic()
        self._make_executor = make_executor
        self._executor: Executor | None = None
        self._queue = FitQueue(self._cost)
        self._study: dict[str, Study] = {}
        self._attempts: dict[str, int] = {}
        self._lean: set[str] = set()
        self._running: dict[str, FitSpec] = {}
        self._splits: dict[tuple[str, int], SplitData] = {}

    def run(self) -> Tally:
        """Run to the end; raises KeyboardInterrupt through, with everything finished committed."""
        try:
            self._begin()
            while self._running or (self._queue and not self._over_budget()):
                self._submit()
                for finished in self._executor_now().wait(0.2):
                    self._take(finished)
                self._show()
        finally:
            if self._executor is not None:
                self._executor.close()
        return self.tally

    @property
    def seconds(self) -> float:
        """Since the first fit could start."""
        return 0.0 if self._started is None else time.monotonic() - self._started

    def _begin(self) -> None:
        """Ask for the fits of all studies; those in the ledger are told at once."""
        starts = [(study, study.start()) for study in self.plan.studies]
        self.tally.total = sum(study.planned * n_fits(study.template) for study in self.plan.studies)
        self.ledger.adopt(self.sweep, (fit.key for _, fits in starts for fit in fits))
        known = {}
        for record in self.ledger.summaries(self.sweep):
            known[record.key] = self._checked_score(record)
            self._hours += occupied_seconds(record) / 3600
        self._hours += sum(failure.seconds for failure in self.ledger.failures(self.sweep)) / 3600
        self.ledger.discard(self.ledger.altered)  # so that what is computed again can be kept
        for study, fits in starts:
            for fit in fits:
                self._ask(study, fit, known.get(fit.key))

    def _ask(self, study: Study, spec: FitSpec, score: float | None) -> None:
        """Queue a fit, or tell its study the score that the ledger holds."""
        if not study.planned:
            self.tally.total += n_fits(spec)
        if score is None:
            self._study[spec.key] = study
            self._queue.push(spec)
            return
        self.tally.done += n_fits(spec)
        self.tally.cached += n_fits(spec)
        self._tell(study, spec, score)

    def _tell(self, study: Study, spec: FitSpec, score: float | None) -> None:
        if score is not None:
            self._queue.learn(spec, score)
        followers = study.tell(spec, score)
        self.ledger.adopt(self.sweep, (fit.key for fit in followers))
        for fit in followers:
            self._ask(study, fit, self._intact_score(fit))

    def _intact_score(self, spec: FitSpec) -> float | None:
        """Score of a fit in the ledger, unless its row or its artifact is damaged."""
        record = self.ledger.record(spec.key)
        if record is None:
            self.ledger.discard([spec.key])  # a row that failed its checksum would keep the new one out
            return None
        return self._checked_score(record)

    def _checked_score(self, record: FitRecord) -> float | None:
        if record.artifact and self.home.read_artifact(record.key, record.artifact) is None:
            self.ledger.altered.append(record.key)
            self.ledger.discard([record.key])
            return None
        return record.score

    def _executor_now(self) -> Executor:
        if self._executor is None:
            self.progress.note("starting workers")
            self._executor = self._make_executor()
            self.workers, self._started = self._executor.slots, time.monotonic()
            self.progress.note(f"running on {self._executor.place}")
        return self._executor

    def _submit(self) -> None:
        executor = self._executor_now()
        while self._queue and executor.room > 0 and not self._over_budget():
            spec = self._queue.pop()
            self._running[spec.key] = spec
            executor.submit(spec, self._split(spec), warm=self._warm_start(spec), lean=spec.key in self._lean)

    def _warm_start(self, spec: FitSpec) -> Any | None:
        """Dual weights of the fit that this one starts from."""
        if spec.start in (COLD, CHAIN):
            return None
        record = self.ledger.record(spec.start)
        arrays = self.home.read_artifact(spec.start, record.artifact) if record and record.artifact else None
        if arrays is None:
            raise UserError(
                f"{spec.label}: the solution it starts from is missing or damaged in {self.home.folder / 'artifacts'}; "
                "run again to compute that one anew"
            )
        return arrays["weights"]

    def _over_budget(self) -> bool:
        """Whether the sweep file's limit is reached; what runs is finished, nothing new is started."""
        budget = self.plan.spec.budget
        spent = {"gpu_hours": self._hours * max(self.plan.spec.resources.gpus_per_fit, 1e-9),
                 "wall_hours": (time.monotonic() - self._began) / 3600}  # fmt: skip
        for name, hours in spent.items():
            limit = getattr(budget, name)
            if limit is not None and hours >= limit:
                self.stopped = f"budget.{name}: {limit:g} is used up; raise it and run again to go on"
                return True
        return False

    def _split(self, spec: FitSpec) -> SplitData:
        """Data of a fit's split, made once."""
        place = (spec.dataset, spec.split)
        if place not in self._splits:
            self._splits[place] = self.plan.data[spec.dataset].split(spec.split, spec.folds, spec.seed)
        return self._splits[place]

    def _take(self, finished: Finished) -> None:
        """Commit a finished fit, or count its failure and perhaps try again."""
        spec = finished.spec
        del self._running[spec.key]
        attempt = self._attempts.pop(spec.key, 0) + 1
        if finished.outcome is None:
            final = attempt > RETRIES.get(finished.kind, 0)
            self.ledger.fail(self.sweep, _failure(finished, attempt, final))
            self._hours += finished.seconds / 3600
            if not final:
                self._attempts[spec.key] = attempt
                if finished.kind == "out of memory":
                    self._lean.add(spec.key)
                if finished.kind == "misplaced worker":
                    time.sleep(0.5)  # that process is about to end, and must not get the fit again
                self._queue.push(spec)
                return
            self.tally.failed += n_fits(spec)
            self._tell(self._study.pop(spec.key), spec, None)
            return
        record = self._keep(spec, replace(finished.outcome.record, attempts=attempt), finished.outcome.arrays)
        self._hours += occupied_seconds(record) / 3600
        self.tally.done += n_fits(spec)
        self._tell(self._study.pop(spec.key), spec, record.score)
        if self.recorder is not None:
            self.recorder.poke()

    def _keep(self, spec: FitSpec, record: FitRecord, arrays: dict[str, Any]) -> FitRecord:
        """Artifact first, then the row that names its checksum: a row never promises what is not there."""
        try:
            if arrays:
                record = replace(record, artifact=self.home.write_artifact(spec.key, arrays))
            self.ledger.commit(spec, record)
        except (OSError, sqlalchemy.exc.OperationalError) as error:
            raise UserError(
                f"cannot keep the result of {spec.label}: {first_line(getattr(error, 'orig', error))}; "
                "what was committed before is safe, run again when there is room"
            ) from None
        return record

    def _cost(self, spec: FitSpec) -> float:
        if self.plan.spec.mode == "benchmark":
            # A random order, the same in every run: no method profits from a quiet hour.
            return float(derive_seed(spec.seed, spec.key, "order"))
        return expected_cost(spec, self.plan.data[spec.dataset].dimension)

    def _show(self) -> None:
        running = sorted(spec.label for spec in self._running.values())
        shown = self.progress.update(self.tally, running)
        if shown:
            devices = self._executor.devices if self._executor is not None else []
            self.home.write_state(self.sweep, self.progress.state(self.tally, running) | {"devices": devices})


def occupied_seconds(record: FitRecord) -> float:
    """Seconds for which a fit kept its worker busy."""
    return sum(seconds for phase, seconds in record.seconds.items() if phase != "queue")


def _failure(finished: Finished, attempt: int, final: bool) -> Failure:
    return Failure(
        key=finished.spec.key,
        label=finished.spec.label,
        method=finished.spec.method,
        attempt=attempt,
        kind=finished.kind,
        message=finished.message,
        traceback=finished.trace,
        seconds=finished.seconds,
        final=final,
        happened=time.time(),
    )
