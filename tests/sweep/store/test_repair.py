"""Only a ledger that is really damaged is set aside, only by a run, and all that is whole is carried over."""

from __future__ import annotations

import contextlib
import random
import resource
import sqlite3
from pathlib import Path

import pytest

from sweep.errors import UserError
from sweep.store import tables
from sweep.store.database import sqlite_database
from sweep.store.faults import LedgerError
from sweep.store.home import Home
from sweep.store.ledger import Ledger, open_ledger, view_ledger
from sweep.store.repair import _is_lost, suspect_mark
from tests.sweep.store.postgres import let_others_in
from tests.sweep.store.test_home import as_somebody_else
from tests.sweep.store.test_ledger import failure, record, spec

N = 300


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with two sweeps, failures and what MLflow knows."""
    made = Home(tmp_path / "home")
    with made.lock():
        ledger = open_ledger("sqlite", made)
        fits = [spec(0, seed=i) for i in range(N)]
        ledger.commit_all((fit, record(fit)) for fit in fits)
        for name in ("a", "b"):
            ledger.open_sweep(name, {"search": "grid"}, {"version": "1"})
            ledger.adopt(name, [fit.key for fit in fits])
            ledger.fail(name, failure(fits[0]))
            ledger.remember_run("store", name, f"run of {name}", "content")
        ledger.close()
    return made


def _contents(home: Home) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in home.folder.iterdir() if path.is_file()}


def _scribble(path: Path, start: int, length: int, seed: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(random.Random(seed).randbytes(length))


def _reopen(home: Home, notes: list[str] | None = None) -> Ledger:
    with home.lock():
        return open_ledger("sqlite", home, (notes if notes is not None else []).append)


def test_a_sound_ledger_is_left_alone(home: Home) -> None:
    notes: list[str] = []
    _reopen(home, notes).close()
    assert notes == []
    assert not list(home.folder.glob("*damaged*"))


def test_one_bad_page_costs_the_fits_on_it_and_nothing_else(home: Home) -> None:
    size = home.ledger_path.stat().st_size
    _scribble(home.ledger_path, size // 2 // 4096 * 4096, 4096)
    notes: list[str] = []
    ledger = _reopen(home, notes)
    done, asked = ledger.count("a")
    assert N - 30 <= done < N
    assert asked == N
    assert set(ledger.sweeps()) == {"a", "b"}
    assert ledger.about("b") == {"version": "1"}
    assert len(ledger.failures("a")) == len(ledger.failures("b")) == 1
    assert set(ledger.recorded_runs("store")) == {"a", "b"}
    assert len(notes) == 1
    assert "ledger.sqlite.damaged-1" in notes[0]
    assert (home.folder / "ledger.sqlite.damaged-1").exists()
    ledger.close()


def test_a_table_whose_first_page_is_bad_is_given_up_at_once(home: Home) -> None:
    """Halving the sixteen million row numbers that may be there would take long, and find nothing."""
    with sqlite3.connect(home.ledger_path) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'failures'").fetchone()
    with contextlib.closing(sqlite_database(home.ledger_path).engine.connect()) as connection:
        assert not _is_lost(connection, tables.failures)
    _scribble(home.ledger_path, (root - 1) * 4096, 4096)
    with contextlib.closing(sqlite_database(home.ledger_path).engine.connect()) as connection:
        assert _is_lost(connection, tables.failures)
        assert not any(_is_lost(connection, table) for table in (tables.fits, tables.members, tables.sweeps))


@pytest.mark.parametrize("seed", range(12))
def test_whatever_part_is_overwritten_no_run_ends_in_a_traceback_and_no_wrong_record_is_kept(
    home: Home, seed: int
) -> None:
    rng = random.Random(seed)
    size = home.ledger_path.stat().st_size
    _scribble(home.ledger_path, rng.randrange(size - 600), rng.choice([1, 16, 600]), seed)
    right = {fit.key: record(fit) for fit in (spec(0, seed=i) for i in range(N))}
    lines: list[str] = []
    for _ in range(3):  # a defect that only shows while writing is repaired by the run after it
        try:
            ledger = _reopen(home)
            found = {s.key: r for s, r in ledger.records("a")}
            ledger.discard(ledger.altered)
            ledger.open_sweep("a", {"search": "grid"}, {})
            ledger.adopt("a", right)
            ledger.commit_all((fit, record(fit)) for fit in (spec(0, seed=i) for i in range(N)))
            ledger.close()
            break
        except UserError as error:
            lines.append(str(error))
    assert len(lines) < 3
    assert not any("\n" in line for line in lines)
    assert all(right[key] == kept for key, kept in found.items())
    again = _reopen(home)
    assert {s.key: r for s, r in again.records("a")} == right
    again.close()


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 400, None])
def test_a_file_that_is_no_database_is_set_aside(home: Home, content: bytes | None) -> None:
    whole = home.ledger_path.read_bytes()
    home.ledger_path.write_bytes(whole[: len(whole) * 2 // 3] if content is None else content)
    notes: list[str] = []
    ledger = _reopen(home, notes)
    assert len(notes) == (0 if content == b"" else 1)
    assert len(ledger.keys()) == (ledger.count("a")[0] if ledger.sweeps() else 0)
    ledger.close()


def test_looking_sets_nothing_aside(home: Home) -> None:
    _scribble(home.ledger_path, 0, 100)
    before = _contents(home)
    with pytest.raises(LedgerError, match="`sweep run` sets it aside") as caught:
        view_ledger("sqlite", home)
    assert "\n" not in str(caught.value)
    assert _contents(home) == before


def test_a_missing_permission_is_one_line_and_touches_nothing(home: Home) -> None:
    let_others_in(home.folder)
    home.ledger_path.chmod(0o600)
    before = _contents(home)
    with as_somebody_else():
        with pytest.raises(LedgerError, match="Permission denied"):
            view_ledger("sqlite", home)
        with pytest.raises(UserError):
            open_ledger("sqlite", home)
    assert _contents(home) == before


def test_a_full_disk_is_one_line_and_touches_nothing(home: Home) -> None:
    ledger = _reopen(home)
    ledger.open_sweep("a", {}, {})
    big = record(spec(1), theory={str(i): 0.1 for i in range(60_000)})
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    import signal

    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (home.ledger_path.stat().st_size + 4096, limit[1]))
    try:
        with pytest.raises(LedgerError, match="cannot keep the result of d split 0 mdml-csfn") as caught:
            ledger.commit(spec(1), big)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, previous)
    assert "\n" not in str(caught.value)
    ledger.commit(spec(1), big)
    assert ledger.record(spec(1).key) == big
    ledger.close()
    assert not list(home.folder.glob("*damaged*"))


def test_another_who_writes_is_waited_for_and_is_no_damage(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.store.database._BUSY_SECONDS", 0.2)
    ledger = _reopen(home)
    with sqlite3.connect(home.ledger_path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="database is locked"):
            ledger.commit(spec(1), record(spec(1)))
        other.execute("ROLLBACK")
    other.close()
    ledger.commit(spec(1), record(spec(1)))
    ledger.close()


def test_damage_found_while_writing_lets_the_next_run_look_closely(home: Home) -> None:
    """An index that does not fit its table passes the quick check."""
    with sqlite3.connect(home.ledger_path) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_fits_1'"
        ).fetchone()
    connection.close()
    page = home.ledger_path.read_bytes()[(root - 1) * 4096 : root * 4096]
    damaged = page.replace(b"3", b"4")
    assert damaged != page
    with home.ledger_path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(damaged)
    suspect_mark(home.ledger_path).touch()
    notes: list[str] = []
    ledger = _reopen(home, notes)
    assert len(ledger.keys()) == N
    assert "is damaged" in notes[0]
    assert not suspect_mark(home.ledger_path).exists()
    ledger.close()


def test_undecodable_text_is_an_altered_row_and_bricks_nothing(home: Home) -> None:
    keys = sorted(spec(0, seed=i).key for i in range(N))
    with sqlite3.connect(home.ledger_path) as connection:
        connection.execute("UPDATE fits SET record = CAST(X'7bff' AS TEXT) WHERE key = ?", (keys[0],))
        connection.execute("UPDATE fits SET spec = X'00' WHERE key = ?", (keys[1],))
        connection.execute("UPDATE fits SET method = CAST(X'ff' AS TEXT) WHERE key = ?", (keys[2],))
        connection.execute("UPDATE sweeps SET spec = CAST(X'ff' AS TEXT) WHERE name = 'b'")
        connection.execute("UPDATE failures SET message = CAST(X'ff' AS TEXT)")
    connection.close()
    ledger = _reopen(home)
    assert sum(1 for _ in ledger.records("a")) == N - 3
    assert set(ledger.altered) == set(keys[:3])
    assert set(ledger.sweeps()) == {"a"}
    assert len(ledger.failures("a")) == 1
    ledger.discard(ledger.altered)
    assert ledger.count("a") == (N - 3, N)
    ledger.close()


def test_an_old_ledger_that_is_damaged_is_rescued_and_upgraded(old_home: Home) -> None:
    size = old_home.ledger_path.stat().st_size
    _scribble(old_home.ledger_path, size // 2 // 4096 * 4096, 4096)
    notes: list[str] = []
    ledger = _reopen(old_home, notes)
    done, asked = ledger.count("old")
    assert asked == 48
    assert 35 <= done <= 48
    assert set(ledger.sweeps()) == {"old", "small"}
    assert len(notes) == 1
    assert sum(1 for _ in ledger.records("old")) == done
    ledger.close()


def test_a_second_damage_does_not_overwrite_the_first(home: Home) -> None:
    for _ in range(2):
        _scribble(home.ledger_path, 0, 100)
        _reopen(home).close()
    assert {p.name for p in home.folder.glob("*damaged*")} == {"ledger.sqlite.damaged-1", "ledger.sqlite.damaged-2"}
