"""The whole way with a real job server: submit with code of one's own, stop, go on, fetch."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sweep.conftest import tiny

pytestmark = [pytest.mark.serial, pytest.mark.timeout(600)]

ESTIMATOR = """
import time
import numpy as np
from sklearn.base import BaseEstimator
from mypkg.how import shrink

class Slow(BaseEstimator):
    def __init__(self, scale=1.0, seconds=0.0):
        self.scale, self.seconds = scale, seconds

    def fit(self, X, y):
        time.sleep(self.seconds)
        self.factor_ = shrink(self.scale)
        return self

    def transform(self, X):
        return np.asarray(X) * self.factor_
"""


@dataclass(frozen=True)
class Place:
    """A user's folder, and the job server of a head that knows nothing of it."""

    folder: Path
    url: str
    environment: dict[str, str]
    head_home: Path

    def sweep(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sweep", *arguments],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=240,
        )  # fmt: skip

    def write(self, name: str, scales: list[float], seconds: float) -> None:
        given = {"params": {"seconds": seconds}, "tune": {"scale": scales}}
        values = tiny(
            name=name,
            code=["mypkg"],
            methods=[{"name": "slow", "estimator": "mypkg.slow:Slow", **given}],
            tracking={"mlflow": "none"},
        )
        values.pop("grid")
        (self.folder / "my.yaml").write_text(yaml.safe_dump(values))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("server")
    folder, home = root / "mine", root / "head-home"
    (folder / "mypkg").mkdir(parents=True)
    (folder / "mypkg" / "__init__.py").touch()
    (folder / "mypkg" / "how.py").write_text("def shrink(scale):\n    return 1 / scale\n")
    (folder / "mypkg" / "slow.py").write_text(ESTIMATOR)
    token = "ab" * 32
    (root / "user").mkdir()
    base = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    base |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, "HOME": str(root / "user")}
    base["PATH"] = f"{Path(sys.executable).parent}:{base['PATH']}"
    port = _free_port()
    command = [
        str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--num-cpus=2",
        f"--port={_free_port()}", "--dashboard-host=127.0.0.1", f"--dashboard-port={port}",
        f"--dashboard-agent-listen-port={_free_port()}", "--disable-usage-stats", "--node-ip-address=127.0.0.1",
    ]  # fmt: skip
    on_head = base | {"SWEEP_HOME": str(home), "OMP_NUM_THREADS": "1"}
    head = subprocess.Popen(command, env=on_head, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=root)
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 90
        while not _answers(url):
            assert time.monotonic() < deadline
            time.sleep(0.5)
        project = str(Path(__file__).parents[3])
        yield Place(folder, url, base | {"PYTHONPATH": project}, home)
    finally:
        head.terminate()
        head.wait(60)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/api/version", timeout=2)
    except urllib.error.HTTPError as error:
        return error.code == 401
    except OSError:
        return False
    return True


def _fits(place: Place, name: str, *options: str) -> list[Any]:
    answer = place.sweep("results", name, "--fits", "--format", "json", *options)
    assert answer.returncode == 0, answer.stderr
    return list(json.loads(answer.stdout))


def test_the_users_own_code_runs_where_it_is_not_installed(place: Place) -> None:
    place.write("own", [1.0, 2.0], 0.0)
    answer = place.sweep("submit", "my.yaml", "--address", place.url, "--home", "came")
    assert answer.returncode == 0, answer.stderr
    assert place.head_home.is_dir()
    fits = _fits(place, "own", "--home", "came")
    assert len(fits) == 5
    again = place.sweep("fetch", "--address", place.url, "--home", "came")
    assert "0 fits came, 5 were here" in again.stderr
    place.sweep("run", "my.yaml", "--address", "inline", "--home", "reference")
    scores = {fit["key"]: fit["auc_all"] for fit in _fits(place, "own", "--home", "reference")}
    assert {fit["key"]: fit["auc_all"] for fit in fits} == scores


@pytest.mark.slow
def test_a_sweep_that_was_stopped_goes_on(place: Place) -> None:
    def jobs() -> list[dict[str, Any]]:
        return list(json.loads(place.sweep("status", "stopped", "--address", place.url, "--json").stdout))

    place.write("stopped", [1.0 + n for n in range(10)], 1.5)
    assert place.sweep("submit", "my.yaml", "--address", place.url, "--detach").returncode == 0
    deadline = time.monotonic() + 120
    while jobs()[0]["state"] != "running":
        assert time.monotonic() < deadline
    asked = place.sweep("stop", "stopped", "--address", place.url)
    assert asked.returncode == 0, asked.stderr
    assert "asked to stop" in asked.stderr
    while jobs()[0]["state"] == "running":
        assert time.monotonic() < deadline
    assert jobs()[0]["exit code"] == 3
    nothing = place.sweep("stop", "stopped", "--address", place.url)
    assert nothing.returncode == 2
    assert nothing.stderr.count("\n") == 1
    rest = place.sweep("submit", "my.yaml", "--address", place.url, "--home", "came")
    assert rest.returncode == 0, rest.stderr
    assert len(_fits(place, "stopped", "--home", "came")) == 21


def test_a_wrong_token_is_one_line(place: Place) -> None:
    stranger = Place(place.folder, place.url, place.environment | {"RAY_AUTH_TOKEN": "cd" * 32}, place.head_home)
    for command in (["fetch"], ["stop", "own"], ["status"]):
        answer = stranger.sweep(*command, "--address", place.url)
        assert answer.returncode == 2
        assert "refused this user's token" in answer.stderr
        assert "cd" * 32 not in answer.stderr
