"""Arrays from .npz files that nobody has checked: what they claim is compared with what there is."""

from __future__ import annotations

import io
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from sweep.errors import UserError

# Type and shape take a few hundred bytes; NumPy refuses more than this, after reading it.
_MOST_HEADER_BYTES = 10_000


# What reading a broken or hostile file may raise, besides UserError: zipfile answers other methods and
# passwords with RuntimeError, and the parser of headers takes nested ones as far as it can.
NPZ_DAMAGE = (
    OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, SyntaxError, MemoryError, RuntimeError,
    zipfile.BadZipFile, zlib.error, tokenize.TokenError,
)  # fmt: skip


def memory_budget() -> int:
    """Bytes that one source may take here: half of what this machine, or this container, has."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no such file, or the word "max"
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return memory // 2


def read_npz(path: Path, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, or those of them that are in `names`.

    Nothing is unpickled, and nothing is allocated that the file does not hold: a header may claim
    terabytes. Raises UserError for what is too large, and what NumPy raises for what is broken.
    """
    left = memory_budget()
    arrays: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if names is not None and name not in names:
                continue
            with archive.open(member) as file:
                left -= _claimed_bytes(file, member.file_size, f"{path}: {name[:80]}", left)
            with archive.open(member) as file:
                arrays[name] = npy.read_array(file, allow_pickle=False)
    return arrays


def _claimed_bytes(file: IO[bytes], stored: int, where: str, most: int) -> int:
    """Size of an array by its header, if it fits into the `stored` bytes of the file and into memory."""
    version = npy.read_magic(file)
    width = 2 if version == (1, 0) else 4
    length = int.from_bytes(_exactly(file, width), "little")
    if length > _MOST_HEADER_BYTES:
        raise ValueError(f"an array's header of {length:,} bytes")
    readers: dict[Any, Any] = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    header = _exactly(file, length)
    reader = readers.get(version, npy.read_array_header_2_0)
    shape, _, dtype = reader(io.BytesIO(length.to_bytes(width, "little") + header))
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > stored:
        raise ValueError(f"an array of {claimed:,} bytes in a member of {stored:,}")
    if claimed > most:
        raise UserError(f"{where}: takes {claimed:,} bytes, more than the {most:,} left for it; use a smaller file")
    return claimed


def _exactly(file: IO[bytes], n_bytes: int) -> bytes:
    data = file.read(n_bytes)
    if len(data) != n_bytes:
        raise EOFError("an array ends early")
    return data
