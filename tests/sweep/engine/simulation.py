"""Seeded schedules of everything that can go wrong, against the real driver, ledger and home.

    python -m tests.sweep.engine.simulation --count 10000          # what `make simulate` runs
    python -m tests.sweep.engine.simulation --first 4711 --count 1  # replays one

Only what takes time is simulated: fits answer at once with a record that is a function of their key, the clock is a
number. One schedule is a story of several runs of a sweep over one home: results come reordered, lost, late, twice,
failing, out of memory, stale or unsound; the process dies at every named point between two durable steps; a
second driver takes over in the middle; the sweep file is extended or shortened; rows and artifacts are damaged. At the
end a calm run must leave exactly what a home that nothing ever happened to holds.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sweep.datasets.card import DatasetCard
from sweep.engine.driver import Driver, Tally
from sweep.engine.executors import Finished, Job
from sweep.fits import FitOutcome, FitRecord, FitSpec, Place, Scores, Seconds, Solved, Trial
from sweep.store.faults import FencedError
from sweep.store.home import Home
from sweep.store.ledger import Ledger, open_ledger
from sweep.studies.adaptive import AdaptiveStudy, search_space
from sweep.studies.base import Study
from sweep.studies.grid import EliminatingGridStudy, GridStudy, WarmGridStudy
from sweep.studies.plan import Plan
from sweep.studies.spec import Optuna, SweepSpec

SWEEP = "simulated"
FOLDS = 2


class Crash(BaseException):
    """The process is gone: nothing after this point happens."""


def score_of(key: str) -> float:
    """What a fit scores: a function of its key alone."""
    return 0.5 + int(key[:6], 16) / 2**25


def record_of(spec: FitSpec) -> FitRecord:
    value = score_of(spec.key)
    scores = Scores(auc_all=value, n_queries=10, npv=3 if spec.fold is None else None)
    solved = Solved(objective=1.0, n_eigh=2, relative_gap=1e-4, converged=True)
    place = Place(host="here", pid=1, device="cpu", python="3", numpy="2", scipy="1")
    return FitRecord(spec.key, scores, solved, Seconds(solve=0.5), place, started=0.0, value=value)


def arrays_of(spec: FitSpec) -> dict[str, np.ndarray]:
    number = np.array([int(spec.key[:6], 16)], dtype=np.float64)
    if spec.fold is None:
        return {"components": number[None, :]}
    return {} if spec.start == "cold" else {"weights": number}


@dataclass
class World:
    """What outlives a process: the answers under way, and who submitted what when it was committed already."""

    rng: random.Random
    submitted: Counter[str] = field(default_factory=Counter)
    breaks: Counter[str] = field(default_factory=Counter)
    stale: list[Finished] = field(default_factory=list)
    again: list[str] = field(default_factory=list)  # committed fits that were submitted all the same
    excused: set[str] = field(default_factory=set)  # whose row or artifact was damaged on purpose
    committed: set[str] = field(default_factory=set)

    def happens(self, what: str, chance: float) -> bool:
        if self.rng.random() >= chance:
            return False
        self.breaks[what] += 1
        return True


class SimulatedExecutor:
    """Answers in any order, now and then wrongly, late, twice or never."""

    place = "a simulation"
    devices: list[dict[str, Any]] = []  # noqa: RUF012

    def __init__(self, world: World, trouble: float) -> None:
        self.world, self.trouble = world, trouble
        self.slots = world.rng.choice((1, 2, 5))
        self._running: list[Job] = []

    @property
    def room(self) -> int:
        return self.slots + 2 - len(self._running)

    def submit(self, job: Job) -> None:
        key = job.spec.key
        self.world.submitted[key] += 1
        if key in self.world.committed - self.world.excused:
            self.world.again.append(key)
        self._running.append(job)

    def wait(self, seconds: float) -> list[Finished]:
        world, rng = self.world, self.world.rng
        if world.happens("crash while waiting", 0.1 * self.trouble):
            raise Crash
        answers: list[Finished] = []
        if world.stale and world.happens("stale answer", 0.3 * self.trouble):
            answers.append(world.stale.pop(rng.randrange(len(world.stale))))
        for _ in range(rng.randint(1, 3)):
            if self._running:
                answers += self._answer(self._running.pop(rng.randrange(len(self._running))))
        return answers

    def _answer(self, job: Job) -> list[Finished]:
        world, spec, trouble = self.world, job.spec, self.trouble
        good = Finished(spec, FitOutcome(record_of(spec), arrays_of(spec)))
        for kind, chance in (("lost worker", 0.15), ("out of memory", 0.1), ("preempted", 0.1), ("bug", 0.02)):
            if world.happens(kind, chance * trouble):
                world.stale.append(good)  # a worker that was given up may answer after all
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


class Quiet:
    """A display that shows nothing."""

    def note(self, message: str) -> None:
        pass

    def update(self, *_: Any) -> None:
        return None


def template(method: str, split: int) -> FitSpec:
    return FitSpec(
        dataset="toy", data="f" * 64, scaling="none", pca=None, frequent_above=5, split=split, folds=FOLDS, fold=None,
        method=method, version="4", trial=Trial(), restarts=1, algorithm="certified", settings=(), seed=0,
    )  # fmt: skip


def studies(size: int, kinds: tuple[str, ...]) -> list[Study]:
    """One study of each kind; `size` says how large their grids are."""
    trials = [Trial.of({"gamma": 10.0**-k}) for k in range(size)]
    found: list[Study] = []
    for split, kind in enumerate(kinds):
        base = template("mdml-csfn", split)
        if kind == "grid":
            found.append(GridStudy(base, trials))
        elif kind == "warm":
            found.append(WarmGridStudy(base, trials))
        elif kind == "eliminating":
            found.append(EliminatingGridStudy(base, trials))
        else:
            space = search_space({"gamma": [1e-4, 1.0]})
            found.append(AdaptiveStudy(base, space, Optuna(trials=2 + size, prune_folds=False)))
    return found


def plan(size: int, kinds: tuple[str, ...]) -> Plan:
    spec = SweepSpec.model_validate({"name": SWEEP, "datasets": ["digits"], "methods": ["mdml-csfn"], "folds": FOLDS})
    card = DatasetCard("toy", "toy", "f" * 64, 100, 5, 5, 70, (50, 50), 5, "none", None, "")
    return Plan(spec, {"toy": card}, {}, [], studies(size, kinds), [])


def run_once(home: Home, made: Plan, world: World, trouble: float, *, rival: bool = False) -> Tally:
    """One process that runs the sweep; raises Crash or FencedError where it ends early."""
    ledger = open_ledger("sqlite", home)
    world.committed |= ledger.keys()
    commit = ledger.commit

    def noted(spec: FitSpec, record: FitRecord) -> None:
        commit(spec, record)
        world.committed.add(spec.key)

    ledger.commit = noted  # type: ignore[method-assign]
    ledger.open_sweep(SWEEP, made.spec.without_secrets(), {})
    others: list[Ledger] = []

    def crossing(point: str) -> None:
        if world.happens(f"crash: {point}", 0.05 * trouble):
            raise Crash
        if rival and not others and world.happens("second driver", 0.3):
            others.append(open_ledger("sqlite", home))
            others[0].open_sweep(SWEEP, made.spec.without_secrets(), {})

    try:
        driver = Driver(
            made,
            home=home,
            ledger=ledger,
            make_executor=lambda: SimulatedExecutor(world, trouble),
            display=Quiet(),
            clock=lambda: 0.0,
            crossing=crossing,
        )
        return driver.run()
    finally:
        for each in (ledger, *others):
            each.database.close()  # a dead process gives no fence back


def damage(home: Home, world: World) -> None:
    """Alter a row, or an artifact, as a bad disk would."""
    ledger = open_ledger("sqlite", home)
    keys = sorted(ledger.keys())
    if keys and world.happens("altered row", 0.5):
        key = world.rng.choice(keys)
        world.excused.add(key)
        from sqlalchemy import update

        from sweep.store.tables import fits

        ledger.database.write(
            lambda c: c.execute(update(fits).where(fits.c.key == key).values(record='{"altered": 1}'))
        )
    files = sorted((home.folder / "artifacts").glob("*.npz"))
    if files and world.happens("damaged artifact", 0.5):
        path = world.rng.choice(files)
        world.excused.add(path.stem)
        if world.rng.random() < 0.5:
            path.unlink()
        else:
            path.write_bytes(b"broken" + path.read_bytes()[6:])
    ledger.close()


def end_state(home: Home) -> dict[str, Any]:
    """All that a sweep leaves behind, as far as it does not depend on when it ran."""
    ledger = open_ledger("sqlite", home)
    found: dict[str, Any] = {}
    for spec, record in ledger.records(SWEEP):
        arrays = home.read_artifact(spec.key, record.artifact) if record.artifact else None
        found[spec.key] = (spec, record.value, record.scores, None if arrays is None else sorted(arrays))
    ledger.close()
    return found


def tell_story(seed: int, root: Path) -> Counter[str]:
    """One schedule; raises AssertionError if an invariant does not hold. Returns what went wrong on the way."""
    rng = random.Random(seed)
    world = World(rng)
    kinds = tuple(rng.choice(("grid", "warm", "eliminating", "adaptive")) for _ in range(rng.randint(1, 3)))
    size, home = rng.randint(2, 5), Home(root / "home")
    home.create()
    trouble = rng.choice((0.3, 1.0, 2.0))
    for _ in range(rng.randint(1, 4)):
        try:
            run_once(home, plan(max(1, size + rng.choice((-1, 0, 1))), kinds), world, trouble, rival=rng.random() < 0.2)
        except Crash:
            pass
        except FencedError:
            world.breaks["fenced off"] += 1
        if rng.random() < 0.3:
            damage(home, world)
    before = _kept(home)
    made = plan(size, kinds)
    tally = run_once(home, made, world, 0.0)
    after = _kept(home)
    assert world.again == [], f"committed fits ran again: {world.again}"
    lost = [key for key, value in before.items() if key not in world.excused and after.get(key) != value]
    assert lost == [], f"committed fits were lost or changed: {lost}"
    assert (tally.done, tally.failed) == (tally.total, 0), f"counters do not add up: {tally}"
    found = end_state(home)
    expected = calm_state(size, kinds)
    if "eliminating" in kinds:  # which fits it saves depends on the order, what it chooses does not
        found, expected = ({k: v for k, v in each.items() if v[0].fold is None} for each in (found, expected))
    assert found == expected, f"differs from the calm run in {set(found) ^ set(expected)}"
    again = World(random.Random(seed))
    again.excused = set()
    run_once(home, plan(size, kinds), again, 0.0)
    assert not again.submitted, "a finished sweep computed something"
    return world.breaks


@cache
def calm_state(size: int, kinds: tuple[str, ...]) -> dict[str, Any]:
    """What a home holds that nothing ever happened to."""
    with tempfile.TemporaryDirectory(prefix="sweep-calm-", dir=_scratch()) as folder:
        home = Home(folder)
        home.create()
        run_once(home, plan(size, kinds), World(random.Random(0)), 0.0)
        return end_state(home)


def _kept(home: Home) -> dict[str, float | None]:
    ledger = open_ledger("sqlite", home)
    found = {record.key: record.value for _, record in ledger.records_of(["toy"])}
    ledger.close()
    return found


def _scratch() -> str | None:
    """Memory, where the system has a folder for it."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def simulate(first: int, count: int, show: bool = False) -> Counter[str]:
    """Tell `count` stories; the seed of one that fails stands in its error."""
    root = Path(tempfile.mkdtemp(prefix="sweep-simulation-", dir=_scratch()))
    total: Counter[str] = Counter()
    start = time.monotonic()
    try:
        for seed in range(first, first + count):
            story = root / str(seed)
            story.mkdir()
            try:
                total += tell_story(seed, story)
            except Exception as error:
                raise AssertionError(
                    f"seed {seed}: {error}; replay: python -m tests.sweep.engine.simulation --first {seed} --count 1"
                ) from error
            shutil.rmtree(story)
            if show and (seed - first + 1) % 500 == 0:
                print(f"{seed - first + 1} schedules, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--first", type=int, default=0, help="seed of the first schedule")
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    start = time.monotonic()
    halves = [(options.first, options.count // 2), (options.first + options.count // 2, -(-options.count // 2))]
    breaks: Counter[str] = Counter()
    with ProcessPoolExecutor(2) as pool:
        for found in pool.map(simulate, *zip(*halves, strict=True), [True, False]):
            breaks += found
    took = time.monotonic() - start
    print(f"{options.count} schedules from seed {options.first} in {took:.0f} s: nothing lost, nothing twice")
    for what, times in sorted(breaks.items()):
        print(f"  {times:7,} x {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
