"""What can go wrong with a ledger, as types that the floors above tell apart."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, OperationalError

from sweep.errors import UserError, first_line
from sweep.urls import redact

# SQLite's own words for a file that is no database any more; every other error leaves it as it is.
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_READ_ONLY_SERVER = "25006"  # PostgreSQL: a standby that is about to be promoted


class LedgerError(UserError):
    """The database cannot be used now; nothing was changed."""


class FencedError(UserError):
    """Another driver has taken the sweep over: this one must not write any more."""


class UnsoundRecord(ValueError):  # noqa: N818
    """A record with a number that is none: a numerical failure of that fit, not of the sweep."""


def is_damage(error: BaseException | None) -> bool:
    """Whether a SQLite error says that the file itself is damaged."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGE


def may_pass(error: DBAPIError) -> bool:
    """Whether a server may well do the same thing later: it restarts, fails over, has no connection left."""
    return (
        error.connection_invalidated
        or isinstance(error, OperationalError)
        or getattr(error.orig, "sqlstate", None) == _READ_ONLY_SERVER
    )


def said(error: BaseException) -> str:
    """A database error in one short line without credentials."""
    return redact(first_line(getattr(error, "orig", None) or error))[:300]
