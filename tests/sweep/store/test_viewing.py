"""Looking at a ledger leaves no trace: not in the file, not beside it, not in the way of a driver."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.errors import UserError
from sweep.store import database as databases
from sweep.store.filesystem import FileSystem
from sweep.store.home import Home
from sweep.store.ledger import holds_ledger, open_ledger, view_file, view_ledger
from tests.sweep.store.postgres import let_others_in
from tests.sweep.store.test_home import as_somebody_else
from tests.sweep.store.test_ledger import record, spec

KILLED = """
import os, sys
from sweep.store.home import Home
from sweep.store.ledger import open_ledger
from tests.sweep.store.test_ledger import record, spec
ledger = open_ledger("sqlite", Home(sys.argv[1]))
ledger.commit(spec(1), record(spec(1)))
os._exit(9)
"""
HALF_WRITTEN = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode=DELETE")
connection.execute("PRAGMA cache_size=1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE fits SET record = hex(randomblob(200000))")
os._exit(9)
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    ledger = open_ledger("sqlite", made)
    ledger.open_sweep("a", {"x": 1}, {})
    ledger.adopt("a", [spec(0).key, spec(1).key])
    ledger.commit(spec(0), record(spec(0)))
    ledger.close()
    return made


def _listing(home: Home) -> dict[str, tuple[int, int, int]]:
    return {p.name: (p.stat().st_mtime_ns, p.stat().st_size, p.stat().st_uid) for p in home.folder.rglob("*")}


def _look(home: Home) -> tuple[int, int]:
    ledger = view_ledger("sqlite", home)
    try:
        return ledger.count("a")
    finally:
        ledger.close()


def test_a_finished_home_is_not_changed_by_looking(home: Home) -> None:
    before = _listing(home)
    assert _look(home) == (1, 2)
    assert _listing(home) == before


def test_a_running_driver_is_seen_and_not_disturbed(home: Home) -> None:
    driver = open_ledger("sqlite", home)
    driver.open_sweep("a", {"x": 1}, {})
    driver.adopt("a", [spec(0).key, spec(1).key])
    seen = view_ledger("sqlite", home)
    assert seen.count("a") == (1, 2)
    driver.commit(spec(1), record(spec(1)))
    assert seen.count("a") == (2, 2)
    with sqlite3.connect(home.ledger_path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")  # as in the middle of a commit
        assert seen.count("a") == (2, 2)
        other.execute("ROLLBACK")
    other.close()
    seen.close()
    driver.close()
    assert not home.ledger_path.with_name("ledger.sqlite-wal").exists()


@pytest.mark.parametrize("code", [KILLED, HALF_WRITTEN])
@pytest.mark.parametrize("somebody_else", [False, True])
def test_what_a_killed_driver_left_is_read_and_left(home: Home, code: str, somebody_else: bool) -> None:
    target = home.folder if code == KILLED else home.ledger_path
    subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    let_others_in(home.folder)
    before = {path.name: path.read_bytes() for path in home.folder.iterdir() if not path.name.endswith("-shm")}
    assert any(name.endswith(("-wal", "-journal")) for name in before)
    expected = (2 if code == KILLED else 1, 2)
    if somebody_else:
        with as_somebody_else():
            assert _look(home) == expected
    else:
        assert _look(home) == expected
    after = {path.name: path.read_bytes() for path in home.folder.iterdir() if not path.name.endswith("-shm")}
    assert after == before


def test_somebody_else_may_look_without_leaving_files_of_his_own(home: Home) -> None:
    let_others_in(home.folder)
    before = _listing(home)
    with as_somebody_else():
        assert _look(home) == (1, 2)
    assert _listing(home) == before


def test_a_newer_ledger_is_refused_by_those_who_look_too(home: Home) -> None:
    with sqlite3.connect(home.ledger_path) as connection:
        connection.execute("UPDATE ledger_meta SET value = '99'")
    connection.close()
    with pytest.raises(UserError, match="newer version"):
        view_ledger("sqlite", home)


def test_nothing_to_look_at_is_one_line(tmp_path: Path) -> None:
    assert not holds_ledger(Home(tmp_path))
    with pytest.raises(UserError, match="No such file"):
        view_ledger("sqlite", Home(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_brought_here_is_read_as_it_is(home: Home, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    shutil.copyfile(home.ledger_path, copy)
    ledger = view_file(copy)
    assert [fit for fit, _ in ledger.records("a")] == [spec(0)]
    ledger.close()


def test_on_a_network_file_system_there_is_no_wal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    open_ledger("sqlite", home).close()
    monkeypatch.setattr(databases, "filesystem_of", lambda path: FileSystem("nfs4", network=True))
    ledger = open_ledger("sqlite", home)
    ledger.commit(spec(0), record(spec(0)))
    mode = ledger.database.read(lambda connection: connection.exec_driver_sql("PRAGMA journal_mode").scalar())
    assert mode == "delete"
    assert ledger.database.shared
    assert view_ledger("sqlite", home).keys() == {spec(0).key}
    ledger.close()
    assert {path.name for path in home.folder.iterdir()} == {"ledger.sqlite", "home.id"}
