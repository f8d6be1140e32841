"""The way into a Ray: one that is started here, or a cluster that is up already."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import socket
import urllib.parse
from pathlib import Path
from typing import Any

from sweep.errors import UserError, first_line
from sweep.urls import redacted

_SETTINGS = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # CPU fits must not see the GPUs
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray takes a worker back half a second after it lent it, so that one-second fits would each wait for a new one.
    "RAY_worker_lease_timeout_milliseconds": "10000",
}
# A Ray of one's own: its metrics are open to the network and ask for no token, so there are none unless the user
# sets these otherwise. Ray has no switch for the two ports; it goes on without a port that cannot be.
_CLOSED = {
    "RAY_enable_metrics_collection": "0",
    "AUTOSCALER_METRIC_PORT": "-1",
    "DASHBOARD_METRIC_PORT": "-1",
}
_CONNECT_SECONDS = 10
_PORTS = {"http": 80, "https": 443, "ray": 10001}


def connect(address: str | None) -> Any:
    """Ray at `address`, else the one that RAY_ADDRESS names (Ray's jobs set it), else started here."""
    address = address or os.environ.get("RAY_ADDRESS")
    for name, value in (_SETTINGS if address else _SETTINGS | _CLOSED).items():
        os.environ.setdefault(name, value)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        options["include_dashboard"] = False
        demand_token()
    elif address not in ("auto", "local"):
        check_answers(address, f"--address: no Ray answers at {redacted(address)}")
    use_token()
    import ray
    from ray._raylet import Config  # type: ignore[attr-defined]

    Config.initialize("")  # whoever imported Ray before us made it read the mode of then
    stop = signal.getsignal(signal.SIGTERM)
    try:
        # "local" and not None: the address file of a cluster that died must not be followed.
        ray.init(address=address or "local", **options)
    except (ConnectionError, ValueError, ray.exceptions.AuthenticationError) as error:
        raise UserError(
            f"--address: cannot join Ray at {redacted(address or 'local')}: {first_line(error)}; is it up, and is its "
            "token in ~/.ray/auth_token or RAY_AUTH_TOKEN?"
        ) from None
    except Exception as error:  # a plain one, where Ray's own processes did not come up in time
        where = f"at {redacted(address)}" if address else "here"
        raise UserError(
            f"Ray did not start {where}: {first_line(error)}; nothing is lost, try again when the machine is less "
            "busy, or with `--address inline`"
        ) from None
    # Ray puts its own handler there, which exits with 15 instead of the way that the caller chose.
    with contextlib.suppress(ValueError):  # only the main thread may, and only there Ray did
        signal.signal(signal.SIGTERM, stop)
    return ray


def check_answers(address: str, complaint: str) -> None:
    """Refuse a host and port, or a URL, behind which nobody listens: Ray itself would try for minutes."""
    parts = urllib.parse.urlsplit(address if "://" in address else f"//{address}")
    try:
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        port = None
    if not parts.hostname or not port:
        raise UserError(f"{complaint}: expected a host and a port, as in 10.0.0.1:6379")
    try:
        socket.create_connection((parts.hostname, port), timeout=_CONNECT_SECONDS).close()
    except (OSError, UnicodeError) as error:
        reason = f"no answer within {_CONNECT_SECONDS} s" if isinstance(error, TimeoutError) else first_line(error)
        raise UserError(f"{complaint} ({reason}); is it up, and is the address right?") from None


def demand_token() -> None:
    """Let nobody without a token into a Ray that is started here: its ports listen on all interfaces.

    Only a user who sets RAY_AUTH_MODE=disabled goes without.
    """
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    if os.environ["RAY_AUTH_MODE"] != "token" or _has_token():
        return
    token = secrets.token_hex(32)
    try:
        _token_file().parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(_token_file(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        if not _has_token():  # else another process was quicker
            os.environ["RAY_AUTH_TOKEN"] = token  # a home that cannot be written to: it lives and ends with this Ray
        return
    with os.fdopen(descriptor, "w") as file:
        file.write(token)


def use_token() -> None:
    """Send Ray's token where this user has one; Ray itself does so only with RAY_AUTH_MODE=token."""
    if not _has_token():
        return
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    with contextlib.suppress(OSError):  # not there, or not ours
        if _token_file().stat().st_mode & 0o077:
            _token_file().chmod(0o600)  # Ray writes it for all to read


def _has_token() -> bool:
    return any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")) or _token_file().exists()


def _token_file() -> Path:
    return Path.home() / ".ray" / "auth_token"
