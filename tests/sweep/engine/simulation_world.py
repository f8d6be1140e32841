"""What a simulated schedule is made of: a plan, fits that answer at once, and everything that can happen to them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sweep.datasets.card import DatasetCard
from sweep.engine.executors import Finished, Job, OneLane
from sweep.fits import FitOutcome, FitRecord, FitSpec, Place, Scores, Seconds, Solved, Trial
from sweep.studies.adaptive import AdaptiveStudy, search_space
from sweep.studies.base import Study
from sweep.studies.grid import EliminatingGridStudy, GridStudy, WarmGridStudy
from sweep.studies.plan import Plan
from sweep.studies.spec import Optuna, SweepSpec

KINDS = ("grid", "warm", "eliminating", "adaptive")


class Crash(BaseException):
    """The process is gone: nothing after this point happens."""


@dataclass
class World:
    """What outlives a process, and what must be true of it whatever happens.

    Attributes
    ----------
    kept : checksum of each committed row.
    excused : committed fits that were damaged on purpose and not computed again since.
    again : committed fits that a driver submitted all the same.
    driver : number of the driver that may write.
    """

    rng: random.Random
    happened: Counter[str] = field(default_factory=Counter)
    submitted: Counter[str] = field(default_factory=Counter)
    late: list[Finished] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    excused: set[str] = field(default_factory=set)
    driver: int = 0
    clock: float = 0.0

    def happens(self, what: str, chance: float) -> bool:
        if self.rng.random() >= chance:
            return False
        self.happened[what] += 1
        return True

    def crash(self, point: str, chance: float) -> None:
        if self.happens(f"crash {point}", chance):
            raise Crash


def record_of(spec: FitSpec) -> FitRecord:
    """What a fit finds: a function of its key alone."""
    value = 0.5 + int(spec.key[:6], 16) / 2**25
    scores = Scores(auc_all=value, n_queries=10, npv=3 if spec.fold is None else None)
    solved = Solved(objective=1.0, n_eigh=2, relative_gap=1e-4, converged=True)
    place = Place(host="here", pid=1, device="cpu", python="3", numpy="2", scipy="1")
    return FitRecord(spec.key, scores, solved, Seconds(solve=0.5), place, started=1e9, value=value)


def arrays_of(spec: FitSpec) -> dict[str, np.ndarray]:
    number = np.array([int(spec.key[:6], 16)], dtype=np.float64)
    if spec.fold is None:
        return {"components": number[None, :]}
    return {} if spec.start == "cold" else {"weights": number}


class SimulatedExecutor(OneLane):
    """Answers in any order, now and then wrongly, late, twice or never."""

    place = "a simulation"
    devices: list[dict[str, Any]] = []  # noqa: RUF012

    def __init__(self, world: World, trouble: float, driver: int) -> None:
        self.world, self.trouble, self.driver = world, trouble, driver
        self.slots = world.rng.choice((1, 2, 5))
        self._running: list[Job] = []

    def room(self, lane: str) -> int:
        return self.slots + 2 - len(self._running)

    def submit(self, job: Job) -> None:
        world, key = self.world, job.spec.key
        world.submitted[key] += 1
        # A driver that was taken over does not know yet what the other committed.
        if key in world.kept and key not in world.excused and self.driver == world.driver:
            world.again.append(key)
        self._running.append(job)

    def wait(self, seconds: float) -> list[Finished]:
        world, rng = self.world, self.world.rng
        world.clock += rng.uniform(0.0, 300.0)
        world.crash("while waiting", 0.05 * self.trouble)
        answers: list[Finished] = []
        if world.late and world.happens("late answer", 0.3 * self.trouble):
            answers.append(world.late.pop(rng.randrange(len(world.late))))
        for _ in range(rng.randint(1, 3)):
            if self._running:
                answers += self._answer(self._running.pop(rng.randrange(len(self._running))))
        return answers

    def _answer(self, job: Job) -> list[Finished]:
        world, spec, trouble = self.world, job.spec, self.trouble
        good = Finished(spec, FitOutcome(record_of(spec), arrays_of(spec)))
        for kind, chance in _FAILURES.items():
            if world.happens(kind, chance * trouble):
                world.late.append(good)  # a worker that was given up may answer after all, also to another driver
                return [Finished(spec, None, kind, f"{kind} on purpose", "trace", 0.25)]
        if world.happens("unsound record", 0.03 * trouble):
            broken = replace(record_of(spec), value=float("nan"))
            return [Finished(spec, FitOutcome(broken, {}))]
        if world.happens("answer twice", 0.1 * trouble):
            return [good, good]
        return [good]

    def forget(self, place: tuple[str, int]) -> None:
        pass

    def close(self) -> None:
        self._running.clear()


_FAILURES = {
    "lost worker": 0.1,
    "lost device": 0.05,
    "out of memory": 0.1,
    "preempted": 0.1,
    "timeout": 0.02,
    "bug": 0.02,
}


class Quiet:
    """A display that shows nothing."""

    def note(self, message: str) -> None:
        pass

    def update(self, *_: Any) -> None:
        return None


@dataclass(frozen=True)
class File:
    """A sweep file: one study of each kind, with grids of `size` trials on so many folds."""

    name: str
    kinds: tuple[str, ...]
    size: int
    folds: int
    hours: float | None = None  # budget of wall time

    def changed(self, rng: random.Random) -> File:
        """Extended, shortened, or as it is."""
        kinds = self.kinds[: rng.randint(1, len(self.kinds))] if rng.random() < 0.2 else self.kinds
        return replace(
            self,
            kinds=kinds,
            size=max(1, self.size + rng.choice((-1, 0, 0, 1))),
            folds=self.folds + 1 if rng.random() < 0.1 else self.folds,
            hours=rng.choice((0.2, 1.0)) if rng.random() < 0.15 else None,
        )

    @property
    def plan(self) -> Plan:
        spec = SweepSpec.model_validate(
            {"name": self.name, "datasets": ["digits"], "methods": ["mdml-csfn"], "folds": self.folds,
             "budget": {"wall_hours": self.hours}}
        )  # fmt: skip
        card = DatasetCard("toy", "toy", "f" * 64, 100, 5, 5, 70, (50, 50), 5, "none", None, "")
        return Plan(
            spec, {"toy": card}, {}, [], [self._study(split, kind) for split, kind in enumerate(self.kinds)], []
        )

    def _study(self, split: int, kind: str) -> Study:
        base = FitSpec(
            dataset="toy", data="f" * 64, scaling="none", pca=None, frequent_above=5, split=split, folds=self.folds,
            fold=None, method="mdml-csfn", version="4", trial=Trial(), restarts=1, algorithm="certified", settings=(),
            seed=0,
        )  # fmt: skip
        if kind == "adaptive":
            space = search_space({"gamma": [1e-4, 1.0]})
            return AdaptiveStudy(base, space, Optuna(trials=2 + self.size, prune_folds=False))
        make: Callable[..., Study] = {"grid": GridStudy, "warm": WarmGridStudy, "eliminating": EliminatingGridStudy}[
            kind
        ]
        return make(base, [Trial.of({"gamma": 10.0**-k}) for k in range(self.size)])
