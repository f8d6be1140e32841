"""Metrics and whereabouts of a real Ray, and the Grafana board that shows them."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweep.executors import Finished
from sweep.fits import FitOutcome
from tests.dashboards.synthetic import record_of, study_specs

SECONDS = 90


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def exported() -> Iterator[tuple[str, str]]:
    """Address and text of the metrics page of a Ray on which three fits ended, one of them badly."""
    import ray

    from sweep.metrics import FitMetrics

    port = free_port()
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, _metrics_export_port=port)
    try:
        metrics = FitMetrics()
        rng = np.random.default_rng(0)
        first, second, third, *_ = study_specs("digits", 0, "mdml-csfn", 2)
        for spec in (first, second):
            metrics.started(slots=2)
            metrics.ended(Finished(spec, FitOutcome(record_of(spec, (None, None), 0.0, rng), {})))
        metrics.started(slots=2)
        metrics.ended(Finished(third, None, "out of memory", "boom", "", 7.0))
        metrics.started(slots=2)
        address = f"{ray.util.get_node_ip_address()}:{port}"
        yield address, _scrape(f"http://{address}/metrics", "ray_sweep_fits_failed")
    finally:
        ray.shutdown()


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


def test_a_run_exports_what_happened(exported: tuple[str, str]) -> None:
    _, text = exported
    assert value(text, "ray_sweep_fits_done_total", method="mdml-csfn") == 2
    assert value(text, "ray_sweep_fits_failed_total", kind="out of memory") == 1
    assert value(text, "ray_sweep_phase_seconds_total", phase="wasted") == 7
    assert value(text, "ray_sweep_phase_seconds_total", phase="solve") > 0
    assert value(text, "ray_sweep_fits_running") == 1
    assert value(text, "ray_sweep_slots") == 2
    assert value(text, "ray_sweep_solve_seconds_count") == 2


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
        time.sleep(2)  # a rate needs two points
        for query in queries():
            text = query.replace('$session"', '.*"')
            with urllib.request.urlopen(api + urllib.parse.quote(text), timeout=10) as answer:
                found = json.load(answer)
            assert found["status"] == "success"
            assert found["data"]["result"] or "gpus" in query, query
    finally:
        server.terminate()
        server.wait(10)


def test_workers_say_what_they_run_for_as_long_as_they_run_it(exported: tuple[str, str]) -> None:
    import ray

    from sweep.whereabouts import whereabouts

    @ray.remote(num_cpus=1)
    def work() -> list[dict[str, Any]]:
        from sweep.whereabouts import announced, whereabouts

        with announced("digits mdml-csfn", gpus=0):
            return whereabouts()

    (entry,) = ray.get(work.remote(), timeout=SECONDS)
    assert entry["label"] == "digits mdml-csfn"
    assert "process" in entry["device"]
    assert whereabouts() == []
