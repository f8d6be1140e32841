"""The single source of truth for finished fits: one row per fit, one transaction per row.

SQLite under the home by default, PostgreSQL by URL. Only the driver that holds a sweep's fence writes. Every row
carries a checksum, so that an altered row is noticed, left out and computed again. No transaction outlasts a call.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Executable, RowMapping, Select, Table, delete, func, select, update

from sweep.errors import UserError
from sweep.fits import FitRecord, FitSpec
from sweep.store import exchange, fencing
from sweep.store.database import Database, nothing, open_database
from sweep.store.exchange import Imported
from sweep.store.faults import FencedError, LedgerError
from sweep.store.fencing import Driving
from sweep.store.home import Home
from sweep.store.migrations import bring_up_to_date
from sweep.store.pending import Pending
from sweep.store.repair import repair, suspect_mark
from sweep.store.rows import Failure, Glance, failure_row, fit_row, glance_of, is_intact, record_of, scored_by, spec_of
from sweep.store.tables import failures, fits, insert_new, insert_or_update, members, meta, mlflow_runs, sweeps
from sweep.store.viewing import view_server, view_sqlite
from sweep.urls import expanded

_BATCH = 1000


@dataclass(frozen=True)
class Artifact:
    """The file of a fit's arrays: its SHA-256, and the id of the home it is in (empty if nobody knows)."""

    checksum: str
    home: str


class Ledger:
    """Finished fits, failures, which sweep asked for what, and what MLflow knows already.

    Attributes
    ----------
    altered : keys whose row failed its checksum.
    """

    def __init__(
        self,
        database: str | Database,
        *,
        home_id: str = "",
        note: Callable[[str], None] = nothing,
        pending: Pending | None = None,
    ) -> None:
        """Open for writing the database of a URL, created or upgraded; a `Database` is taken as it is."""
        self.altered: list[str] = []
        self.beat_seconds, self.stale_seconds = fencing.BEAT_SECONDS, fencing.STALE_SECONDS
        self._home, self._note, self._pending = home_id, note, pending or Pending(None)
        self._held: dict[str, int] = {}
        self._ended = threading.Event()
        self._heart: threading.Thread | None = None
        if isinstance(database, Database):
            self._database = database
        else:
            self._database = open_database(database, note)
            bring_up_to_date(self._database, home_id)

    @property
    def database(self) -> Database:
        return self._database

    @cached_property
    def id(self) -> str:
        """The name by which others know this ledger: that of its home, so that one that was lost has a successor."""
        if self._home and self._database.dialect == "sqlite":
            return self._home
        return str(self._database.scalar(select(meta.c.value).where(meta.c.name == "id")) or "")

    def close(self) -> None:
        """Give the fence back and let go of the database."""
        self.release()
        self._database.close()

    def release(self) -> None:
        """Give the fence back: this ledger is only looked at from now on."""
        self._ended.set()
        if self._heart is not None:
            self._heart.join()
            self._heart = None
        if self._held:
            held, self._held = self._held, {}
            with contextlib.suppress(LedgerError):  # it will be taken for gone a little later
                self._database.try_write(lambda connection: fencing.give_back(connection, held))

    # -- sweeps ---------------------------------------------------------------------------------

    def open_sweep(self, name: str, spec: Mapping[str, Any], about: Mapping[str, Any]) -> int:
        """Register a sweep, or replace its file, and become its driver; returns the number that says so.

        Its fits are asked for anew with `adopt`. Where another driver may be at work, its next sign of life is waited
        for, and is an error; without one it is gone.
        """
        values = {"name": name, "spec": json.dumps(spec), "about": json.dumps(about), "origin": "",
                  "fence": 0, "driver_home": "", "driver_host": "", "driver_pid": 0, "heartbeat": None}  # fmt: skip

        def attempt(connection: Connection) -> int | Driving:
            # First the row's lock, then the look at who drives.
            connection.execute(update(sweeps).where(sweeps.c.name == name).values(name=name))
            other = fencing.drivers(connection).get(name) if self._database.shared else None
            if other and name not in self._held and fencing.is_in_the_way(other, self._home, self.stale_seconds):
                return other
            statement = insert_or_update(self._database.dialect, sweeps, ("spec", "about", "origin"))
            connection.execute(statement, values)
            connection.execute(delete(members).where(members.c.sweep == name))
            connection.execute(update(failures).where(failures.c.sweep == name).values(final=False))
            return fencing.take(connection, name, self._home)

        heard: float | None = None
        while not isinstance(taken := self._database.write(attempt), int):
            if heard is None:
                self._note(f"{name}: {taken.driver} may be at work on this sweep; waiting for a sign of life")
            elif taken.heard != heard:
                raise UserError(
                    f"{name}: a driver is already running this sweep on the same database ({taken.driver}); wait for it"
                )
            heard = taken.heard
            time.sleep(self.stale_seconds / 60)
        self._held[name] = taken
        if self._database.shared and self._heart is None:
            self._ended.clear()
            self._heart = threading.Thread(target=self._beat, name="ledger-heartbeat", daemon=True)
            self._heart.start()
        return taken

    def _beat(self) -> None:
        while not self._ended.wait(self.beat_seconds):
            try:
                self._database.try_write(lambda connection: fencing.check(connection, dict(self._held)))
            except FencedError:
                return  # the next write will say so
            except LedgerError:
                continue

    def drivers(self) -> dict[str, Driving]:
        """Who drives, or drove last, by sweep."""
        return self._database.read(fencing.drivers)

    def sweeps(self) -> dict[str, dict[str, Any]]:
        """Sweep files by name; one that cannot be read is left out until its sweep is run again."""
        found = self._database.rows(select(sweeps.c.name, sweeps.c.spec).order_by(sweeps.c.name))
        files = {row["name"]: _mapping(row["spec"]) for row in found}
        return {name: spec for name, spec in files.items() if spec is not None}

    def about(self, name: str) -> dict[str, Any]:
        """Versions, machine and data fingerprints of a sweep's latest run."""
        query = select(sweeps.c.about).where(sweeps.c.name == name)
        return _mapping(self._database.scalar(query)) or {}

    def adopt(self, sweep: str, keys: Iterable[str]) -> None:
        """Say that a sweep asks for these fits, finished or not."""
        rows = [{"sweep": sweep, "key": key} for key in keys]
        self._insert(members, rows)

    def members(self, sweep: str) -> set[str]:
        """Keys of the fits that a sweep asks for."""
        query = select(members.c.key).where(members.c.sweep == sweep)
        return set(self._database.column(query))

    def forget_sweep(self, name: str) -> None:
        """Remove a sweep with its failures; its fits stay until `forget`."""

        def work(connection: Connection) -> None:
            connection.execute(delete(members).where(members.c.sweep == name))
            connection.execute(delete(failures).where(failures.c.sweep == name))
            connection.execute(delete(sweeps).where(sweeps.c.name == name))

        self._database.write(work)

    # -- fits -----------------------------------------------------------------------------------

    def commit(self, spec: FitSpec, record: FitRecord) -> None:
        """Keep a finished fit. The first record of a key stays; it is never overwritten.

        Raises UnsoundRecord for a record that must not be kept. While a server does not answer the row waits in the
        home, also if this process ends.
        """
        row = fit_row(spec, record, home=self._home)
        try:
            self._insert(fits, [row], meanwhile=lambda: self._pending.keep(row))
        except LedgerError as error:
            later = "; it waits in the home, and the next run commits it" if self._pending.holds(spec.key) else ""
            raise LedgerError(f"cannot keep the result of {spec.label}: {error}{later}") from None
        self._pending.drop(spec.key)

    def commit_all(self, finished: Iterable[tuple[FitSpec, FitRecord]]) -> None:
        """Keep many fits in one transaction."""
        self._insert(fits, [fit_row(spec, record, home=self._home) for spec, record in finished])

    def commit_pending(self) -> int:
        """Keep what could not be committed before; returns how many fits that were."""
        rows = list(self._pending.rows())
        self._insert(fits, rows)
        for row in rows:
            self._pending.drop(row["key"])
        return len(rows)

    def discard(self, keys: Iterable[str]) -> None:
        """Forget fits whose row or artifact turned out to be damaged."""
        for batch in _batches(keys):
            self._write(delete(fits).where(fits.c.key.in_(batch)))

    def forget(self, keys: Iterable[str]) -> int:
        """Remove fits that no sweep asks for, others not; returns how many."""
        asked_for = select(members.c.key).where(members.c.key == fits.c.key).exists()
        chosen = (fits.c.key.in_(batch) for batch in _batches(keys))
        return sum(self._database.execute(delete(fits).where(which, ~asked_for)) for which in chosen)

    def unreferenced(self) -> set[str]:
        """Keys of finished fits that no sweep asks for."""
        query = select(fits.c.key).outerjoin(members, members.c.key == fits.c.key).where(members.c.key.is_(None))
        return set(self._database.column(query))

    def keys(self) -> set[str]:
        """Keys of all finished fits, of whatever sweep."""
        return set(self._database.column(select(fits.c.key)))

    def record(self, key: str) -> FitRecord | None:
        """Record of one fit, if it is there and intact."""
        return next((record_of(row) for row in self._intact(select(fits).where(fits.c.key == key))), None)

    def records(self, sweep: str) -> Iterator[tuple[FitSpec, FitRecord]]:
        """All finished fits of a sweep, in a fixed order, seen by the score that this sweep compares."""
        score = self.sweeps().get(sweep, {}).get("score")
        for row in self._of_sweep(sweep):
            yield scored_by(score, spec_of(row), record_of(row))

    def glances(self, sweep: str, score: str) -> Iterator[Glance]:
        """What a driver asks of the finished fits of a sweep that compares `score`."""
        return (glance_of(row, score) for row in self._of_sweep(sweep))

    def glance(self, key: str, score: str) -> Glance | None:
        """The same of one fit, if it is there and intact."""
        return next((glance_of(row, score) for row in self._intact(select(fits).where(fits.c.key == key))), None)

    def all_records(self) -> Iterator[tuple[FitSpec, FitRecord]]:
        """All finished fits, of whatever sweep."""
        return self._read(select(fits))

    def finished_like(self, template: FitSpec) -> Iterator[tuple[FitSpec, FitRecord]]:
        """Finished tuning fits, of whatever sweep, that differ from `template` in trial and fold only."""
        dataset, split, method = template.study
        f = fits.c
        query = select(fits).where(
            f.data == template.data, f.method == method, f.split == split, f.dataset == dataset, f.fold.is_not(None)
        )
        for spec, record in self._read(query):
            if replace(spec, trial=template.trial, fold=template.fold) == template:
                yield spec, record

    def count(self, sweep: str) -> tuple[int, int]:
        """Finished and asked-for fits of a sweep."""
        query = (
            select(func.count(fits.c.key).label("done"), func.count().label("asked"))
            .select_from(members.outerjoin(fits, fits.c.key == members.c.key))
            .where(members.c.sweep == sweep)
        )
        (row,) = self._database.rows(query)
        return int(row["done"]), int(row["asked"])

    def count_fits(self, sweep: str) -> int:
        """Finished fits of a sweep as the paper counts them: each restart is one."""
        query = select(func.coalesce(func.sum(fits.c.restarts), 0)).join(members, members.c.key == fits.c.key)
        return int(self._database.scalar(query.where(members.c.sweep == sweep)))

    def artifacts(self, sweep: str | None = None) -> dict[str, Artifact]:
        """Where the arrays of fits are, of one sweep or of all."""
        query = select(fits.c.key, fits.c.artifact, fits.c.artifact_home).where(fits.c.artifact.is_not(None))
        if sweep is not None:
            query = query.join(members, members.c.key == fits.c.key).where(members.c.sweep == sweep)
        return {row["key"]: Artifact(row["artifact"], row["artifact_home"]) for row in self._database.rows(query)}

    def lies_elsewhere(self, key: str) -> bool:
        """Whether another home holds the artifact of a fit: that it is missing here is then no damage."""
        query = select(fits.c.artifact_home).where(fits.c.key == key)
        home = self._database.scalar(query)
        # Whose artifacts an upgraded PostgreSQL ledger names cannot be known.
        return home is not None and home != self._home and (home != "" or self._database.dialect == "postgresql")

    def state_digest(self, sweep: str) -> str:
        """Changes whenever a sweep's finished fits, its failures or its description do."""
        happened = select(func.count(), func.max(failures.c.happened)).where(failures.c.sweep == sweep)
        finished = select(fits.c.checksum).join(members, members.c.key == fits.c.key).where(members.c.sweep == sweep)

        def work(connection: Connection) -> str:
            failed = connection.execute(happened).one()
            checksums = sorted(map(str, connection.execute(finished).scalars()))
            return json.dumps([list(failed), checksums])

        content = json.dumps(self.about(sweep), sort_keys=True) + self._database.read(work)
        return hashlib.sha256(content.encode()).hexdigest()

    def _read(self, query: Select[Any]) -> Iterator[tuple[FitSpec, FitRecord]]:
        return ((spec_of(row), record_of(row)) for row in self._intact(query))

    def _of_sweep(self, sweep: str) -> Iterator[RowMapping]:
        # By the key in `members`, whose index has it in order: by that in `fits` each page would be sorted from all.
        query = select(fits).join(members, members.c.key == fits.c.key).where(members.c.sweep == sweep)
        return self._intact(query, members.c.key)

    def _intact(self, query: Select[Any], by: ColumnElement[str] = fits.c.key) -> Iterator[RowMapping]:
        """Rows whose checksum holds, by key, in batches: nothing stays open while the caller works."""
        last = ""
        while True:
            page = query.where(by > last).order_by(by).limit(_BATCH)
            rows = self._database.rows(page)
            for row in rows:
                if is_intact(row):
                    yield row
                elif row["key"] not in self.altered:
                    self.altered.append(row["key"])
            # A key that is no text any more cannot be compared with.
            before, last = last, max((row["key"] for row in rows if isinstance(row["key"], str)), default=last)
            if len(rows) < _BATCH or last == before:
                return

    def _insert(
        self, table: Table, rows: list[dict[str, Any]], *, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        if rows:
            self._write(insert_new(self._database.dialect, table), rows, meanwhile)

    def _write(
        self,
        statement: Executable,
        rows: list[dict[str, Any]] | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Write as the driver of the sweeps that were opened: not at all if another has taken one over."""

        def fenced(connection: Connection) -> None:
            fencing.check(connection, self._held)
            connection.execute(statement, rows)

        self._database.write(fenced, meanwhile=meanwhile)

    # -- failures -------------------------------------------------------------------------------

    def fail(self, sweep: str, failure: Failure) -> None:
        self._insert(failures, [failure_row(sweep, failure)])

    def failures(self, sweep: str) -> list[Failure]:
        """Failed attempts of a sweep, oldest first."""
        columns = [column for column in failures.columns if column.name != "sweep"]
        query = select(*columns).where(failures.c.sweep == sweep).order_by(failures.c.happened, failures.c.key)
        return [Failure(**row) for row in self._database.rows(query)]

    # -- MLflow ---------------------------------------------------------------------------------

    def recorded_runs(self, store: str) -> dict[str, tuple[str, str]]:
        """Run key -> (MLflow run id, digest of what was written) for a tracking store."""
        r = mlflow_runs.c
        query = select(r.run_key, r.run_id, r.content).where(r.store == store)
        return {row["run_key"]: (row["run_id"], row["content"]) for row in self._database.rows(query)}

    def old_run_ids(self) -> list[str]:
        """Ids of runs that were recorded before runs said themselves whose they are."""
        return self._database.column(select(mlflow_runs.c.run_id).where(mlflow_runs.c.run_id != ""))

    def remember_run(self, store: str, run_key: str, run_id: str, content: str) -> None:
        values = {"store": store, "run_key": run_key, "run_id": run_id, "content": content}
        statement = insert_or_update(self._database.dialect, mlflow_runs, ("run_id", "content"))
        self._database.execute(statement.values(values))

    def forget_runs(self, store: str, run_keys: Iterable[str]) -> None:
        r = mlflow_runs.c
        for batch in _batches(run_keys):
            self._database.execute(delete(mlflow_runs).where(r.store == store, r.run_key.in_(batch)))

    # -- between ledgers ------------------------------------------------------------------------

    def export_rows(self, sweep: str | None = None) -> Iterator[dict[str, Any]]:
        """One sweep, or all of them, as plain dicts that `import_rows` of another ledger takes."""
        return exchange.export_rows(self._database, self._home, sweep)

    def import_rows(
        self, rows: Iterable[Mapping[str, Any]], home: Home, read_artifact: Callable[[str], bytes | None]
    ) -> Imported:
        """Add what another ledger exported; what is here already stays as it is. The caller holds the home's lock."""
        return exchange.import_rows(self._database, home, rows, read_artifact)


def open_ledger(setting: str, home: Home, note: Callable[[str], None] = nothing) -> Ledger:
    """Ledger at the place that the sweep file names, for writing: `sqlite` is the one under the home.

    A URL may name environment variables ($PGPASSWORD), so that no secret stands in a file. The caller holds the
    home's lock: a damaged file is set aside, an old one upgraded, and what waited for a database is committed.
    """
    home.create()
    pending = Pending(home.pending)
    if setting != "sqlite":
        ledger = Ledger(_filled_in(setting, home), home_id=home.id, note=note, pending=pending)
    else:
        repair(home.ledger_path, note)
        ledger = Ledger(home.ledger_url, home_id=home.id, note=note, pending=pending)
        ledger.database.on_damage = suspect_mark(home.ledger_path).touch
    waited = ledger.commit_pending()
    if waited:
        note(f"{waited} finished fits that had waited for the database are committed")
    return ledger


def view_ledger(setting: str, home: Home, note: Callable[[str], None] = nothing) -> Ledger:
    """The same for looking: nothing is created, upgraded, repaired or locked."""
    if setting == "sqlite":
        return Ledger(view_sqlite(home.ledger_path), home_id=home.id, note=note)
    return Ledger(view_server(_filled_in(setting, home), note), home_id=home.id, note=note)


def _filled_in(setting: str, home: Home) -> str:
    """A URL with its environment variables: of a user's own sweep file only, not what a home remembers."""
    return setting if setting == home.ledger_setting else expanded(setting)


def view_file(path: Path) -> Ledger:
    """Any ledger file, as `view_ledger`."""
    return Ledger(view_sqlite(path))


def holds_ledger(home: Home) -> bool:
    """Whether there is anything to look at."""
    return home.ledger_path.exists() or home.ledger_setting != "sqlite"


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    listed = list(keys)
    for start in range(0, len(listed), _BATCH):
        yield listed[start : start + _BATCH]


def _mapping(text: Any) -> dict[str, Any] | None:
    """A JSON object; None if it cannot be read."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, dict) else None
