"""A home belongs to one driver at a time, and its files are whole or absent."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sweep.errors import UserError
from sweep.store.home import Home, write_atomically

HOLD = """
import sys, time
from sweep.store.home import Home
with Home(sys.argv[1]).lock():
    print('held', flush=True)
    time.sleep(60)
"""


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
    time.sleep(0.1)
    assert not home.is_locked()
    with home.lock():
        assert home.is_locked()


def test_a_home_that_cannot_be_made_gets_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot create"), Home(tmp_path / "file" / "home").lock():
        pass


def test_an_artifact_comes_back_equal_and_a_damaged_one_not_at_all(tmp_path: Path) -> None:
    home = Home(tmp_path)
    checksum = home.write_artifact("k", {"components": np.eye(3)})
    arrays = home.read_artifact("k", checksum)
    assert arrays is not None
    np.testing.assert_array_equal(arrays["components"], np.eye(3))
    path = home.artifact_path("k")
    path.write_bytes(path.read_bytes()[:-1])
    assert home.read_artifact("k", checksum) is None
    path.unlink()
    assert home.read_artifact("k", checksum) is None


def test_a_failed_write_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
