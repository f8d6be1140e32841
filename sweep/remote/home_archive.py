"""Prints the records of a home as text. Runs on a cluster's head by itself, without the project."""

from __future__ import annotations

import base64
import io
import sqlite3
import sys
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path


def main(folder: str) -> int:
    """Write an archive of the ledger, the learned matrices and the states to stdout."""
    home = Path(folder).expanduser()
    ledger, elsewhere = home / "ledger.sqlite", home / "ledger.url"
    if not (ledger.exists() or elsewhere.exists()):
        sys.stderr.write(f"{home}: holds no sweep\n")
        return 1
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        if ledger.exists():
            copy = Path(scratch) / "ledger.sqlite"
            # A copy by SQLite itself: the driver may be writing.
            with closing(sqlite3.connect(ledger, timeout=20)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)
            archive.add(copy, "ledger.sqlite")
        files = [elsewhere, *sorted((home / "artifacts").glob("*.npz")), *sorted((home / "state").glob("*.json"))]
        for path in files:
            if path.exists():
                archive.add(path, str(path.relative_to(home)))
    sys.stdout.write("-----BEGIN SWEEP HOME-----\n")
    sys.stdout.write(base64.encodebytes(buffer.getvalue()).decode())
    sys.stdout.write("-----END SWEEP HOME-----\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
