"""Hosts on this machine that are as separate as Ray can tell: own network, processes, name, home.

The client holds a bridge, and every host hangs on it by one cable that can be cut. Namespaces belong
to processes, so all of it is gone when they end. The separate process tree matters: `ray stop`, which
the launcher files call, ends every Ray process it can see.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOOLS = ("ip", "unshare", "nsenter", "ssh", "ssh-keygen", "rsync", "nc")


def missing() -> str:
    """Why hosts cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "needs root"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if not Path("/usr/sbin/sshd").exists():
        absent.append("sshd")
    if absent:
        return f"needs {', '.join(absent)}"
    trial = subprocess.run(["unshare", "-n", "-m", "-p", "-u", "-f", "true"], capture_output=True, text=True)
    return f"no namespaces here: {trial.stderr.strip()}" if trial.returncode else ""


@dataclass(frozen=True)
class Host:
    """A host: the process that holds its namespaces, its address, its home."""

    name: str
    pid: int
    address: str
    home: Path

    def command(self, *arguments: str) -> list[str]:
        """A command line that runs on this host, with its home and the environment's programs first."""
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        clean = ["env", "-i", f"HOME={self.home}", f"PATH={path}", "LANG=C.UTF-8", "PYTHONUNBUFFERED=1"]
        return ["nsenter", "-t", str(self.pid), "-n", "-m", "-p", "-u", *clean, *arguments]


@dataclass(frozen=True)
class Lab:
    """A client and the hosts that it reaches by ssh."""

    client: Host
    hosts: dict[str, Host]
    folder: Path

    @property
    def key(self) -> Path:
        return self.client.home / ".ssh" / "id_ed25519"

    def cable(self, name: str, state: str) -> None:
        """Cut (`down`) or mend (`up`) a host's cable."""
        _run(["nsenter", "-t", str(self.client.pid), "-n", "ip", "link", "set", f"to-{name}", state])


@contextlib.contextmanager
def lab(folder: Path, names: tuple[str, ...]) -> Iterator[Lab]:
    """A client and hosts with these names, up to the end of the block."""
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(host(folder, "client", "10.99.0.254"))
        made = Lab(client, {}, folder)
        _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(made.key)])
        in_client = ["nsenter", "-t", str(client.pid), "-n"]
        for command in (
            "ip link set lo up",
            "ip link add lab type bridge",
            f"ip addr add {client.address}/24 dev lab",
            "ip link set lab up",
        ):
            _run([*in_client, *command.split()])
        for number, name in enumerate(names, start=1):
            one = stack.enter_context(host(folder, name, f"10.99.0.{number}"))
            for command in (
                f"ip link add to-{name} type veth peer name eth0 netns {one.pid}",
                f"ip link set to-{name} master lab",
                f"ip link set to-{name} up",
            ):
                _run([*in_client, *command.split()])
            inside = ["nsenter", "-t", str(one.pid), "-n"]
            for command in (
                "ip link set lo up",
                f"ip addr add {one.address}/24 dev eth0",
                "ip link set eth0 up",
            ):
                _run([*inside, *command.split()])
            shutil.copy(made.key.with_suffix(".pub"), one.home / ".ssh" / "authorized_keys")
            _install_environment(one.home)
            stack.enter_context(_sshd(one, folder / name))
            made.hosts[name] = one
        yield made


@contextlib.contextmanager
def host(folder: Path, name: str, address: str) -> Iterator[Host]:
    home = folder / name / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    (folder / name / "ray").mkdir()
    # ssh takes a user's home from here.
    accounts = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
    text = "\n".join(":".join([*a[:5], str(home), "/bin/bash"] if a[0] == "root" else a) for a in accounts)
    (folder / name / "passwd").write_text(text + "\n")
    (folder / name / "hosts").write_text(f"127.0.0.1 localhost\n{address} {name}\n")
    Path("/tmp/ray").mkdir(exist_ok=True)
    script = f"""
        hostname {name}
        mount --bind {folder / name}/passwd /etc/passwd
        mount --bind {folder / name}/hosts /etc/hosts
        mount --bind {folder / name}/ray /tmp/ray
        touch {folder / name}/ready
        # The first process of a host takes care of orphans; `sleep` would leave them as zombies.
        while :; do sleep 3600 & wait $!; done
    """
    keeper = subprocess.Popen(
        ["unshare", "-n", "-m", "-p", "-u", "-f", "--mount-proc", "--kill-child", "bash", "-ec", script],
        stdin=subprocess.DEVNULL,
    )
    try:
        _wait_for(folder / name / "ready", keeper)
        inner = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split()[0]
        yield Host(name, int(inner), address, home)
    finally:
        keeper.kill()  # and with it everything on that host
        keeper.wait()


@contextlib.contextmanager
def _sshd(host: Host, folder: Path) -> Iterator[None]:
    _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key")])
    Path("/run/sshd").mkdir(exist_ok=True)
    (folder / "sshd_config").write_text(
        f"Port 22\nListenAddress {host.address}\nHostKey {folder}/host_key\nPidFile none\nUsePAM no\n"
        "StrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nUseDNS no\n"
        "Subsystem sftp internal-sftp\n"
    )
    with (folder / "sshd.log").open("wb") as log:
        command = host.command("/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd_config"))
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        server.kill()
        server.wait()


def _install_environment(home: Path) -> None:
    """`~/sweep-env` as an earlier installation left it: the packages of this environment, not the project."""
    environment = home / "sweep-env"
    _run([sys.executable, "-m", "venv", "--without-pip", str(environment)])
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    ray = environment / "bin" / "ray"
    ray.write_text(f"#!{environment}/bin/python\nimport sys\nfrom ray.scripts.scripts import main\nsys.exit(main())\n")
    ray.chmod(0o755)


def _wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert process.poll() is None, "the host did not start"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
