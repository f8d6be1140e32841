"""The folder that holds a sweep's records, as the doctor sees it: where it lies, and what follows from that."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sweep.store.filesystem import filesystem_of

VOLATILE = {
    "tmpfs": "is gone when the machine restarts",
    "ramfs": "is gone when the machine restarts",
    "overlay": "is gone with the container",
}


@dataclass(frozen=True)
class HomeFacts:
    """What was found out about a home; `consequence` is for people."""

    folder: str
    filesystem: str
    network: bool
    writable: bool
    locks: bool
    free_gb: float
    consequence: str


def home_facts(folder: str | Path) -> HomeFacts:
    """Look at a home, or at the nearest folder above it that exists."""
    path = Path(folder).expanduser().absolute()
    there = next(parent for parent in (path, *path.parents) if parent.is_dir())
    found = filesystem_of(path)
    locks = None
    with contextlib.suppress(OSError):
        locks = _locks(there)
    return HomeFacts(
        folder=str(path),
        filesystem=found.kind or "unknown",
        network=found.network,
        writable=locks is not None,
        locks=bool(locks),
        free_gb=shutil.disk_usage(there).free / 1e9,
        consequence=_consequence(found.network, bool(locks)),
    )


def _consequence(network: bool, locks: bool) -> str:
    if not network:
        return "the ledger keeps a write-ahead log; run `sweep status` on this machine"
    how = "several hosts may look" if locks else "no locks: the ledger's fence alone keeps a second driver out"
    return f"other hosts may share it, so the ledger goes without a write-ahead log (slower commits); {how}"


def _locks(folder: Path) -> bool:
    """Whether a file's lock keeps another process out; OSError if nothing can be written there."""
    with tempfile.NamedTemporaryFile(prefix=".sweep-doctor-", dir=folder) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with Path(file.name).open() as other:
                fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False
