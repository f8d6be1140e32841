"""Small jobs on a cluster's head: print the records there, or ask a driver to stop."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweep.errors import UserError, first_line, last_line, nearest
from sweep.remote.head import ASKED
from sweep.remote.jobs import sweep_jobs, tail
from sweep.remote.staging import on_head, stage_project

# How long such a job may say nothing.
_SILENT_SECONDS = 600


def stop_job(client: Any, name: str) -> str:
    """Ask the driver of a sweep's running job to finish what runs, commit it and end; returns what to say."""
    running = [job for job in sweep_jobs(client) if job.status in ("PENDING", "RUNNING")]
    jobs = [job for job in running if job.metadata["sweep"] == name]
    if not jobs:
        others = sorted({job.metadata["sweep"] for job in running})
        hint = nearest(name, others) if others else " No sweep runs there."
        raise UserError(f"{name}: no job of this sweep is running on the cluster.{hint}")
    job = jobs[-1]
    if job.status == "PENDING":
        client.stop_job(job.submission_id)
        return f"{name}: {job.submission_id} had not begun and is taken back"
    command = on_head("stop", job.metadata.get("home") or None, "--name", shlex.quote(name))
    said = "".join(output_of(client, command, {}))
    if ASKED not in said:
        raise UserError(f"{name}: the head could not ask its driver to stop: {last_line(said)}")
    return (
        f"{name}: {job.submission_id} was asked to stop; it finishes what runs, and `sweep submit` goes on from there"
    )


def output_of(client: Any, command: str, files: dict[str, str]) -> Iterator[str]:
    """Run a command with this very code on the head; yields what it prints, piece by piece."""
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        stage_project(Path(folder))
        for name, content in files.items():
            (Path(folder) / name).write_text(content)
        try:
            job = client.submit_job(entrypoint=command, runtime_env={"working_dir": folder})
        except RuntimeError as error:
            raise UserError(f"the cluster refused the job: {last_line(str(error))}") from None
    try:
        yield from tail(client, job, _SILENT_SECONDS)
        info = client.get_job_info(job)
        if info.status == "FAILED" and info.driver_exit_code is None:  # it did not even begin
            yield f"\n{info.message}\n"
    except TimeoutError:
        raise UserError(f"no word from the head for {_SILENT_SECONDS} s; try again later") from None
    except (OSError, RuntimeError) as error:
        raise UserError(f"the connection to the head broke: {first_line(error)}; try again") from None
    finally:
        with contextlib.suppress(OSError, RuntimeError):  # not while it still runs
            client.delete_job(job)
