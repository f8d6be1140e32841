"""What travels to a cluster: this very code, the sweep file, the user's code and data, and nothing else."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

import yaml

from sweep.datasets.choice import labels
from sweep.errors import UserError
from sweep.seeds import source_of
from sweep.studies.spec import SweepSpec
from sweep.urls import has_secret

# The records' place on the head, unless the cluster's own environment names another.
REMOTE_HOME = "sweep-home"
_PACKAGES = ("sweep", "solvers", "dashboards")
_FILE, _DATA = "sweep.yaml", "data"
# Makes an upload unlike all others: Ray keeps equal ones once, and deletes that when one of their jobs ends, even while
# the next one starts.
_MARK = "upload-id"
# Ray refuses uploads of more than 500 MiB.
_LARGEST_UPLOAD = 400 * 2**20


def on_head(action: str, remote_home: str | None, *arguments: str) -> str:
    """Command of a small job that does something to the home on the head; see `sweep.remote.head`."""
    return " ".join(["exec python -m sweep.remote.head", action, home_there(remote_home), *arguments])


def home_there(remote_home: str | None) -> str:
    """The home on the head as a word of the shell there. Not below the working directory: that is a job's own."""
    return shlex.quote(remote_home) if remote_home else f'"${{SWEEP_HOME:-$HOME/{REMOTE_HOME}}}"'


def stage_project(folder: Path) -> None:
    """Copy the project's packages as they are here, for one job."""
    for name in _PACKAGES:
        found = importlib.util.find_spec(name)
        if found is not None and found.submodule_search_locations:
            source = Path(next(iter(found.submodule_search_locations)))
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / _MARK).write_text(uuid.uuid4().hex)


def stage(spec: SweepSpec, folder: Path, code: Mapping[str, bytes]) -> None:
    """Collect what the cluster needs in `folder`; `code` is the user's own, by path beside the sweep file."""
    stage_project(folder)
    for name, content in code.items():
        top = name.partition("/")[0]
        if top in (*_PACKAGES, _FILE, _DATA, _MARK):
            raise UserError(f"code: {top!r} is a name that a submitted sweep needs itself; rename yours")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    choices = []
    for label, choice in zip(labels(spec.datasets), spec.datasets, strict=True):
        path = Path(choice.name)
        if path.is_file():
            # Under its name in the sweep: two files of the same name stay two, with the seeds that they have here.
            place = Path(_DATA) / source_of(label)
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
    (folder / _FILE).write_text(yaml.safe_dump(values, sort_keys=False))


def refuse_credentials(spec: SweepSpec) -> None:
    """A sweep file travels to the cluster and is shown there: it must not hold a password."""
    content = spec.model_dump(mode="json")
    urls = {f"tracking.{name}": url for name, url in content["tracking"].items()}
    if isinstance(content["search"], dict):
        urls["search.optuna.storage"] = content["search"]["optuna"]["storage"]
    urls["notify.url"] = (content["notify"] or {}).get("url")
    for place, url in urls.items():
        if url and has_secret(url):
            raise UserError(
                f"{place}: leave the password out of the URL: put a variable of the head's environment "
                "in its place, as in user:$PGPASSWORD@host (docs/clusters.md)"
            )
