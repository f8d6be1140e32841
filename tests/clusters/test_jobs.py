"""`ray job submit` and `sweep submit` on a host without internet, from a clean project folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import hosts
from tests.clusters.conftest import (
    LONG,
    Shell,
    committed,
    copy_project,
    records,
    wait_until,
    write_sweep,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

URL = "http://127.0.0.1:8265"


@pytest.fixture(scope="module")
def shell(lone_host: hosts.Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A terminal in a project folder, beside a head with two declared GPUs and the token on."""
    shell = Shell(lone_host, copy_project(tmp_path_factory.mktemp("jobs") / "project"))
    shell.run("ray get-auth-token --generate > /dev/null")
    head = shell.start(
        ". clusters/node-env.sh; cd /; "
        "exec ray start --head --block --node-ip-address=127.0.0.1 --num-gpus=2 --num-cpus=2"
    )
    try:
        wait_until(lambda: answers(shell), 90, "the job server answers")
        yield shell
    finally:
        head.terminate()


def answers(shell: Shell) -> bool:
    return shell.run(f"curl -s -o /dev/null -w '%{{http_code}}' {URL}/api/version", check=False).startswith("401")


def ray(shell: Shell, command: str) -> str:
    """Ray's own commands send the token only if told so; `sweep` does by itself."""
    return shell.run(f"RAY_AUTH_MODE=token ray {command}")


def head_home(shell: Shell) -> Path:
    return shell.host.home / "sweep-home"


def test_ray_job_submit_runs_the_sweep_and_streams_its_output(shell: Shell) -> None:
    write_sweep(shell.folder, methods=["mdml-csfn"])
    output = ray(
        shell,
        f"job submit --address {URL} --runtime-env clusters/runtime-env.yaml --working-dir . -- sweep run my.yaml",
    )
    assert re.search(r"tiny: 5 fits computed, 0 were there already", output)
    shell.run("sweep run my.yaml --address inline --home reference")
    assert records(head_home(shell), "tiny") == records(shell.folder / "reference", "tiny")


def test_a_stopped_job_ends_by_itself_and_the_next_one_goes_on(shell: Shell) -> None:
    write_sweep(shell.folder, name="long", seed=3, **LONG)
    submit = f"job submit --address {URL} --runtime-env clusters/runtime-env.yaml --working-dir ."
    ray(shell, f"{submit} --submission-id first --no-wait -- sweep run my.yaml")
    before = committed(head_home(shell))
    wait_until(lambda: len(committed(head_home(shell))) > len(before) + 10, 180, "ten fits are done")
    start = time.monotonic()
    ray(shell, f"job stop --address {URL} first")
    print(f"`ray job stop` returned after {time.monotonic() - start:.1f} s, the start of the command included")
    # Its own last words, so it was not killed after the 3 s of grace.
    assert "sweep: interrupted; everything finished is kept" in ray(shell, f"job logs --address {URL} first")
    kept = committed(head_home(shell))
    output = ray(shell, f"{submit} --submission-id second -- sweep run my.yaml")
    there = re.search(r"long: \d+ fits computed, (\d+) were there already", output)
    assert there is not None
    assert int(there[1]) == len(kept) - len(before)
    assert kept.items() <= committed(head_home(shell)).items()
    shell.run("sweep run my.yaml --address inline --home reference")
    assert records(head_home(shell), "long") == records(shell.folder / "reference", "long")


def test_ctrl_c_detaches_and_a_second_submit_attaches(shell: Shell) -> None:
    write_sweep(shell.folder, name="attach", seed=4, **LONG)
    submit = f"exec sweep submit my.yaml --address {URL} --home attached"
    before = len(committed(head_home(shell)))
    first = shell.start(submit)
    wait_until(lambda: len(committed(head_home(shell))) > before + 3, 180, "the job runs")
    interrupt(first)
    output, _ = first.communicate(timeout=60)
    assert first.returncode == 130
    assert "detached: sweep-attach-" in output
    assert "running" in shell.run(f"sweep status attach --address {URL}")
    output = shell.run(submit)
    assert "runs already: attaching" in output
    shell.run("sweep run my.yaml --address inline --home reference")
    assert records(shell.folder / "attached", "attach") == records(shell.folder / "reference", "attach")
    rows = shell.run(f"sweep status attach --address {URL} --json")
    assert rows.count('"sweep": "attach"') == 1  # one job, not two


def interrupt(process: subprocess.Popen[str]) -> None:
    """Ctrl-C for the command itself: `nsenter`, which started it, waits outside the host."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]) if children else process.pid, signal.SIGINT)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"name": "absent", "datasets": ["/nowhere/x.npz"]}, 2),
        ({"name": "fine", "methods": ["mdml-csfn"]}, 0),
    ],
)
def test_the_exit_code_is_the_sweeps(shell: Shell, changes: dict[str, object], code: int) -> None:
    write_sweep(shell.folder, **changes)
    output = shell.run(f"sweep submit my.yaml --address {URL} --home codes; echo code $?", check=False)
    assert output.rstrip().endswith(f"code {code}")


def test_without_the_token_nothing_is_accepted(shell: Shell) -> None:
    write_sweep(shell.folder, name="locked")
    output = shell.run(
        f"RAY_AUTH_TOKEN=wrong-token-wrong-token-wrong-token sweep submit my.yaml --address {URL}; echo code $?",
        check=False,
    )
    assert "refused this user's token" in output
    assert output.rstrip().endswith("code 2")
    assert "wrong-token-wrong-token" not in output
    assert shell.run(f"curl -s -o /dev/null -w '%{{http_code}}' {URL}/api/jobs/") == "401"
