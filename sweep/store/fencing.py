"""One driver per sweep, by a number that every write checks.

A driver takes the next number when it opens a sweep. Whoever has a smaller one finds, in the transaction of its
next write, that it may not write any more. No lock has to outlive a connection, and none can be lost with it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Double, bindparam, cast, func, select, update

from sweep.store.faults import FencedError
from sweep.store.tables import sweeps

BEAT_SECONDS = 10.0  # between two signs of life
STALE_SECONDS = 60.0  # without one a driver counts as gone


@dataclass(frozen=True)
class Driving:
    """Who drives a sweep, or drove it last.

    `heard` is the time of its last sign of life and `age` the seconds since then; None once it has ended.
    """

    pid: int
    host: str
    home: str
    heard: float | None
    age: float | None

    @property
    def driver(self) -> str:
        return f"process {self.pid} on {self.host}"


_SERVER_CLOCK = cast(func.extract("epoch", func.clock_timestamp()), Double)
_MINE = update(sweeps).where(sweeps.c.name == bindparam("mine"), sweeps.c.fence == bindparam("number"))
_SIGNS_OF_LIFE = {  # built once: one is part of every commit
    "postgresql": _MINE.values(heartbeat=_SERVER_CLOCK),
    "sqlite": _MINE.values(heartbeat=bindparam("here", type_=Double)),
}


def now(connection: Connection) -> Any:
    """Seconds since the epoch, by the one clock that all drivers of a database share."""
    return _SERVER_CLOCK if connection.dialect.name == "postgresql" else time.time()


def drivers(connection: Connection) -> dict[str, Driving]:
    """Who drives, or drove last, by sweep."""
    s = sweeps.c
    age = now(connection) - s.heartbeat
    rows = connection.execute(
        select(s.name, s.driver_pid, s.driver_host, s.driver_home, s.heartbeat, age).where(s.fence > 0)
    )
    return {name: Driving(*values) for name, *values in rows}


def is_in_the_way(other: Driving | None, home: str, stale_seconds: float) -> bool:
    """Whether a driver may still be at work that the home's lock does not exclude."""
    if other is None or other.age is None or other.age >= stale_seconds:
        return False
    # The lock of this home is ours, so a driver on this host that had it is gone, however it ended.
    return not (other.home == home != "" and other.host == socket.gethostname())


def take(connection: Connection, sweep: str, home: str) -> int:
    """The next number of a sweep that is registered; until it ends, or another takes one, only its driver writes."""
    values = {
        "fence": sweeps.c.fence + 1,
        "driver_home": home,
        "driver_host": socket.gethostname(),
        "driver_pid": os.getpid(),
        "heartbeat": now(connection),
    }
    connection.execute(update(sweeps).where(sweeps.c.name == sweep).values(values))
    return int(connection.execute(select(sweeps.c.fence).where(sweeps.c.name == sweep)).scalar_one())


def check(connection: Connection, held: Mapping[str, int]) -> None:
    """Refuse to write with a number that is not the latest; a sign of life otherwise.

    The update locks the row, so that nobody takes another number before this transaction ends.
    """
    for sweep, fence in held.items():
        values = {"mine": sweep, "number": fence, "here": time.time()}
        if connection.execute(_SIGNS_OF_LIFE[connection.dialect.name], values).rowcount != 1:
            other = drivers(connection).get(sweep)
            raise FencedError(
                f"{sweep}: taken over by another driver ({other.driver if other else 'unknown'}); this one stops, "
                "what it committed is kept"
            )


def give_back(connection: Connection, held: Mapping[str, int]) -> None:
    """Say that a driver has ended."""
    for sweep, fence in held.items():
        mine = (sweeps.c.name == sweep) & (sweeps.c.fence == fence)
        connection.execute(update(sweeps).where(mine).values(heartbeat=None))
