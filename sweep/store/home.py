"""The folder that holds everything a sweep writes, and the lock that keeps it to one driver."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sweep.errors import UserError
from sweep.urls import redacted


class Home:
    """Paths under `--home`. Nothing is created before it is needed."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser().absolute()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def ledger_path(self) -> Path:
        return self.folder / "ledger.sqlite"

    @property
    def ledger_url(self) -> str:
        return f"sqlite:///{self.ledger_path}"

    @property
    def ledger_setting(self) -> str:
        """Where this home's records are, as its sweep file said: `sqlite`, or a URL without credentials."""
        try:
            return (self.folder / "ledger.url").read_text()
        except FileNotFoundError:
            return "sqlite"

    def remember_ledger(self, setting: str) -> None:
        """Let later commands find records that are kept elsewhere."""
        if setting != "sqlite":
            write_atomically(self.folder / "ledger.url", redacted(setting).encode())

    @property
    def mlflow_url(self) -> str:
        return f"sqlite:///{self.folder / 'mlflow.sqlite'}"

    @property
    def mlflow_artifacts(self) -> Path:
        return self.folder / "mlflow-artifacts"

    def create(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"--home: cannot create {self.folder}: {error.strerror}; name a folder you may write to"
            ) from None

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the home for one driver. The kernel drops the lock with the process, however it ends."""
        self.create()
        path = self.folder / "driver.lock"
        with path.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                owner = file.read().strip() or "another process"
                raise UserError(
                    f"{self.folder}: a sweep is already running here ({owner}); wait for it, or use another --home"
                ) from None
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            yield

    def is_locked(self) -> bool:
        """Whether a driver is at work here right now."""
        path = self.folder / "driver.lock"
        if not path.exists():
            return False
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    # -- arrays of finished refits ------------------------------------------------------------

    def artifact_path(self, key: str) -> Path:
        return self.folder / "artifacts" / f"{key}.npz"

    def write_artifact(self, key: str, arrays: dict[str, np.ndarray]) -> str:
        """Store arrays; returns the checksum that goes into the ledger."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        content = buffer.getvalue()
        write_atomically(self.artifact_path(key), content)
        return hashlib.sha256(content).hexdigest()

    def read_artifact(self, key: str, checksum: str) -> dict[str, np.ndarray] | None:
        """Arrays of a refit; None if the file is missing or is not what was written."""
        try:
            content = self.artifact_path(key).read_bytes()
        except FileNotFoundError:
            return None
        if hashlib.sha256(content).hexdigest() != checksum:
            return None
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)

    # -- what the driver is doing now, for `sweep status` --------------------------------------

    def write_state(self, name: str, state: dict[str, Any]) -> None:
        write_atomically(self.folder / "state" / f"{name}.json", json.dumps(state).encode(), durable=False)

    def read_state(self, name: str) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads((self.folder / "state" / f"{name}.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return state


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file's content as a whole: a reader or a crash sees the old or the new, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
