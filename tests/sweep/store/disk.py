"""What a disk holds after the power went off: a log of changes, replayed up to any of them.

A change is on the disk once it was synced: a file's content with the file, an entry of a folder with the folder.
Of the changes after that, none may be there, or all, or any of them.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Change:
    """One entry of the log that `faulty_disk.c` writes."""

    what: str  # Write, Truncate, Sync, Rename, Unlink, Create, Mkdir
    path: str
    number: int
    data: bytes


def read_log(path: Path) -> list[Change]:
    content, at = path.read_bytes(), 0
    changes = []
    while at < len(content):
        what, number, length = struct.unpack_from("<cqq", content, at)
        at += 17
        name = content[at : at + length].decode()
        at += length
        (size,) = struct.unpack_from("<q", content, at)
        at += 8
        changes.append(Change(what.decode(), name, number, content[at : at + size]))
        at += size
    return changes


@dataclass
class _File:
    """A file's content that is surely there, and the changes since."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)


@dataclass
class Disk:
    """Files below a folder as the log describes them. Folders are there as soon as they are made."""

    files: dict[str, _File] = field(default_factory=dict)  # entries as processes see them
    entries: dict[str, _File] = field(default_factory=dict)  # entries that are surely there

    def apply(self, change: Change) -> None:
        if change.what == "C":
            self.files[change.path] = _File()
        elif change.what in "WT" and change.path in self.files:
            self.files[change.path].pending.append(change)
        elif change.what == "R":
            self.files[change.data.decode()] = self.files.pop(change.path)
        elif change.what == "U":
            self.files.pop(change.path, None)
        elif change.what == "S" and change.path in self.files:
            file = self.files[change.path]
            for each in file.pending:
                _change(file.durable, each)
            file.pending.clear()
        elif change.what == "S":  # a folder: its entries are now as processes see them
            for path in [p for p in self.entries if str(Path(p).parent) == change.path]:
                del self.entries[path]
            self.entries |= {p: f for p, f in self.files.items() if str(Path(p).parent) == change.path}

    def after_power_loss(self, survives: Callable[[], bool]) -> dict[str, bytes]:
        """Content of all files; `survives` says of each change that was not synced whether it is there."""
        seen = dict(self.entries)
        for path in set(self.files) | set(self.entries):
            if self.files.get(path) is not self.entries.get(path) and survives():
                if path in self.files:
                    seen[path] = self.files[path]
                else:
                    seen.pop(path, None)
        found = {}
        for path, file in seen.items():
            content = bytearray(file.durable)
            for change in file.pending:
                if survives():
                    _change(content, change)
            found[path] = bytes(content)
        return found


def _change(content: bytearray, change: Change) -> None:
    if change.what == "T":
        del content[change.number :]
        content.extend(bytes(change.number - len(content)))
        return
    content.extend(bytes(max(change.number - len(content), 0)))
    content[change.number : change.number + len(change.data)] = change.data


def power_losses(changes: list[Change], seed: int) -> Iterator[tuple[int, str, dict[str, bytes]]]:
    """After each change: how many came before, which of those not synced survive, and what the files hold."""
    rng, disk = random.Random(seed), Disk()
    for count, change in enumerate(changes, start=1):
        disk.apply(change)
        yield count, "none", disk.after_power_loss(lambda: False)
        yield count, "all", disk.after_power_loss(lambda: True)
        yield count, "any", disk.after_power_loss(lambda: rng.random() < 0.5)
