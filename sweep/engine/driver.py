"""The loop that turns a plan into committed fits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sweep.datasets.card import open_split
from sweep.engine.executors import Executor, Finished, Job
from sweep.engine.order import FitQueue
from sweep.errors import UserError
from sweep.fits import FitRecord, FitSpec, Help, SplitData
from sweep.seeds import derive_seed
from sweep.store.faults import UnsoundRecord
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.store.rows import Failure, Glance
from sweep.store.warm import warm_start
from sweep.studies.base import Size, Study, Told, expected_cost, n_fits
from sweep.studies.forecast import Costs
from sweep.studies.plan import Plan

# How often a fit is tried again after each kind of failure. What is not listed would fail again. A node that was taken
# away is nobody's fault, but somebody has to end it.
RETRIES = {"lost worker": 3, "lost device": 3, "misplaced worker": 20, "out of memory": 1, "preempted": 100}


@dataclass
class Tally:
    """Where a sweep stands, in fits as the paper counts them (each restart is one)."""

    total: int = 0
    exact: bool = True  # whether `total` is known, or the most that it can be
    done: int = 0
    cached: int = 0
    failed: int = 0
    saved: int = 0  # that were planned and turned out not to be needed

    @property
    def left(self) -> int:
        return max(0, self.total - self.done - self.failed)


@dataclass(frozen=True)
class Running:
    """A fit under way."""

    label: str
    since: float  # seconds since the epoch


@dataclass(frozen=True)
class Stop:
    """Why a sweep ended before everything ran."""

    kind: str  # budget, stopped
    reason: str


class Display(Protocol):
    """Who shows how far a sweep is."""

    def note(self, message: str) -> None: ...

    def update(
        self, tally: Tally, running: list[Running], seconds_left: Callable[[], float | None]
    ) -> dict[str, Any] | None:
        """Show it if it is time to; returns the state to keep for `sweep status`, None if nothing was shown."""


@dataclass
class _Course:
    """A study under way: what it asked for, and what has come back."""

    study: Study
    asked: int = 0  # fits
    outstanding: set[str] = field(default_factory=set)

    @property
    def size(self) -> Size:
        """What it takes at most, or what it took."""
        return self.study.size if self.outstanding else Size(0, self.asked)


class Driver:
    """Runs a plan: ready fits first, each finished fit committed before anything else happens.

    Parameters
    ----------
    make_executor : called when the first fit really has to run; a sweep that is complete already starts nothing.
    on_commit : called after each commit.
    clock : seconds from any zero, for budgets.
    crossing : called with the name of each point between two durable steps, where a crash would leave something
        half done; tests crash there.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        home: Home,
        ledger: Ledger,
        make_executor: Callable[[], Executor],
        display: Display,
        on_commit: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        crossing: Callable[[str], None] = lambda point: None,
    ) -> None:
        self.plan, self.home, self.ledger, self.display = plan, home, ledger, display
        self.sweep = plan.spec.name
        self.tally = Tally()
        self.workers = 0  # fits that run at the same time
        self.stopped: Stop | None = None
        self._on_commit, self._clock, self._crossing = on_commit, clock, crossing
        self._started: float | None = None
        self._hours = 0.0  # that fits of this sweep have kept a worker busy, in all runs
        self._began = clock()
        self._make_executor = make_executor
        self._executor: Executor | None = None
        places = [(study.template.dataset, study.template.split) for study in plan.studies]
        order = {place: 0 if plan.pilot else number for number, place in enumerate(dict.fromkeys(places))}
        self._queue = FitQueue(self._cost, lambda spec: order[spec.dataset, spec.split])
        self._courses = {study.template.study: _Course(study) for study in plan.studies}
        self._failures: dict[str, tuple[str, ...]] = {}  # kinds of the failed attempts of fits that are tried again
        self._lean: set[str] = set()
        self._running: dict[str, tuple[FitSpec, float]] = {}
        self._costs = Costs()
        self._left: float | None = None
        self._look_again = -1e9
        self._asked_to_stop = -1e9  # when we last looked

    def run(self) -> Tally:
        """Run to the end; raises KeyboardInterrupt through, with everything finished committed."""
        try:
            self._begin()
            while (self._running and not self._cut_off()) or (self._queue and not self._over()):
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
        return 0.0 if self._started is None else self._clock() - self._started

    def _begin(self) -> None:
        """Ask for the fits of all studies; those in the ledger are told at once."""
        starts = [(course, course.study.start()) for course in self._courses.values()]
        self.ledger.adopt(self.sweep, (fit.key for _, fits in starts for fit in fits))
        known: dict[str, Told] = {}
        for glance in self.ledger.glances(self.sweep, self.plan.spec.score):
            told = self._checked(glance)
            if told is not None:
                known[glance.key] = told
            self._hours += glance.busy_seconds / 3600
        self._hours += sum(failure.seconds for failure in self.ledger.failures(self.sweep)) / 3600
        self.ledger.discard(self.ledger.altered)  # so that what is computed again can be kept
        for course, fits in starts:
            self._ask(course, fits, known.get)
        self._count()

    def _ask(self, course: _Course, fits: list[FitSpec], known: Callable[[str], Told | None]) -> None:
        """Queue fits, or tell their study what the ledger holds."""
        course.asked += sum(map(n_fits, fits))
        course.outstanding |= {fit.key for fit in fits}
        for fit in fits:
            if fit.key not in course.outstanding:
                continue  # a fit before it made it superfluous
            told = known(fit.key)
            if told is None:
                self._queue.push(fit)
                continue
            self.tally.done += n_fits(fit)
            self.tally.cached += n_fits(fit)
            self._tell(course, fit, told)

    def _tell(self, course: _Course, spec: FitSpec, told: Told | None) -> None:
        """Hand a fit's end to its study, and ask for what follows."""
        if told is not None:
            self._queue.learn(spec, told.value)
        followers = course.study.tell(spec, told)
        course.outstanding.discard(spec.key)
        for key in course.study.withdrawn():
            self._withdraw(course, key)
        if followers:
            self.ledger.adopt(self.sweep, (fit.key for fit in followers))
            self._ask(course, followers, self._look_up)
        if not course.outstanding:
            self._let_go(spec.dataset, spec.split)

    def _withdraw(self, course: _Course, key: str) -> None:
        """A fit turned out not to be needed: unless it runs already, it never will."""
        if key in course.outstanding and key not in self._running:
            course.outstanding.discard(key)
            self._queue.drop(key)
            course.asked -= course.study.template.restarts
            self.tally.saved += course.study.template.restarts

    def _look_up(self, key: str) -> Told | None:
        """What the ledger holds of a fit, unless its row or its artifact is damaged."""
        glance = self.ledger.glance(key, self.plan.spec.score)
        if glance is None:
            self.ledger.discard([key])  # a row that failed its checksum would keep the new one out
            return None
        return self._checked(glance)

    def _checked(self, fit: Glance) -> Told | None:
        """What a finished fit says, unless it cannot be used: then it is computed again."""
        missing = fit.artifact and self.home.read_artifact(fit.key, fit.artifact) is None
        if fit.value is None or (missing and not self.ledger.lies_elsewhere(fit.key)):
            if missing:
                self.ledger.altered.append(fit.key)
            self.ledger.discard([fit.key])
            return None
        return Told(fit.value, fit.curve)

    def _executor_now(self) -> Executor:
        if self._executor is None:
            self.display.note("starting workers")
            self._executor = self._make_executor()
            self._queue.divide(self._executor.lane)
            self.workers, self._started = self._executor.slots, self._clock()
            self.display.note(f"running on {self._executor.place}")
        return self._executor

    def _submit(self) -> None:
        executor = self._executor_now()
        for lane in executor.lanes:
            while self._queue.count(lane) and executor.room(lane) > 0 and not self._over():
                spec = self._queue.pop(lane)
                self._running[spec.key] = (spec, time.time())
                help = Help(warm=warm_start(spec, self.home, self.ledger), lean=spec.key in self._lean)
                executor.submit(Job(spec, lambda spec=spec: self._split(spec), help))  # type: ignore[misc]

    def _over(self) -> bool:
        """Whether a limit or a request ends the sweep; what runs is finished, nothing new is started."""
        if self.stopped is not None:
            return True
        budget, now = self.plan.spec.budget, self._clock()
        spent = {"gpu_hours": self._hours * max(self.plan.spec.resources.gpus_per_fit, 1e-9),
                 "wall_hours": (now - self._began) / 3600}  # fmt: skip
        for name, hours in spent.items():
            limit = getattr(budget, name)
            if limit is not None and hours >= limit:
                self.stopped = Stop("budget", f"budget.{name}: {limit:g} is used up; raise it and run again to go on")
        if self.stopped is None and now - self._asked_to_stop > 1:
            self._asked_to_stop = now
            if self.home.read_state(f"{self.sweep}.stop"):
                self.stopped = Stop("stopped", "`sweep stop` asked for it; run again to go on")
        return self.stopped is not None

    def _cut_off(self) -> bool:
        """Whether even what runs is given up: a pilot has its seconds, and a fit may take hours."""
        return self.plan.pilot and self._over()

    def _split(self, spec: FitSpec) -> SplitData:
        """Data of a fit's split. The executor asks when its first fit is due, and keeps them where its workers are."""
        return open_split(
            self.plan.choices[spec.dataset], self.home.data, spec.split, spec.folds, spec.seed,
            label=spec.dataset, fingerprint=spec.data,
        )  # fmt: skip

    def _let_go(self, dataset: str, split: int) -> None:
        """Free a split's data once none of its studies waits for anything."""
        places = (c for (d, s, _), c in self._courses.items() if (d, s) == (dataset, split))
        if self._executor is not None and not any(course.outstanding for course in places):
            self._executor.forget((dataset, split))

    def _take(self, finished: Finished) -> None:
        """Commit a finished fit, or count its failure and perhaps try again."""
        spec = finished.spec
        if self._running.pop(spec.key, None) is None:
            return  # an answer that came twice: the first one counts
        course = self._courses[spec.study]
        failures = self._failures.pop(spec.key, ())
        if finished.outcome is not None:
            try:
                record = replace(finished.outcome.record, attempts=len(failures) + 1)
                record = self._keep(spec, record, finished.outcome.arrays)
            except UnsoundRecord as error:
                finished = replace(
                    finished, outcome=None, kind="numerical", message=str(error),
                    seconds=finished.outcome.record.seconds.busy,
                )  # fmt: skip
        if finished.outcome is None:
            self._fail(course, finished, failures)
            return
        self._crossing("committed")
        self._hours += record.seconds.busy / 3600
        self._costs.learn(spec, record.seconds.busy)
        self.tally.done += n_fits(spec)
        self._tell(course, spec, Told.of(record))
        self._count()
        self._on_commit()

    def _fail(self, course: _Course, finished: Finished, before: tuple[str, ...]) -> None:
        """Keep a failure; `before` are the kinds of earlier ones, each of which is forgiven so many times."""
        spec = finished.spec
        final = before.count(finished.kind) >= RETRIES.get(finished.kind, 0)
        self.ledger.fail(
            self.sweep,
            Failure.of(
                spec, attempt=len(before) + 1, kind=finished.kind, message=finished.message, traceback=finished.trace,
                seconds=finished.seconds, final=final,
            ),
        )  # fmt: skip
        self._crossing("failure kept")
        self._hours += finished.seconds / 3600
        if final:
            self.tally.failed += n_fits(spec)
            self._tell(course, spec, None)
            self._count()
            return
        self._failures[spec.key] = (*before, finished.kind)
        if finished.kind == "out of memory":
            self._lean.add(spec.key)
        if finished.kind == "misplaced worker":
            time.sleep(0.5)  # that process is about to end, and must not get the fit again
        self._queue.push(spec)

    def _keep(self, spec: FitSpec, record: FitRecord, arrays: dict[str, Any]) -> FitRecord:
        """Artifact first, then the row that names its checksum: a row never promises what is not there."""
        if arrays:
            try:
                record = replace(record, artifact=self.home.write_artifact(spec.key, arrays))
            except OSError as error:
                raise UserError(
                    f"cannot keep the result of {spec.label}: {error.strerror or error}; "
                    "what was committed before is safe, run again when there is room"
                ) from None
            self._crossing("artifact written")
        self.ledger.commit(spec, record)
        return record

    def _cost(self, spec: FitSpec) -> float:
        if self.plan.spec.mode == "benchmark":
            # A random order, the same in every run: no method profits from a quiet hour.
            return float(derive_seed(spec.seed, spec.key, "order"))
        cost = expected_cost(spec, self.plan.cards[spec.dataset].dimension)
        return -cost if self.plan.pilot else cost

    def _count(self) -> None:
        size = Size.total(course.size for course in self._courses.values())
        self.tally.total, self.tally.exact = size.fits, size.exact

    def _seconds_left(self) -> float | None:
        """By what each waiting fit should cost. Looking at all of them is kept to a small share of the time."""
        now = self._clock()
        if now >= self._look_again:
            waiting = [*self._queue.waiting(), *(spec for spec, _ in self._running.values())]
            self._left = self._costs.seconds_left(waiting, self.tally.left, max(1, self.workers))
            self._look_again = self._clock() + 20 * (self._clock() - now)
        return self._left

    def _show(self) -> None:
        running = sorted((Running(spec.label, since) for spec, since in self._running.values()), key=lambda r: r.since)
        state = self.display.update(self.tally, running, self._seconds_left)
        if state is not None:
            devices = self._executor.devices if self._executor is not None else []
            self.home.write_state(self.sweep, state | {"devices": devices})
