"""What a head sends is data from a stranger: it adds fits to a home, and can do nothing else to it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import tarfile
import threading
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sweep.errors import UserError
from sweep.remote.fetch import fetch, record_in_mlflow
from sweep.remote.head import ASKED
from sweep.remote.head import main as on_the_head
from sweep.remote.parcel import Limits, print_parcel
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from tests.sweep.store.test_ledger import failure, record, spec

MARK = "#sweep-records"
SPEC_FILE = {"name": "far", "tracking": {"mlflow": "none"}}


class Head:
    """A job server's client whose jobs print what they are told to."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts, self.commands, self.deleted = list(texts), [], 0

    def submit_job(self, *, entrypoint: str, runtime_env: dict[str, Any]) -> str:
        assert (Path(runtime_env["working_dir"]) / "sweep" / "remote" / "head.py").exists()
        self.commands.append(entrypoint)
        return "job"

    async def tail_job_logs(self, job: str) -> Any:
        for text in self.texts:
            yield text

    def get_job_info(self, job: str) -> Any:
        return SimpleNamespace(status="SUCCEEDED", driver_exit_code=0)

    def delete_job(self, job: str) -> None:
        self.deleted += 1


@pytest.fixture
def head(tmp_path: Path) -> Home:
    """A home with one sweep: a tuning fit, a refit with an artifact, a failure."""
    home = Home(tmp_path / "head")
    home.create()
    ledger = Ledger(home.ledger_url, home_id=home.id)
    ledger.open_sweep("far", SPEC_FILE, {"version": "x"})
    refit = spec(fold=None)
    checksum = home.write_artifact(refit.key, {"components": np.eye(2)})
    ledger.commit(spec(0), record(spec(0)))
    ledger.commit(refit, record(refit, artifact=checksum))
    ledger.fail("far", failure(spec(1)))
    ledger.adopt("far", [spec(0).key, spec(1).key, refit.key])
    ledger.close()
    return home


@pytest.fixture
def here(tmp_path: Path) -> Home:
    return Home(tmp_path / "here")


def printed(home: Home, capsys: Any, *arguments: str) -> str:
    capsys.readouterr()
    on_the_head(["pack", str(home.folder), *arguments])
    output = capsys.readouterr()
    return str(output.out + output.err)


def rows_of(home: Home) -> list[dict[str, Any]]:
    return list(Ledger(home.ledger_url, home_id=home.id).export_rows())


def parcel(rows: Iterable[dict[str, Any]], artifacts: Iterable[tuple[str, bytes]] = ()) -> str:
    lines: list[str] = []
    print_parcel(artifacts, rows, lines.append)
    return "".join(lines)


def take(text: str, home: Home) -> Any:
    return fetch(Head([text]), home, None, lambda message: None)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- what should come ------------------------------------------------------------------------------


def test_everything_comes_once_and_whole(head: Home, here: Home, capsys: Any) -> None:
    text = "some words of Ray\n" + printed(head, capsys)
    pieces = [text[start : start + 7] for start in range(0, len(text), 7)]
    client = Head(pieces)
    done = fetch(client, here, None, lambda message: None)
    assert (done.sweeps, done.fits, done.known, done.refused) == (["far"], 2, 0, [])
    assert client.deleted == 1
    assert '"${SWEEP_HOME:-$HOME/sweep-home}"' in client.commands[0]
    again = take(text, here)
    assert (again.fits, again.known) == (0, 2)
    there, ours = Ledger(head.ledger_url), Ledger(here.ledger_url)
    assert list(ours.records("far")) == list(there.records("far"))
    assert ours.failures("far") == there.failures("far")
    refit = spec(fold=None).key
    arrays = here.read_artifact(refit, ours.artifacts()[refit].checksum)
    assert arrays is not None
    np.testing.assert_array_equal(arrays["components"], np.eye(2))
    assert not list(here.folder.glob(".fetch-*"))


def test_arrays_that_are_here_are_not_sent_again(head: Home, tmp_path: Path, capsys: Any) -> None:
    known = tmp_path / "known"
    known.write_text(spec(fold=None).key)
    assert len(printed(head, capsys, "--known", str(known))) < len(printed(head, capsys))


def test_fits_of_a_pilot_do_not_stand_in_the_way(head: Home, here: Home, capsys: Any) -> None:
    ledger = Ledger(head.ledger_url, home_id=head.id)
    ledger.adopt("far.pilot", [spec(0).key])
    ledger.close()
    for _ in range(2):
        assert take(printed(head, capsys), here).sweeps == ["far"]


def test_nothing_is_taken_while_a_driver_is_at_work_here(head: Home, here: Home, capsys: Any) -> None:
    text = printed(head, capsys)
    with here.lock(), pytest.raises(UserError, match="already running here"):
        take(text, here)


def test_a_local_fit_keeps_its_record_and_its_arrays(head: Home, here: Home, capsys: Any) -> None:
    refit = spec(fold=None)
    here.create()
    ledger = Ledger(here.ledger_url, home_id=here.id)
    checksum = here.write_artifact(refit.key, {"components": np.zeros((3, 3))})
    ledger.commit(refit, record(refit, auc=0.9, artifact=checksum))
    take(printed(head, capsys), here)
    found = ledger.record(refit.key)
    assert found is not None
    assert found.value == 0.9
    assert here.read_artifact(refit.key, checksum) is not None


def test_an_empty_home_is_one_line(tmp_path: Path, here: Home, capsys: Any) -> None:
    with pytest.raises(UserError, match="holds no sweep") as caught:
        take(printed(Home(tmp_path / "empty"), capsys), here)
    assert "\n" not in str(caught.value)


# -- what must not ---------------------------------------------------------------------------------


def raw(*lines: bytes) -> str:
    """A parcel of any lines."""
    body = base64.b64encode(zlib.compress(b"".join(lines))).decode()
    words = [body[start : start + 16_000] for start in range(0, len(body), 16_000)]
    return "".join(f"{MARK} {word}\n" for word in ("begin 1", *words, "end"))


def archive(build: Callable[[tarfile.TarFile], None]) -> str:
    """A tar archive in place of records, as older versions sent them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        build(file)
    body = base64.encodebytes(buffer.getvalue()).decode()
    return f"-----BEGIN SWEEP HOME-----\n{body}-----END SWEEP HOME-----\n"


def _link(file: tarfile.TarFile) -> None:
    entry = tarfile.TarInfo("artifacts")
    entry.type, entry.linkname = tarfile.SYMTYPE, "/tmp"
    file.addfile(entry)


def artifact(key: str, content: str = "") -> bytes:
    return json.dumps({"table": "artifact", "key": key, "content": content}).encode() + b"\n"


END = b'{"table": "end", "lines": 1}\n'
ATTACKS = {
    "a path out of the archive": archive(lambda file: file.addfile(tarfile.TarInfo("../evil"))),
    "a link in the archive": archive(_link),
    "an artifact outside": raw(artifact("../../evil"), END),
    "an absolute artifact": raw(artifact("/tmp/evil"), END),
    "an artifact in capitals": raw(artifact("A" * 32), END),
    "a long name": raw(artifact("a" * 100_000), END),
    "content that is no text": raw(b'{"table": "artifact", "key": "' + b"a" * 32 + b'", "content": [1]}\n', END),
    "no JSON": raw(b"{\n", END),
    "endless nesting": raw(b"[" * 100_000 + b"\n", END),
    "a number of many digits": raw(b'{"table": ' + b"1" * 10_000 + b"}\n", END),
    "no end": raw(b'{"table": "ledger", "schema": 2, "home": ""}\n'),
    "half a line": raw(b'{"table": "led'),
    "missing lines": raw(b'{"table": "end", "lines": 7}\n'),
    "lines after the end": raw(b'{"table": "end", "lines": 0}\n', b"{}\n"),
    "no stream": f"{MARK} begin 1\n{MARK} AAAA\n{MARK} end\n",
    "no base64": f"{MARK} begin 1\n{MARK} !!!!\n{MARK} end\n",
    "broken off": f"{MARK} begin 1\n",
    "another format": f"{MARK} begin 99\n{MARK} end\n",
    "another schema": raw(b'{"table": "ledger", "schema": 99, "home": ""}\n', END),
    "no header": raw(b'{"table": "fits", "key": "x"}\n', END),
    "nothing": "",
    "one endless line": "x" * 100_000,
    "control characters": "\x1b]0;owned\x07\x1b[2J\n",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_answer_is_one_line_and_leaves_no_trace(attack: str, here: Home, tmp_path: Path) -> None:
    here.create()
    Ledger(here.ledger_url, home_id=here.id).close()
    before = contents(tmp_path)
    with pytest.raises(UserError) as caught:
        take(ATTACKS[attack], here)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 1500
    after = contents(tmp_path)
    after.pop("here/driver.lock")
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed <= {"here/ledger.sqlite", "here/ledger.sqlite-wal", "here/ledger.sqlite-shm"}
    assert Ledger(here.ledger_url).sweeps() == {}
    assert Ledger(here.ledger_url).keys() == set()


def test_a_bomb_is_given_up_before_it_fills_anything(here: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "expanded", 50 * 2**20)
    monkeypatch.setattr(Limits, "line", 2**20)
    packer = zlib.compressobj()
    stream = b"".join(packer.compress(b"x" * 2**20) for _ in range(200)) + packer.flush()
    body = base64.b64encode(stream).decode()
    pieces = [body[start : start + 16_000] for start in range(0, len(body), 16_000)]
    with pytest.raises(UserError, match="more than"):
        take("".join(f"{MARK} {word}\n" for word in ("begin 1", *pieces, "end")), here)
    many = raw(*(artifact(hashlib.md5(b"%d" % n).hexdigest()) for n in range(20)), END)
    monkeypatch.setattr(Limits, "artifacts", 10)
    with pytest.raises(UserError, match="too many files"):
        take(many, here)
    monkeypatch.setattr(Limits, "text", 1000)
    with pytest.raises(UserError, match="bytes of text"):
        fetch(Head(["x\n" * 100] * 100), here, None, lambda message: None)


@pytest.mark.parametrize(
    "name", ["../evil", "/tmp/evil", "a/b", "..", "", "A", "a" * 200, "a\n", "a\x00", "$HOME", 7, None, ["a"]]
)
def test_a_forged_name_of_a_sweep_is_refused(name: Any, head: Home, here: Home) -> None:
    rows = [row | {"name": name} if row["table"] == "sweeps" else row for row in rows_of(head)]
    done = take(parcel(rows), here)
    assert done.sweeps == []
    assert done.refused
    assert Ledger(here.ledger_url).sweeps() == {}


def test_a_place_for_the_ledger_is_never_taken_from_a_head(
    head: Home, here: Home, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "kanarienvogel")
    (head.folder / "state").mkdir()
    (head.folder / "state" / "ledger.url").write_text("postgresql://$CANARY.example/x")
    rows = [*rows_of(head), {"table": "ledger.url", "content": "postgresql://$CANARY.example/x"}]
    done = take(parcel(rows), here)
    assert len(done.refused) == 1
    assert here.ledger_setting == "sqlite"
    assert not any(b"CANARY" in content or b"kanari" in content for content in contents(here.folder).values())


def altered(row: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**row, **changes}


FORGERIES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "another key": lambda row: altered(row, key="0" * 32),
    "a key that is a path": lambda row: altered(row, key="../" + row["key"][:29]),
    "another score": lambda row: altered(row, value=1.0),
    "a checksum of nothing": lambda row: altered(row, checksum=""),
    "a column more": lambda row: altered(row, extra=1),
    "a list for a text": lambda row: altered(row, spec=["x"]),
    "a number that is none": lambda row: altered(row, committed=float("nan")) | {"value": float("inf")},
    "a lone surrogate": lambda row: altered(row, dataset="\ud800"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_fit_is_refused_and_the_others_come(forgery: str, head: Home, here: Home) -> None:
    rows = rows_of(head)
    place = next(index for index, row in enumerate(rows) if row["table"] == "fits")
    rows[place] = FORGERIES[forgery](rows[place])
    done = take(parcel(rows), here)
    assert len(done.refused) == 1
    assert done.fits == 1


def test_arrays_that_are_not_what_the_row_says_are_left_out(head: Home, here: Home) -> None:
    refit = spec(fold=None).key
    take(parcel(rows_of(head), [(refit, b"not what was written")]), here)
    assert here.artifact_keys() == set()
    assert Ledger(here.ledger_url, home_id=here.id).lies_elsewhere(refit)
    stranger = parcel(rows_of(head), [("f" * 32, b"a file that no row asks for")])
    take(stranger, here)
    assert here.artifact_keys() == set()


def test_another_sweep_of_the_same_name_is_not_mixed_in(head: Home, here: Home, capsys: Any) -> None:
    here.create()
    ledger = Ledger(here.ledger_url, home_id=here.id)
    ledger.open_sweep("far", {"name": "far", "algorithm": "paper"}, {})
    ledger.close()
    with pytest.raises(UserError, match="another sweep of this name"):
        take(printed(head, capsys), here)
    assert Ledger(here.ledger_url).sweeps()["far"]["algorithm"] == "paper"


def test_a_full_disk_is_one_line(head: Home, here: Home, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, os.strerror(28))

    text = printed(head, capsys)
    monkeypatch.setattr("sweep.remote.fetch.tempfile.TemporaryDirectory", full)
    with pytest.raises(UserError, match="No space left"):
        take(text, here)


def test_what_a_dead_fetch_left_behind_is_removed(head: Home, here: Home, capsys: Any) -> None:
    (here.folder / ".fetch-dead").mkdir(parents=True)
    take(printed(head, capsys), here)
    assert not list(here.folder.glob(".fetch-*"))


def test_a_sweep_that_recorded_in_mlflow_is_recorded_here(head: Home, here: Home, capsys: Any) -> None:
    take(printed(head, capsys), here)
    record_in_mlflow(here, ["far", "gone"], lambda message: None)  # this one does not want to be
    assert not here.mlflow_path.exists()


def test_the_driver_on_the_head_is_asked_to_stop(head: Home, capsys: Any) -> None:
    with head.lock():
        asking = threading.Thread(target=on_the_head, args=(["stop", str(head.folder), "--name", "far"],))
        asking.start()
        while not head.read_state("far.stop"):
            assert asking.is_alive()
        head.write_state("far.stop", {})  # as a driver does that begins
        asking.join()
    assert head.read_state("far.stop")
    assert ASKED in capsys.readouterr().out


def test_where_no_driver_is_at_work_nothing_is_asked(head: Home, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.remote.head._START_SECONDS", 0)
    assert on_the_head(["stop", str(head.folder), "--name", "far"]) == 2
    assert "no sweep is running there" in capsys.readouterr().err
    assert not head.read_state("far.stop")
