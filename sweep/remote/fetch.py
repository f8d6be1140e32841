"""Brings a sweep's records from a cluster's head into a home here.

All of it goes over the job server, so that the one port (or tunnel) that submits is enough: a small job on the
head prints the records, and what comes is checked row by row before this home takes it over.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweep.errors import UserError
from sweep.remote.errands import output_of
from sweep.remote.parcel import Parcel
from sweep.remote.staging import on_head
from sweep.store.exchange import Imported
from sweep.store.home import Home
from sweep.store.ledger import open_ledger

_SPOOL = ".fetch-"


def fetch(
    client: Any, home: Home, remote_home: str | None, note: Callable[[str], None] = lambda message: None
) -> Imported:
    """Add the head's records to `home`, whose lock is held meanwhile. A fit that is here already stays as it is."""
    with home.lock():
        for left_behind in home.folder.glob(f"{_SPOOL}*"):
            shutil.rmtree(left_behind, ignore_errors=True)
        try:
            with tempfile.TemporaryDirectory(prefix=_SPOOL, dir=home.folder) as folder:
                known = {"known": "\n".join(sorted(home.artifact_keys()))}
                printed = output_of(client, on_head("pack", remote_home, "--known known"), known)
                parcel = Parcel(printed, Path(folder))
                return take_over(parcel, home, note)
        except OSError as error:
            raise UserError(f"{home.folder}: cannot take the records over: {error.strerror or error}") from None


def take_over(parcel: Parcel, home: Home, note: Callable[[str], None]) -> Imported:
    """Add a parcel's rows and the artifacts that belong to them; the caller holds the home's lock."""
    ledger = open_ledger(home.ledger_setting, home, note)
    try:
        done = ledger.import_rows(parcel.rows(), home, parcel.artifact)
    finally:
        ledger.close()
    if done.refused:
        note(f"{len(done.refused)} rows of the head were refused, the first: {done.refused[0]}")
    return done


def record_in_mlflow(home: Home, names: list[str], note: Callable[[str], None]) -> None:
    """Write the fetched sweeps into the MLflow store here, as `sweep run` would have done."""
    from sweep.store.recording import Recorder  # imports MLflow

    with home.lock():
        ledger = open_ledger(home.ledger_setting, home, note)
        files = ledger.sweeps()
        for name in names:
            tracking = files.get(name, {}).get("tracking")
            if isinstance(tracking, dict) and tracking.get("mlflow") == "sqlite":
                Recorder(name, "sqlite", None, home, ledger, note).finish()
        ledger.close()
