"""A ledger file that was cut off or overwritten: keep what is whole, put the rest aside."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path


def set_damaged_aside(path: Path, note: Callable[[str], None]) -> Path | None:
    """Move a damaged SQLite file away; returns where it is now, None if there was nothing wrong."""
    if not path.exists() or _is_sound(path):
        return None
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).replace(aside.with_name(aside.name + suffix))
    note(f"{path.name} is damaged; it is now {aside.name}, what can be read of it is kept, the rest is computed again")
    return aside


def readable_rows(path: Path) -> list[tuple[str, str, str, str, float]]:
    """Rows of `fits` up to the first damage; the caller checks their checksums."""
    rows: list[tuple[str, str, str, str, float]] = []
    with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(sqlite3.connect(path)) as connection:
        for row in connection.execute("SELECT key, spec, record, checksum, committed FROM fits"):
            rows.append(row)
    return rows


def _is_sound(path: Path) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.DatabaseError:
        return False
