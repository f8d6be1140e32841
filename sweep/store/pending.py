"""Finished fits that wait, as files of the home, for a database that does not answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweep.store.home import write_atomically
from sweep.store.rows import is_intact
from sweep.store.tables import fits


class Pending:
    """The folder of one home; without a home nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def keep(self, row: dict[str, Any]) -> None:
        if self._folder is not None:
            write_atomically(self._folder / f"{row['key']}.json", json.dumps(row).encode())

    def holds(self, key: str) -> bool:
        return self._folder is not None and (self._folder / f"{key}.json").exists()

    def drop(self, key: str) -> None:
        if self._folder is not None:
            (self._folder / f"{key}.json").unlink(missing_ok=True)

    def rows(self) -> Iterator[dict[str, Any]]:
        """What waits and is whole; a file that is not is removed, and its fit computed again."""
        for path in sorted(self._folder.glob("[!.]*.json")) if self._folder is not None else ():
            try:
                row = json.loads(path.read_bytes())
                if set(row) != set(fits.columns.keys()) or not is_intact(row):
                    raise ValueError
            except (ValueError, TypeError):
                path.unlink(missing_ok=True)
                continue
            yield row
