"""Which device runs which fit right now: workers say so in Ray's key-value store, the driver reads it.

The store is part of every Ray cluster, so this needs no process of its own and no shared folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

_NAMESPACE = b"sweep"


@contextlib.contextmanager
def announced(key: str, label: str, gpus: float) -> Iterator[None]:
    """Say in a worker what it runs, for as long as the block lasts.

    It stays said if the block fails, or dies: the driver learns from it how long the attempt ran.
    """
    from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_put

    device = f"GPU {os.environ.get('CUDA_VISIBLE_DEVICES', '')}" if gpus else f"process {os.getpid()}"
    value = {"device": f"{socket.gethostname()} {device}", "label": label, "since": time.time()}
    _internal_kv_put(key.encode(), json.dumps(value).encode(), namespace=_NAMESPACE)
    yield
    _internal_kv_del(key.encode(), namespace=_NAMESPACE)


def withdrawn(key: str) -> float | None:
    """Take back what a failed attempt announced; returns since when it ran, None if it never began."""
    from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get

    value = _internal_kv_get(key.encode(), namespace=_NAMESPACE)
    if not value:
        return None
    _internal_kv_del(key.encode(), namespace=_NAMESPACE)
    return float(json.loads(value)["since"])


def whereabouts() -> list[dict[str, Any]]:
    """What the workers have announced, by device: device, label, since (seconds since the epoch)."""
    from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_list

    keys = _internal_kv_list(b"", namespace=_NAMESPACE)
    values = [_internal_kv_get(key, namespace=_NAMESPACE) for key in keys]
    # A worker may end between the two calls.
    return sorted((json.loads(value) for value in values if value), key=lambda entry: entry["device"])
