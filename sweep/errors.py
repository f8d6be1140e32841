"""The one error that is the user's answer instead of a traceback."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake of the user's: one line that says where, what was expected, what came, what to do."""


def nearest(word: str, valid: Iterable[str]) -> str:
    """' Did you mean 'x'?' for the valid name closest to `word`, else the list of valid names."""
    names = list(valid)
    close = difflib.get_close_matches(word, names, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Valid: {', '.join(names)}."


def first_line(error: BaseException | None) -> str:
    """Type and first line of an exception."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"


def without_credentials(text: str) -> str:
    """URLs in a text without user names and passwords."""
    return re.sub(r"//[^/@\s]+@", "//", text)
