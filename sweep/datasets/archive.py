"""Reading files from a folder, a tar or a zip archive, in one pass and without unpacking anything.

Archives are untrusted: no member is ever written under its own name, links are not followed, and
what is read is counted while it is read, because the sizes that an archive states may be wrong.
"""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from sweep.errors import UserError

# Far above the largest of the real distributions: 64 GiB in all, a million files.
MOST_BYTES = 64 << 30
MOST_FILES = 1_000_000

# What a tar archive may say about one member; names and attributes take a few hundred bytes.
MOST_HEADER_BYTES = 1 << 20

DAMAGE = (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error)

Wanted = Callable[[str], bool]
Files = Generator[tuple[str, IO[bytes]], None, None]


class Budget:
    """Bytes that may still be read from one source."""

    def __init__(self, where: str, most_bytes: int) -> None:
        self.where, self.most, self.left = where, most_bytes, most_bytes

    def spend(self, n_bytes: int) -> None:
        self.left -= n_bytes
        if self.left < 0:
            raise UserError(f"{self.where}: holds more than {self.most:,} bytes, expected less; is it the right file?")


class BoundedReader(io.RawIOBase):
    """A stream that stops at its budget and turns signs of damage into one clear line."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, budget: Budget, where: str) -> None:
        self._file, self._budget, self._where = file, budget, where

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        with naming_damage(self._where):
            data = self._file.read(len(buffer))
        self._budget.spend(len(data))
        buffer[: len(data)] = data
        return len(data)


class GuardedStream:
    """A seekable stream for tarfile, which reads names and attributes of any length into memory.

    While `left` is a number, no more than that many bytes can be read.
    """

    def __init__(self, file: IO[bytes] | gzip.GzipFile | bz2.BZ2File, where: str) -> None:
        self._file, self._where = file, where
        self.left: int | None = MOST_HEADER_BYTES
        self.seek, self.tell = file.seek, file.tell

    def read(self, n_bytes: int) -> bytes:
        if self.left is not None:
            self.left -= n_bytes
            if self.left < 0:
                raise UserError(
                    f"{self._where}: more than {MOST_HEADER_BYTES:,} bytes of names and attributes for one member;"
                    " do not use this file"
                )
        return self._file.read(n_bytes)


@contextmanager
def naming_damage(where: str) -> Iterator[None]:
    """Errors of a broken or unreadable file, as a user's error that names it."""
    try:
        yield
    except UserError:
        raise
    except (FileNotFoundError, PermissionError) as error:
        raise UserError(f"{where}: {error.strerror}; check the path and its permissions") from error
    except RuntimeError as error:  # zipfile's answer to encrypted members
        raise UserError(f"{where}: {error}; expected an archive without a password") from error
    except DAMAGE as error:
        raise UserError(f"{where}: truncated or damaged ({error}); get the file again") from error


def read_files(path: Path, wanted: Wanted, *, most_bytes: int = MOST_BYTES) -> Files:
    """Regular files of a folder or archive whose name is wanted, as (name, stream), in one pass.

    A stream is valid until the next one is asked for. Names are relative, with forward slashes.
    """
    path = Path(path)
    where = str(path)
    if not path.exists():
        raise UserError(f"{where}: no such file or folder; check the path")
    budget = Budget(where, most_bytes)
    if path.is_dir():
        files = _folder_files(path, wanted)
    else:
        with naming_damage(where):
            is_zip = zipfile.is_zipfile(path)
        files = _zip_members(path, wanted, where) if is_zip else _tar_files(path, wanted, budget)
    yield from _bounded(files, budget)


def zip_files(archive: IO[bytes], wanted: Wanted, where: str, *, most_bytes: int = MOST_BYTES) -> Files:
    """The same for a zip archive that is open already."""
    yield from _bounded(_zip_members(archive, wanted, where), Budget(where, most_bytes))


def _bounded(files: Files, budget: Budget) -> Files:
    for count, (name, file) in enumerate(files):
        if count >= MOST_FILES:
            raise UserError(f"{budget.where}: holds more than {MOST_FILES:,} files; is it the right one?")
        yield name, io.BufferedReader(BoundedReader(file, budget, f"{budget.where}: {name}"), 1 << 20)


def _zip_members(archive: Path | IO[bytes], wanted: Wanted, where: str) -> Files:
    with naming_damage(where):
        opened = zipfile.ZipFile(archive)
    with opened:
        if len(opened.infolist()) > MOST_FILES:
            raise UserError(f"{where}: holds more than {MOST_FILES:,} files; is it the right one?")
        for member in opened.infolist():
            is_link = (member.external_attr >> 16) & 0o170000 == 0o120000
            if member.is_dir() or is_link or not wanted(_safe(member.filename, where)):
                continue
            with naming_damage(f"{where}: {member.filename}"):
                file = opened.open(member)
            with file:
                yield member.filename, file


def _tar_files(path: Path, wanted: Wanted, budget: Budget) -> Files:
    with _open_tar(path) as (archive, stream):
        for count in itertools.count():
            if count >= MOST_FILES:
                raise UserError(f"{path}: holds more than {MOST_FILES:,} files; is it the right one?")
            with naming_damage(str(path)):
                stream.left = MOST_HEADER_BYTES
                member = archive.next()
                stream.left = None
            if member is None:
                return
            # The archive would keep all that it has read of its members.
            archive.members.clear()  # type: ignore[attr-defined]
            archive.pax_headers.clear()  # type: ignore[attr-defined]
            # A stated size is skipped over by decompressing it, so it counts even when unwanted.
            if not member.isreg() or not wanted(_safe(member.name, str(path))):
                budget.spend(member.size)
                continue
            file = archive.extractfile(member)
            assert file is not None  # it is a regular file
            with file:
                yield member.name, file


@contextmanager
def _open_tar(path: Path) -> Iterator[tuple[tarfile.TarFile, GuardedStream]]:
    with naming_damage(str(path)):
        raw = path.open("rb")
    with raw:
        beginning = raw.peek(3)
        file: Any = raw
        if beginning.startswith(b"\x1f\x8b"):
            file = gzip.GzipFile(fileobj=raw)
        elif beginning.startswith(b"BZh"):
            file = bz2.BZ2File(raw)
        stream = GuardedStream(file, str(path))
        try:
            archive = tarfile.TarFile(fileobj=stream)  # type: ignore[arg-type]
        except DAMAGE as error:
            raise UserError(f"{path}: expected a folder, a tar or a zip archive (or it is truncated)") from error
        with archive:
            yield archive, stream


def _folder_files(path: Path, wanted: Wanted) -> Files:
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        inside = [path.joinpath(*file.relative_to(path).parts[:depth]) for depth in range(1, name.count("/") + 2)]
        if wanted(name) and file.is_file() and not any(part.is_symlink() for part in inside):
            with naming_damage(str(file)):
                opened = file.open("rb")
            with opened:
                yield name, opened


def _safe(name: str, where: str) -> str:
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts:
        raise UserError(f"{where}: member {name!r} points outside the archive; do not use this file")
    return name


def base_name(name: str) -> str:
    """Last part of a member's name."""
    return name.rsplit("/", 1)[-1]


def gunzip(file: IO[bytes], where: str) -> IO[bytes]:
    """The decompressed stream, within the same bounds."""
    unzipped = gzip.GzipFile(fileobj=file)
    return io.BufferedReader(BoundedReader(unzipped, Budget(where, MOST_BYTES), where), 1 << 20)
