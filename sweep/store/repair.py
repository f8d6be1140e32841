"""A ledger file that was cut off or overwritten: keep what is whole, put the rest aside.

Only what SQLite itself calls damage counts. A full disk, a missing permission or a failing read leave the file alone.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Table, func, literal_column, select
from sqlalchemy.exc import DBAPIError

from sweep.store.database import Database, sqlite_database
from sweep.store.faults import LedgerError, is_damage
from sweep.store.home import sync_folder
from sweep.store.migrations import V1, check_known, meta_rows, schema_of
from sweep.store.tables import fits, insert_new, meta, metadata

_TRIES = 20_000  # parts of a table that are tried at most
_PARTS = ("-shm", "-wal", "-journal", "")
_ROWID = literal_column("rowid", type_=sqlalchemy.Integer)


def suspect_mark(path: Path) -> Path:
    """The file that says: SQLite stumbled over this ledger, the next run looks at all of it."""
    return path.with_name(f"{path.name}.suspect")


def repair(path: Path, note: Callable[[str], None]) -> Path | None:
    """Replace a damaged ledger by what can be read of it; returns where it is now, None if nothing was wrong.

    The caller holds the home's lock.
    """
    if not path.exists() or is_sound(path, thorough=suspect_mark(path).exists()):
        suspect_mark(path).unlink(missing_ok=True)
        return None
    aside = free_name(path)
    rescued = path.with_name(f".{path.name}.rescued")
    _remove(rescued)
    kept = _rescue(path, rescued)
    move_database(path, aside)
    rescued.replace(path)
    sync_folder(path.parent)
    suspect_mark(path).unlink(missing_ok=True)
    note(
        f"{path.name} is damaged: it is now {aside.name}; {kept} fits could be read and are kept, the rest is "
        "computed again"
    )
    return aside


def free_name(path: Path) -> Path:
    """Where a damaged file can be put: beside it, under a number that is not taken."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return aside


def is_sound(path: Path, *, thorough: bool = False) -> bool:
    """False only for real damage; whatever else keeps SQLite from reading is one line for the user."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=20)) as connection:
            found = connection.execute(f"PRAGMA {'integrity_check' if thorough else 'quick_check'}(1)").fetchone()
    except sqlite3.Error as error:
        if is_damage(error):
            return False
        raise LedgerError(f"ledger at {path}: {error}; nothing was changed") from None
    return bool(found[0] == "ok")


def move_database(path: Path, to: Path) -> None:
    """Rename a database with the files that belong to it, itself last."""
    for suffix in _PARTS:
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).replace(to.with_name(to.name + suffix))


def _remove(path: Path) -> None:
    for suffix in _PARTS:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _rescue(damaged: Path, target: Path) -> int:
    """Copy all rows that can be read into a new file with tables of the same version; returns how many fits."""
    old, new = sqlite_database(damaged, as_it_is=True), sqlite_database(target, as_it_is=True)
    try:
        tables = _tables(old)
        return new.write(lambda connection: _copy_all(old, connection, tables))
    finally:
        old.close()
        new.close()


def _tables(old: Database) -> list[Table]:
    """Tables of a damaged ledger's version; none if not even their list can be read."""
    try:
        with old.engine.connect() as connection:
            version = schema_of(connection)
    except DBAPIError:
        return []
    check_known(version, old.shown)
    return list((V1 if version == 1 else metadata).tables.values())


def _copy_all(old: Database, connection: Connection, tables: list[Table]) -> int:
    kept = 0
    for table in tables:
        table.create(connection)
        rows = list(_readable(old, table))
        if rows:
            connection.execute(insert_new("sqlite", table), rows)
        kept += len(rows) if table.name == fits.name else 0
    if meta in tables:
        connection.execute(insert_new("sqlite", meta), meta_rows())
    return kept


def _readable(old: Database, table: Table) -> Iterator[dict[str, Any]]:
    """Rows of a table, with damaged stretches halved until what is bad stands alone."""
    with old.engine.connect() as connection:
        waiting, tries = [] if _is_lost(connection, table) else [_ends(connection, table)], 0
        while waiting and tries < _TRIES:
            low, high = waiting.pop()
            last, tries = low - 1, tries + 1
            query = select(_ROWID, *table.columns).where(_ROWID.between(low, high)).order_by(_ROWID)
            try:
                for row in connection.execute(query):
                    last = row[0]
                    yield dict(zip(table.columns.keys(), row[1:], strict=True))
            except DBAPIError:
                connection.rollback()
                if last + 1 < high:
                    middle = (last + 1 + high) // 2
                    waiting += [(middle + 1, high), (last + 1, middle)]


def _is_lost(connection: Connection, table: Table) -> bool:
    """Whether no row can be looked up, wherever it would be: the page that leads to all of them is bad."""
    for row in (2**k for k in range(25)):
        try:
            connection.execute(select(_ROWID).select_from(table).where(_ROWID.between(row, row))).all()
        except DBAPIError:
            connection.rollback()
        else:
            return False
    return True


def _ends(connection: Connection, table: Table) -> tuple[int, int]:
    """First and last row number, or more than any ledger has where the ends cannot be read."""
    found: list[int | None] = []
    for end in (func.min(_ROWID), func.max(_ROWID)):
        try:
            found.append(connection.execute(select(end).select_from(table)).scalar())
        except DBAPIError:
            connection.rollback()
            found.append(None)
    low, high = found
    return low or 1, high or 2**24
