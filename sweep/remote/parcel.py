"""Records as text: how a head prints them, and how what arrives is taken apart.

Every line begins with a mark, so that whatever else a job prints does not matter. Between the lines `begin` and
`end` stand pieces of one zlib stream, each in base64. Unpacked it is one JSON object per line:

    {"table": "artifact", "key": KEY, "content": BASE64}    a piece of a fit's arrays; pieces of a key follow each other
    {"table": "ledger", "schema": N, "home": ID}            then the rows of `Ledger.export_rows`
    {"table": "end", "lines": N}                            the number of lines before it

What arrives is data from a stranger: nothing in it is a path, and every length has a limit.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sweep.errors import UserError, last_line

FORMAT = 1
_MARK = "#sweep-records"
_PIECE = 12_000  # bytes in a line: Ray's server hands a log on in chunks of about 20,000 characters
_ARTIFACT_PIECE = 2**20
_KEY = re.compile(r"[0-9a-f]{32}")


class Limits:
    """How much is taken from a head, in bytes; far above what a sweep leaves behind."""

    text = 8 * 2**30
    expanded = 32 * 2**30
    line = 32 * 2**20
    artifacts = 1_000_000


# -- on the head -----------------------------------------------------------------------------------


def print_parcel(
    artifacts: Iterable[tuple[str, bytes]], rows: Iterable[Mapping[str, Any]], write: Callable[[str], object]
) -> None:
    """Write artifacts by key and the rows of a ledger as lines of text."""
    packer, waiting = zlib.compressobj(), bytearray()

    def put(content: bytes) -> None:
        waiting.extend(content)
        while len(waiting) >= _PIECE:
            write(f"{_MARK} {base64.b64encode(waiting[:_PIECE]).decode()}\n")
            del waiting[:_PIECE]

    count = 0
    write(f"{_MARK} begin {FORMAT}\n")
    for line in _lines(artifacts, rows):
        put(packer.compress(json.dumps(line).encode() + b"\n"))
        count += 1
    put(packer.compress(json.dumps({"table": "end", "lines": count}).encode() + b"\n") + packer.flush())
    write(f"{_MARK} {base64.b64encode(waiting).decode()}\n")
    write(f"{_MARK} end\n")


def _lines(artifacts: Iterable[tuple[str, bytes]], rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for key, content in artifacts:
        for start in range(0, max(1, len(content)), _ARTIFACT_PIECE):
            piece = content[start : start + _ARTIFACT_PIECE]
            yield {"table": "artifact", "key": key, "content": base64.b64encode(piece).decode()}
    yield from rows


# -- here ------------------------------------------------------------------------------------------


class Parcel:
    """What a head printed, unpacked into a folder of ours and checked for being whole."""

    def __init__(self, texts: Iterable[str], folder: Path) -> None:
        """`texts` are the pieces of a job's output as they come; `folder` is empty and ours alone."""
        self._folder, self._rows = folder, folder / "rows"
        count = artifacts = 0
        ended = False
        with self._rows.open("wb") as rows:
            for line in _json_lines(_unpacked(texts)):
                if ended:
                    raise _unsound("something follows the end")
                values = _parsed(line)
                if values.get("table") == "end":
                    ended = values.get("lines") == count
                    if not ended:
                        raise _unsound("lines are missing")
                elif values.get("table") == "artifact":
                    artifacts += self._keep_artifact(values)
                    if artifacts > Limits.artifacts:
                        raise _unsound("too many files")
                else:
                    rows.write(line + b"\n")
                count += 1
        if not ended:
            raise _unsound("it breaks off")

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of a ledger, as `Ledger.import_rows` takes them."""
        with self._rows.open("rb") as file:
            for line in file:
                yield _parsed(line)

    def artifact(self, key: str) -> bytes | None:
        """The bytes of a fit's arrays, whatever they are; None if none came."""
        path = self._path(key)
        return path.read_bytes() if path.exists() else None

    def _keep_artifact(self, values: dict[str, Any]) -> bool:
        """Append a piece; returns whether it is the first of its file."""
        key, content = values.get("key"), values.get("content")
        if not (isinstance(key, str) and _KEY.fullmatch(key) and isinstance(content, str)):
            raise _unsound("a file that does not belong there")
        path = self._path(key)
        is_new = not path.exists()
        with path.open("ab") as file:
            file.write(_decoded(content))
        return is_new

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.npz"


def _unpacked(texts: Iterable[str]) -> Iterator[bytes]:
    """The zlib stream between the marks, unpacked piece by piece."""
    unpacker, size, inside = zlib.decompressobj(), 0, False
    for word in _marked(texts):
        if word.startswith("begin"):
            if word != f"begin {FORMAT}":
                raise UserError("the head's records are in another format; use the same version there and here")
            inside = True
        elif word == "end":
            return
        elif inside:
            try:
                # A piece of this length cannot unpack to more than a thousand times as much.
                content = unpacker.decompress(_decoded(word))
            except zlib.error:
                raise _unsound("it cannot be unpacked") from None
            size += len(content)
            if size > Limits.expanded:
                raise _unsound(f"more than {Limits.expanded:,} bytes")
            yield content
    raise _unsound("it breaks off")


def _marked(texts: Iterable[str]) -> Iterator[str]:
    """What follows the mark in each line that has one; an error that tells the last of the others if none has."""
    rest, other, size, marked = "", "", 0, False
    for text in texts:
        size += len(text)
        if size > Limits.text:
            raise _unsound(f"more than {Limits.text:,} bytes of text")
        *lines, rest = (rest + text).split("\n")
        if len(rest) > 3 * _PIECE:
            rest, other = "", rest[:200]
        for line in lines:
            if line.startswith(_MARK) and len(line) <= 3 * _PIECE:
                marked = True
                yield line[len(_MARK) :].strip()
            elif line.strip():
                other = line[:1000]
    if not marked:
        raise UserError(f"the head sent no records: {last_line(other)}")


def _json_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = bytearray()
    for piece in pieces:
        rest += piece
        if b"\n" in piece:
            *lines, tail = bytes(rest).split(b"\n")
            rest = bytearray(tail)
            yield from lines
        if len(rest) > Limits.line:
            raise _unsound(f"a line of more than {Limits.line:,} bytes")
    if rest:
        raise _unsound("it breaks off")


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise _unsound("a line that is no JSON") from None
    if not isinstance(values, dict):
        raise _unsound("a line that is no record")
    return values


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _unsound("it is no base64") from None


def _unsound(why: str) -> UserError:
    return UserError(f"the head's records did not arrive whole ({why}); nothing was taken over, fetch them again")
