"""Seeded schedules of everything that can go wrong, against the real driver, ledger, home and recorder.

    python -m tests.sweep.engine.simulation --count 10000          # what `make simulate` runs
    python -m tests.sweep.engine.simulation --first 4711 --count 1  # replays one

Only what takes time is simulated: fits answer at once with a record that is a function of their key, the clock is a
number, MLflow is a client in memory (each fiftieth schedule has the real one). One schedule is a story of several
runs of a sweep over one home: results come reordered, lost, late, twice, failing, out of memory, stale or unsound; the
process dies between any two durable steps and leaves its files as they are; a second driver takes over in the middle;
the sweep file is extended or shortened, and another sweep asks for the same fits; rows, artifacts, pages of the ledger
and MLflow's store are damaged or lost. At the end a calm run must leave exactly what a home that nothing ever
happened to holds.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from sweep.engine.driver import Driver
from sweep.errors import UserError
from sweep.fits import FitRecord, FitSpec
from sweep.store.faults import FencedError
from sweep.store.home import Home
from sweep.store.ledger import Ledger, open_ledger
from tests.sweep.engine.simulation_mlflow import (
    MemoryMlflow,
    SimulatedRecorder,
    assert_equals_ledger,
    assert_real_store_equals_ledger,
    break_store,
    end_process,
    put_empty_store,
)
from tests.sweep.engine.simulation_world import KINDS, Crash, File, Quiet, SimulatedExecutor, World

SWEEP = "simulated"
REAL_MLFLOW_EVERY = 50
PART = 100  # schedules after which progress is said


@dataclass
class Story:
    """One home and all that happens to it."""

    home: Home
    world: World
    mlflow: MemoryMlflow | None = field(default_factory=MemoryMlflow)  # None: the real one

    # -- one process ----------------------------------------------------------------------------

    def run(self, file: File, trouble: float, *, rival: bool = False) -> None:
        """A process that runs the sweep under the home's lock, to its end or until something ends it."""
        try:
            with self.home.lock():
                self._run(file, trouble, rival=rival)
        except Crash:
            pass
        except FencedError:
            self.world.happened["fenced off"] += 1
        self._check_rows()

    def _run(self, file: File, trouble: float, *, rival: bool = False, second: bool = False) -> None:
        world, home, made = self.world, self.home, file.plan
        ledger = open_ledger("sqlite", home)
        world.kept = rows_of(home) | world.kept  # of a commit that a crash followed at once nobody has noted it
        with self._process(ledger, trouble, second):
            home.write_state(f"{file.name}.stop", {})
            world.driver = number = ledger.open_sweep(file.name, made.spec.without_secrets(), {})
            commits = self._note_commits(ledger, number)
            recorder = SimulatedRecorder(
                file.name, home, ledger, self._client(trouble), lambda: world.happens("recorded meanwhile", 0.1)
            )

            def crossing(point: str) -> None:
                world.crash(f"when {point}", 0.03 * trouble)
                if world.happens("asked to stop", 0.003 * trouble):
                    home.write_state(f"{file.name}.stop", {"by": "hand"})
                if rival and number == world.driver and world.happens("second driver", 0.3):
                    self._second_driver(file.changed(world.rng), trouble)

            driver = Driver(
                made, home=home, ledger=ledger, make_executor=lambda: SimulatedExecutor(world, trouble, number),
                display=Quiet(), on_commit=recorder.poke, clock=lambda: world.clock, crossing=crossing,
            )  # fmt: skip
            driver.run()
            if number == world.driver:
                self._check_counters(driver, ledger, file, commits)
            recorded = recorder.finish()
            assert recorded or trouble, "MLflow was not written"

    def _second_driver(self, file: File, trouble: float) -> None:
        """Another host whose file system does not tell it of the home's lock."""
        try:
            with self.home.lock():
                raise AssertionError("two drivers hold one home's lock")
        except UserError:
            pass
        with contextlib.suppress(Crash):
            self._run(file, trouble, second=True)
        with contextlib.closing(sqlite3.connect(self.home.ledger_path)) as connection:
            # It may have crashed before it took the sweep over, or right after.
            (self.world.driver,) = connection.execute(
                "SELECT fence FROM sweeps WHERE name = ?", (file.name,)
            ).fetchone()

    @contextlib.contextmanager
    def _process(self, ledger: Ledger, trouble: float, second: bool) -> Iterator[None]:
        """Let the ledger's process end in a crash before, within and after every transaction."""
        database, world = ledger.database, self.world
        write = database.write

        def crashing(work: Callable[[Any], Any], **options: Any) -> Any:
            def half_way(connection: Any) -> Any:
                found = work(connection)
                world.crash("before a transaction's end", 0.002 * trouble)
                return found

            world.crash("before a transaction", 0.002 * trouble)
            found = write(half_way, **options)
            world.crash("after a transaction", 0.002 * trouble)
            return found

        database.write = crashing  # type: ignore[method-assign]
        left: dict[Path, bytes] = {}
        try:
            yield
        except Crash:
            if not second:  # closing would tidy up what a killed process leaves behind
                left = {path: path.read_bytes() for path in self.home.folder.glob("ledger.sqlite*")}
            raise
        finally:
            database.write = write  # type: ignore[method-assign]
            database.close()  # a process that ends like this gives no fence back
            for path, content in left.items():
                if not path.name.endswith("-shm"):
                    path.write_bytes(content)
            if self.mlflow is None:
                end_process(self.home)

    def _note_commits(self, ledger: Ledger, number: int) -> list[str]:
        """Keep account of what is committed, by whom; returns the list that the keys will be in."""
        world, commit, commits = self.world, ledger.commit, list[str]()

        def noted(spec: FitSpec, record: FitRecord) -> None:
            commit(spec, record)
            assert number == world.driver, "a driver wrote that had been taken over"
            assert spec.key not in world.kept or spec.key in world.excused, "a fit was committed twice"
            world.kept[spec.key] = rows_of(self.home, spec.key)[spec.key]
            world.excused.discard(spec.key)
            commits.append(spec.key)

        ledger.commit = noted  # type: ignore[method-assign]
        return commits

    def _client(self, trouble: float) -> MemoryMlflow | None:
        """MLflow as this process sees it."""
        if self.mlflow is None:
            return None
        world = self.world

        def passing(point: str) -> None:
            world.crash(point, 0.002 * trouble)
            if world.happens("MLflow does not answer", 0.003 * trouble):
                raise ConnectionError("no answer, on purpose")

        self.mlflow.passing = passing
        return self.mlflow

    # -- between two processes ------------------------------------------------------------------

    def damage(self) -> None:
        """Alter what lies on the disk, as a bad one would."""
        world, rng, path = self.world, self.world.rng, self.home.ledger_path
        keys = sorted(rows_of(self.home))
        if keys and world.happens("altered row", 0.4):
            key = rng.choice(keys)
            world.excused.add(key)
            change = rng.choice(("record = '{\"altered\": 1}'", "value = 7", "spec = x'ff00'", "checksum = ''"))
            with contextlib.closing(sqlite3.connect(path)) as connection, connection:
                connection.execute(f"UPDATE fits SET {change} WHERE key = ?", (key,))
        files = sorted((self.home.folder / "artifacts").glob("*.npz"))
        if files and world.happens("damaged artifact", 0.4):
            file = rng.choice(files)
            world.excused.add(file.stem)
            if rng.random() < 0.5:
                file.unlink()
            else:
                file.write_bytes(b"broken" + file.read_bytes()[6:])
        if path.exists() and world.happens("damaged page of the ledger", 0.1):
            world.excused |= set(keys)
            self._overwrite_a_page(path)
        if world.happens("lost MLflow", 0.2):
            if self.mlflow is not None:
                self.mlflow = MemoryMlflow()
            else:
                break_store(self.home, rng.choice(("lost", "damaged")))

    def _overwrite_a_page(self, path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path)) as connection:  # what is in the log moves into the file
            (size,) = connection.execute("PRAGMA page_size").fetchone()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page = self.world.rng.randrange(path.stat().st_size // size)
        with path.open("r+b") as file:
            file.seek(page * size)
            file.write(self.world.rng.randbytes(size))

    # -- what must hold -------------------------------------------------------------------------

    def _check_rows(self) -> None:
        """What was committed is there and the same, and no fit of it was computed again."""
        world, rows = self.world, rows_of(self.home)
        lost = [key for key, seal in world.kept.items() if key not in world.excused and rows.get(key) != seal]
        assert lost == [], f"committed fits were lost or changed: {lost}"
        assert world.again == [], f"committed fits ran again: {world.again}"

    def _check_counters(self, driver: Driver, ledger: Ledger, file: File, commits: list[str]) -> None:
        tally = driver.tally
        assert tally.done - tally.cached == len(commits), f"counters do not add up: {tally}, {len(commits)} commits"
        if driver.stopped is not None:
            self.world.happened[f"stopped by {driver.stopped.kind}"] += 1
            assert tally.done + tally.failed + tally.left == tally.total
            return
        assert tally.done + tally.failed == tally.total, f"counters do not add up: {tally}"
        final = {failure.key for failure in ledger.failures(file.name) if failure.final}
        assert tally.failed == len(final), f"{tally.failed} failed, but {len(final)} are in the ledger"
        if "eliminating" not in file.kinds:  # what it saves was asked for all the same
            assert ledger.count(file.name) == (tally.done, tally.total)

    def check_end(self, file: File) -> None:
        """A calm run, and nothing that happened before it can be seen any more."""
        self.run(file, 0.0)
        ledger = open_ledger("sqlite", self.home)
        found, expected = end_state(self.home, ledger, file.name), calm_state(file)
        if "eliminating" in file.kinds:  # which fits it saves depends on the order, what it chooses does not
            found, expected = ({k: v for k, v in each.items() if v[0].fold is None} for each in (found, expected))
        assert found == expected, f"differs from the calm run in {set(found) ^ set(expected) or 'content'}"
        failed = Counter(failure.key for sweep in ledger.sweeps() for failure in ledger.failures(sweep))
        odd = [r.key for _, r in ledger.records(file.name) if r.attempts > failed[r.key] + 1]
        assert odd == [] or self.world.happened["damaged page of the ledger"], f"more attempts than failures: {odd}"
        if self.mlflow is not None:
            assert_equals_ledger(self.mlflow, ledger, self.home, file.name)
        else:
            assert_real_store_equals_ledger(ledger, self.home, file.name)
        ledger.close()

    def check_rest(self, file: File) -> None:
        """A finished sweep computes nothing."""
        self.world.submitted.clear()
        self.run(file, 0.0)
        assert not self.world.submitted, "a finished sweep computed something"


def rows_of(home: Home, key: str | None = None) -> dict[str, str]:
    """Checksums of committed rows, read beside the code that is tested."""
    if not home.ledger_path.exists():
        return {}
    query = "SELECT key, checksum FROM fits" + ("" if key is None else " WHERE key = ?")
    with contextlib.closing(sqlite3.connect(home.ledger_path)) as connection:
        try:
            return dict(connection.execute(query, () if key is None else (key,)))
        except sqlite3.DatabaseError:  # a page of it was damaged, or its tables are not there yet
            return {}


def end_state(home: Home, ledger: Ledger, sweep: str) -> dict[str, Any]:
    """All that a sweep leaves behind, as far as it does not depend on when and how often it was tried."""
    found: dict[str, Any] = {}
    for spec, record in ledger.records(sweep):
        arrays = home.read_artifact(spec.key, record.artifact) if record.artifact else None
        contents = None if arrays is None else {name: array.tolist() for name, array in arrays.items()}
        # A refit does not see the folds, and is the same for any number of them.
        spec = replace(spec, folds=0) if spec.fold is None else spec
        found[spec.key] = (spec, replace(record, attempts=1, artifact=None), contents)
    return found


@cache
def calm_state(file: File) -> dict[str, Any]:
    """What a home holds that nothing ever happened to."""
    with tempfile.TemporaryDirectory(prefix="sweep-calm-") as folder:
        home = Home(folder)
        Story(home, World(random.Random(0))).run(file, 0.0)
        ledger = open_ledger("sqlite", home)
        found = end_state(home, ledger, file.name)
        ledger.close()
        return found


def tell_story(seed: int, folder: Path) -> Counter[str]:
    """One schedule; raises AssertionError if an invariant does not hold. Returns what happened on the way."""
    rng = random.Random(seed)
    story = Story(Home(folder), World(rng))
    story.home.create()
    if seed % REAL_MLFLOW_EVERY == 0:
        story.mlflow = None
        put_empty_store(story.home)
    kinds = tuple(rng.choice(KINDS) for _ in range(rng.randint(1, 2)))
    file = File(SWEEP, kinds, size=rng.randint(1, 4), folds=2)
    trouble = rng.choice((0.3, 1.0, 2.0))
    for _ in range(rng.randint(1, 4)):
        now = file.changed(rng)
        if rng.random() < 0.15:
            now = replace(now, name="another")
        story.run(now, trouble, rival=rng.random() < 0.2)
        if rng.random() < 0.3:
            story.damage()
    story.check_end(file)
    if rng.random() < 0.3:
        story.check_rest(file)
    return story.world.happened


def _scratch() -> str | None:
    """Memory, where the system has a folder for it."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def simulate(first: int, count: int) -> Counter[str]:
    """Tell `count` stories; the seed of one that fails stands in its error. Returns what happened in them."""
    total: Counter[str] = Counter()
    tempfile.tempdir = _scratch()  # for whatever the recorder and MLflow put aside
    with tempfile.TemporaryDirectory(prefix="sweep-simulation-") as root:
        for seed in range(first, first + count):
            folder = Path(root, str(seed))
            try:
                total += tell_story(seed, folder)
            except Exception as error:
                raise AssertionError(
                    f"seed {seed}: {error}; replay: python -m tests.sweep.engine.simulation --first {seed} --count 1"
                ) from error
            shutil.rmtree(folder)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--first", type=int, default=0, help="seed of the first schedule")
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    start, end = time.monotonic(), options.first + options.count
    happened: Counter[str] = Counter()
    firsts = range(options.first, end, PART)
    with ProcessPoolExecutor(2) as pool:
        parts = pool.map(simulate, firsts, [min(PART, end - first) for first in firsts])
        try:
            for first, found in zip(firsts, parts, strict=True):
                happened += found
                print(f"up to seed {min(first + PART, end) - 1}, {time.monotonic() - start:.0f} s", flush=True)
        except AssertionError as error:
            pool.shutdown(cancel_futures=True)
            print(error, file=sys.stderr)
            return 1
    print(f"{options.count} schedules from seed {options.first}: nothing lost, nothing twice, nothing wrong")
    for what, times in sorted(happened.items()):
        print(f"  {times:7,} x {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
