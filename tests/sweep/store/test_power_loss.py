"""Nothing that was committed is lost, whichever change to the disk fails and wherever the power goes off."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweep.store.home import Home
from sweep.store.ledger import open_ledger
from tests.sweep.store.disk import Change, power_losses, read_log
from tests.sweep.store.disk_writer import MARK, N
from tests.sweep.store.test_ledger import record, spec

KEY_LENGTH = 32


@pytest.fixture(scope="module")
def under_the_disk(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs `disk_writer` with the faulty disk preloaded."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to build the disk that fails: install Debian's build-essential")
    library = tmp_path_factory.mktemp("disk") / "faulty_disk.so"
    source = Path(__file__).with_name("faulty_disk.c")
    built = subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], capture_output=True)
    if built.returncode:
        pytest.skip(f"the disk that fails cannot be built here: {built.stderr.decode()[:200]}")

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tests.sweep.store.disk_writer", *arguments],
            env=os.environ | {"LD_PRELOAD": str(library)}, capture_output=True, text=True, timeout=280,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def _check(home: Home, committed: list[str]) -> None:
    """A run that goes on finds all that was committed, whole and right, and nothing that needs repair."""
    notes: list[str] = []
    with home.lock():
        ledger = open_ledger("sqlite", home, notes.append)
        right = {(fit := spec(None, seed=i)).key: fit for i in range(N)}
        assert set(committed) <= ledger.keys() <= set(right)
        for key in sorted(ledger.keys()):
            kept = ledger.record(key)
            assert kept is not None
            assert kept.artifact is not None
            arrays = home.read_artifact(key, kept.artifact)
            assert arrays is not None
            assert arrays["components"][0, 0] == right[key].seed
            assert kept == record(right[key], artifact=kept.artifact)
        ledger.open_sweep("a", {}, {})
        ledger.commit(spec(0), record(spec(0)))
        assert ledger.altered == []
        ledger.close()
    assert notes == []


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, if there is one: a disk whose syncs cost nothing."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="sweep-disk-") as folder:
        yield Path(folder)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_whichever_change_fails_the_run_ends_in_one_line_and_keeps_what_it_committed(
    under_the_disk: Callable[..., str], scratch: Path, code: int
) -> None:
    runs: list[dict[str, Any]] = [
        json.loads(line) for line in under_the_disk("fail", str(scratch), str(code)).splitlines()
    ]
    print(f"\n{errno.errorcode[code]}: {len(runs)} runs, ended {Counter(run['ended'] for run in runs)}")
    assert len(runs) > 50
    assert runs[-1]["ended"] == "done"
    tracebacks = [run for run in runs if run["ended"] == "traceback"]
    assert tracebacks == []
    assert any(run["ended"] == "one line" for run in runs)
    for run in runs:
        assert "\n" not in run["said"]
        home = Home(scratch / f"home-{run['at']}")
        marks = home.folder / MARK
        text = marks.read_text() if marks.exists() else ""
        _check(home, [text[i : i + KEY_LENGTH] for i in range(0, len(text), KEY_LENGTH)])


@pytest.fixture(scope="module")
def changes(under_the_disk: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Change]]:
    folder, log = tmp_path_factory.mktemp("logged") / "home", tmp_path_factory.mktemp("log") / "log"
    under_the_disk("log", str(folder), str(log))
    return folder, read_log(log)


def test_the_log_of_changes_is_complete(changes: tuple[Path, list[Change]]) -> None:
    """Replayed to its end it gives the very files."""
    folder, log = changes
    *_, (_, _, last) = [each for each in power_losses(log, 0) if each[1] == "all"]
    found = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {p: c for p, c in last.items() if not p.endswith("-shm")} == found
    assert {change.what for change in log} >= set("CWSRM")


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_wherever_the_power_goes_off_what_was_committed_is_there(
    changes: tuple[Path, list[Change]], scratch: Path, seed: int
) -> None:
    folder, log = changes
    marked: list[str] = []
    before = states = 0
    for count, which, files in power_losses(log, seed):
        if count > before and log[count - 1].what == "W" and log[count - 1].path.endswith(MARK):
            marked.append(log[count - 1].data.decode())
        before = count
        if count % 3 and seed == 0 and log[count - 1].what != "S":
            continue  # the quick run: after every sync, and a third of the others
        target = scratch / "home"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for path, content in files.items():
            if path.endswith(("-shm", MARK)):  # shared memory is no file, and the marks are the test's own
                continue
            place = target / Path(path).relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        states += 1
        try:
            _check(Home(target), marked)
        except Exception as error:
            raise AssertionError(f"power lost after change {count} of {len(log)}, {which} unsynced survive") from error
    print(f"\nseed {seed}: {states} states of the disk after one of {len(log)} changes")
