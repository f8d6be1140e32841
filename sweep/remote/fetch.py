"""Brings a sweep's records from a cluster's head into a home here.

All of it goes over the job server, so that the one port (or tunnel) that submits is enough: a small
job on the head prints an archive as text, and the records are merged into the home on this side.
"""

from __future__ import annotations

import base64
import binascii
import io
import shlex
import sqlite3
import sys
import tarfile
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from sweep.errors import UserError
from sweep.remote.submit import REMOTE_HOME
from sweep.store.home import Home, write_atomically

_BEGIN, _END = "-----BEGIN SWEEP HOME-----", "-----END SWEEP HOME-----"
_SECONDS = 600


def fetch(client: Any, home: Home, remote_home: str | None) -> list[str]:
    """Merge the head's records into `home`; returns the sweeps that came, none if a database has them."""
    with tempfile.TemporaryDirectory(prefix="sweep-fetch-") as folder:
        _unpack(_output(client, remote_home), Path(folder))
        home.create()
        return merge(Path(folder), home)


def _output(client: Any, remote_home: str | None) -> str:
    where = shlex.quote(remote_home) if remote_home else '"${SWEEP_HOME:-$HOME/' + REMOTE_HOME[2:] + '}"'
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        # This very file, so that head and client agree whatever version is installed there.
        (Path(folder) / "home_archive.py").write_text(Path(__file__).with_name("home_archive.py").read_text())
        job = client.submit_job(entrypoint=f"python home_archive.py {where}", runtime_env={"working_dir": folder})
    deadline = time.monotonic() + _SECONDS
    while not client.get_job_status(job).is_terminal():
        if time.monotonic() > deadline:
            raise UserError(f"the head did not pack its records within {_SECONDS} s; try again later")
        time.sleep(0.5)
    text = str(client.get_job_logs(job))
    client.delete_job(job)
    return text


def _unpack(text: str, folder: Path) -> None:
    try:
        body = text.split(_BEGIN, 1)[1].split(_END, 1)[0]
        archive = io.BytesIO(base64.b64decode(body, validate=False))
        with tarfile.open(fileobj=archive) as files:
            files.extractall(folder, filter="data")
    except (IndexError, binascii.Error, tarfile.TarError, EOFError, OSError):
        lines = [line for line in text.splitlines() if line.strip()]
        raise UserError(f"the head sent no records: {lines[-1][:200] if lines else 'no output'}") from None


def merge(fetched: Path, home: Home) -> list[str]:
    """Add a copy of another home's records to `home`. A fit that is here already stays as it is."""
    from sweep.store.ledger import Ledger

    for source in sorted((fetched / "artifacts").glob("*.npz")) + sorted((fetched / "state").glob("*.json")):
        write_atomically(home.folder / source.relative_to(fetched), source.read_bytes())
    elsewhere = fetched / "ledger.url"
    if elsewhere.exists():
        if home.ledger_path.exists():
            raise UserError(
                f"{home.folder}: has records of its own, and the head keeps its in a database; choose another --home"
            )
        write_atomically(home.folder / elsewhere.name, elsewhere.read_bytes())
        return []
    Ledger(home.ledger_url).close()  # makes the tables
    with closing(sqlite3.connect(home.folder / "ledger.sqlite", timeout=20)) as connection, connection:
        connection.execute("ATTACH ? AS other", (str(fetched / "ledger.sqlite"),))
        names = [name for (name,) in connection.execute("SELECT name FROM other.sweeps ORDER BY name")]
        connection.execute("INSERT OR IGNORE INTO fits SELECT * FROM other.fits")
        connection.execute("INSERT OR REPLACE INTO sweeps SELECT * FROM other.sweeps")
        for table in ("members", "failures"):
            connection.execute(f"DELETE FROM {table} WHERE sweep IN (SELECT name FROM other.sweeps)")
            connection.execute(f"INSERT INTO {table} SELECT * FROM other.{table}")
        # What a shared MLflow server has is known; the head's own store stayed there.
        connection.execute(
            "INSERT OR REPLACE INTO mlflow_runs SELECT * FROM other.mlflow_runs WHERE store LIKE 'http%'"
        )
    return names


def record_in_mlflow(home: Home, names: list[str]) -> None:
    """Write the fetched sweeps into the MLflow store here, as `sweep run` would have done."""
    from sweep.store.ledger import Ledger
    from sweep.store.recording import Recorder

    ledger = Ledger(home.ledger_url)
    specs = ledger.sweeps()
    for name in names:
        tracking = specs[name]["tracking"]
        if tracking["mlflow"] == "sqlite":
            Recorder(name, "sqlite", None, home, ledger, lambda text: print(text, file=sys.stderr)).finish()  # noqa: T201
