"""The report while its sweep runs: one page on loopback that keeps itself up to date."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dashboards.page import render
from dashboards.records import SweepRecords, first_split_arrays
from dashboards.report import build
from sweep.errors import UserError
from sweep.store.home import Home

_SECONDS = 3.0  # between two looks, at least; ten times as long as making the page takes, so that it costs little
_NAMES = ("localhost", "127.0.0.1", "[::1]")


def _note(line: str) -> None:
    sys.stderr.write(line + "\n")


def serve_live(
    read: Callable[[], SweepRecords],
    home: Home | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8899,
    note: Callable[[str], None] = _note,
    command: str = "",
) -> int:
    """Serve the page until Ctrl-C; returns the exit code of a command.

    Parameters
    ----------
    read : the sweep as it stands, asked for again and again.
    home : where the arrays of refits lie, if `read` does not bring them.
    command : as in `write_report`.
    """
    with LivePage(host, port, command) as page:
        note(f"{page.url} shows the sweep while it runs; Ctrl-C ends this")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                started = time.monotonic()
                page.show(_with_arrays(read(), home))
                time.sleep(max(_SECONDS, 10 * (time.monotonic() - started)))
    return 0


def _with_arrays(sweep: SweepRecords, home: Home | None) -> SweepRecords:
    if home is None or sweep.arrays:
        return sweep
    return replace(sweep, arrays=first_split_arrays(home, sweep.studies))


class LivePage:
    """A server on loopback that hands out the latest page, and nothing else."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, command: str = "") -> None:
        if not ipaddress.ip_address("127.0.0.1" if host == "localhost" else host).is_loopback:
            raise UserError(f"report --live: expected a loopback address, got {host}; use an SSH tunnel from elsewhere")
        if not 0 <= port <= 65535:
            raise UserError(f"report --live: expected a port from 0 to 65535, got {port}")
        self._command, self._page = command, (b"", "")
        self._ready = threading.Event()
        try:
            self._server = ThreadingHTTPServer((host, port), self._handler())
        except OSError as error:
            raise UserError(
                f"report --live: port {port} on {host} cannot be used ({error}); choose another --port"
            ) from None
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> LivePage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def show(self, sweep: SweepRecords) -> None:
        """Make the page of a sweep; readers see it at their next look."""
        text = render(sweep, build(sweep), live=_SECONDS, command=self._command)
        # The minute at which it was written does not make it another page.
        digest = hashlib.sha256(re.sub("<time>.*?</time>", "", text).encode()).hexdigest()
        self._page = (text.encode(), f'"{digest[:32]}"')
        self._ready.set()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                # A foreign name that leads here is a web site that wants to read what only this machine may.
                if self.headers.get("Host", "").rpartition(":")[0] not in _NAMES:
                    return self.send_error(HTTPStatus.FORBIDDEN)
                if self.path != "/":
                    return self.send_error(HTTPStatus.NOT_FOUND)
                page._ready.wait(60)
                content, tag = page._page
                same = self.headers.get("If-None-Match") == tag
                self.send_response(HTTPStatus.NOT_MODIFIED if same else HTTPStatus.OK)
                self.send_header("ETag", tag)
                self.send_header("Cache-Control", "no-store")
                if not same:
                    self.send_header("Content-Type", "text/html; charset=utf-8")
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if not same:
                    with contextlib.suppress(ConnectionError):
                        self.wfile.write(content)
                return None

            def log_message(self, format: str, *args: object) -> None:
                """Nobody wants a line per look."""

        return Handler
