"""The batch file in an allocation of stand-ins: what it starts where, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT

STAND_INS = {
    # Runs its command here; the node is in the environment, as the log shows.
    "srun": """
        while [ $# -gt 0 ]; do
            case $1 in
                -w) export NODE=$2; shift 2 ;;
                -*) shift ;;
                *) break ;;
            esac
        done
        exec "$@" """,
    "scontrol": "printf 'node1\\nnode2\\nnode3\\n'",
    "hostname": "echo '10.0.0.1 fe80::1'",
    "ray": """
        echo "ray@$NODE $RAY_AUTH_MODE ${#RAY_AUTH_TOKEN} $*" >> "$LOG"
        sleep 30 & wait $!""",
    "sweep": """
        trap 'echo stopped >> "$LOG"; exit 130' TERM
        # Whoever waits for this line may send a signal to the job: wait until its shell has said what to do with one.
        until [ "$1" = doctor ] || grep -Eq '^SigCgt:.*[4-7c-f]...$' "/proc/$PPID/status"; do sleep 0.01; done
        echo "sweep $*" >> "$LOG"
        if [ "$1" = doctor ]; then exit "${DOCTOR:-0}"; fi
        for _ in $(seq "${SWEEP_TENTHS:-1}"); do sleep 0.1; done
        exit "${SWEEP_EXIT:-0}" """,
}


@pytest.fixture
def allocation(tmp_path: Path) -> dict[str, str]:
    tools = tmp_path / "home" / "sweep-env" / "bin"
    tools.mkdir(parents=True)
    for name, text in STAND_INS.items():
        (tools / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (tools / name).chmod(0o755)
    return {
        "HOME": str(tmp_path / "home"),
        "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LOG": str(tmp_path / "log"),
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NODELIST": "node[1-3]",
        "SLURM_CPUS_PER_TASK": "16",
        "SLURM_GPUS_ON_NODE": "4",
        "SLURM_SUBMIT_DIR": str(ROOT),
    }


def start(allocation: dict[str, str], **extra: str) -> subprocess.Popen[bytes]:
    # A session of its own: Slurm ends what is left of a job, here the test does.
    return subprocess.Popen(
        ["bash", str(ROOT / "clusters" / "slurm.sbatch"), "my.yaml"],
        env=allocation | extra,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def finish(job: subprocess.Popen[bytes]) -> int:
    code = job.wait(20)
    os.killpg(job.pid, signal.SIGKILL)
    return code


def test_one_head_the_other_nodes_as_workers_then_the_sweep(allocation: dict[str, str]) -> None:
    assert finish(start(allocation)) == 0
    lines = Path(allocation["LOG"]).read_text().splitlines()
    started = sorted(line for line in lines if line.startswith("ray@"))
    assert [line.split()[0] for line in started] == ["ray@node1", "ray@node2", "ray@node3"]
    assert "--head" in started[0]
    assert all("--address=10.0.0.1:24711" in line for line in started[1:])
    assert all("token 64" in line and "--num-gpus=4 " in f"{line} " for line in started)
    assert "--gpus 12" in next(line for line in lines if line.startswith("sweep doctor"))
    assert "sweep run my.yaml --address 10.0.0.1:24711" in lines


@pytest.mark.parametrize("code", ["0", "1", "2"])
def test_the_exit_code_is_the_sweeps(allocation: dict[str, str], code: str) -> None:
    assert finish(start(allocation, SWEEP_EXIT=code)) == int(code)


def test_a_sick_node_stops_the_job_before_the_sweep(allocation: dict[str, str]) -> None:
    assert finish(start(allocation, DOCTOR="1")) == 1
    assert "sweep run" not in Path(allocation["LOG"]).read_text()


def test_the_end_of_the_time_reaches_the_sweep(allocation: dict[str, str]) -> None:
    job = start(allocation, SWEEP_TENTHS="200")
    log = Path(allocation["LOG"])
    deadline = time.monotonic() + 20
    while "sweep run" not in (log.read_text() if log.exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(job.pid, signal.SIGTERM)
    assert finish(job) == 130
    assert "stopped" in log.read_text()
