"""A sweep's writing, without its fits, under a disk that fails or remembers. Run with `faulty_disk.c` preloaded.

    python -m tests.sweep.store.disk_writer log FOLDER LOG       one undisturbed run, logged
    python -m tests.sweep.store.disk_writer fail FOLDER CODE     a run per change, in which that change fails

`fail` prints one JSON object per run: which change failed, how the run ended, what it said, which fits it committed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import traceback
from pathlib import Path

import numpy as np

from sweep.errors import UserError
from sweep.store.home import Home
from sweep.store.ledger import open_ledger
from tests.sweep.store.test_ledger import failure, record, spec

N = 2
MARK = ".mark"  # a file that names the fits whose commit has returned


def write_sweep(home: Home) -> list[str]:
    """Open a home and commit refits with their artifacts, as a driver does; returns the keys."""
    committed: list[str] = []
    with home.lock():
        ledger = open_ledger("sqlite", home)
        try:
            ledger.open_sweep("a", {"search": "grid"}, {})
            ledger.adopt("a", [spec(None, seed=i).key for i in range(N)])
            for i in range(N):
                fit = spec(None, seed=i)
                artifact = _write_artifact(home, fit.key, float(i))
                ledger.commit(fit, record(fit, artifact=artifact))
                committed.append(fit.key)
                _mark(home, fit.key)
                home.write_state("a", {"done": i})
            ledger.fail("a", failure(spec(0)))
        finally:
            ledger.close()
    return committed


def _write_artifact(home: Home, key: str, value: float) -> str:
    try:
        return home.write_artifact(key, {"components": np.full((3, 3), value)})
    except OSError as error:  # as the driver does
        raise UserError(f"cannot keep the result: {error.strerror}") from None


def _mark(home: Home, key: str) -> None:
    with contextlib.suppress(OSError), (home.folder / MARK).open("ab", buffering=0) as file:  # the test's own file
        file.write(key.encode())


def _one_run(disk: ctypes.CDLL, folder: Path, at: int, code: int) -> dict[str, object]:
    """Fork, let the change number `at` fail, and say how it went."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        with os.fdopen(reading) as answer:
            said = answer.read()
        os.waitpid(child, 0)
        return {"at": at, **json.loads(said)}
    os.close(reading)
    home = Home(folder / f"home-{at}")
    disk.disk_watch(str(home.folder).encode(), b"")
    disk.disk_fail(at, code)
    ended, said = "done", ""
    try:
        write_sweep(home)
    except UserError as error:
        ended, said = "one line", str(error)
    except BaseException:
        ended, said = "traceback", traceback.format_exc()
    changes = disk.disk_count()
    disk.disk_fail(0, 0)
    with os.fdopen(writing, "w") as answer:
        json.dump({"ended": ended, "said": said, "changes": changes}, answer)
    os._exit(0)


def main(mode: str, folder: str, last: str) -> None:
    disk = ctypes.CDLL(os.environ["LD_PRELOAD"])
    disk.disk_fail.argtypes = [ctypes.c_long, ctypes.c_int]
    disk.disk_count.restype = ctypes.c_long
    if mode == "log":
        disk.disk_watch(folder.encode(), last.encode())
        write_sweep(Home(folder))
        return
    at = 1
    while True:
        found = _one_run(disk, Path(folder), at, int(last))
        print(json.dumps(found), flush=True)
        if int(str(found["changes"])) < at:
            return
        at += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
