"""What stands between a driver and its PostgreSQL: timeouts, a pool of connections, a server that fails over."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.store.faults import FencedError
from sweep.store.home import Home
from sweep.store.ledger import Ledger, open_ledger
from tests.sweep.store.postgres import PASSWORD, Pooler, Server
from tests.sweep.store.test_ledger import record, spec


@pytest.mark.parametrize("setting", ["idle_session_timeout", "idle_in_transaction_session_timeout"])
def test_a_server_that_ends_idle_sessions_costs_nothing(postgres: str, server: Server, setting: str) -> None:
    notes: list[str] = []
    with server.connect() as connection:
        connection.execute(f"ALTER ROLE sweep SET {setting} = '100ms'")
    try:
        ledger = Ledger(postgres, note=notes.append)
        ledger.open_sweep("a", {}, {})
        for fold in range(3):
            time.sleep(0.3)  # longer than the server allows: a fit takes as long as it takes
            ledger.commit(spec(fold), record(spec(fold)))
        assert len(ledger.keys()) == 3
        assert all("\n" not in note for note in notes)
        ledger.close()
    finally:
        with server.connect() as connection:
            connection.execute(f"ALTER ROLE sweep RESET {setting}")


@pytest.fixture
def pooled(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of an empty database behind PgBouncer, which gives each transaction any connection that it has."""
    with server.connect() as connection:
        connection.execute("CREATE DATABASE pooled")
    with tempfile.TemporaryDirectory(prefix="sweep-pgbouncer-") as folder:
        pooler = Pooler(server, Path(folder), "pooled")
        monkeypatch.setenv("PGUSER", "sweep")
        yield f"postgresql+psycopg://127.0.0.1:{pooler.port}/pooled"
        pooler.stop()
    with server.connect() as connection:
        connection.execute("DROP DATABASE pooled WITH (FORCE)")


def test_a_driver_behind_a_pool_of_connections_is_fenced_all_the_same(pooled: str, tmp_path: Path) -> None:
    first, second = open_ledger(pooled, Home(tmp_path)), Ledger(pooled)
    first.open_sweep("a", {}, {})
    for fold in range(4):
        first.commit(spec(fold), record(spec(fold)))
        assert len(second.keys()) == fold + 1  # so that the two change places in the pool
    successor = open_ledger(pooled, Home(tmp_path))  # of the same home: its lock tells that the first is gone
    successor.open_sweep("a", {}, {})
    with pytest.raises(FencedError, match="taken over by another driver") as caught:
        first.commit(spec(5), record(spec(5)))
    assert "\n" not in str(caught.value)
    successor.commit(spec(6), record(spec(6)))
    assert second.keys() == {spec(fold).key for fold in (0, 1, 2, 3, 6)}
    for ledger in (first, second, successor):
        ledger.close()


def test_a_failover_to_a_standby_is_waited_out_and_fences_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first server dies, a copy that followed it takes its address over."""
    monkeypatch.setenv("PGUSER", "sweep")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with contextlib.ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sweep-failover-"))) for _ in range(2)]
        primary = Server(folders[0])
        primary.start()
        stack.callback(primary.stop)
        home = Home(tmp_path)
        ledger = open_ledger(primary.url, home)
        ledger.open_sweep("a", {}, {})
        ledger.commit(spec(0), record(spec(0)))
        standby = Server(folders[1], of=primary)
        standby.start()
        stack.callback(standby.stop)
        ledger.commit(spec(1), record(spec(1)))
        while not standby.caught_up_with(primary):
            time.sleep(0.05)
        primary.stop(signal.SIGQUIT)
        standby.take_over(primary.port)
        ledger.commit(spec(2), record(spec(2)))
        assert ledger.keys() == {spec(fold).key for fold in range(3)}
        successor = open_ledger(primary.url, home)
        successor.open_sweep("a", {}, {})
        with pytest.raises(FencedError):
            ledger.commit(spec(3), record(spec(3)))
        ledger.close()
        successor.close()
