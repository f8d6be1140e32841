"""Metrics and whereabouts of a real Ray, and the Grafana board that shows them."""

from __future__ import annotations

import json
import random
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.sweep.conftest import tiny
from tests.sweep.engine.chaos import kill_worker, start

SECONDS = 90


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Address and text of the metrics page of a Ray while a sweep runs on it, one worker of which was killed."""
    import ray

    folder, metrics_port, gcs_port = tmp_path_factory.mktemp("metrics"), free_port(), free_port()
    file = folder / "tiny.yaml"
    # More fits than it gets to: it has to be running still when it is looked at.
    gammas = np.geomspace(1e-3, 1, 200).tolist()
    file.write_text(yaml.safe_dump(tiny(grid={"gamma": gammas, "rank": [4, 8]}, tracking={"mlflow": "none"})))
    options = ("--head", "--block", "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats")
    ports = (f"--port={gcs_port}", f"--metrics-export-port={metrics_port}")
    ray_command = Path(sys.executable).parent / "ray"
    environment = pytest.MonkeyPatch()
    environment.setenv("RAY_AUTH_MODE", "disabled")  # whatever token this user has belongs to another cluster
    environment.setenv("RAY_metrics_report_interval_ms", "1000")
    head = subprocess.Popen([ray_command, "start", *options, *ports], stdout=subprocess.DEVNULL)
    address, running = f"127.0.0.1:{gcs_port}", None
    try:
        ray.init(address=_reachable(address), log_to_driver=False)
        running = start(file, folder / "home", "--address", address)
        page = f"{ray.util.get_node_ip_address()}:{metrics_port}"
        _scrape(f"http://{page}/metrics", "ray_sweep_fits_done")
        assert kill_worker(random.Random(0))
        text = _scrape(f"http://{page}/metrics", "ray_sweep_fits_failed")
        assert running.poll() is None
        yield page, text
    finally:
        if running is not None:
            running.kill()
            running.wait(30)
        ray.shutdown()
        head.terminate()
        head.wait(30)
        environment.undo()


def _reachable(address: str) -> str:
    """The address, once somebody answers there."""
    host, port = address.split(":")
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return address
        time.sleep(0.1)
    raise AssertionError(f"{address}: nobody answers")


def _scrape(url: str, wanted: str) -> str:
    deadline, text = time.monotonic() + SECONDS, ""
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            pass
        if wanted in text:
            return text
        time.sleep(0.5)
    raise AssertionError(f"{url}: no {wanted} within {SECONDS} s")


def value(text: str, name: str, **labels: str) -> float:
    for line in text.splitlines():
        if line.startswith(name + "{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"no {name} with {labels}")


def test_a_running_sweep_exports_what_happens(exported: tuple[str, str]) -> None:
    _, text = exported
    assert value(text, "ray_sweep_fits_done_total", dataset="digits-imbalanced") >= 1
    assert value(text, "ray_sweep_fits_failed_total", kind="lost worker") == 1
    assert value(text, "ray_sweep_phase_seconds_total", phase="solve") > 0
    assert value(text, "ray_sweep_fits_running") >= 1
    assert value(text, "ray_sweep_slots") == 2
    assert value(text, "ray_sweep_solve_seconds_count") >= 1


def board() -> dict[str, Any]:
    return json.loads((resources.files("dashboards") / "grafana.json").read_text())  # type: ignore[no-any-return]


def queries() -> list[str]:
    return [target["expr"] for panel in board()["panels"] for target in panel["targets"]]


def test_the_board_asks_for_names_that_a_run_exports(exported: tuple[str, str]) -> None:
    _, text = exported
    there = set(re.findall(r"^(\w+)\{", text, flags=re.MULTILINE))
    asked = {name for query in queries() for name in re.findall(r"\bray_\w+", query)}
    assert len([name for name in asked if name.startswith("ray_sweep_")]) == 6
    # Without a GPU, Ray exports nothing about GPUs.
    assert asked - there <= {"ray_node_gpus_utilization"}


def test_the_boards_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in board()["panels"]:
        place = panel["gridPos"]
        own = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not own & cells
        assert place["x"] + place["w"] <= 24
        cells |= own


def test_a_real_prometheus_answers_every_query_of_the_board(exported: tuple[str, str], tmp_path: Path) -> None:
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("no Prometheus here: install Debian's prometheus")
    address, _ = exported
    scrape = {"job_name": "ray", "static_configs": [{"targets": [address]}]}
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]}
    (tmp_path / "p.yml").write_text(json.dumps(config))  # JSON is YAML
    port = free_port()
    options = {
        "config.file": tmp_path / "p.yml",
        "storage.tsdb.path": tmp_path / "d",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    command = [binary, *(f"--{name}={value}" for name, value in options.items())]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        api = f"http://127.0.0.1:{port}/api/v1/query?query="
        _scrape(api + "ray_sweep_slots", '"value":[')
        for query in queries():
            text = query.replace('$session"', '.*"')
            # A rate needs two points, and a query about GPUs finds none here.
            _scrape(api + urllib.parse.quote(text), '"status":"success"' if "gpus" in query else '"result":[{')
    finally:
        server.terminate()
        server.wait(10)


def test_workers_say_what_they_run(exported: tuple[str, str]) -> None:
    from sweep.engine.whereabouts import whereabouts

    deadline = time.monotonic() + SECONDS
    while not (entries := whereabouts()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert entries[0]["label"].startswith("digits-imbalanced ")
    assert "process" in entries[0]["device"]
