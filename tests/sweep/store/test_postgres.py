"""The ledger and MLflow on a real PostgreSQL that is stopped, restarted and shared."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from sweep.errors import UserError
from sweep.store.database import server_database
from sweep.store.faults import LedgerError
from sweep.store.home import Home
from sweep.store.ledger import Ledger, open_ledger, view_ledger
from tests.sweep.store.postgres import PASSWORD, Server
from tests.sweep.store.test_ledger import record, spec


def _terminate_all(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                           " AND backend_type = 'client backend'")  # fmt: skip


def test_a_terminated_connection_costs_neither_a_result_nor_the_fence(postgres: str, server: Server) -> None:
    notes: list[str] = []
    ledger = Ledger(postgres, note=notes.append)
    ledger.open_sweep("a", {}, {})
    for fold in range(3):
        _terminate_all(server)
        ledger.commit(spec(fold), record(spec(fold)))
    assert len(ledger.keys()) == 3
    assert all("\n" not in note for note in notes)
    ledger.close()


def test_a_restart_of_the_server_is_waited_out(postgres: str, server: Server, tmp_path: Path) -> None:
    notes: list[str] = []
    back = threading.Thread(target=server.start)

    def hear(note: str) -> None:
        notes.append(note)
        if "does not answer" in note:
            back.start()

    home = Home(tmp_path)
    ledger = open_ledger(postgres, home, hear)
    ledger.open_sweep("a", {}, {})
    server.stop()
    ledger.commit(spec(0), record(spec(0)))
    back.join()
    assert ledger.keys() == {spec(0).key}
    assert any("is back" in note for note in notes)
    assert list(home.pending.glob("*")) == []
    ledger.close()


def test_a_result_that_cannot_be_committed_waits_for_the_next_run(
    postgres: str, server: Server, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    ledger = open_ledger(postgres, home)
    ledger.open_sweep("a", {}, {})
    ledger.database.patience = 0.5
    server.stop()
    try:
        with pytest.raises(LedgerError, match="cannot keep the result of d split 0 mdml-csfn") as caught:
            ledger.commit(spec(0), record(spec(0)))
        ledger.close()
    finally:
        server.start()
    assert "\n" not in str(caught.value)
    assert "the next run commits it" in str(caught.value)
    assert PASSWORD not in str(caught.value)
    notes: list[str] = []
    again = open_ledger(postgres, home, notes.append)
    assert again.record(spec(0).key) == record(spec(0))
    assert notes == ["1 finished fits that had waited for the database are committed"]
    assert list(home.pending.glob("*")) == []
    again.close()


def test_a_damaged_file_that_waits_is_computed_again(postgres: str, tmp_path: Path) -> None:
    home = Home(tmp_path)
    open_ledger(postgres, home).close()
    for name, content in {"a": b"{", "b": b"\xff", "c": b"[]", "d": b'{"key": "d"}'}.items():
        home.pending.mkdir(exist_ok=True)
        (home.pending / f"{name}.json").write_bytes(content)
    ledger = open_ledger(postgres, home)
    assert ledger.keys() == set()
    assert list(home.pending.glob("*")) == []
    ledger.close()


def test_no_transaction_stays_open_while_records_are_read(postgres: str, server: Server) -> None:
    ledger = Ledger(postgres)
    ledger.open_sweep("a", {}, {})
    fits = [spec(0, seed=i) for i in range(1_100)]
    ledger.commit_all((fit, record(fit)) for fit in fits)
    ledger.adopt("a", [fit.key for fit in fits])
    reading = ledger.records("a")
    next(reading)
    with server.connect() as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
        assert connection.execute(query).fetchone() == (0,)
    _terminate_all(server)
    assert sum(1 for _ in reading) == 1_099
    ledger.close()


def test_looking_writes_nothing_and_says_when_there_is_nothing(postgres: str, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with pytest.raises(UserError, match="holds no sweep yet"):
        view_ledger(postgres, home)
    assert not home.folder.exists()
    Ledger(postgres).close()
    seen = view_ledger(postgres, home)
    assert seen.sweeps() == {}
    seen.database.patience = 0.0
    with pytest.raises(LedgerError, match="read-only transaction"):
        seen.open_sweep("a", {}, {})
    seen.close()


def test_a_variable_in_a_remembered_address_is_never_filled_in(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_SECRET", "s3cret")
    home = Home(tmp_path)
    home.create()
    (home.folder / "ledger.url").write_text("postgresql+psycopg://u:$SWEEP_SECRET@127.0.0.1:9/x")
    with pytest.raises(UserError) as caught:
        view_ledger(home.ledger_setting, home)
    assert "s3cret" not in str(caught.value)
    home.remember_ledger(f"{postgres}&password=$SWEEP_SECRET&sslmode=prefer".replace("//", "//me:$SWEEP_SECRET@"))
    remembered = (home.folder / "ledger.url").read_text()
    assert remembered == f"{postgres}&sslmode=prefer"


@pytest.mark.usefixtures("postgres")
def test_a_whole_sweep_with_ledger_and_mlflow_there(server: Server, sweep_file: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    url = server.url.replace("//", "//sweep:$PGPASSWORD@")
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
    with server.connect() as connection:
        ((runs,),) = connection.execute("SELECT count(*) FROM runs WHERE status = 'FINISHED'").fetchall()
        ((stored,),) = connection.execute("SELECT spec FROM sweeps WHERE name = 'tiny'").fetchall()
    assert runs == 8
    assert PASSWORD not in stored


def test_an_unreachable_database_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with pytest.raises(UserError, match="ledger at") as caught:
        Ledger("postgresql+psycopg://sweep:other-secret@127.0.0.1:9/x?password=third-secret")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_user_says_about_the_connection_counts() -> None:
    url = sqlalchemy.make_url("postgresql+psycopg://127.0.0.1:1/none?connect_timeout=99")
    engine, seen = server_database(url).engine, dict[str, Any]()

    @sqlalchemy.event.listens_for(engine, "do_connect")
    def look(_dialect: Any, _record: Any, _arguments: Any, options: dict[str, Any]) -> None:
        seen.update(options)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        engine.connect()
    assert (seen["connect_timeout"], seen["keepalives_idle"]) == ("99", 10)
