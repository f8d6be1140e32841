"""URLs that carry secrets: what of them may be stored and shown, and what must never be.

People write passwords as they are, with `/`, `@`, `:` or `?` in them, and every library splits such a URL
in a way of its own. So nothing here depends on how it is split: whatever stands before the last `@` is a
secret, of a query only settings that are known to be harmless are kept, and where the two readings disagree
nothing is.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

# A URL in running text begins where no other URL goes on.
_BEGINNING = re.compile(r"(?<![A-Za-z0-9+.:@/%-])([A-Za-z][A-Za-z0-9+.-]*)://")
_SETTING = re.compile(r"(?i)(\b\w*(?:password|passwd|pwd|passphrase|secret|token|api_?key)\w*=)([^&\s'\",;)]+)")
_QUERY_VALUE = re.compile(r"(?<=[?&])([^=&?\s]+)=([^&\s'\"<>)]*)")
# Settings of drivers (libpq, sqlite3, MLflow, Optuna) that say how to connect and not with which right.
_HARMLESS = {
    "application_name", "cache", "channel_binding", "charset", "check_same_thread", "client_encoding",
    "connect_timeout", "dbname", "gssencmode", "host", "hostaddr", "isolation_level", "keepalives",
    "keepalives_count", "keepalives_idle", "keepalives_interval", "mode", "options", "pool_size", "port", "prefix",
    "region", "service", "sslmode", "sslrootcert", "target_session_attrs", "timeout", "uri",
}  # fmt: skip
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]*)(:\d*)?")
_MASK = "***"
# Shorter ones would blot out ordinary words; they are caught where they stand in a URL.
_SHORTEST = 4

_hidden: set[str] = set()


def redacted(url: str) -> str:
    """A URL as it may be stored and shown: no user, no password, no token, and still the same place.

    Also of what is no URL: a word or a path comes back as it is.
    """
    scheme, found, rest = url.partition("://")
    if not found:
        return url if ":" not in url.partition("@")[0] else url.rpartition("@")[2]
    rest = _after_userinfo(scheme, rest)
    place, _, query = (rest if _is_file(scheme) else rest.partition("#")[0]).partition("?")
    kept = [part for part in query.split("&") if part.partition("=")[0].lower() in _HARMLESS]
    return f"{scheme}://{place}" + (f"?{'&'.join(kept)}" if kept else "")


def origin(url: str) -> str:
    """Scheme, host and port alone, for a URL whose path is the secret, as a webhook's is."""
    scheme, found, rest = url.partition("://")
    if not found:
        return url if url.startswith("$") else _MASK
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    # An @ further on may end a password, or stand in the path: either way nothing here is known to be the host.
    return f"{scheme}://{_MASK if '@' in rest[len(authority) :] else authority.rpartition('@')[2]}"


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """A text without `secrets`, without those that `hide` was told of, and with its URLs redacted."""
    for secret in sorted(_hidden.union(secrets), key=len, reverse=True):
        for form in _forms(secret):
            text = text.replace(form, _MASK)
    return "\n".join(_redact_line(line) for line in text.split("\n"))


def hide(value: Any) -> None:
    """Let `redact` know the secrets of every URL in a value: a text, or lists and mappings of them."""
    if isinstance(value, str):
        _hidden.update(secrets_in(value))
    elif isinstance(value, dict):
        for part in value.values():
            hide(part)
    elif isinstance(value, list | tuple):
        for part in value:
            hide(part)


def expanded(url: str) -> str:
    """A URL of the user's own sweep file with its variables ($PGPASSWORD) filled in, and hidden from then on."""
    full = os.path.expandvars(url)
    hide(full)
    return full


def secrets_in(url: str) -> set[str]:
    """What `redacted` leaves out of a URL and a library's message might quote, long enough to be looked for."""
    scheme, found, rest = url.partition("://")
    if not found or _is_file(scheme):
        return set()
    userinfo, _, _ = rest.rpartition("@")
    _, colon, password = userinfo.partition(":")
    password = password if colon else userinfo
    # Libraries that end a password at its first / or @ quote the pieces.
    parts = {password, *re.split(r"[@/:?#]", password)}
    query = rest.partition("?")[2]
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name.lower() not in _HARMLESS:
            # With all that follows: the value may itself hold an &.
            parts |= {value or name, query[query.index(part) + len(part) - len(value) :]}
    parts |= {decoded for part in parts for decoded in (unquote(part), unquote_plus(part))}
    return {part for part in parts if len(part) >= _SHORTEST and not part.startswith("$")}


def has_secret(url: str) -> bool:
    """Whether a URL holds a password or a token itself, and not the name of a variable ($PGPASSWORD) for it."""
    scheme, found, rest = url.partition("://")
    if not found or _is_file(scheme):
        return False
    userinfo, _, _ = rest.rpartition("@")
    user, colon, password = userinfo.partition(":")
    # Over HTTP a user name alone is a token.
    secret = password if colon else user if scheme.startswith("http") else ""
    values = [
        value
        for name, _, value in (part.partition("=") for part in rest.partition("?")[2].split("&"))
        if name and name.lower() not in _HARMLESS and name.lower() != "user"
    ]
    return any(value and not re.fullmatch(r"\$\w+|\$\{\w+\}", value) for value in [secret, *values])


def is_plain(url: str) -> bool:
    """Whether a URL from elsewhere is a place and nothing more: nothing to fill in, no user, no odd characters."""
    return bool(re.fullmatch(r"[a-z][a-z0-9+]{0,30}://[A-Za-z0-9._/?&=:\[\]-]{1,512}", url)) and redacted(url) == url


def _after_userinfo(scheme: str, rest: str) -> str:
    """What stands behind the user and the password of a URL."""
    if _is_file(scheme):
        return rest
    userinfo, _, place = rest.rpartition("@")
    if "?" in userinfo and _HOST.fullmatch(re.split("[/?#]", rest, maxsplit=1)[0]):
        return _MASK  # the @ may stand in the query, and what follows it be a secret
    return place


def _is_file(scheme: str) -> bool:
    """A path follows, in which @ and # are ordinary."""
    return scheme.startswith("sqlite") or scheme == "file"


def _forms(secret: str) -> set[str]:
    """A secret as messages and files may hold it."""
    return {
        secret,
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
    }


def _redact_line(line: str) -> str:
    starts = [match.start() for match in _BEGINNING.finditer(line)]
    if starts:
        ends = [*starts[1:], len(line)]
        line = line[: starts[0]] + "".join(_redact_from(line[a:b]) for a, b in zip(starts, ends, strict=True))
    return _SETTING.sub(lambda match: match[0] if match[2].startswith("$") else match[1] + _MASK, line)


def _redact_from(text: str) -> str:
    """A text that begins with a URL; what follows it in the sentence stays."""
    scheme, _, rest = text.partition("://")
    last = 0 if _is_file(scheme) else rest.rfind("@") + 1
    space = re.compile(r"\s|$").search(rest, last)
    assert space is not None  # the end is always found
    url, sentence = rest[: space.start()], rest[space.start() :]
    url = _QUERY_VALUE.sub(
        lambda match: match[0] if match[1].lower() in _HARMLESS else f"{match[1]}={_MASK}", _after_userinfo(scheme, url)
    )
    return f"{scheme}://{url}{sentence}"
