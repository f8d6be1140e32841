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
    """A server that can be stopped and started again; its data stay. With `of` it is a standby that follows another."""

    def __init__(self, folder: Path, of: Server | None = None) -> None:
        self._postgres = _binary("postgres")
        self._folder, self._data = folder, folder / "data"
        secret = folder / "password"
        secret.write_text(PASSWORD)
        self._as_user = as_unprivileged(folder)
        make = [_binary("initdb"), "-U", "sweep", "--pwfile", str(secret), "--auth", "scram-sha-256", "-N"]
        if of is not None:
            source = f"host=127.0.0.1 port={of.port} user=sweep password={PASSWORD}"
            make = [_binary("pg_basebackup"), "--write-recovery-conf", "--checkpoint", "fast", "-N", "-d", source]
        subprocess.run([*make, "-D", str(self._data)], check=True, capture_output=True, **self._as_user)
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

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Without waiting for clients; with SIGQUIT at once, as if the machine had died."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def caught_up_with(self, primary: Server) -> bool:
        with primary.connect() as there, self.connect() as here:
            (position,) = there.execute("SELECT pg_current_wal_lsn()").fetchone()
            (reached,) = here.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (position,)).fetchone()
        return bool(reached)

    def take_over(self, port: int) -> None:
        """Follow nobody any more, and answer at another's address."""
        self.stop()
        (self._data / "standby.signal").unlink()
        self.port = port
        self.start()

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


class Pooler:
    """PgBouncer before a server: it gives each transaction any of its two connections."""

    def __init__(self, server: Server, folder: Path, database: str) -> None:
        self.port = _lasting_port()
        program, settings = _binary("pgbouncer", "pgbouncer"), folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n{database} = host=127.0.0.1 port={server.port} user=sweep password={PASSWORD}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nauth_type = any\nunix_socket_dir =\n"
            "pool_mode = transaction\ndefault_pool_size = 2\n"
        )
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([program, str(settings)], **as_unprivileged(folder), **quiet)
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


def as_unprivileged(folder: Path) -> dict[str, Any]:
    """How to start a program that refuses root, which may write into `folder`."""
    if os.geteuid() != 0:
        return {}
    user = next((name for name in ("postgres", "nobody") if _exists(name)), None)
    if user is None:
        pytest.skip("PostgreSQL refuses root, and there is no unprivileged user to run it as")
    subprocess.run(["chown", "-R", user, str(folder)], check=True)
    return {"user": user}


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


def _binary(name: str, package: str = "postgresql") -> str:
    folders = [
        os.environ["PATH"],
        "/usr/sbin",
        *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True),
    ]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        pytest.skip(f"no {name} here; Debian's package {package} has it")
    return found


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
