"""The ledger and MLflow on a real PostgreSQL, started here on loopback in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweep.errors import UserError
from sweep.store.ledger import Ledger
from tests.sweep.store.test_ledger import record, spec

PASSWORD = "not-for-logs"


def _binary(name: str) -> str:
    folders = [os.environ["PATH"], *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        pytest.skip(f"no {name} here; Debian's package postgresql has it")
    return found


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a fresh server, without its password."""
    initdb, server = _binary("initdb"), _binary("postgres")
    folder = tmp_path_factory.mktemp("postgres")
    data, secret = folder / "data", folder / "password"
    secret.write_text(PASSWORD)
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        user = next((name for name in ("postgres", "nobody") if _exists(name)), None)
        if user is None:
            pytest.skip("PostgreSQL refuses root, and there is no unprivileged user to run it as")
        subprocess.run(["chown", "-R", user, str(folder)], check=True)
        for parent in folder.parents[:3]:
            parent.chmod(0o755)
        as_user = {"user": user}
    subprocess.run(
        [initdb, "-D", str(data), "-U", "sweep", "--pwfile", str(secret), "--auth", "scram-sha-256"],
        check=True,
        capture_output=True,
        **as_user,
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [server, "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", str(folder), "-F"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **as_user,
    )
    try:
        deadline = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(1)
        yield f"postgresql+psycopg://127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(signal.SIGINT)  # do not wait for clients
        process.wait(30)


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGUSER", "sweep")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


@pytest.mark.usefixtures("credentials")
def test_the_ledger_keeps_its_promises_there(postgres: str) -> None:
    ledger = Ledger(postgres)
    ledger.open_sweep("pg", {"search": "grid"}, {})
    ledger.adopt("pg", [spec(0).key, spec(1).key])
    ledger.commit(spec(0), record(spec(0), 0.5))
    ledger.commit(spec(0), record(spec(0), 0.9))
    kept = ledger.record(spec(0).key)
    assert kept is not None
    assert kept.score == 0.5
    assert ledger.count("pg") == (1, 2)
    with (
        ledger.exclusive("pg"),
        pytest.raises(UserError, match="already running"),
        Ledger(postgres).exclusive("pg"),
    ):
        pass


@pytest.mark.usefixtures("credentials")
def test_a_whole_sweep_with_ledger_and_mlflow_there(postgres: str, sweep_file: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    url = postgres.replace("//", "//sweep:$PGPASSWORD@")
    file = sweep_file(tracking={"ledger": url, "mlflow": url, "artifacts": (tmp_path / "artifacts").as_uri()})
    for expected in ("23 fits computed", "0 fits computed"):
        done = subprocess.run(
            [sys.executable, "-m", "sweep", "run", str(file), "--home", str(home), "--address", "inline"],
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stderr
        assert expected in done.stderr
        assert "cannot be reached" not in done.stderr
        assert PASSWORD not in done.stdout + done.stderr
    shown = subprocess.run(
        [sys.executable, "-m", "sweep", "results", "tiny", "--home", str(home), "--format", "csv"],
        capture_output=True,
        text=True,
    )
    assert shown.stdout.count("digits-imbalanced") == 2, shown.stderr
    kept = [path for path in home.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert kept == []
    import psycopg

    with psycopg.connect(postgres.replace("+psycopg", "")) as connection:
        ((runs,),) = connection.execute("SELECT count(*) FROM runs WHERE status = 'FINISHED'").fetchall()
        ((stored,),) = connection.execute("SELECT spec FROM sweeps WHERE name = 'tiny'").fetchall()
    assert runs == 8
    assert PASSWORD not in stored


def test_an_unreachable_database_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with pytest.raises(UserError, match="ledger at") as caught:
        Ledger("postgresql+psycopg://sweep:other-secret@127.0.0.1:9/x")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
