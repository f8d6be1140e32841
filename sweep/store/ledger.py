"""The single source of truth for finished fits: one row per fit, one transaction per row.

SQLite under the home by default, PostgreSQL by URL. Only the driver writes. Every row carries a
checksum of its text, so that an altered row is noticed, left out and computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import sqlalchemy
from sqlalchemy import text

from sweep.errors import UserError, first_line
from sweep.fits import FitRecord, FitSpec
from sweep.store.home import Home
from sweep.store.repair import readable_rows, set_damaged_aside
from sweep.studies.grid import Trial
from sweep.urls import expanded

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS sweeps (name TEXT PRIMARY KEY, spec TEXT NOT NULL, about TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS fits (key TEXT PRIMARY KEY, spec TEXT NOT NULL, record TEXT NOT NULL,"
    " checksum TEXT NOT NULL, committed DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS members (sweep TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (sweep, key))",
    "CREATE TABLE IF NOT EXISTS failures (sweep TEXT NOT NULL, key TEXT NOT NULL, attempt INTEGER NOT NULL,"
    " label TEXT NOT NULL, method TEXT NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL,"
    " traceback TEXT NOT NULL, seconds DOUBLE PRECISION NOT NULL, final INTEGER NOT NULL,"
    " happened DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS mlflow_runs (store TEXT NOT NULL, run_key TEXT NOT NULL, run_id TEXT NOT NULL,"
    " content TEXT NOT NULL, PRIMARY KEY (store, run_key))",
)  # fmt: skip


# The first record of a key stays: a fit that was computed twice, after all, changes nothing.
_INSERT_FIT = "INSERT INTO fits VALUES (:key, :spec, :record, :checksum, :committed) ON CONFLICT DO NOTHING"


@dataclass(frozen=True)
class Failure:
    """One attempt at a fit that did not give a record."""

    key: str
    label: str
    method: str
    attempt: int
    kind: str  # lost worker, out of memory, timeout, numerical, bug
    message: str
    traceback: str
    seconds: float
    final: bool  # no attempt follows in this run
    happened: float


class Ledger:
    """Finished fits, failures, which sweep asked for what, and what MLflow knows already."""

    def __init__(self, url: str) -> None:
        try:
            self._engine = sqlalchemy.create_engine(url)
        except (sqlalchemy.exc.ArgumentError, ModuleNotFoundError, ValueError) as error:
            raise UserError(f"tracking.ledger: expected 'sqlite' or a database URL: {error}") from None
        if self._engine.dialect.name == "sqlite":
            sqlalchemy.event.listen(self._engine, "connect", _make_durable)
        self.altered: list[str] = []  # keys whose row failed its checksum
        try:
            with self._engine.begin() as connection:
                for statement in _SCHEMA:
                    connection.execute(text(statement))
        except sqlalchemy.exc.OperationalError as error:
            raise UserError(f"ledger at {self._engine.url!r}: {first_line(error.orig)}") from None

    def close(self) -> None:
        self._engine.dispose()

    # -- sweeps ---------------------------------------------------------------------------------

    def open_sweep(self, name: str, spec: dict[str, Any], about: dict[str, Any]) -> None:
        """Register a sweep, or replace its file; its fits are asked for anew with `adopt`."""
        values = {"name": name, "spec": json.dumps(spec), "about": json.dumps(about)}
        with self._engine.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO sweeps VALUES (:name, :spec, :about)"
                    " ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, about = excluded.about"
                ),
                values,
            )
            connection.execute(text("DELETE FROM members WHERE sweep = :name"), values)
            connection.execute(text("UPDATE failures SET final = 0 WHERE sweep = :name"), values)

    def sweeps(self) -> dict[str, dict[str, Any]]:
        """Sweep files by name."""
        with self._engine.connect() as connection:
            rows = connection.execute(text("SELECT name, spec FROM sweeps ORDER BY name"))
            return {name: json.loads(spec) for name, spec in rows}

    def about(self, name: str) -> dict[str, Any]:
        """Versions, machine and data fingerprints of a sweep's latest run."""
        with self._engine.connect() as connection:
            row = connection.execute(text("SELECT about FROM sweeps WHERE name = :name"), {"name": name}).first()
        return json.loads(row[0]) if row else {}

    def adopt(self, sweep: str, keys: Iterable[str]) -> None:
        """Say that a sweep asks for these fits, finished or not."""
        rows = [{"sweep": sweep, "key": key} for key in keys]
        if rows:
            with self._engine.begin() as connection:
                connection.execute(text("INSERT INTO members VALUES (:sweep, :key) ON CONFLICT DO NOTHING"), rows)

    # -- fits -----------------------------------------------------------------------------------

    def commit(self, spec: FitSpec, record: FitRecord) -> None:
        """Keep a finished fit. The first record of a key stays; it is never overwritten."""
        row: dict[str, Any] = {
            "key": spec.key,
            "spec": json.dumps(asdict(spec), sort_keys=True, allow_nan=False),
            "record": json.dumps(asdict(record), sort_keys=True, allow_nan=False),
            "committed": time.time(),
        }
        row["checksum"] = _checksum(row["key"], row["spec"], row["record"])
        with self._engine.begin() as connection:
            connection.execute(text(_INSERT_FIT), row)

    def adopt_rows(self, rows: Iterable[tuple[str, str, str, str, float]]) -> None:
        """Take over raw rows of another ledger whose checksums hold."""
        columns = ("key", "spec", "record", "checksum", "committed")
        whole = [dict(zip(columns, row, strict=True)) for row in rows if _checksum(row[0], row[1], row[2]) == row[3]]
        if whole:
            with self._engine.begin() as connection:
                connection.execute(text(_INSERT_FIT), whole)

    def discard(self, keys: Iterable[str]) -> None:
        """Forget fits whose row or artifact turned out to be damaged."""
        rows = [{"key": key} for key in keys]
        if rows:
            with self._engine.begin() as connection:
                connection.execute(text("DELETE FROM fits WHERE key = :key"), rows)

    def keys(self) -> set[str]:
        """Keys of all finished fits, of whatever sweep."""
        with self._engine.connect() as connection:
            return set(connection.execute(text("SELECT key FROM fits")).scalars())

    def record(self, key: str) -> FitRecord | None:
        """Record of one fit, if it is there and intact."""
        query = "SELECT key, spec, record, checksum FROM fits WHERE key = :key"
        return next((record for _, record in self._read(query, {"key": key})), None)

    def records(self, sweep: str) -> Iterator[tuple[FitSpec, FitRecord]]:
        """All finished fits of a sweep, in a fixed order."""
        return self._read(
            "SELECT f.key, f.spec, f.record, f.checksum FROM fits f JOIN members m ON m.key = f.key"
            " WHERE m.sweep = :sweep ORDER BY f.key",
            {"sweep": sweep},
        )

    def summaries(self, sweep: str) -> Iterator[FitRecord]:
        """Records of `records` alone: the specs take as long to read again."""
        query = (
            "SELECT f.key, f.spec, f.record, f.checksum FROM fits f JOIN members m ON m.key = f.key"
            " WHERE m.sweep = :sweep"
        )
        for _, _, record in self._intact(query, {"sweep": sweep}):
            yield FitRecord(**json.loads(record))

    def state_digest(self, sweep: str) -> str:
        """Changes whenever a sweep's finished fits, its failures or its description do."""
        query = (
            "SELECT f.checksum FROM fits f JOIN members m ON m.key = f.key WHERE m.sweep = :sweep ORDER BY f.checksum"
        )
        failed = "SELECT COUNT(*), SUM(seconds) FROM failures WHERE sweep = :sweep"
        content = hashlib.sha256(json.dumps(self.about(sweep), sort_keys=True).encode())
        with self._engine.connect() as connection:
            content.update(str(connection.execute(text(failed), {"sweep": sweep}).one()).encode())
            for (checksum,) in connection.execute(text(query), {"sweep": sweep}):
                content.update(checksum.encode())
        return content.hexdigest()

    def records_of(self, datasets: Iterable[str]) -> Iterator[tuple[FitSpec, FitRecord]]:
        """All finished fits on these datasets, of whatever sweep."""
        for name in datasets:
            query = "SELECT key, spec, record, checksum FROM fits WHERE spec LIKE :dataset"
            yield from self._read(query, {"dataset": f'%"dataset": "{name}"%'})

    def observations(self, template: FitSpec) -> dict[Trial, dict[int, float]]:
        """Scores of finished tuning fits that differ from `template` in gamma, rank and fold only."""
        found: dict[Trial, dict[int, float]] = {}
        # Narrowed by text first: the data's fingerprint and the method stand in every such row.
        query = "SELECT key, spec, record, checksum FROM fits WHERE spec LIKE :data AND spec LIKE :method"
        values = {"data": f'%"{template.data}"%', "method": f'%"method": "{template.method}"%'}
        for spec, record in self._read(query, values):
            if spec.fold is not None and replace(spec, gamma=None, rank=None, fold=None) == template:
                found.setdefault(Trial(spec.gamma, spec.rank), {})[spec.fold] = record.score
        return found

    def count(self, sweep: str) -> tuple[int, int]:
        """Finished and asked-for fits of a sweep."""
        query = "SELECT COUNT(f.key), COUNT(*) FROM members m LEFT JOIN fits f ON f.key = m.key WHERE m.sweep = :sweep"
        with self._engine.connect() as connection:
            done, total = connection.execute(text(query), {"sweep": sweep}).one()
        return int(done), int(total)

    def _read(self, query: str, values: dict[str, Any]) -> Iterator[tuple[FitSpec, FitRecord]]:
        for key, spec, record in self._intact(query, values):
            yield FitSpec.from_dict(json.loads(spec), key), FitRecord(**json.loads(record))

    def _intact(self, query: str, values: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
        """Key, spec and record, as text, of the rows whose checksum holds."""
        with self._engine.connect() as connection:
            for key, spec, record, checksum in connection.execute(text(query), values):
                if _checksum(key, spec, record) != checksum:
                    self.altered.append(key)
                    continue
                yield key, spec, record

    # -- failures -------------------------------------------------------------------------------

    def fail(self, sweep: str, failure: Failure) -> None:
        columns = ", ".join(f":{name}" for name in (
            "sweep", "key", "attempt", "label", "method", "kind", "message", "traceback", "seconds", "final", "happened"
        ))  # fmt: skip
        values = asdict(failure) | {"sweep": sweep, "final": int(failure.final)}
        with self._engine.begin() as connection:
            connection.execute(text(f"INSERT INTO failures VALUES ({columns})"), values)

    def failures(self, sweep: str) -> list[Failure]:
        """Failed attempts of a sweep, oldest first."""
        query = (
            "SELECT key, label, method, attempt, kind, message, traceback, seconds, final, happened"
            " FROM failures WHERE sweep = :sweep ORDER BY happened"
        )
        with self._engine.connect() as connection:
            rows = connection.execute(text(query), {"sweep": sweep}).mappings()
            return [Failure(**{**row, "final": bool(row["final"])}) for row in rows]

    # -- MLflow ---------------------------------------------------------------------------------

    def recorded_runs(self, store: str) -> dict[str, tuple[str, str]]:
        """Run key -> (MLflow run id, digest of what was written) for a tracking store."""
        with self._engine.connect() as connection:
            rows = connection.execute(
                text("SELECT run_key, run_id, content FROM mlflow_runs WHERE store = :store"),
                {"store": store},
            )
            return {run_key: (run_id, content) for run_key, run_id, content in rows}

    def remember_run(self, store: str, run_key: str, run_id: str, content: str) -> None:
        values = {"store": store, "run_key": run_key, "run_id": run_id, "content": content}
        with self._engine.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO mlflow_runs VALUES (:store, :run_key, :run_id, :content)"
                    " ON CONFLICT (store, run_key) DO UPDATE SET run_id = excluded.run_id, content = excluded.content"
                ),
                values,
            )

    # -- one driver -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def exclusive(self, sweep: str) -> Iterator[None]:
        """Keep a sweep in a shared database to one driver; a database under the home needs only its lock."""
        if self._engine.dialect.name != "postgresql":
            yield
            return
        lock = int(hashlib.sha256(sweep.encode()).hexdigest()[:15], 16)
        with self._engine.connect() as connection:
            if not connection.execute(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": lock}).scalar():
                raise UserError(f"{sweep}: a driver is already running this sweep on the same database; wait for it")
            yield


def open_ledger(setting: str, home: Home, note: Callable[[str], None] = lambda message: None) -> Ledger:
    """Ledger at the place that the sweep file names: `sqlite` is the one under the home.

    A URL may name environment variables ($PGPASSWORD), so that no secret stands in a file.
    """
    if setting != "sqlite":
        return Ledger(expanded(setting))
    home.create()
    aside = set_damaged_aside(home.ledger_path, note)
    ledger = Ledger(home.ledger_url)
    if aside is not None:
        ledger.adopt_rows(readable_rows(aside))
    return ledger


def _checksum(key: str, spec: str, record: str) -> str:
    return hashlib.sha256(f"{key}\n{spec}\n{record}".encode()).hexdigest()


def _make_durable(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    # A commit is on the disk when it returns, and readers do not block the driver.
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA busy_timeout=20000")
    cursor.close()
