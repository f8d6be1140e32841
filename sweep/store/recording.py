"""From committed fits to MLflow runs. Repeatable: what was recorded already is not recorded twice.

Two experiments per sweep, because MLflow's charts show top-level runs only: `<sweep>` has one run
per (dataset, split, method), `<sweep>/trials` one per trial. A run is announced in the ledger
before it is created and confirmed after it is finished; an announced but unconfirmed one is what
a crash left behind, and is removed before it is written again.
"""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sweep import __version__
from sweep.errors import first_line
from sweep.fits import FitRecord, FitSpec
from sweep.seeds import digest
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.store.results import StudyRecords, group_records, result_row
from sweep.urls import expanded, redacted

_RUN_KEY = "sweep.run_key"
_MILLI = 1000
_HISTORY = 100  # points of a refit's course at most


@dataclass(frozen=True)
class RunContent:
    """All that an MLflow run says. Times come from the records, so that a repetition is identical."""

    run_key: str
    experiment: str
    name: str
    start: int
    end: int
    params: dict[str, str]
    metrics: list[tuple[str, float, int]]  # name, value, step
    tags: dict[str, str]
    description: str
    arrays: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def content(self) -> str:
        return digest({name: value for name, value in vars(self).items() if name != "arrays"})


class Recorder:
    """Writes to MLflow from a thread of its own, so that a slow or dead server never stops a sweep."""

    def __init__(
        self,
        sweep: str,
        tracking: str,
        artifacts: str | None,
        home: Home,
        ledger: Ledger,
        note: Callable[[str], None],
    ) -> None:
        self.sweep, self.home, self.ledger, self._note = sweep, home, ledger, note
        self.uri = home.mlflow_url if tracking == "sqlite" else expanded(tracking)
        self._artifacts = artifacts or (home.mlflow_artifacts.as_uri() if tracking == "sqlite" else None)
        self.store = redacted(self.uri)
        self._complained = False
        self._due = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def poke(self) -> None:
        """There is something new in the ledger."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="mlflow-recorder", daemon=True)
            self._thread.start()
        self._due.set()

    def finish(self) -> bool:
        """Stop the thread and record what is left; False if MLflow could not be reached."""
        if self._thread is not None:
            self._stop.set()
            self._due.set()
            self._thread.join()
        return self._try_sync()

    def _loop(self) -> None:
        while not self._stop.is_set():
            self._due.wait()
            self._due.clear()
            if self._stop.is_set():
                return
            start = time.monotonic()
            self._try_sync()
            # Reading the ledger grows with the sweep: keep it to a small share of the time.
            self._stop.wait(max(2.0, 10 * (time.monotonic() - start)))

    def _try_sync(self) -> bool:
        try:
            self.sync()
        except Exception as error:  # whatever MLflow, its store or the network raises
            if not self._complained:
                self._note(
                    f"MLflow at {self.store} cannot be reached ({first_line(error)[:160]}); the sweep goes on, "
                    "and `sweep run` again will record what is missing"
                )
            self._complained = True
            return False
        self._complained = False
        return True

    def sync(self) -> int:
        """Write every run that MLflow does not have yet; returns how many were written."""
        recorded = self.ledger.recorded_runs(self.store)
        # A sweep that was recorded as it stands is known by one digest, without a look at each of its runs.
        whole, state = f"sweep {self.sweep}", self.ledger.state_digest(self.sweep)
        if recorded.get(whole, ("", ""))[1] == state:
            return 0
        contents = list(self._contents())
        missing = [run for run in contents if recorded.get(run.run_key, ("", ""))[1] != run.content]
        client = self._client() if missing else None
        for run in missing:
            self._write(client, run, recorded.get(run.run_key))
        self.ledger.remember_run(self.store, whole, "", state)
        return len(missing)

    def _client(self) -> Any:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        import logging

        import mlflow

        for name in ("alembic", "mlflow"):
            logging.getLogger(name).setLevel(logging.ERROR)
        if self.uri == self.home.mlflow_url:
            _create_store(self.home)
        return mlflow.MlflowClient(tracking_uri=self.uri)

    def _write(self, client: Any, run: RunContent, previous: tuple[str, str] | None) -> None:
        from mlflow.entities import Metric, Param, RunTag

        experiment = self._experiment(client, run.experiment)
        if previous is not None:
            for run_id in self._leftovers(client, experiment, run.run_key, previous[0]):
                client.delete_run(run_id)
        self.ledger.remember_run(self.store, run.run_key, "", "")
        tags = run.tags | {
            _RUN_KEY: run.run_key,
            "mlflow.note.content": run.description,
            "mlflow.user": "sweep",
        }
        created = client.create_run(experiment, start_time=run.start, tags=tags, run_name=run.name)
        run_id = created.info.run_id
        client.log_batch(
            run_id,
            metrics=[Metric(name, value, run.end, step) for name, value, step in run.metrics],
            params=[Param(name, value) for name, value in run.params.items()],
            tags=[RunTag("sweep.recorded_by", f"orthosweep {__version__}")],
        )
        if run.arrays:
            self._write_arrays(client, run_id, run)
        client.set_terminated(run_id, "FINISHED", end_time=run.end)
        self.ledger.remember_run(self.store, run.run_key, run_id, run.content)

    def _write_arrays(self, client: Any, run_id: str, run: RunContent) -> None:
        import tempfile

        from dashboards.method_figure import write_method_figure

        with tempfile.TemporaryDirectory() as folder:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, allow_pickle=False, **run.arrays)
            path = Path(folder) / "metric.npz"
            path.write_bytes(buffer.getvalue())
            pictures = write_method_figure(run.params["method"], run.arrays, Path(folder))
            for file in (path, *pictures):
                client.log_artifact(run_id, str(file))

    def _leftovers(self, client: Any, experiment: str, run_key: str, run_id: str) -> list[str]:
        """Runs of this key that are there already: outdated, or half-written before a crash."""
        if run_id:
            return [run_id]
        found = client.search_runs([experiment], f"tags.`{_RUN_KEY}` = '{run_key}'")
        return [run.info.run_id for run in found]

    def _experiment(self, client: Any, name: str) -> str:
        found = client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        return str(client.create_experiment(name, artifact_location=self._artifacts))

    def _contents(self) -> Iterator[RunContent]:
        """What MLflow should hold, from the ledger alone."""
        about = self.ledger.about(self.sweep)
        common = {f"sweep.{name}": str(value) for name, value in about.items() if isinstance(value, str | int | float)}
        failures = self.ledger.failures(self.sweep)
        for study in group_records(self.ledger.records(self.sweep)):
            for folds in study.tuning.values():
                if len(folds) == study.folds:
                    yield _trial_run(self.sweep, study, [folds[i] for i in sorted(folds)], common)
            row = result_row(study, failures)
            if row is not None and study.refit is not None:
                yield _method_run(self.sweep, study, row, common, self.home)


def _create_store(home: Home) -> None:
    """Make the MLflow database under another name first: one killed half-way could not be opened again."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    path = home.folder / "mlflow.sqlite"
    if path.exists():
        return
    unfinished = home.folder / f".mlflow.sqlite.{os.getpid()}"
    unfinished.unlink(missing_ok=True)
    SqlAlchemyStore(f"sqlite:///{unfinished}", home.mlflow_artifacts.as_uri()).engine.dispose()
    unfinished.replace(path)


def _tags(study: StudyRecords, spec: FitSpec, record: FitRecord, common: dict[str, str]) -> dict[str, str]:
    return common | {
        "sweep.dataset": study.dataset,
        "sweep.split": str(study.split),
        "sweep.method": study.method,
        "sweep.seed": str(spec.seed),
        "sweep.data_fingerprint": spec.data,
        "sweep.host": str(record.place["host"]),
        "sweep.device": str(record.place["device"]),
        "sweep.numpy": str(record.place["numpy"]),
        "sweep.python": str(record.place["python"]),
    }


def _params(spec: FitSpec) -> dict[str, str]:
    params = {
        "dataset": spec.dataset,
        "split": spec.split,
        "method": spec.method,
        "gamma": spec.gamma,
        "rank": spec.rank,
        "restarts": spec.restarts,
        "algorithm": spec.algorithm,
        "scaling": spec.scaling,
        "pca": spec.pca,
        "seed": spec.seed,
        **dict(spec.settings),
    }
    return {name: str(value) for name, value in params.items() if value is not None}


def _end(record: FitRecord) -> float:
    return record.started + sum(record.seconds.get(phase, 0.0) for phase in ("transfer", "solve", "score"))


def _trial_run(
    sweep: str, study: StudyRecords, fits: list[tuple[FitSpec, FitRecord]], common: dict[str, str]
) -> RunContent:
    """A trial: fold scores as steps, and what its fits cost."""
    spec, record = fits[0]
    records = [r for _, r in fits]
    metrics: list[tuple[str, float, int]] = []
    for fold, r in enumerate(records):
        metrics.append(("fold_auc", r.score, fold))
        metrics += [
            (f"fold_{name}", r.fit[name], fold) for name in ("objective", "relative_gap") if _number(r.fit.get(name))
        ]
    metrics.append(("cv_auc", sum(r.score for r in records) / len(records), 0))
    metrics.append(("fit_seconds", sum(r.seconds["solve"] for r in records), 0))
    for name in ("objective", "relative_gap", "rank", "n_eigh", "n_iter"):
        values = [r.fit[name] for r in records if _number(r.fit.get(name))]
        if values:
            worst_or_mean = max(values) if name == "relative_gap" else sum(values) / len(values)
            metrics.append((name, float(worst_or_mean), 0))
    setting = " ".join(
        part
        for part in (
            f"gamma={spec.gamma:g}" if spec.gamma is not None else "",
            f"rank={spec.rank}" if spec.rank else "",
        )
        if part
    )
    return RunContent(
        run_key=digest([sweep, "trial", [s.key for s, _ in fits]])[:32],
        experiment=f"{sweep}/trials",
        name=f"{study.method} {setting} ({study.dataset}, split {study.split})",
        start=int(min(r.started for r in records) * _MILLI),
        end=int(max(_end(r) for r in records) * _MILLI),
        params=_params(spec),
        metrics=metrics,
        tags=_tags(study, spec, record, common) | {"sweep.kind": "trial"},
        description=f"{study.method} with {setting} on {study.folds} folds of {study.dataset}, split {study.split}.",
    )


def _method_run(sweep: str, study: StudyRecords, row: dict[str, Any], common: dict[str, str], home: Home) -> RunContent:
    """A method: the refit of its best trial, scored on the test part, with all that tuning cost."""
    assert study.refit is not None
    spec, record = study.refit
    metrics = [
        (name, float(value), 0)
        for name, value in row.items()
        if _number(value) and name not in ("split", "gamma", "rank")
    ]
    metrics += [
        (name.replace("theory.", "theory/"), float(value), 0) for name, value in record.theory.items() if _number(value)
    ]
    best: float = float("-inf")
    objectives = record.fit.get("restart_objectives") or []
    for m, objective in enumerate(objectives, start=1):
        best = max(best, -objective)
        metrics.append(("best_objective_of_m_restarts", -best, m))
    arrays = (home.read_artifact(spec.key, record.artifact) if record.artifact else None) or {}
    for name in ("gap", "objective"):
        steps, values = arrays.get("history_n_eigh", ()), arrays.get(f"history_{name}", ())
        metrics += [(f"refit_{name}", float(v), int(n)) for n, v in zip(steps, values, strict=False)][-_HISTORY:]
    return RunContent(
        run_key=digest([sweep, "method", study.dataset, study.split, study.method])[:32],
        experiment=sweep,
        name=f"{study.method} ({study.dataset}, split {study.split})",
        start=int(min(r.started for _, r in [*study.tuning_fits, study.refit]) * _MILLI),
        end=int(_end(record) * _MILLI),
        params=_params(spec),
        metrics=metrics,
        tags=_tags(study, spec, record, common) | {"sweep.kind": "method"},
        description=(
            f"{study.method} on {study.dataset}, split {study.split}: the best of {len(study.tuning) or 1} settings, "
            f"refitted on the whole training part and scored on the test part. metric.npz holds components (L)."
        ),
        arrays=arrays,
    )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
