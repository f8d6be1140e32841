"""An MLflow store as a sweep uses it: known by an id inside it, its runs found by their tags.

What a store holds is read from the store, never assumed: one that was moved, deleted or damaged is written anew.
A run is complete when it is finished and its content's digest stands on it; whatever else a crash left is replaced.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
from sqlalchemy import Integer, Text, column, func, select, table
from sqlalchemy.exc import DBAPIError

from sweep import __version__
from sweep.store.database import readonly_sqlite_database
from sweep.store.home import Home
from sweep.store.repair import free_name, is_sound, move_database
from sweep.store.run_contents import RunContent

Pictures = Callable[[str, Mapping[str, np.ndarray], Path], list[Path]]

_RUN_KEY, _CONTENT, _OWNER, _STORE = "sweep.run_key", "sweep.content", "sweep.ledger", "sweep.store"
_PAGE = 1000
_BATCH = 1000  # metrics per call that MLflow takes


@dataclass(frozen=True)
class Present:
    """A run that a store holds."""

    run_id: str
    content: str  # empty unless it is complete
    artifacts: str


class MlflowStore:
    """The runs of one sweep in one store."""

    def __init__(self, client: Any, experiments: Mapping[str, str], owner: str, *, claims_all: bool) -> None:
        self._client, self._experiments, self._owner, self._claims_all = client, experiments, owner, claims_all

    def present(self, recorded: Iterable[str] = ()) -> dict[str, list[Present]]:
        """The sweep's runs by run key. `recorded` are ids of runs that an older version wrote without an owner."""
        known, found = set(recorded), dict[str, list[Present]]()
        for run in self._runs():
            tags, info = run.data.tags, run.info
            ours = self._claims_all or info.run_id in known if _OWNER not in tags else tags[_OWNER] == self._owner
            if _RUN_KEY in tags and (ours or self._claims_all):
                content = tags.get(_CONTENT, "") if info.status == "FINISHED" else ""
                found.setdefault(tags[_RUN_KEY], []).append(Present(info.run_id, content, info.artifact_uri))
        return found

    def _runs(self) -> Iterator[Any]:
        for experiment in self._experiments.values():
            token = None
            while True:
                page = self._client.search_runs([experiment], max_results=_PAGE, page_token=token)
                yield from page
                if not (token := page.token):
                    break

    def write(self, run: RunContent, files: Callable[[Path], list[Path]]) -> Present:
        """Add a run; `files` writes what belongs to it into a folder."""
        from mlflow.entities import Metric, Param

        tags = run.tags | {
            _RUN_KEY: run.run_key,
            _CONTENT: run.content,
            _OWNER: self._owner,
            "sweep.recorded_by": f"orthosweep {__version__}",
            "mlflow.note.content": run.description,
            "mlflow.user": "sweep",
        }
        experiment = self._experiments[run.experiment]
        created = self._client.create_run(experiment, start_time=run.start, tags=tags, run_name=run.name)
        run_id = created.info.run_id
        metrics = [Metric(name, value, run.end, step) for name, value, step in run.metrics]
        params = [Param(name, value) for name, value in run.params.items()]
        for start in range(0, max(len(metrics), 1), _BATCH):
            # Their own limit is 100, which no method comes near.
            self._client.log_batch(run_id, metrics=metrics[start : start + _BATCH], params=params if not start else [])
        with tempfile.TemporaryDirectory(prefix="sweep-run-") as folder:
            for file in files(Path(folder)):
                self._client.log_artifact(run_id, str(file))
        self._client.set_terminated(run_id, "FINISHED", end_time=run.end)
        return Present(run_id, run.content, created.info.artifact_uri)

    def delete(self, run: Present) -> None:
        """Remove a run that is not true any more, with its files where they are on this machine."""
        self._client.delete_run(run.run_id)
        place = urlsplit(run.artifacts)
        folder = Path(unquote(place.path))
        if place.scheme == "file" and folder.parent.name == run.run_id:
            shutil.rmtree(folder.parent, ignore_errors=True)


def open_store(
    uri: str, home: Home, names: Iterable[str], artifacts: str | None, owner: str
) -> tuple[MlflowStore, str]:
    """The store at a URI with the experiments of a sweep, and the id that is inside it."""
    _quieten()
    import mlflow

    local = uri == home.mlflow_url
    if local:
        _create(home)
    return store_of(mlflow.MlflowClient(tracking_uri=uri), names, artifacts, owner, local=local)


def store_of(
    client: Any, names: Iterable[str], artifacts: str | None, owner: str, *, local: bool
) -> tuple[MlflowStore, str]:
    """`open_store` for a client; `local`: the store is the home's own, and so are all its runs."""
    experiments = {name: _experiment(client, name, artifacts, moved=local) for name in names}
    return MlflowStore(client, experiments, owner, claims_all=local), _id_in(client, experiments.values())


def glimpse(home: Home, names: tuple[str, ...], artifacts: str | None) -> str | None:
    """Id of the home's store and how many complete runs these experiments have; None if there is no telling.

    Without MLflow, whose import takes longer than a finished sweep needs.
    """
    if not home.mlflow_path.exists():
        return None
    experiment, value = column("experiment_id", Integer), column("value", Text)
    active, finished = column("lifecycle_stage", Text) == "active", column("status", Text) == "FINISHED"
    named = column("name", Text).in_(names) & (column("artifact_location", Text) == artifacts)  # not of a moved home
    of_sweep = select(experiment).select_from(table("experiments")).where(named, active)
    tagged = (column("key", Text) == _STORE) & experiment.in_(of_sweep)
    ids = select(value).select_from(table("experiment_tags")).where(tagged).order_by(value)
    runs = select(func.count()).select_from(table("runs")).where(experiment.in_(of_sweep), active, finished)
    database = readonly_sqlite_database(home.mlflow_path)
    try:
        with database.engine.connect() as connection:
            found, count = connection.execute(ids).scalars().all(), connection.execute(runs).scalar()
    except DBAPIError:
        return None
    finally:
        database.close()
    return f"{' '.join(map(str, found))} {count}" if len(found) == len(names) else None


def set_damaged_store_aside(home: Home) -> Path | None:
    """Make room for a new store if the home's is damaged; returns where it is now."""
    if not home.mlflow_path.exists() or is_sound(home.mlflow_path):
        return None
    aside = free_name(home.mlflow_path)
    move_database(home.mlflow_path, aside)
    return aside


def _quieten() -> None:
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    import mlflow  # noqa: F401 - it sets the levels of its loggers when it is imported

    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _create(home: Home) -> None:
    """Make the MLflow database under another name first: one killed half-way could not be opened again."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    if home.mlflow_path.exists() and home.mlflow_path.stat().st_size:
        return
    unfinished = home.folder / f".mlflow.sqlite.{os.getpid()}"
    unfinished.unlink(missing_ok=True)
    SqlAlchemyStore(f"sqlite:///{unfinished}", home.mlflow_artifacts.as_uri()).engine.dispose()
    unfinished.replace(home.mlflow_path)
    with contextlib.suppress(AttributeError):
        # MLflow keeps connections of this process, which would go on writing into the file that was here before.
        SqlAlchemyStore._get_or_create_engine(home.mlflow_url).dispose()


def _experiment(client: Any, name: str, artifacts: str | None, *, moved: bool) -> str:
    """Id of an experiment, made if need be; `moved`: one whose files are elsewhere gives way to a new one."""
    found = client.get_experiment_by_name(name)
    if found is not None and found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    if found is not None and moved and found.artifact_location != artifacts:
        client.rename_experiment(found.experiment_id, f"{name} (until {uuid.uuid4().hex[:8]})")
        client.delete_experiment(found.experiment_id)
        found = None
    if found is not None:
        return str(found.experiment_id)
    return str(client.create_experiment(name, artifact_location=artifacts))


def _id_in(client: Any, experiments: Iterable[str]) -> str:
    """The ids that the experiments carry, given to those that have none."""
    ids = []
    for experiment in experiments:
        tags = client.get_experiment(experiment).tags
        if _STORE not in tags:
            client.set_experiment_tag(experiment, _STORE, uuid.uuid4().hex)
            tags = client.get_experiment(experiment).tags
        ids.append(tags[_STORE])
    return " ".join(sorted(ids))
