"""Notices that Ray's head is gone, before Ray ends this process without a word of Python."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from typing import Any

from sweep import exits

_LOOK_SECONDS = 1.0
_RAYS_PATIENCE = "RAY_gcs_rpc_server_reconnect_timeout_s"


class Lifeline:
    """Looks at the head's port now and then; ends the process with one clear line when nobody answers.

    Ray's own calls hang while the head is away, then exit from C++: there is no exception to catch.
    A head may come back within the time that Ray allows for it, so nearly all of that is waited for.
    """

    def __init__(self, ray: Any) -> None:
        self._closed, self._ray = threading.Event(), ray
        if ray.util.client.ray.is_connected():
            return  # ray://: its client raises when it loses the head
        self._address = str(ray.get_runtime_context().gcs_address)
        self._patience = 0.8 * float(os.environ.get(_RAYS_PATIENCE, "60"))
        threading.Thread(target=self._watch, name="lifeline", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        answered = time.monotonic()
        while not self._closed.wait(_LOOK_SECONDS):
            if not self._ray.is_initialized():
                return  # somebody has left Ray meanwhile: its head may go
            if self._answers():
                answered = time.monotonic()
            elif time.monotonic() - answered > self._patience and not self._closed.is_set():
                sys.stderr.write(
                    f"sweep: lost the head of the Ray cluster at {self._address} ({self._patience:.0f} s without an "
                    "answer); everything finished is kept, run the same command again when it is back\n"
                )
                sys.stderr.flush()
                os._exit(exits.USER_ERROR)  # every commit is on the disk, and the kernel drops the lock on the home

    def _answers(self) -> bool:
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
        except OSError:
            return False
        return True
