"""What no sweep of a home refers to any more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sweep.store.home import Home
from sweep.store.ledger import Ledger


@dataclass(frozen=True)
class Garbage:
    """A kind of leftover, how many there are and how much room they take."""

    what: str
    count: int
    bytes: int


def collect(home: Home, ledger: Ledger) -> list[Garbage]:
    """Fits that no sweep asks for, and artifacts that no fit names; nothing is touched."""
    rows = ledger.unreferenced()
    found = [
        Garbage("fits that no sweep asks for", len(rows), 0),
        _measured("their artifacts, and files that no fit names", _files(home, ledger, rows)),
        _measured("set aside after damage", list(home.folder.glob("ledger.sqlite.damaged-*"))),
    ]
    return [each for each in found if each.count]


def remove(home: Home, ledger: Ledger) -> int:
    """Remove what `collect` lists, under the home's lock; returns the bytes freed."""
    rows = ledger.unreferenced()
    files = [*_files(home, ledger, rows), *home.folder.glob("ledger.sqlite.damaged-*")]
    ledger.forget(rows)
    freed = 0
    for path in files:
        freed += path.stat().st_size
        path.unlink()
    return freed


def _files(home: Home, ledger: Ledger, rows: set[str]) -> list[Path]:
    named = set(ledger.artifacts()) - rows
    return [home.artifact_path(key) for key in sorted(home.artifact_keys() - named)]


def _measured(what: str, paths: list[Path]) -> Garbage:
    return Garbage(what, len(paths), sum(path.stat().st_size for path in paths))
