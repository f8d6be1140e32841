"""Hands a sweep to a Ray cluster as a job, and attaches to it if it runs there already."""

from __future__ import annotations

import hashlib
import importlib.util
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from sweep import __version__
from sweep.datasets.choice import labels
from sweep.errors import UserError, last_line
from sweep.remote.jobs import follow, sweep_jobs
from sweep.seeds import digest, source_of
from sweep.studies.spec import SweepSpec
from sweep.urls import has_secret

# The records' place on the head, unless the cluster's own environment names another.
REMOTE_HOME = "~/sweep-home"
_PACKAGES = ("sweep", "solvers", "dashboards")
# Ray refuses uploads of more than 500 MiB.
_LARGEST_UPLOAD = 400 * 2**20


def submit(
    client: Any, spec: SweepSpec, remote_home: str | None, say: Callable[[str], None], *, code: Mapping[str, bytes]
) -> str:
    """Start the sweep as a job, or find the one that runs already; returns its submission id."""
    refuse_credentials(spec)
    identity = submission_id(spec)
    earlier = [job for job in sweep_jobs(client) if job.metadata.get("identity") == identity]
    if earlier and earlier[-1].status in ("PENDING", "RUNNING"):
        say(f"{earlier[-1].submission_id} runs already: attaching")
        return str(earlier[-1].submission_id)
    # Ray takes an id once; what a finished job left behind is gone on with under the next number.
    job = identity if not earlier else f"{identity}-{len(earlier) + 1}"
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        stage(spec, Path(folder), code)
        try:
            client.submit_job(
                entrypoint=entrypoint(remote_home),
                submission_id=job,
                metadata={"sweep": spec.name, "identity": identity, "version": __version__},
                runtime_env={"working_dir": folder},
            )
        except RuntimeError as error:
            if "already exists" not in str(error):
                reason = last_line(str(error), type(error).__name__)
                raise UserError(f"the cluster refused the job: {reason}") from None
            say(f"{job} was submitted by somebody else at the same moment: attaching")
            return job
    say(f"submitted as {job}")
    return job


def submission_id(spec: SweepSpec) -> str:
    """Name and content of a sweep as one word: the same sweep gets the same id everywhere."""
    content = spec.model_dump(mode="json")
    for choice in content["datasets"]:
        path = Path(choice["name"])
        if path.is_file():
            choice["name"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"sweep-{spec.name}-{digest(content)[:10]}"


def entrypoint(remote_home: str | None) -> str:
    """The job's command. `exec`: signals and exit code are the sweep's, not a shell's."""
    home = shlex.quote(remote_home) if remote_home else '"${SWEEP_HOME:-$HOME/' + REMOTE_HOME[2:] + '}"'
    return f"exec python -m sweep run sweep.yaml --address auto --home {home}"


def stage(spec: SweepSpec, folder: Path, code: Mapping[str, bytes]) -> None:
    """Collect what the cluster needs and nothing else: this very code, the sweep file, the user's data."""
    for name in _PACKAGES:
        found = importlib.util.find_spec(name)
        if found is not None and found.submodule_search_locations:
            source = Path(next(iter(found.submodule_search_locations)))
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, content in code.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    choices = []
    for label, choice in zip(labels(spec.datasets), spec.datasets, strict=True):
        path = Path(choice.name)
        if path.is_file():
            # Under its name in the sweep: two files of the same name stay two, with the seeds that they have here.
            place = Path("data") / source_of(label)
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / place)
            choice = choice.model_copy(update={"name": place.as_posix()})
        elif path.suffix and not path.is_absolute():
            raise UserError(f"{path}: no such file; a dataset that is on the cluster only needs its full path there")
        choices.append(choice)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > _LARGEST_UPLOAD:
        raise UserError(
            f"datasets: {size / 2**20:.0f} MB to upload, expected at most {_LARGEST_UPLOAD / 2**20:.0f}; "
            "copy the files to the cluster's shared storage and give their full paths there"
        )
    values = spec.model_copy(update={"datasets": choices}).model_dump(mode="json")
    (folder / "sweep.yaml").write_text(yaml.safe_dump(values, sort_keys=False))


def refuse_credentials(spec: SweepSpec) -> None:
    """A sweep file travels to the cluster and is shown there: it must not hold a password."""
    content = spec.model_dump(mode="json")
    urls = {f"tracking.{name}": url for name, url in content["tracking"].items()}
    if isinstance(content["search"], dict):
        urls["search.optuna.storage"] = content["search"]["optuna"]["storage"]
    urls["notify.url"] = (content.get("notify") or {}).get("url")
    for place, url in urls.items():
        if url and has_secret(url):
            raise UserError(
                f"{place}: leave the password out of the URL: put a variable of the head's environment "
                "in its place, as in user:$PGPASSWORD@host (docs/clusters.md)"
            )


def attach(client: Any, job: str, say: Callable[[str], None]) -> bool:
    """Show a job's output until it ends; False if Ctrl-C detached from it before."""
    try:
        follow(client, job, lambda text: sys.stderr.write(text) and sys.stderr.flush())
    except KeyboardInterrupt:
        say(f"\ndetached: {job} goes on. The same command attaches again; `ray job stop {job}` ends it")
        return False
    return True
