"""A real PostgreSQL, started here on loopback in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

PASSWORD = "not-for-logs"


class Server:
    """A server that can be stopped and started again; its data stay."""

    def __init__(self, folder: Path) -> None:
        initdb, self._postgres = _binary("initdb"), _binary("postgres")
        self._folder, self._data = folder, folder / "data"
        secret = folder / "password"
        secret.write_text(PASSWORD)
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = next((name for name in ("postgres", "nobody") if _exists(name)), None)
            if user is None:
                pytest.skip("PostgreSQL refuses root, and there is no unprivileged user to run it as")
            subprocess.run(["chown", "-R", user, str(folder)], check=True)
            self._as_user = {"user": user}
        subprocess.run(
            [initdb, "-D", str(self._data), "-U", "sweep", "--pwfile", str(secret), "--auth", "scram-sha-256", "-N"],
            check=True,
            capture_output=True,
            **self._as_user,
        )
        self.port = _lasting_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Without its password: PGUSER and PGPASSWORD have it."""
        return f"postgresql+psycopg://127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [self._postgres, "-D", self._data, "-p", str(self.port), "-h", "127.0.0.1", "-k", self._folder, "-F"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **self._as_user,
        )
        import psycopg

        deadline = time.monotonic() + 60
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # do not wait for clients
            self._process.wait(30)
            self._process = None

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self.port, dbname="postgres", user="sweep", password=PASSWORD, autocommit=True
        )

    def fresh(self, name: str) -> str:
        """URL of an empty schema of its own."""
        with self.connect() as connection:
            connection.execute(f'CREATE SCHEMA "{name}"')
        return f"{self.url}?options=-csearch_path%3D{name}"


def _lasting_port() -> int:
    """A free port that stays free while the server is down: the system gives those above to whoever asks."""
    for port in random.SystemRandom().sample(range(15_000, 32_000), 100):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port from 15000 to 32000")


def let_others_in(folder: Path) -> None:
    """Let other users pass through a temporary folder and those above it that are closed."""
    for each in (folder, *folder.parents):
        mode = each.stat().st_mode
        if mode & 0o005 != 0o005:
            each.chmod(mode | 0o055)


def _binary(name: str) -> str:
    folders = [os.environ["PATH"], *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        pytest.skip(f"no {name} here; Debian's package postgresql has it")
    return found


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
