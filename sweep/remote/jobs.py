"""A cluster's job server: the way to it, through ssh where it has to be, and what runs there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sweep import exits
from sweep.engine.cluster import check_answers, use_token
from sweep.errors import UserError, first_line, last_line
from sweep.urls import hide, redacted

_TUNNEL_SECONDS = 60
# What `sweep run` writes now and then, and at the end.
_PROGRESS = re.compile(r"^[a-z0-9._-]+: (\d+(?:/\d+ fits, | fits computed, ).*)$", re.MULTILINE)
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
_CODES = (exits.FAILED_FITS, exits.USER_ERROR, exits.ENDED_EARLY, exits.DEFECT, exits.INTERRUPTED)


@contextlib.contextmanager
def job_server(address: str | None, cluster: str | None) -> Iterator[Any]:
    """Client of the job server at a URL, or of the one on the head of a cluster file."""
    if (address is None) == (cluster is None):
        raise UserError("expected either --cluster FILE or --address URL")
    if address is not None:
        yield _client(address)
        return
    assert cluster is not None
    with _tunnel(cluster) as url:
        yield _client(url)


def _client(url: str) -> Any:
    if not url.startswith(("http://", "https://")):
        raise UserError(
            f"--address: expected the URL of Ray's job server, as in http://127.0.0.1:8265, got {redacted(url)!r}"
        )
    hide(url)
    place = redacted(url)
    check_answers(url, f"--address: no job server of Ray answers at {place}")
    use_token()
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    try:
        client = JobSubmissionClient(url)
    except AuthenticationError:
        raise UserError(
            f"--address: {place} refused this user's token; put the cluster's token into ~/.ray/auth_token "
            "or RAY_AUTH_TOKEN"
        ) from None
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"--address: no job server of Ray answers at {place} ({first_line(error)})") from None
    for name in ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
        logging.getLogger(name).setLevel(logging.ERROR)  # they tell about every upload
    return client


@contextlib.contextmanager
def _tunnel(cluster: str) -> Iterator[str]:
    """URL on this machine that leads through ssh to the dashboard port of a cluster's head."""
    if not Path(cluster).is_file():
        raise UserError(f"--cluster: no such file: {cluster}; the folder clusters/ has one per kind of pool")
    port = _free_port()
    command = [sys.executable, "-m", "ray.scripts.scripts", "dashboard", cluster, "--port", str(port)]
    # A group of its own: Ctrl-C is for us, and must not cut the tunnel before we are done with it.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        _wait_for_port(port, process, cluster)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 15)  # Ray's command and the ssh that it started
        process.wait()


def _wait_for_port(port: int, process: subprocess.Popen[bytes], cluster: str) -> None:
    deadline = time.monotonic() + _TUNNEL_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            assert process.stdout is not None
            said = process.stdout.read().decode(errors="replace")
            raise UserError(f"--cluster: {cluster}: cannot reach its head: {last_line(said, 'no answer')}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    raise UserError(f"--cluster: {cluster}: no tunnel to its head within {_TUNNEL_SECONDS} s; is it up?")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def follow(client: Any, job: str, write: Callable[[str], object]) -> None:
    """Hand a job's output to `write` as it comes, until the job has ended."""
    shown = 0
    while True:
        try:
            skip = shown
            for text in tail(client, job):
                new, skip = text[skip:], max(0, skip - len(text))
                shown += len(new)
                write(new)
        except (OSError, RuntimeError):  # the connection broke; the job goes on, so look again
            time.sleep(2)
        if client.get_job_status(job) in _ENDED:
            return
        time.sleep(0.5)


def tail(client: Any, job: str, patience: float | None = None) -> Iterator[str]:
    """A job's output as it comes, until the job has ended; TimeoutError after `patience` seconds without any."""
    stream = client.tail_job_logs(job)
    loop = asyncio.new_event_loop()
    try:
        while True:
            try:
                yield loop.run_until_complete(asyncio.wait_for(anext(stream), patience))
            except StopAsyncIteration:
                return
    finally:
        loop.run_until_complete(stream.aclose())
        loop.close()


def exit_code(client: Any, job: str) -> int:
    """What the job's command returned: Ray's own client says 1 for anything but 0."""
    info = client.get_job_info(job)
    if info.status == "SUCCEEDED":
        return exits.DONE
    if info.status == "STOPPED":
        return exits.INTERRUPTED
    # A driver that was killed says nothing of fits; submitted again it goes on.
    return info.driver_exit_code if info.driver_exit_code in _CODES else exits.ENDED_EARLY


def sweep_jobs(client: Any, name: str | None = None) -> list[Any]:
    """Jobs that `sweep submit` started, oldest first; of one sweep, or of all."""
    jobs = [job for job in client.list_jobs() if (job.metadata or {}).get("sweep")]
    jobs = [job for job in jobs if name in (None, job.metadata["sweep"])]
    return sorted(jobs, key=lambda job: job.start_time or 0)


def job_rows(client: Any, name: str | None) -> list[dict[str, Any]]:
    """One row per job for `sweep status --address`."""
    rows = []
    for job in sweep_jobs(client, name):
        sweep = job.metadata["sweep"]
        lines = _PROGRESS.findall(client.get_job_logs(job.submission_id))
        rows.append(
            {
                "sweep": sweep,
                "job": job.submission_id,
                "state": str(job.status.value).lower(),
                "exit code": exit_code(client, job.submission_id) if job.status in _ENDED else None,
                "started": _clock(job.start_time),
                "ended": _clock(job.end_time),
                "progress": lines[-1] if lines else "",
            }
        )
    return rows


def _clock(milliseconds: int | None) -> str | None:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000)) if milliseconds else None
