"""Opening a ledger to look at it, without leaving a trace."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from sweep.errors import UserError
from sweep.store.database import (
    Database,
    connect_readonly,
    nothing,
    parse_url,
    readonly_sqlite_database,
    server_database,
    sqlite_database,
)
from sweep.store.faults import LedgerError
from sweep.store.migrations import bring_up_to_date, check_known, schema_of
from sweep.store.tables import SCHEMA

# SQLite cannot look at a file whose last writer was killed without rolling its journal back first.
_NEEDS_WRITING = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}


def view_sqlite(path: Path) -> Database:
    """A ledger's file, read-only; what cannot be read in place, or is old, as a copy that is gone once it is closed."""
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise LedgerError(f"ledger at {path}: {error.strerror}") from None
    database = readonly_sqlite_database(path)
    try:
        with database.engine.connect() as connection:
            version = schema_of(connection)
    except DBAPIError as error:
        if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF not in _NEEDS_WRITING:
            raise database.line(error) from None
        return _copied(path, _copy_files)
    check_known(version, str(path))
    return database if version == SCHEMA else _copied(path, _copy_content)


def view_server(url: str, note: Callable[[str], None] = nothing) -> Database:
    """A database on a server, read-only."""
    database = server_database(parse_url(url), note, readonly=True)
    version = database.try_read(schema_of)
    check_known(version, database.shown)
    if version == 0:
        raise UserError(f"ledger at {database.shown}: holds no sweep yet; start one with `sweep run`")
    if version < SCHEMA:
        raise UserError(f"ledger at {database.shown}: written by an older version; the next `sweep run` upgrades it")
    return database


def _copied(path: Path, copy: Callable[[Path, Path], None]) -> Database:
    try:
        folder = tempfile.TemporaryDirectory(prefix="sweep-ledger-")
        target = Path(folder.name) / path.name
        copy(path, target)
    except (OSError, sqlite3.Error) as error:  # the folder goes with its object
        raise LedgerError(f"ledger at {path}: cannot be read in place, nor copied: {error}") from None
    database = sqlite_database(target, shown=str(path))
    database.on_close = folder.cleanup
    bring_up_to_date(database, "")
    return database


def _copy_files(path: Path, target: Path) -> None:
    for suffix in ("", "-wal", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(path.with_name(path.name + suffix), target.with_name(target.name + suffix))


def _copy_content(path: Path, target: Path) -> None:
    """A consistent copy, also while a driver of the older version writes."""
    with contextlib.closing(connect_readonly(path)) as source, contextlib.closing(sqlite3.connect(target)) as copy:
        source.backup(copy)
