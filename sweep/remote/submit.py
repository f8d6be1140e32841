"""Hands a sweep to a Ray cluster as a job, and attaches to it if it runs there already."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweep import __version__
from sweep.errors import UserError, last_line
from sweep.remote.jobs import follow, sweep_jobs
from sweep.remote.staging import home_there, refuse_credentials, stage
from sweep.seeds import digest
from sweep.studies.spec import SweepSpec


def submit(
    client: Any, spec: SweepSpec, remote_home: str | None, say: Callable[[str], None], *, code: Mapping[str, bytes]
) -> str:
    """Start the sweep as a job, or find the one that runs already; returns its submission id.

    `code` is the user's own, by path beside the sweep file.
    """
    refuse_credentials(spec)
    identity = submission_id(spec, code)
    earlier = [job for job in sweep_jobs(client) if job.metadata.get("identity") == identity]
    if earlier and earlier[-1].status in ("PENDING", "RUNNING"):
        say(f"{earlier[-1].submission_id} runs already: attaching")
        return str(earlier[-1].submission_id)
    # Ray takes an id once; what a finished job left behind is gone on with under the next number.
    job = identity if not earlier else f"{identity}-{len(earlier) + 1}"
    with tempfile.TemporaryDirectory(prefix="sweep-") as upload:
        stage(spec, Path(upload), code)
        try:
            client.submit_job(
                entrypoint=entrypoint(remote_home),
                submission_id=job,
                metadata={
                    "sweep": spec.name,
                    "identity": identity,
                    "version": __version__,
                    "home": remote_home or "",
                },
                runtime_env={"working_dir": upload},
            )
        except RuntimeError as error:
            if "already exists" not in str(error):
                reason = last_line(str(error), type(error).__name__)
                raise UserError(f"the cluster refused the job: {reason}") from None
            say(f"{job} was submitted by somebody else at the same moment: attaching")
            return job
    say(f"submitted as {job}")
    return job


def submission_id(spec: SweepSpec, code: Mapping[str, bytes]) -> str:
    """Name and content of a sweep as one word: the same sweep gets the same id everywhere."""
    content = spec.model_dump(mode="json")
    content["code"] = {name: hashlib.sha256(source).hexdigest() for name, source in sorted(code.items())}
    for choice in content["datasets"]:
        path = Path(choice["name"])
        if path.is_file():
            choice["name"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"sweep-{spec.name}-{digest(content)[:10]}"


def entrypoint(remote_home: str | None) -> str:
    """The job's command. `exec`: signals and exit code are the sweep's, not a shell's."""
    return f"exec python -m sweep run sweep.yaml --address auto --home {home_there(remote_home)}"


def attach(client: Any, job: str, say: Callable[[str], None]) -> bool:
    """Show a job's output until it ends; False if Ctrl-C detached from it before."""
    try:
        follow(client, job, lambda text: sys.stderr.write(text) and sys.stderr.flush())
    except KeyboardInterrupt:
        say(f"\ndetached: {job} goes on. The same command attaches again; `sweep stop` ends it")
        return False
    return True
