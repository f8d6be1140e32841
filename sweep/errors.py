"""The one error that is the user's answer instead of a traceback, and how errors become one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from sweep.urls import redact

_LONGEST = 1000


class UserError(ValueError):
    """A mistake of the user's: one line that says where, what was expected, what came, what to do."""


def nearest(word: str, valid: Iterable[str]) -> str:
    """' Did you mean 'x'?' for the valid name closest to `word`, else the list of valid names."""
    names = list(valid)
    close = difflib.get_close_matches(word[:_LONGEST], names, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Valid: {', '.join(names)}."


def first_line(error: BaseException | None) -> str:
    """Type and first line of an exception, without secrets and of bounded length."""
    text = str(error).strip()
    return one_line(f"{type(error).__name__}: {text.splitlines()[0] if text else ''}")


def last_line(text: str, default: str = "no output") -> str:
    """What a process or a server said last, without secrets and of bounded length."""
    lines = [line for line in text[-10 * _LONGEST :].splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else default


def one_line(text: str) -> str:
    """A text as one line that may be shown: no secrets, no control characters, not without end."""
    # Cut generously first: a message may quote megabytes.
    line = re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+", " ", redact(text[: 10 * _LONGEST])).strip()
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
