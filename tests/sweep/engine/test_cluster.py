"""A Ray that is started here lets nobody in without the token, and shows nobody what it computes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.engine.cluster import demand_token, use_token

# In a process of its own: what Ray reads from the environment it reads once.
EXPOSED = r"""
import os, sys, urllib.error, urllib.request
import psutil
if sys.argv[1] == "early":
    import ray
from sweep.engine.cluster import connect
ray = connect(None)
assert ray.get(ray.remote(lambda: 7).remote()) == 7
family = [psutil.Process(), *psutil.Process().children(recursive=True)]
for process in family:
    for place in process.net_connections("tcp"):
        if place.status == psutil.CONN_LISTEN:
            host = "127.0.0.1" if place.laddr.ip in ("0.0.0.0", "::") else place.laddr.ip
            try:
                with urllib.request.urlopen(f"http://{host}:{place.laddr.port}/metrics", timeout=3) as answer:
                    print("open", process.name(), place.laddr, answer.read(200))
            except urllib.error.HTTPError as error:
                print("closed", error.code)
            except Exception as error:
                print("other", type(error).__name__)
ray.shutdown()
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a token."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.serial
@pytest.mark.parametrize("imported", ["early", "late"])
def test_no_port_of_an_embedded_ray_answers_without_the_token(home: Path, imported: str) -> None:
    answer = subprocess.run([sys.executable, "-c", EXPOSED, imported], capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr
    assert "closed 401" in answer.stdout  # what speaks HTTP asks for the token
    assert "open" not in answer.stdout
    assert mode(home / ".ray" / "auth_token") == 0o600


def test_the_token_is_for_its_owner_alone(home: Path) -> None:
    demand_token()
    token = home / ".ray" / "auth_token"
    assert mode(token) == 0o600
    assert mode(token.parent) == 0o700
    assert len(token.read_text()) == 64
    assert os.environ["RAY_AUTH_MODE"] == "token"
    written = token.read_text()
    token.chmod(0o644)  # as Ray itself leaves it
    demand_token()
    use_token()
    assert mode(token) == 0o600
    assert token.read_text() == written


def test_a_home_that_cannot_be_written_to_has_a_token_for_the_moment(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".ray").write_text("a file in the way")
    demand_token()
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64


def test_only_the_user_turns_the_token_off(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    demand_token()
    assert not (home / ".ray").exists()
    assert os.environ["RAY_AUTH_MODE"] == "disabled"


def test_without_a_token_a_cluster_is_asked_without_one(home: Path) -> None:
    use_token()
    assert "RAY_AUTH_MODE" not in os.environ


def test_a_ray_that_does_not_start_is_one_line(home: Path) -> None:
    script = "from sweep.engine.cluster import connect; connect(None)"
    environment = os.environ | {"RAY_TMPDIR": "/dev/null"}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert "UserError: Ray did not start here: " in ended.stderr.splitlines()[-1]
