"""MLflow as a simulation has it: in memory, gone at any moment; and whether a store says what the ledger says."""

from __future__ import annotations

import io
import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.store.mlflow_store import MlflowStore, open_store, store_of
from sweep.store.recording import Recorder
from sweep.store.run_contents import RunContent, experiments_of, run_contents


class Page(list[Any]):
    """What a search answers; there is no second page."""

    token = None


@dataclass
class MemoryMlflow:
    """The part of MLflow's client that a sweep uses. `passing` is called before and after each call takes effect."""

    passing: Callable[[str], None] = lambda point: None
    experiments: dict[str, SimpleNamespace] = field(default_factory=dict)
    runs: dict[str, SimpleNamespace] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name.startswith("_") or not hasattr(found, "__func__"):
            return found

        def call(*values: Any, **named: Any) -> Any:
            self.passing(f"before MLflow's {name}")
            answer = found(*values, **named)
            self.passing(f"after MLflow's {name}")
            return answer

        return call

    def get_experiment_by_name(self, name: str) -> SimpleNamespace | None:
        return next((e for e in self.experiments.values() if e.name == name), None)

    def get_experiment(self, number: str) -> SimpleNamespace:
        return self.experiments[number]

    def create_experiment(self, name: str, artifact_location: str | None = None) -> str:
        number = str(next(self.numbers))
        self.experiments[number] = SimpleNamespace(
            experiment_id=number, name=name, artifact_location=artifact_location, tags={}, lifecycle_stage="active"
        )
        return number

    def set_experiment_tag(self, number: str, name: str, value: str) -> None:
        self.experiments[number].tags[name] = value

    def search_runs(self, experiments: list[str], max_results: int = 0, page_token: str | None = None) -> Page:
        return Page(run for run in self.runs.values() if run.info.experiment_id in experiments)

    def create_run(self, experiment: str, start_time: int, tags: dict[str, str], run_name: str) -> SimpleNamespace:
        number = f"run{next(self.numbers)}"
        info = SimpleNamespace(
            run_id=number, experiment_id=experiment, status="RUNNING", artifact_uri="memory:", run_name=run_name,
            start_time=start_time, end_time=None,
        )  # fmt: skip
        data = SimpleNamespace(tags=dict(tags), metrics=[], params={}, files={})
        self.runs[number] = SimpleNamespace(info=info, data=data)
        return self.runs[number]

    def log_batch(self, number: str, metrics: list[Any], params: list[Any]) -> None:
        data = self.runs[number].data
        data.metrics += [(m.key, m.value, m.step) for m in metrics]
        data.params |= {p.key: p.value for p in params}

    def log_artifact(self, number: str, path: str) -> None:
        self.runs[number].data.files[Path(path).name] = Path(path).read_bytes()

    def set_terminated(self, number: str, status: str, end_time: int) -> None:
        self.runs[number].info.status, self.runs[number].info.end_time = status, end_time

    def delete_run(self, number: str) -> None:
        del self.runs[number]


class SimulatedRecorder(Recorder):
    """The recorder without its thread: it records when the schedule says so, in memory or to real MLflow."""

    def __init__(self, sweep: str, home: Home, ledger: Ledger, client: MemoryMlflow | None, due: Callable[[], bool]):
        super().__init__(sweep, "sqlite" if client is None else "memory:", None, home, ledger, lambda message: None)
        self._client, self._is_due = client, due

    def poke(self) -> None:
        if self._is_due():
            self._try_sync(complete=False)

    def _open(self) -> MlflowStore:
        if self._store is None and self._client is not None:
            names = experiments_of(self.sweep)
            store, self._store_id = store_of(self._client, names, None, self.ledger.id, local=False)
            self._present = store.present(self.ledger.old_run_ids())
            self._store = store
        return super()._open()


def assert_equals_ledger(client: MemoryMlflow, ledger: Ledger, home: Home, sweep: str) -> None:
    """Every run that the ledger stands for is in MLflow once, complete and the same; and no other."""
    expected = {run.run_key: run for run in run_contents(ledger, home, sweep)}
    named = {e.experiment_id: e.name for e in client.experiments.values()}
    runs = [run for run in client.runs.values() if named[run.info.experiment_id] in experiments_of(sweep)]
    assert sorted(run.data.tags["sweep.run_key"] for run in runs) == sorted(expected), "MLflow has other runs"
    for run in runs:
        wanted = expected[run.data.tags["sweep.run_key"]]
        assert named[run.info.experiment_id] == wanted.experiment
        _assert_same(run, wanted, dict(run.data.params), sorted(run.data.metrics), sorted(wanted.metrics))
        if wanted.artifact is not None:
            _assert_arrays(home, wanted, run.data.files["metric.npz"])


def assert_real_store_equals_ledger(ledger: Ledger, home: Home, sweep: str) -> None:
    """The same of MLflow's own store under the home."""
    import mlflow

    client = mlflow.MlflowClient(home.mlflow_url)
    expected = {run.run_key: run for run in run_contents(ledger, home, sweep)}
    experiments = [client.get_experiment_by_name(name) for name in experiments_of(sweep)]
    runs = [run for e in experiments if e is not None for run in client.search_runs([e.experiment_id])]
    assert sorted(run.data.tags["sweep.run_key"] for run in runs) == sorted(expected), "MLflow has other runs"
    for run in runs:
        wanted = expected[run.data.tags["sweep.run_key"]]
        # MLflow hands out the last step of each metric.
        last = {name: value for name, value, _ in sorted(wanted.metrics, key=lambda metric: metric[2])}
        _assert_same(run, wanted, run.data.params, run.data.metrics, last)
        if wanted.artifact is not None:
            folder = Path(unquote(urlsplit(run.info.artifact_uri).path))
            _assert_arrays(home, wanted, (folder / "metric.npz").read_bytes())


def _assert_same(run: Any, wanted: RunContent, params: Any, metrics: Any, wanted_metrics: Any) -> None:
    assert (run.info.status, run.info.run_name) == ("FINISHED", wanted.name)
    assert (run.info.start_time, run.info.end_time) == (wanted.start, wanted.end)
    assert run.data.tags["sweep.content"] == wanted.content, "MLflow says something else than the ledger"
    assert wanted.tags.items() <= run.data.tags.items()
    assert params == wanted.params
    assert metrics == wanted_metrics


def _assert_arrays(home: Home, wanted: RunContent, content: bytes) -> None:
    assert wanted.artifact is not None
    kept = home.read_artifact(*wanted.artifact)
    assert kept is not None
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        assert {n: a.tolist() for n, a in arrays.items()} == {n: a.tolist() for n, a in kept.items()}


def put_empty_store(home: Home) -> None:
    """An MLflow database with nothing in it, copied: MLflow takes seconds to make one."""
    home.mlflow_path.write_bytes(_empty_store())


@cache
def _empty_store() -> bytes:
    with TemporaryDirectory(prefix="sweep-mlflow-") as folder:
        home = Home(folder)
        open_store(home.mlflow_url, home, (), None, "")
        return home.mlflow_path.read_bytes()


def end_process(home: Home) -> None:
    """Close what MLflow keeps open for a process's life."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    SqlAlchemyStore._get_or_create_engine(home.mlflow_url).dispose()


def break_store(home: Home, how: str) -> None:
    """Lose MLflow's store, or damage it."""
    if how == "lost":
        put_empty_store(home)
        shutil.rmtree(home.mlflow_artifacts, ignore_errors=True)
    else:
        home.mlflow_path.write_bytes(b"broken" + home.mlflow_path.read_bytes()[6:])
