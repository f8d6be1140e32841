"""The end of a sweep is told to the user's hook once, without a secret, and a hook that fails costs nothing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.engine.notify import notify
from sweep.studies.spec import Notify
from tests.sweep.conftest import NO_MLFLOW, tiny

FEW = {"methods": ["euc"], **NO_MLFLOW}


class Hook:
    """A real HTTP server that remembers what it was told."""

    def __init__(self, status: int = 200) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        told = self.told

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                told.append((self.path, json.loads(body)))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_finished_sweep_is_told_once_as_a_small_json(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBHOOK", f"{hook.url}/secret-token")
    asked = tiny(**FEW, notify={"url": "$WEBHOOK", "on": ["done", "failed"]})
    run = sweep.run(asked, home=tmp_path, address="inline")
    assert hook.told == [("/secret-token", {"event": "done", "sweep": "tiny", "done": 1, "failed": 0, "left": 0})]
    assert "secret-token" not in json.dumps(run.ledger.sweeps())
    state = "".join(path.read_text() for path in tmp_path.rglob("*.json"))
    assert "secret-token" not in state


def test_only_the_ends_that_were_asked_for_are_told(hook: Hook, tmp_path: Path) -> None:
    sweep.run(tiny(**FEW, notify={"url": hook.url, "on": ["failed"]}), home=tmp_path, address="inline")
    assert hook.told == []
    budget = {"gpu_hours": 1e-9}
    asked = tiny(**NO_MLFLOW, name="b", methods=["mdml-csfn"], budget=budget, notify={"url": hook.url})
    sweep.run(asked, home=tmp_path, address="inline")
    ((_, told),) = hook.told
    assert (told["event"], told["sweep"]) == ("budget", "b")
    assert told["left"] > 0


def test_a_hook_that_fails_costs_a_line_without_its_url(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/token"
    refusing = Hook(status=500)
    for url in (nobody, refusing.url + "/token", "$NO_SUCH_VARIABLE", "file:///etc/passwd"):
        notes: list[str] = []
        notify(Notify(url=url), "done", {"sweep": "x"}, notes.append)
        (line,) = notes
        assert line.startswith("notify")
        assert "token" not in line
        assert "\n" not in line
    refusing.server.shutdown()
    refusing.server.server_close()
    run = sweep.run(tiny(**FEW, notify={"url": nobody}), home=tmp_path, address="inline")
    assert run.outcome is not None
    assert run.outcome.event == "done"


def test_without_a_hook_nothing_is_said() -> None:
    notes: list[str] = []
    notify(None, "done", {}, notes.append)
    assert notes == []
