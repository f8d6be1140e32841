"""The report while its sweep runs: on loopback only, and only what changed is sent again."""

from __future__ import annotations

import http.client
import socket
import threading
from pathlib import Path

import pytest

from dashboards.live import LivePage, serve_live
from dashboards.records import SweepRecords, read_sweep
from sweep.errors import UserError
from sweep.store.home import Home
from tests.dashboards.synthetic import fill


@pytest.fixture
def sweep(tmp_path: Path) -> SweepRecords:
    return read_sweep(fill(Home(tmp_path), "live", methods=["mdml-csfn"], keep=0.5), "live")


def ask(page: LivePage, path: str = "/", **headers: str) -> tuple[int, dict[str, str], str]:
    host, _, port = page.url.removeprefix("http://").rstrip("/").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode()


def test_the_page_is_served_and_sent_again_only_when_it_changed(sweep: SweepRecords, tmp_path: Path) -> None:
    with LivePage() as page:
        page.show(sweep)
        status, headers, text = ask(page)
        assert status == 200
        assert "partial: " in text
        assert 'id="live"' in text
        assert headers["Cache-Control"] == "no-store"
        page.show(sweep)
        assert ask(page, If_None_Match=headers["ETag"])[0] == 304
        page.show(read_sweep(fill(Home(tmp_path / "more"), "live", methods=["mdml-csfn"]), "live"))
        status, _, text = ask(page, If_None_Match=headers["ETag"])
        assert status == 200
        assert "complete: 13 tasks" in text


def test_other_paths_and_foreign_names_are_refused(sweep: SweepRecords) -> None:
    with LivePage() as page:
        page.show(sweep)
        assert ask(page, "/etc/passwd")[0] == 404
        assert ask(page, Host="evil.example:80")[0] == 403
        port = page.url.rstrip("/").rpartition(":")[2]
        assert ask(page, Host=f"localhost:{port}")[0] == 200


@pytest.mark.parametrize(("host", "port"), [("0.0.0.0", 0), ("192.168.1.1", 0), ("127.0.0.1", 70000)])
def test_what_is_not_loopback_is_refused_in_one_line(host: str, port: int) -> None:
    with pytest.raises(UserError, match="report --live: expected"):
        LivePage(host, port)


def test_a_port_in_use_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match="choose another --port"):
            LivePage(port=taken.getsockname()[1])


def test_the_server_says_where_it_is_and_ends_with_an_interrupt(sweep: SweepRecords) -> None:
    said: list[str] = []
    looked = threading.Event()

    def read() -> SweepRecords:
        if looked.is_set():
            raise KeyboardInterrupt
        looked.set()
        return sweep

    assert serve_live(read, port=0, note=said.append) == 0
    assert said[0].startswith("http://127.0.0.1:")
