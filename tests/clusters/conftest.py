"""A project folder as a user has it, and hosts to bring it to."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweep.store.home import Home
from sweep.store.ledger import Ledger
from tests.clusters import hosts
from tests.conftest import ROOT
from tests.sweep.conftest import tiny

# Long enough to be cut or stopped in the middle, in fits of a fraction of a second.
LONG = {"methods": ["mdml-csfn"], "grid": {"gamma": [0.001 * 1.3**i for i in range(24)]}, "folds": 5}


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pip needs to build the project where there is no network."""
    folder = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), "setuptools>=77"]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode:
        pytest.skip(f"setuptools cannot be downloaded: {answer.stderr.strip().splitlines()[-1:]}")
    return folder


def copy_project(folder: Path) -> Path:
    """A clean copy of the project: what a fresh clone has, as far as a pool needs it."""
    folder.mkdir()
    for name in ("sweep", "solvers", "dashboards", "clusters"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", ".rayignore", ".gitignore"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def write_sweep(folder: Path, **changes: Any) -> Path:
    path = folder / "my.yaml"
    path.write_text(yaml.safe_dump(tiny(**changes)))
    return path


def install_command(host: hosts.Host) -> None:
    """`sweep` on the path of a host, from the folder that it is called in."""
    tools = host.home / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "sweep").write_text(f'#!/bin/sh\nexec {sys.executable} -m sweep "$@"\n')
    (tools / "sweep").chmod(0o755)


class Shell:
    """Runs commands on a host, in a folder, as a user would type them."""

    def __init__(self, host: hosts.Host, folder: Path) -> None:
        self.host, self.folder = host, folder
        install_command(host)

    def line(self, command: str) -> list[str]:
        script = f"export PATH={self.host.home}/bin:$PATH; cd {self.folder}; {command}"
        return self.host.command("bash", "-c", script)

    def run(self, command: str, *, check: bool = True, timeout: float = 600) -> str:
        answer = subprocess.run(
            self.line(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout
        )
        print(f"$ {command}\n{answer.stdout[-4000:]}[{answer.returncode}]", flush=True)
        assert not check or answer.returncode == 0, f"{command}: exit code {answer.returncode}"
        return answer.stdout

    def start(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(self.line(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def records(home: Path, sweep: str) -> dict[str, Any]:
    """What must not depend on where a sweep ran, to the last bit: keys, scores, numbers of the fits."""
    ledger = Ledger(Home(home).ledger_url)
    found = {}
    for spec, record in ledger.records(sweep):
        # `params` names the device that was asked for.
        found[spec.key] = record.scores, replace(record.fit, params={})
    ledger.close()
    return found


def hosts_used(home: Path, sweep: str) -> set[str]:
    ledger = Ledger(Home(home).ledger_url)
    found = {record.place.host for _, record in ledger.records(sweep)}
    ledger.close()
    return found


def hosts_so_far(home: Path, sweep: str) -> set[str]:
    """The same beside a driver that writes: read only, whatever is there yet."""
    if not (home / "ledger.sqlite").exists():
        return set()
    with sqlite3.connect(f"file:{home}/ledger.sqlite?mode=ro", uri=True) as connection:
        try:
            rows = connection.execute("SELECT record FROM fits JOIN members USING (key) WHERE sweep = ?", [sweep])
            return {json.loads(record)["place"]["host"] for (record,) in rows}
        except sqlite3.OperationalError:
            return set()


def committed(home: Path) -> dict[str, float]:
    """Key -> time of the commit."""
    if not (home / "ledger.sqlite").exists():
        return {}
    with sqlite3.connect(home / "ledger.sqlite") as connection:
        try:
            return dict(connection.execute("SELECT key, committed FROM fits"))
        except sqlite3.OperationalError:
            return {}


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Seconds until `condition` held."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)
    return time.monotonic() - start


@pytest.fixture(scope="module")
def lone_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hosts.Host]:
    """One host without any network but its own loopback."""
    if reason := hosts.missing():
        pytest.skip(reason)
    with hosts.host(tmp_path_factory.mktemp("lone"), "lone", "127.0.0.1") as host:
        subprocess.run(host.command("ip", "link", "set", "lo", "up"), check=True)
        yield host
