"""Fetching a file whose checksum is known beforehand."""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from sweep.datasets.catalog import Download
from sweep.errors import UserError

_CHUNK = 1 << 20
_SILENCE_SECONDS = 60


def fetch(download: Download, folder: Path, progress: Callable[[str], None]) -> Path:
    """The downloaded file in `folder`; one that is there already is kept if its checksum is right."""
    path = folder / download.file_name
    if path.is_file() and _sha256(path) == download.sha256:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            hasher, received = hashlib.sha256(), 0
            with urllib.request.urlopen(download.url, timeout=_SILENCE_SECONDS) as response:
                while chunk := response.read(_CHUNK):
                    received += len(chunk)
                    if received > download.most_bytes:
                        raise UserError(f"{download.url}: sends more than {download.most_bytes:,} bytes; not the file")
                    hasher.update(chunk)
                    file.write(chunk)
                    progress(f"{path.name}: {received / 1e6:.0f} MB")
        if hasher.hexdigest() != download.sha256:
            raise UserError(
                f"{download.url}: SHA-256 is {hasher.hexdigest()}, expected {download.sha256};"
                " get the file by hand and give it with --from"
            )
        Path(temporary).replace(path)
    except (OSError, HTTPException) as error:
        raise UserError(f"{download.url}: {error}; get the file by hand and give it with --from") from error
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
