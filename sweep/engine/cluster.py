"""The way into a Ray: one that is started here, or a cluster that is up already."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from pathlib import Path
from typing import Any

from sweep.errors import UserError, first_line


def connect(address: str | None) -> Any:
    """Ray at `address`, else the one that RAY_ADDRESS names (Ray's jobs set it), else started here."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")  # CPU fits must not see the GPUs
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray takes a worker back half a second after it lent it, so that one-second fits would each wait for a new one.
    os.environ.setdefault("RAY_worker_lease_timeout_milliseconds", "10000")
    address = address or os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        options["include_dashboard"] = False
    else:
        use_token()
    import ray

    stop = signal.getsignal(signal.SIGTERM)
    try:
        # "local" and not None: the address file of a cluster that died must not be followed.
        ray.init(address=address or "local", **options)
    except (ConnectionError, ValueError) as error:
        raise UserError(
            f"--address: cannot join Ray at {address!r}: {first_line(error)}; is it up, and is its token in "
            "~/.ray/auth_token or RAY_AUTH_TOKEN?"
        ) from None
    # Ray puts its own handler there, which exits with 15 instead of the way that the caller chose.
    with contextlib.suppress(ValueError):  # only the main thread may, and only there Ray did
        signal.signal(signal.SIGTERM, stop)
    return ray


def use_token() -> None:
    """Send Ray's token where this user has one; Ray itself does so only with RAY_AUTH_MODE=token."""
    sources = (os.environ.get("RAY_AUTH_TOKEN"), os.environ.get("RAY_AUTH_TOKEN_PATH"))
    if any(sources) or (Path.home() / ".ray" / "auth_token").exists():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
