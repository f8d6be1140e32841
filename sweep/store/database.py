"""Connections to a ledger's database: durable writes, short transactions, outages that are waited out."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import sqlalchemy
from sqlalchemy import Connection, Engine, Executable, RowMapping
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool, StaticPool

from sweep.errors import UserError
from sweep.store.faults import LedgerError, is_damage, may_pass, said
from sweep.store.filesystem import filesystem_of
from sweep.urls import redacted

T = TypeVar("T")

PATIENCE_SECONDS = 60.0  # for which an outage of a server is waited out
_BUSY_SECONDS = 20.0
_COMPILED: dict[Any, Any] = {}  # statements of SQLite by their form: as many as the store's code has
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_SERVER_OPTIONS: dict[str, Any] = {
    "connect_timeout": 10,
    # A server that went without a word is noticed within half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
# Of a URL's fields those that a file may name.
_PUBLIC = frozenset(
    {"channel_binding", "connect_timeout", "host", "options", "port", "sslmode", "sslrootcert", "target_session_attrs"}
)


def nothing(_: str) -> None:
    """Say nothing."""


class Database:
    """One database and how it is read and written: in transactions that last as long as a function.

    Attributes
    ----------
    shown : its place for people, without credentials.
    shared : whether drivers on other hosts may use it, so that the home's lock does not exclude them.
    on_damage, on_close : called when SQLite finds its file damaged, and after the last connection was closed.
    """

    def __init__(self, engine: Engine, *, shown: str, shared: bool, note: Callable[[str], None] = nothing) -> None:
        self.engine, self.shown, self.shared, self._note = engine, shown, shared, note
        self._writer = engine.execution_options(writes=True)
        self.patience = PATIENCE_SECONDS
        self.on_damage: Callable[[], None] = lambda: None
        self.on_close: Callable[[], None] = lambda: None

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    def read(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, from one consistent state."""
        return self._do(work, self.engine, lambda: None)

    def write(self, work: Callable[[Connection], T], *, meanwhile: Callable[[], None] = lambda: None) -> T:
        """All that `work` writes, or nothing; it may run more than once. `meanwhile` runs before a first wait."""
        return self._do(work, self._writer, meanwhile)

    def try_write(self, work: Callable[[Connection], T]) -> T:
        """`write` without waiting for a server that does not answer."""
        return self._once(work, self._writer)

    def rows(self, query: Executable) -> Sequence[RowMapping]:
        """All rows of a query."""
        return self.read(lambda connection: connection.execute(query).mappings().all())

    def scalar(self, query: Executable) -> Any:
        """First column of a query's first row; None if there is none."""
        return self.read(lambda connection: connection.execute(query).scalar())

    def column(self, query: Executable) -> list[Any]:
        """First column of all rows of a query."""
        return self.read(lambda connection: list(connection.execute(query).scalars()))

    def execute(self, statement: Executable) -> int:
        """Run one statement that writes; returns how many rows it touched."""
        return self.write(lambda connection: connection.execute(statement).rowcount)

    def try_read(self, work: Callable[[Connection], T]) -> T:
        """`read` without waiting for a server that does not answer."""
        return self._once(work, self.engine)

    def close(self) -> None:
        self.engine.dispose()
        self.on_close()

    def line(self, error: DBAPIError) -> LedgerError:
        """A database error as one line for the user."""
        if is_damage(error.orig):
            self.on_damage()
            return LedgerError(
                f"ledger at {self.shown}: {said(error)}; `sweep run` sets it aside and keeps what is whole"
            )
        return LedgerError(f"ledger at {self.shown}: {said(error)}; nothing was changed, what was committed is safe")

    def _once(self, work: Callable[[Connection], T], engine: Engine) -> T:
        try:
            with engine.begin() as connection:
                return work(connection)
        except DBAPIError as error:
            raise self.line(error) from None

    def _do(self, work: Callable[[Connection], T], engine: Engine, meanwhile: Callable[[], None]) -> T:
        deadline, pause, waited = time.monotonic() + self.patience, _FIRST_PAUSE, False
        while True:
            try:
                with engine.begin() as connection:
                    found = work(connection)
            except DBAPIError as error:
                if self.dialect == "sqlite" or not may_pass(error) or time.monotonic() >= deadline:
                    raise self.line(error) from None
                if not waited:
                    meanwhile()
                    self._note(f"{self.shown} does not answer ({said(error)}); waiting up to {self.patience:.0f} s")
                waited = True
                time.sleep(min(pause, max(deadline - time.monotonic(), 0.0)))
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                if waited:
                    self._note(f"{self.shown} is back")
                return found


def open_database(url: str, note: Callable[[str], None] = nothing) -> Database:
    """The database of a URL, for reading and writing; a SQLite file is created if need be."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return sqlite_database(Path(parsed.database) if parsed.database and parsed.database != ":memory:" else None)
    return server_database(parsed, note)


def parse_url(url: str) -> sqlalchemy.URL:
    try:
        return sqlalchemy.make_url(url)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise UserError("tracking.ledger: expected 'sqlite' or a database URL like postgresql://host/name") from None


def public_url(url: sqlalchemy.URL, fields: frozenset[str] = _PUBLIC) -> str:
    """A URL rebuilt from the parts that say where: a password may stand in any other."""
    # Of a password with an @ in it SQLAlchemy takes the rest for the host: what is shown is cut out of the whole.
    place, _, query = redacted(url.render_as_string(hide_password=False)).partition("?")
    kept = [part for part in query.split("&") if part.partition("=")[0] in fields]
    return f"{place}?{'&'.join(kept)}" if kept else place


def server_database(url: sqlalchemy.URL, note: Callable[[str], None] = nothing, *, readonly: bool = False) -> Database:
    if url.get_backend_name() != "postgresql":
        raise UserError(f"tracking.ledger: expected 'sqlite' or a postgresql:// URL, got {url.drivername}://")
    shown = public_url(url, frozenset())
    # PgBouncer hands out another server connection per transaction, and prepared statements stay behind.
    options = _SERVER_OPTIONS | ({} if url.get_driver_name() == "psycopg2" else {"prepare_threshold": None})
    options = {name: value for name, value in options.items() if name not in url.query}  # the user's own word counts
    try:
        engine = sqlalchemy.create_engine(url, connect_args=options, pool_size=2, pool_recycle=300)
    except ModuleNotFoundError as error:
        raise UserError(f"tracking.ledger: {shown} needs {error.name}: pip install 'orthosweep[postgres]'") from None
    if readonly:
        engine = engine.execution_options(postgresql_readonly=True)
    return Database(engine, shown=shown, shared=True, note=note)


def sqlite_database(path: Path | None, *, as_it_is: bool = False, shown: str = "") -> Database:
    """A SQLite file, or a database in memory for None; `as_it_is` leaves its journal mode alone."""
    if path is None:
        engine = _engine(lambda: _connect(":memory:"), StaticPool)
        return Database(engine, shown="memory", shared=False)
    network = filesystem_of(path).network
    # WAL keeps its index in memory that hosts do not share.
    journal = "DELETE" if network else "WAL"

    def connect() -> sqlite3.Connection:
        connection = _connect(str(path))
        if not as_it_is:
            connection.execute(f"PRAGMA journal_mode={journal}")
        connection.execute("PRAGMA synchronous=FULL")  # a commit is on the disk when it returns
        return connection

    return Database(_engine(connect, QueuePool), shown=shown or str(path), shared=network)


def readonly_sqlite_database(path: Path) -> Database:
    """A SQLite file that is only looked at: neither it nor a file beside it is created or changed."""
    return Database(_engine(lambda: connect_readonly(path), NullPool), shown=str(path), shared=False)


def connect_readonly(path: Path) -> sqlite3.Connection:
    # A database in WAL mode without its log is at rest. Opened as usual, it would get that log and an index
    # beside it, owned by whoever looks: `immutable` opens the file alone.
    still = _is_wal(path) and not _has_content(path.with_name(path.name + "-wal"))
    return _connect(f"file:{quote(str(path))}?mode=ro{'&immutable=1' if still else ''}", uri=True)


def _connect(database: str, *, uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(
        database, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=uri
    )
    # A bad byte must not end the reading: the row's checksum will tell.
    connection.text_factory = _text_or_bytes
    return connection


def _text_or_bytes(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _engine(connect: Callable[[], sqlite3.Connection], pool: Any) -> Engine:
    first = _first_engine()
    # Compiling a statement takes longer than running it: one dialect and one cache serve every file of a process.
    engine = Engine(
        pool(connect, dialect=first.dialect), first.dialect, first.url, execution_options={"compiled_cache": _COMPILED}
    )
    sqlalchemy.event.listen(engine, "begin", _begin)
    return engine


@cache
def _first_engine() -> Engine:
    engine = sqlalchemy.create_engine("sqlite://")
    engine.connect().close()  # the dialect asks the first connection what this SQLite can do
    return engine


def _begin(connection: Connection) -> None:
    # Writers queue up at the start: one that first reads could otherwise not go on once another has written.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _is_wal(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(20)[18:20] == b"\x02\x02"
    except OSError:
        return False


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False
