"""The pretended pool grows with waiting GPU fits and shrinks when it has nothing to do."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from tests.clusters import hosts
from tests.clusters.conftest import LONG, Shell, copy_project, records, wait_until, write_sweep

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

WATCH = """
import json, logging, sys, time, ray
ray.init(address="auto", logging_level=logging.ERROR, log_to_driver=False)
while True:
    nodes = [node for node in ray.nodes() if node["Alive"]]
    gpus = sum(node["Resources"].get("GPU", 0) for node in nodes)
    print(json.dumps([time.time(), len(nodes), gpus]), flush=True)
    time.sleep(1)
"""


def test_it_grows_and_shrinks(lone_host: hosts.Host, tmp_path: Path) -> None:
    shell = Shell(lone_host, copy_project(tmp_path / "project"))
    write_sweep(shell.folder, **LONG)
    (shell.folder / "watch.py").write_text(WATCH)
    pool = shell.start("exec clusters/laptop.sh > pool.log 2>&1")
    seen = shell.folder / "nodes.log"

    def sizes() -> list[tuple[float, int, float]]:
        lines = seen.read_text().splitlines() if seen.exists() else []
        return [tuple(json.loads(line)) for line in lines if line.endswith("]")]

    try:
        log = shell.folder / "pool.log"
        wait_until(lambda: log.exists() and "block forever" in log.read_text(), 90, "the head is up")
        watch = shell.start(f"RAY_AUTH_MODE=token exec {sys.executable} watch.py > nodes.log 2> /dev/null")
        wait_until(lambda: bool(sizes()), 60, "the cluster answers")
        assert sizes()[-1][1:] == (1, 0)
        start = time.time()
        shell.run("sweep run my.yaml --address auto --gpus 3 --home home")
        end = time.time()
        most = max(nodes for _, nodes, _ in sizes())
        grown = next(moment for moment, nodes, _ in sizes() if nodes == most) - start
        print(f"1 -> {most} nodes {grown:.0f} s after the start of the sweep")
        assert most == 4
        took = wait_until(lambda: sizes()[-1][1:] == (1, 0), 120, "idle nodes go")
        print(f"back to 1 node {time.time() - end:.0f} s after the sweep's end ({took:.0f} s of waiting)")
        watch.terminate()
    finally:
        pool.terminate()
    shell.run("sweep run my.yaml --address inline --home reference")
    assert records(shell.folder / "home", "tiny") == records(shell.folder / "reference", "tiny")
