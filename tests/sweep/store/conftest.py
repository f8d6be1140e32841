"""Both kinds of database, and a home as the first release left it."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweep.store.home import Home
from sweep.store.ledger import Ledger
from tests.sweep.store.postgres import PASSWORD, Server

OLD_HOME = Path(__file__).parent / "homes" / "0.1"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    # Not below pytest's own folder: another pytest that starts closes that one to the server's user.
    with tempfile.TemporaryDirectory(prefix="sweep-postgres-") as folder:
        made = Server(Path(folder))
        made.start()
        yield made
        made.stop()


@pytest.fixture
def postgres(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of a database with nothing in it, its password in the environment."""
    monkeypatch.setenv("PGUSER", "sweep")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return server.fresh(f"t{next(_numbers)}")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database, of each kind that a ledger may be in."""
    if request.param == "postgresql":
        found: str = request.getfixturevalue("postgres")
        return found
    return f"sqlite:///{tmp_path / 'ledger.sqlite'}"


@pytest.fixture
def connect(url: str) -> Iterator[Callable[..., Ledger]]:
    """Opens the database as often as asked for, and closes it at the end."""
    opened = []

    def open_it(**options: str) -> Ledger:
        opened.append(Ledger(url, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_it
    for ledger in opened:
        ledger.close()


@pytest.fixture
def old_home(tmp_path: Path) -> Home:
    """A home that version 0.1 wrote: two sweeps with chains of warm starts, restarts and failures."""
    shutil.copytree(OLD_HOME / "home", tmp_path / "old-home")
    return Home(tmp_path / "old-home")
