"""Ledger and home against a model, in any order of what drivers, crashes and damage do to them, on both databases."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import update

from sweep.fits import FitRecord, FitSpec
from sweep.store import tables
from sweep.store.faults import FencedError, UnsoundRecord
from sweep.store.home import Home
from sweep.store.ledger import Ledger, open_ledger, view_ledger
from tests.sweep.store.postgres import Server
from tests.sweep.store.test_ledger import failure, record, spec

FITS = [spec(fold, seed=seed) for seed in range(2) for fold in (0, 1, None)]
SWEEPS = ("a", "b")
fits = st.sampled_from(FITS)
sweeps = st.sampled_from(SWEEPS)


class LedgerAndHome(RuleBasedStateMachine):
    """Two homes whose drivers use one ledger: the same home's if it is SQLite, both homes' if it is PostgreSQL."""

    make_url: Callable[[], str]  # a fresh database; "sqlite" is the home's own

    def __init__(self) -> None:
        super().__init__()
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(dir=memory, prefix="sweep-machine-"))
        self.setting = type(self).make_url()
        self.shared = self.setting != "sqlite"
        self.homes = [Home(self.folder / "one"), Home(self.folder / ("two" if self.shared else "one"))]
        self.drivers: list[Ledger | None] = [None, None]
        self.fence: dict[str, int] = {}  # the driver that may write, by sweep
        self.opened: list[set[str]] = [set(), set()]  # sweeps that a driver believes to hold
        self.committed: dict[str, FitRecord] = {}
        self.place: dict[str, int] = {}  # the driver that wrote a fit's artifact
        self.altered: set[str] = set()
        self.asked: dict[str, set[str]] = {}
        self.failed: dict[str, int] = {}
        self.looks = 0

    # -- drivers that come and go

    def _driver(self, which: int) -> Ledger:
        if self.drivers[which] is None:
            self.drivers[which] = open_ledger(self.setting, self.homes[which])
            self.drivers[which].stale_seconds = 0.0  # type: ignore[union-attr]
        driver = self.drivers[which]
        assert driver is not None
        return driver

    @initialize()
    def start(self) -> None:
        self._driver(0)

    @rule(which=st.integers(0, 1), sweep=sweeps)
    def open_sweep(self, which: int, sweep: str) -> None:
        self._driver(which).open_sweep(sweep, {"by": which}, {"version": "1"})
        self.opened[which].add(sweep)
        self.fence[sweep] = which
        self.asked[sweep] = set()
        self.failed.setdefault(sweep, 0)

    @rule(which=st.integers(0, 1))
    def crash(self, which: int) -> None:
        """A process ends without a word: its connections close, nothing else happens."""
        driver = self.drivers[which]
        if driver is not None:
            driver._ended.set()
            driver.database.close()
            self.drivers[which] = None
            self.opened[which] = set()

    @rule(which=st.integers(0, 1))
    def end(self, which: int) -> None:
        driver = self.drivers[which]
        if driver is not None:
            driver.close()
            self.drivers[which] = None
            self.opened[which] = set()

    def _attempt(self, which: int, write: Callable[[Ledger], Any]) -> bool:
        """Whether a driver was let to write: not if it lost one of the sweeps that it opened."""
        lost = any(self.fence[sweep] != which for sweep in self.opened[which])
        try:
            write(self._driver(which))
        except FencedError:
            assert lost
            return False
        assert not lost
        return True

    # -- what drivers do

    @rule(which=st.integers(0, 1), fit=fits, value=st.floats(0, 1))
    def commit(self, which: int, fit: FitSpec, value: float) -> None:
        known = fit.key in self.committed or fit.key in self.altered
        artifact = None
        if fit.fold is None and not known:
            artifact = self.homes[which].write_artifact(fit.key, {"components": np.full(2, value)})
        made = record(fit, value, artifact=artifact)
        if self._attempt(which, lambda ledger: ledger.commit(fit, made)) and not known:
            self.committed[fit.key] = made
            self.place[fit.key] = which

    @rule(which=st.integers(0, 1), fit=fits)
    def commit_what_is_no_number(self, which: int, fit: FitSpec) -> None:
        with pytest.raises(UnsoundRecord):
            self._driver(which).commit(fit, record(fit, float("nan")))

    @rule(which=st.integers(0, 1), sweep=sweeps, fit=fits)
    def adopt(self, which: int, sweep: str, fit: FitSpec) -> None:
        if sweep in self.asked and self._attempt(which, lambda ledger: ledger.adopt(sweep, [fit.key])):
            self.asked[sweep].add(fit.key)

    @rule(which=st.integers(0, 1), sweep=sweeps, fit=fits, happened=st.floats(1, 1e9))
    def fail(self, which: int, sweep: str, fit: FitSpec, happened: float) -> None:
        if sweep not in self.failed:
            return
        before = len(self._driver(which).failures(sweep))
        again = failure(fit, happened=happened, message="\0\ud800" * 3_000)
        if self._attempt(which, lambda ledger: ledger.fail(sweep, again)):
            self.failed[sweep] = len(self._driver(which).failures(sweep))
            assert before <= self.failed[sweep] <= before + 1

    @rule(which=st.integers(0, 1))
    def discard_what_was_altered(self, which: int) -> None:
        ledger = self._driver(which)
        for fit in FITS:
            ledger.record(fit.key)
        assert set(ledger.altered) >= self.altered
        gone = set(self.altered)
        if gone and self._attempt(which, lambda driver: driver.discard(gone)):
            self.altered -= gone

    @rule(which=st.integers(0, 1))
    def collect_garbage(self, which: int) -> None:
        ledger = self._driver(which)
        wanted = set().union(*self.asked.values())
        spare = (set(self.committed) | self.altered) - wanted
        assert ledger.unreferenced() == spare
        assert ledger.forget(set(self.committed) | self.altered) == len(spare)
        for key in spare:
            self.committed.pop(key, None)
            self.altered.discard(key)

    # -- what happens to them

    @precondition(lambda self: self.committed)
    @rule(data=st.data())
    def alter_a_row(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.committed)))
        change = data.draw(st.sampled_from([{"record": "{}"}, {"value": 7.0}, {"spec": "\x7f"}, {"method": "other"}]))
        f = tables.fits
        self._driver(0).database.execute(update(f).where(f.c.key == key).values(**change))
        del self.committed[key]
        self.altered.add(key)

    @precondition(lambda self: not self.shared)
    @rule()
    def move_the_home(self) -> None:
        for which in (0, 1):
            self.end(which)
        moved = self.folder / ("one" if (self.folder / "moved").exists() else "moved")
        self.homes[0].folder.rename(moved)
        self.homes = [Home(moved), Home(moved)]

    # -- what must hold

    @invariant()
    def a_committed_key_is_there_once_and_unchanged(self) -> None:
        ledger = self._driver(0)
        assert ledger.keys() == set(self.committed) | self.altered
        for key, kept in self.committed.items():
            assert ledger.record(key) == kept

    @invariant()
    def sweeps_ask_for_what_they_asked_for(self) -> None:
        ledger = self._driver(0)
        assert set(ledger.sweeps()) == set(self.asked)
        for sweep, asked in self.asked.items():
            assert ledger.members(sweep) == asked
            done = len(asked & (set(self.committed) | self.altered))
            assert ledger.count(sweep) == (done, len(asked))
            assert {key.key for key, _ in ledger.records(sweep)} == asked & set(self.committed)

    @invariant()
    def no_artifact_counts_as_damaged_where_it_is_not_expected(self) -> None:
        for which in (0, 1) if self.shared else (0,):
            ledger, home = self._driver(which), self.homes[which]
            for key, kept in self.committed.items():
                if kept.artifact is not None:
                    here = home.read_artifact(key, kept.artifact) is not None
                    assert here or ledger.lies_elsewhere(key)
                    assert ledger.lies_elsewhere(key) == (self.shared and self.place[key] != which)

    @invariant()
    def looking_shows_the_same(self) -> None:
        self.looks += 1
        if self.drivers[0] is None or (self.shared and self.looks % 4):  # a server takes long to let somebody in
            return
        seen = view_ledger(self.setting, self.homes[0])
        assert seen.keys() == set(self.committed) | self.altered
        seen.close()

    def teardown(self) -> None:
        for which in (0, 1):
            self.end(which)
        shutil.rmtree(self.folder)


MORE = (
    pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    pytest.param(1_000, marks=[pytest.mark.chaos, pytest.mark.timeout(3600)]),
)


def _run(make_url: Callable[[], str], examples: int) -> None:
    machine = type("Machine", (LedgerAndHome,), {"make_url": staticmethod(make_url)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=20, deadline=None, derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("examples", [12, *MORE])
def test_any_order_of_events_on_sqlite(examples: int) -> None:
    _run(lambda: "sqlite", examples)


@pytest.mark.usefixtures("postgres")
@pytest.mark.parametrize("examples", [4, *MORE])
def test_any_order_of_events_on_postgresql(server: Server, examples: int) -> None:
    made = 0

    def make_url() -> str:
        nonlocal made
        made += 1
        return f"{server.fresh(f'm{made}')}&connect_timeout=600"  # however busy this machine is

    _run(make_url, examples)
