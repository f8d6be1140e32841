"""What MLflow should hold of a sweep, from the ledger's records alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from sweep.fits import FitRecord, FitSpec, mean
from sweep.seeds import digest
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.store.results import ResultRow, StudyRecords, group_records, result_row, value_of

_MILLI = 1000
_HISTORY = 100  # points of a refit's course at most
_PARAM_LENGTH, _TAG_LENGTH = 6000, 5000  # characters that MLflow takes
_NO_METRICS = {"split", "gamma", "rank"}  # numbers of a result row that are settings
_FIT_NUMBERS = ("objective", "relative_gap", "rank", "n_eigh", "n_iter")

Fit = tuple[FitSpec, FitRecord]
Metric = tuple[str, float, int]  # name, value, step


@dataclass(frozen=True)
class RunContent:
    """All that an MLflow run says. Times come from the records, so that a repetition is identical."""

    run_key: str
    experiment: str
    name: str
    start: int
    end: int
    params: dict[str, str]
    metrics: list[Metric]
    tags: dict[str, str]
    description: str
    artifact: tuple[str, str] | None = None  # key and checksum of the arrays that belong to it

    @property
    def content(self) -> str:
        return digest(vars(self))


def experiments_of(sweep: str) -> tuple[str, str]:
    """Two per sweep, because MLflow's charts show top-level runs only: methods, and trials."""
    return sweep, f"{sweep}/trials"


def run_contents(ledger: Ledger, home: Home, sweep: str) -> Iterator[RunContent]:
    """One run per (dataset, split, method) whose refit is there, one per trial that has all folds."""
    about = ledger.about(sweep)
    common = {f"sweep.{name}": str(value) for name, value in about.items() if isinstance(value, str | int | float)}
    failures = ledger.failures(sweep)
    select = ledger.sweeps().get(sweep, {}).get("select", "best")
    for study in group_records(ledger.records(sweep), select):
        for folds in study.tuning.values():
            if len(folds) == study.folds:
                yield _trial_run(sweep, study, [folds[i] for i in sorted(folds)], common)
        row = result_row(study, failures)
        if row is not None and study.refit is not None:
            yield _method_run(sweep, study, study.refit, row, common, home)


def _trial_run(sweep: str, study: StudyRecords, fits: list[Fit], common: dict[str, str]) -> RunContent:
    """A trial: fold scores as steps, and what its fits cost."""
    spec, record = fits[0]
    records = [r for _, r in fits]
    scores = [value_of(fit) for fit in fits]
    metrics: list[Metric] = [("cv_score", mean(scores), 0), ("fit_seconds", sum(r.seconds.solve for r in records), 0)]
    for fold, (score, r) in enumerate(zip(scores, records, strict=True)):
        metrics.append(("fold_score", score, fold))
        metrics += _metrics({"fold_auc": r.scores.auc_all}, fold)
        metrics += _metrics({f"fold_{name}": getattr(r.fit, name) for name in ("objective", "relative_gap")}, fold)
    areas = [r.scores.auc_all for r in records if r.scores.auc_all is not None]
    metrics += _metrics({"cv_auc": mean(areas) if len(areas) == len(records) else None})
    for name in _FIT_NUMBERS:
        values = [getattr(r.fit, name) for r in records if getattr(r.fit, name) is not None]
        if values:
            metrics.append((name, float(max(values) if name == "relative_gap" else mean(values)), 0))
    setting = spec.trial.label
    return RunContent(
        run_key=digest([sweep, "trial", [s.key for s, _ in fits]])[:32],
        experiment=experiments_of(sweep)[1],
        name=_name(study.method, setting, study),
        start=int(min(r.started for r in records) * _MILLI),
        end=int(max(r.ended for r in records) * _MILLI),
        params=_params(spec),
        metrics=metrics,
        tags=_tags(study, spec, record, common) | {"sweep.kind": "trial"},
        description=f"{study.method} with {setting or 'nothing tuned'} on {study.folds} folds of {study.dataset}, "
        f"split {study.split}.",
    )


def _method_run(
    sweep: str, study: StudyRecords, refit: Fit, row: ResultRow, common: dict[str, str], home: Home
) -> RunContent:
    """A method: the refit of its best trial, scored on the test part, with all that tuning cost."""
    spec, record = refit
    metrics = _metrics({name: value for name, value in row.to_dict().items() if name not in _NO_METRICS})
    metrics += _metrics({name.replace("theory.", "theory/"): value for name, value in record.theory.items()})
    best = accumulate(record.fit.restart_objectives or (), min)
    metrics += [("best_objective_of_m_restarts", value, m) for m, value in enumerate(best, start=1)]
    arrays = (home.read_artifact(spec.key, record.artifact) if record.artifact else None) or {}
    steps = arrays.get("history_n_eigh", ())
    for name in ("gap", "objective"):
        course = zip(steps, arrays.get(f"history_{name}", ()), strict=False)
        metrics += [(f"refit_{name}", float(v), int(n)) for n, v in course if math.isfinite(v)][-_HISTORY:]
    settings = len(study.tuning) or 1
    return RunContent(
        run_key=digest([sweep, "method", study.dataset, study.split, study.method])[:32],
        experiment=experiments_of(sweep)[0],
        name=_name(study.method, "", study),
        start=int(min(r.started for _, r in [*study.tuning_fits, refit]) * _MILLI),
        end=int(record.ended * _MILLI),
        params=_params(spec),
        metrics=metrics,
        tags=_tags(study, spec, record, common) | {"sweep.kind": "method"},
        description=f"{study.method} on {study.dataset}, split {study.split}: the best of {settings} settings, "
        "refitted on the whole training part and scored on the test part. metric.npz holds components (L).",
        artifact=(spec.key, record.artifact) if record.artifact and arrays else None,
    )


def _name(method: str, setting: str, study: StudyRecords) -> str:
    return f"{' '.join(part for part in (method, setting) if part)} ({study.dataset}, split {study.split})"[:250]


def _tags(study: StudyRecords, spec: FitSpec, record: FitRecord, common: dict[str, str]) -> dict[str, str]:
    tags = common | {
        "sweep.dataset": study.dataset,
        "sweep.split": str(study.split),
        "sweep.method": study.method,
        "sweep.method_version": spec.version,
        "sweep.score": spec.score,
        "sweep.seed": str(spec.seed),
        "sweep.data_fingerprint": spec.data,
        "sweep.host": record.place.host,
        "sweep.device": record.place.device,
        "sweep.numpy": record.place.numpy,
        "sweep.python": record.place.python,
    }
    return {name: value[:_TAG_LENGTH] for name, value in tags.items()}


def _params(spec: FitSpec) -> dict[str, str]:
    params: dict[str, Any] = {
        **dict(spec.settings),
        **dict(spec.fixed),
        **dict(spec.trial.values),
        "dataset": spec.dataset,
        "split": spec.split,
        "method": spec.method,
        "restarts": spec.restarts,
        "algorithm": spec.algorithm,
        "scaling": spec.scaling,
        "pca": spec.pca,
        "seed": spec.seed,
        "estimator": spec.estimator or None,
    }
    return {name: str(value)[:_PARAM_LENGTH] for name, value in params.items() if value is not None}


def _metrics(values: Mapping[str, Any], step: int = 0) -> list[Metric]:
    """Those values that are numbers."""
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return [
        (name, float(value), step)
        for name, value in numbers.items()
        if not isinstance(value, bool) and math.isfinite(value)
    ]
