"""Drivers on one Ray cluster: each says in Ray's key-value store what it has submitted, and leaves the others room.

Ray itself serves tasks of one driver before those of another for as long as there are any.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import time
from collections.abc import Mapping, Sequence

_NAMESPACE = b"sweep drivers"
_GONE_SECONDS = 30.0  # without a word; of a driver that was killed


def fair_share(total: float, others: Sequence[float]) -> float:
    """What one driver may take of `total`: an equal part, and whatever the others leave."""
    return max(total / (1 + len(others)), total - sum(others))


class Neighbours:
    """This driver's entry, and those of the others."""

    def __init__(self) -> None:
        self._key = secrets.token_hex(8).encode()

    def tell(self, taken: Mapping[str, float]) -> list[dict[str, float]]:
        """Say what this driver takes, by resource; returns what each of the others does."""
        from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_list, _internal_kv_put

        entry = {"at": time.time(), "taken": dict(taken)}
        _internal_kv_put(self._key, json.dumps(entry).encode(), overwrite=True, namespace=_NAMESPACE)
        keys = [key for key in _internal_kv_list(b"", namespace=_NAMESPACE) if key != self._key]
        found = (_taken(_internal_kv_get(key, namespace=_NAMESPACE)) for key in keys)
        return [taken for taken in found if taken is not None]

    def leave(self) -> None:
        from ray.experimental.internal_kv import _internal_kv_del

        with contextlib.suppress(Exception):  # a cluster that is gone has nobody left to tell
            _internal_kv_del(self._key, namespace=_NAMESPACE)


def _taken(entry: bytes | None) -> dict[str, float] | None:
    """What a driver takes, unless it is gone, or of a version that says it otherwise."""
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
        said = json.loads(entry or b"{}")
        if time.time() - said["at"] < _GONE_SECONDS:
            return {str(resource): float(amount) for resource, amount in said["taken"].items()}
    return None


def whole(share: float) -> int:
    """A share as a number of fits, at least one."""
    return max(1, math.ceil(share - 1e-9))
