"""A home belongs to one driver at a time, and its files are whole or absent."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sweep.errors import UserError
from sweep.store.home import FILES, Home, write_atomically

HOLD = """
import sys, time
from sweep.store.home import Home
with Home(sys.argv[1]).lock():
    print('held', flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def as_somebody_else() -> Iterator[None]:
    """Without root's right to write anywhere."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(mine)


def test_a_second_driver_is_refused_and_a_killed_one_does_not_block(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        home = Home(tmp_path)
        assert home.is_locked()
        with pytest.raises(UserError, match=f"process {holder.pid}"), home.lock():
            pass
    finally:
        holder.kill()
        holder.wait()
    assert not home.is_locked()
    with home.lock():
        assert home.is_locked()


def test_looking_whether_a_driver_is_there_never_refuses_one(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with home.lock():
        pass
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            Home(tmp_path).is_locked()

    watchers = [threading.Thread(target=look) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in range(200):
            with home.lock():
                assert home.is_locked()
    finally:
        ended.set()
        for watcher in watchers:
            watcher.join()


def test_nothing_is_locked_where_nothing_is(tmp_path: Path) -> None:
    assert not Home(tmp_path / "none").is_locked()
    assert Home(tmp_path / "none").id == ""
    assert not (tmp_path / "none").exists()


def test_a_home_keeps_its_name(tmp_path: Path) -> None:
    Home(tmp_path / "a").create()
    first = Home(tmp_path / "a").id
    Home(tmp_path / "a").create()
    (tmp_path / "a").rename(tmp_path / "b")
    assert Home(tmp_path / "b").id == first
    (tmp_path / "b" / "home.id").write_bytes(b"\xff\xfe")
    assert Home(tmp_path / "b").id == ""


def test_a_home_that_cannot_be_made_gets_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "home", tmp_path / "file"):
        with pytest.raises(UserError, match="cannot create or write to"), Home(folder).lock():
            pass


@pytest.mark.parametrize("was_used", [True, False])
def test_a_read_only_home_gets_one_line(was_used: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(folder)
        if was_used:
            home.create()
        home.folder.chmod(0o555)
        with as_somebody_else(), pytest.raises(UserError, match="cannot create or write to") as caught, home.lock():
            pass
        assert "\n" not in str(caught.value)
        home.folder.chmod(0o755)


# -- artifacts -------------------------------------------------------------------------------------


def test_an_artifact_comes_back_equal_and_a_damaged_one_not_at_all(tmp_path: Path) -> None:
    home = Home(tmp_path)
    checksum = home.write_artifact("k", {"components": np.eye(3)})
    arrays = home.read_artifact("k", checksum)
    assert arrays is not None
    np.testing.assert_array_equal(arrays["components"], np.eye(3))
    assert home.artifact_keys() == {"k"}
    assert home.has_artifact("k", checksum)
    path = home.artifact_path("k")
    path.write_bytes(path.read_bytes()[:-1])
    assert home.read_artifact("k", checksum) is None
    path.unlink()
    assert home.read_artifact("k", checksum) is None
    assert not home.has_artifact("k", checksum)


def test_an_artifact_that_is_a_bomb_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.store.home._ARTIFACT_BYTES", 2**20)
    home = Home(tmp_path)
    bomb = tmp_path / "bomb.npz"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as members, members.open("a.npy", "w", force_zip64=True) as f:
        f.write(bytes(2**20 + 1))
    header = tmp_path / "header.npz"
    with zipfile.ZipFile(header, "w") as members:
        array = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little")
        described = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
        members.writestr("a.npy", array + described.ljust(117) + b"\n" + bytes(8))
    for content in (bomb.read_bytes(), header.read_bytes(), b"no archive", b"PK\x03\x04"):
        checksum = home.write_artifact_bytes("k", content)
        assert home.read_artifact("k", checksum) is None


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "", ".hidden", "a/b", "a\0b", "x" * 200])
def test_a_forged_key_or_name_is_no_path(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path / "home")
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        home.write_artifact_bytes(name, b"")
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        home.write_state(name, {})
    assert home.read_state(name) == {}
    assert list(tmp_path.iterdir()) == []


# -- files -----------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_durable_file_is_synced_before_and_its_folder_after_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    names = {tmp_path: "tmp", tmp_path / "new": "new"}

    def fsync(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        steps.append(f"sync {names.get(target, 'file')}")

    def replace(self: Path, to: Path) -> Path:
        steps.append("rename")
        return original(self, to)

    original = Path.replace
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    write_atomically(tmp_path / "new" / "f", b"x")
    assert steps == ["sync tmp", "sync file", "rename", "sync new"]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"{", b"[1]", b"", b"[" * 100_000])
def test_a_state_that_cannot_be_read_is_no_state(tmp_path: Path, content: bytes) -> None:
    home = Home(tmp_path)
    home.write_state("a", {"done": 1})
    assert home.read_state("a") == {"done": 1}
    (tmp_path / "state" / "a.json").write_bytes(content)
    assert home.read_state("a") == {}


def test_a_state_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    Home(tmp_path).write_state("a", {"done": 1})


def test_every_file_that_the_store_writes_is_in_the_table(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with home.lock():
        home.write_artifact("k", {})
        home.write_state("a", {})
        home.remember_ledger("postgresql://host/x")
    tops = {each.path.partition("/")[0] for each in FILES}
    assert {path.name for path in tmp_path.iterdir()} <= tops


def test_going_back_to_sqlite_forgets_the_server(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    home.remember_ledger("postgresql://me:pw@host:5/x?password=pw&sslmode=require")
    assert home.ledger_setting == "postgresql://host:5/x?sslmode=require"
    home.remember_ledger("sqlite")
    assert home.ledger_setting == "sqlite"
