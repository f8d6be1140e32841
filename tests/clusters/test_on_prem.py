"""Two hosts with sshd and a client: the cluster chapter of the documentation, then what may go wrong."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.clusters import hosts
from tests.clusters.conftest import (
    LONG,
    Shell,
    copy_project,
    hosts_so_far,
    hosts_used,
    records,
    wait_until,
    write_sweep,
)
from tests.conftest import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

CHAPTER = "## Your own machines, step by step"
# A cut link is noticed after at most this many seconds, by the settings of clusters/node-env.sh.
NOTICED_SECONDS = 34


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Iterator[hosts.Lab]:
    if reason := hosts.missing():
        pytest.skip(reason)
    with hosts.lab(tmp_path_factory.mktemp("lab"), ("head", "worker")) as lab:
        for host in lab.hosts.values():
            settings = host.home / ".config" / "pip" / "pip.conf"
            settings.parent.mkdir(parents=True)
            settings.write_text(f"[global]\nno-index = true\nfind-links = {wheels}\n")
        yield lab


@pytest.fixture(scope="module")
def shell(lab: hosts.Lab) -> Shell:
    """The client's terminal in a project folder whose cluster file was changed as its head says."""
    project = copy_project(lab.folder / "project")
    file = project / "clusters" / "on-prem.yaml"
    config = yaml.safe_load(file.read_text())
    config["provider"] |= {"head_ip": lab.hosts["head"].address, "worker_ips": [lab.hosts["worker"].address]}
    config["auth"]["ssh_user"] = "root"
    # No GPU here to install CUDA's libraries for.
    config["setup_commands"] = [c.replace("[gpu,postgres]", "[postgres]") for c in config["setup_commands"]]
    for commands in ("head_start_ray_commands", "worker_start_ray_commands"):
        # Ray finds real GPUs by itself; these are only declared. One CPU, so that hosts must share.
        config[commands][-1] += " --num-gpus=1 --num-cpus=1"
    file.write_text(yaml.safe_dump(config))
    write_sweep(project)
    return Shell(lab.client, project)


def chapter_commands() -> list[str]:
    """All commands of the chapter, in order."""
    text = (ROOT / "docs" / "clusters.md").read_text().split(CHAPTER, 1)[1].split("\n## ", 1)[0]
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


def local_run(shell: Shell, sweep: str) -> dict[str, object]:
    shell.run("sweep run my.yaml --address inline --home reference")
    return records(shell.folder / "reference", sweep)


def test_the_chapter_works_word_for_word(shell: Shell, lab: hosts.Lab) -> None:
    *commands, down = chapter_commands()
    assert down == "ray down -y clusters/on-prem.yaml"
    for command in commands:
        if "sweep doctor" in command:
            answer = shell.run(command, check=False)
            assert answer.count("1 GPU(s) declared to Ray, 0 usable: no NVIDIA driver answers") == 2
            assert len(set(re.findall(r"0\.1\.0 \(\w{8}\)", answer))) == 1  # the same code on both
        else:
            shell.run(command)
    expected = local_run(shell, "tiny")
    assert expected
    assert records(shell.folder / "sweep-home", "tiny") == expected
    token = (lab.client.home / ".ray" / "auth_token").read_text().strip()
    logs = [path.read_text(errors="replace") for path in (lab.folder / "head" / "ray").rglob("*.*") if path.is_file()]
    assert not any(token in text for text in logs)


def test_ray_submit_uses_both_hosts_and_gives_the_results_of_a_local_run(shell: Shell, lab: hosts.Lab) -> None:
    write_sweep(shell.folder, name="both", seed=1, **LONG)
    shell.run("ray rsync-up clusters/on-prem.yaml my.yaml '~/my.yaml'")
    shell.run("ray submit clusters/on-prem.yaml clusters/run_on_head.py -- run my.yaml")
    shell.run("sweep fetch --cluster clusters/on-prem.yaml --home fetched")
    assert records(shell.folder / "fetched", "both") == local_run(shell, "both")
    assert hosts_used(shell.folder / "fetched", "both") == {"head", "worker"}


def test_a_cut_link_ends_nothing_and_loses_nothing(shell: Shell, lab: hosts.Lab) -> None:
    # Longer still: the worker's first fit waits for its start-up, the cut for that fit, and then one must be under way.
    longer = {"grid": {"gamma": [0.001 * 1.1**i for i in range(40)]}, "settings": {"n_pairs": 20_000, "tol": 1e-5}}
    write_sweep(shell.folder, name="cut", seed=2, **LONG | longer)
    head_home = lab.hosts["head"].home / "sweep-home"
    job = shell.start("sweep submit my.yaml --cluster clusters/on-prem.yaml --home cut-home")
    wait_until(lambda: "worker" in hosts_so_far(head_home, "cut"), 300, "the worker takes part")
    lab.cable("worker", "down")
    cut = time.time()
    try:
        output, _ = job.communicate(timeout=400)
    finally:
        lab.cable("worker", "up")
    print(output[-3000:])
    assert job.returncode == 0
    assert records(shell.folder / "cut-home", "cut") == local_run(shell, "cut")
    assert hosts_used(shell.folder / "cut-home", "cut") == {"head", "worker"}
    from sweep.store.home import Home
    from sweep.store.ledger import Ledger

    failures = Ledger(Home(shell.folder / "cut-home").ledger_url).failures("cut")
    assert {failure.kind for failure in failures} == {"lost worker"}
    assert not any(failure.final for failure in failures)
    print(f"noticed after {[round(f.happened - cut, 1) for f in failures]} s")
    assert all(failure.happened - cut < NOTICED_SECONDS for failure in failures)


def test_changed_code_reaches_every_host_with_the_next_up(shell: Shell) -> None:
    before = code_of_nodes(shell)
    source = shell.folder / "solvers" / "__init__.py"
    source.write_text(source.read_text() + "\n# changed\n")
    shell.run("RAY_UP_enable_autoscaler_v2=0 ray up -y clusters/on-prem.yaml")
    after = code_of_nodes(shell)
    assert len(before) == len(after) == 1
    assert before != after


def code_of_nodes(shell: Shell) -> set[str]:
    command = "ray exec clusters/on-prem.yaml 'sweep doctor --address auto --gpus 2 --wait 300 --json'"
    answer = shell.run(command, check=False)
    report = json.loads(answer[answer.index("{\n") : answer.rindex("\n}") + 2])
    assert len(report["nodes"]) == 2
    return {node["found"]["code"] for node in report["nodes"]}


def test_down_leaves_no_ray_behind(shell: Shell, lab: hosts.Lab) -> None:
    shell.run(chapter_commands()[-1])

    def ray_processes() -> str:
        answers = [Shell(host, host.home).run("pgrep -a raylet || true") for host in lab.hosts.values()]
        return "".join(answers)

    took = wait_until(lambda: not ray_processes(), 120, "the workers follow the head")
    print(f"all raylets gone {took:.0f} s after `ray down` returned")
