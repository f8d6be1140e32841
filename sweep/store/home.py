"""The folder that holds everything a sweep writes, and the lock that keeps it to one driver."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import re
import socket
import threading
import time
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sweep.errors import UserError
from sweep.store.filesystem import filesystem_of
from sweep.urls import expanded, redacted


@dataclass(frozen=True)
class HomeFile:
    """A file or folder of a home, and what it is for."""

    path: str
    what: str


FILES = (
    HomeFile("ledger.sqlite", "every finished fit, failure and sweep: the truth that all else is made from"),
    HomeFile("ledger.sqlite.damaged-N", "a ledger that was damaged; what could be read of it was carried over"),
    HomeFile("ledger.sqlite.suspect", "SQLite stumbled over the ledger; the next run looks at all of it"),
    HomeFile("ledger.url", "where the ledger is instead, if it is kept in PostgreSQL; without credentials"),
    HomeFile("home.id", "the name by which a shared ledger knows this home"),
    HomeFile("artifacts/KEY.npz", "learned matrices and curves of refits, what chains and paths hand on"),
    HomeFile("pending/KEY.json", "finished fits that wait for the database to come back"),
    HomeFile("state/NAME.json", "what the driver is doing, for `sweep status`"),
    HomeFile("driver.lock", "held by the one driver that is at work here"),
    HomeFile("data/", "prepared datasets"),
    HomeFile("optuna/", "journals of adaptive searches; rebuilt from the ledger"),
    HomeFile("mlflow.sqlite", "MLflow's runs; written anew from the ledger if it is lost"),
    HomeFile("mlflow-artifacts/", "matrices and pictures of MLflow's runs"),
    HomeFile("mlflow-server.log", "output of the server behind `sweep ui`"),
    HomeFile("reports/", "HTML reports"),
    HomeFile("exports/", "exported models"),
)

_ARTIFACT_BYTES = 2**31  # of one artifact, unpacked: more than any fit leaves, less than a bomb
_READERS_PAUSE = 0.01
_REFUSED = {errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN}


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
            return (self.folder / "ledger.url").read_text(errors="replace").strip()
        except FileNotFoundError:
            return "sqlite"

    def remember_ledger(self, setting: str) -> None:
        """Let later commands find records that are kept elsewhere."""
        if setting == "sqlite":
            (self.folder / "ledger.url").unlink(missing_ok=True)
            return
        write_atomically(self.folder / "ledger.url", redacted(expanded(setting)).encode())

    @property
    def mlflow_path(self) -> Path:
        return self.folder / "mlflow.sqlite"

    @property
    def mlflow_url(self) -> str:
        return f"sqlite:///{self.mlflow_path}"

    @property
    def mlflow_artifacts(self) -> Path:
        return self.folder / "mlflow-artifacts"

    @property
    def pending(self) -> Path:
        return self.folder / "pending"

    @property
    def id(self) -> str:
        """The name by which a shared ledger knows this home; empty before it was first written to."""
        try:
            found = (self.folder / "home.id").read_text(errors="replace").strip()
        except OSError:
            return ""
        return found if re.fullmatch("[0-9a-f]{32}", found) else ""

    def create(self) -> None:
        """Make the folder, and see that it can be written to."""
        try:
            make_folder(self.folder)
            if not self.id:
                write_atomically(self.folder / "home.id", uuid.uuid4().hex.encode())
            elif not os.access(self.folder, os.W_OK, effective_ids=True):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise UserError(
                f"--home: cannot create or write to {self.folder}: {error.strerror}; name a folder you may write to"
            ) from None

    # -- one driver -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the home for one driver. The kernel drops the lock with the process, however it ends."""
        self.create()
        try:
            file = (self.folder / "driver.lock").open("a+", errors="replace")
        except OSError as error:
            raise UserError(f"--home: cannot lock {self.folder}: {error.strerror}") from None
        with file:
            self._take(file)
            with contextlib.suppress(OSError):  # a full disk: who holds the lock is for people only
                file.truncate(0)
                file.write(f"process {os.getpid()} on {socket.gethostname()}")
                file.flush()
            yield

    def _take(self, file: Any) -> None:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in _REFUSED:
                    # No locks here, as on some network file systems: the ledger's fence excludes a second driver.
                    if filesystem_of(self.folder).network:
                        return
                    raise UserError(f"--home: cannot lock {self.folder}: {error.strerror}") from None
            # Somebody who only looks shares the lock for a moment; a driver shares it with nobody.
            if not _shared(file):
                file.seek(0)
                owner = file.read(200).strip() or "another process"
                raise UserError(
                    f"{self.folder}: a sweep is already running here ({owner}); wait for it, or use another --home"
                )
            time.sleep(_READERS_PAUSE)

    def is_locked(self) -> bool:
        """Whether a driver is at work here right now."""
        try:
            with (self.folder / "driver.lock").open(errors="replace") as file:
                return not _shared(file)
        except OSError:
            return False

    # -- arrays of finished refits ------------------------------------------------------------

    def artifact_path(self, key: str) -> Path:
        return self.folder / "artifacts" / f"{_file_name(key)}.npz"

    def artifact_keys(self) -> set[str]:
        """Keys of the fits whose arrays are here."""
        return {path.stem for path in (self.folder / "artifacts").glob("[!.]*.npz")}

    def write_artifact(self, key: str, arrays: Mapping[str, np.ndarray]) -> str:
        """Store arrays; returns the checksum that goes into the ledger."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **dict(arrays))
        return self.write_artifact_bytes(key, buffer.getvalue())

    def write_artifact_bytes(self, key: str, content: bytes) -> str:
        write_atomically(self.artifact_path(key), content)
        return hashlib.sha256(content).hexdigest()

    def has_artifact(self, key: str, checksum: str) -> bool:
        return self._artifact_bytes(key, checksum) is not None

    def read_artifact(self, key: str, checksum: str) -> dict[str, np.ndarray] | None:
        """Arrays of a fit; None if the file is missing or is not what was written."""
        content = self._artifact_bytes(key, checksum)
        if content is None:
            return None
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as members:
                if sum(member.file_size for member in members.infolist()) > _ARTIFACT_BYTES:
                    return None
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)
        except (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile):  # what somebody else made and sent
            return None

    def _artifact_bytes(self, key: str, checksum: str) -> bytes | None:
        try:
            content = self.artifact_path(key).read_bytes()
        except FileNotFoundError:
            return None
        return content if hashlib.sha256(content).hexdigest() == checksum else None

    # -- what the driver is doing now, for `sweep status` --------------------------------------

    def write_state(self, name: str, state: dict[str, Any]) -> None:
        """For people to look at: a full disk does not stop a sweep over it."""
        with contextlib.suppress(OSError):
            write_atomically(self._state_path(name), json.dumps(state).encode(), durable=False)

    def read_state(self, name: str) -> dict[str, Any]:
        try:
            state = json.loads(self._state_path(name).read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return state if isinstance(state, dict) else {}

    def _state_path(self, name: str) -> Path:
        return self.folder / "state" / f"{_file_name(name)}.json"


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file's content as a whole: a reader or a crash sees the old or the new, never half.

    If `durable`, it is on the disk when this returns, the folder's entry included.
    """
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, each entry on the disk."""
    if folder.is_dir():
        return
    if not folder.parent.is_dir():
        make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Bring a folder's entries to the disk: a rename is safe from a power cut only then."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems without such a thing
            raise
    finally:
        os.close(descriptor)


def _shared(file: Any) -> bool:
    """Whether nobody holds the lock for himself; lets go of it at once."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _REFUSED
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


def _file_name(text: str) -> str:
    """A key or a name as a file's name; it may come from a ledger that somebody else wrote."""
    if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}", text):
        raise ValueError(f"{text[:80]!r} cannot be the name of a file")
    return text
