"""A learned metric with all that comes before it, as an MLflow model: code as text, arrays as .npz, nothing pickled."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sweep.datasets.card import open_preprocessing
from sweep.datasets.choice import DatasetChoice, labels
from sweep.datasets.features import Preprocessing
from sweep.errors import UserError, nearest
from sweep.fits import FitSpec
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.store.results import ResultRow, group_records, result_row
from sweep.store.saved_model import register_model, save_model


def export_metric(
    home: Home,
    ledger: Ledger,
    name: str,
    *,
    method: str | None = None,
    dataset: str | None = None,
    output: str | None = None,
    register: str | None = None,
    data: Mapping[str, DatasetChoice] | None = None,
    note: Callable[[str], None],
) -> Path:
    """Write the best metric of a method, with the preprocessing it was learned behind; the model's folder.

    Raw rows go in (a dataset's features before scaling and PCA, or its texts), and squared Euclidean
    distance between the rows that come out is the learned distance. Scaling, PCA and dictionary are
    fitted again on the split's training part, as they were for the fits, so the data must be there.

    Parameters
    ----------
    method, dataset : the method with the best cross-validated score, and the only dataset, if not given.
        Of several splits, the one with the best cross-validated score is taken.
    output : folder to create.
    register : name under which the model is registered in the home's MLflow store.
    data : choices by label, where those of the sweep file are not enough (data in memory).
    """
    row, spec, arrays = choose_refit(home, ledger, name, method=method, dataset=dataset, linear=True)
    folder = Path(output).expanduser() if output else home.folder / "exports" / f"{name}-{row.method}"
    if folder.exists() and not (folder / "MLmodel").is_file():
        raise UserError(f"-o: {folder} exists and is no exported model; name another folder")
    steps = fitted_preprocessing(home, ledger, name, spec, data or {})
    L = arrays["components"]
    n_features = steps.n_features if steps.components is None else steps.components.shape[1]
    if L.shape[1] != n_features:
        raise UserError(f"{name}: {row.method} maps {L.shape[1]} features, but {spec.dataset} has {n_features} now")
    if folder.exists():
        shutil.rmtree(folder)
    save_model(folder, steps, L, _facts(name, row, spec))
    score = "" if row.cv_score is None else f"cross-validated {row.score} {row.cv_score:.4f}, "
    note(
        f"{row.method} on {row.dataset}, split {row.split}: {L.shape[0]} projection vectors, {score}"
        f"test AUC {row.auc_all:.4f}; takes raw {_shape(steps)}"
    )
    if register:
        tracking = ledger.sweeps()[name]["tracking"]
        note(f"registered as {register}, version {register_model(home, tracking, folder, register)}")
    return folder


def choose_refit(
    home: Home,
    ledger: Ledger,
    name: str,
    *,
    method: str | None = None,
    dataset: str | None = None,
    split: int | None = None,
    linear: bool = False,
) -> tuple[ResultRow, FitSpec, dict[str, np.ndarray]]:
    """The row, the spec and the arrays of the refit that is asked for, or of the best; `linear`: with its map."""
    found = []
    select = ledger.sweeps()[name].get("select", "best")
    for study in group_records(ledger.records(name), select):
        row = result_row(study)
        kept = row is not None and study.refit is not None and study.refit[1].artifact
        if row is not None and study.refit is not None and kept and split in (None, study.split):
            found.append((row, *study.refit))
    if not found:
        raise UserError(f"{name}: no method has its result yet; let `sweep run` finish")
    for option, column, wanted in (("--method", "method", method), ("--dataset", "dataset", dataset)):
        names = list(dict.fromkeys(getattr(row, column) for row, _, _ in found))
        if wanted is not None and wanted not in names:
            raise UserError(f"{option}: {wanted!r} has no result in {name}.{nearest(wanted, names)}")
        if wanted is not None:
            found = [entry for entry in found if getattr(entry[0], column) == wanted]
        elif column == "dataset" and len(names) > 1:
            raise UserError(f"--dataset: {name} has several, choose one of {', '.join(names)}")
    for row, spec, record in sorted(found, key=_preference([row for row, _, _ in found])):
        arrays = home.read_artifact(spec.key, record.artifact or "")
        if arrays is not None and ("components" in arrays or not linear):
            return row, spec, arrays
    chosen = ", ".join(dict.fromkeys(row.method for row, _, _ in found))
    raise UserError(
        f"{name}: nothing of {chosen} can be exported: a model needs `components_`, the linear map of a fitted"
        " estimator, and none was kept with its refit"
    )


def _preference(rows: list[ResultRow]) -> Callable[[Any], tuple[float, ...]]:
    """Order of export: by the method's mean cross-validated score, then the split's; never by the test part."""
    scores: dict[str, list[float]] = {}
    for row in rows:
        scores.setdefault(row.method, []).append(_score(row))
    means = {method: sum(values) / len(values) for method, values in scores.items()}
    return lambda entry: (-means[entry[0].method], -_score(entry[0]), entry[0].split)


def _score(row: ResultRow) -> float:
    # A method without hyperparameters has no such score: it comes last, and only it has no other.
    sign = 1.0 if row.larger_is_better else -1.0
    return float("-inf") if row.cv_score is None else sign * row.cv_score


def fitted_preprocessing(
    home: Home, ledger: Ledger, name: str, spec: FitSpec, data: Mapping[str, DatasetChoice]
) -> Preprocessing:
    """The steps before the fit, fitted again on the same training part."""
    choice = choice_of(ledger, name, spec, data)
    try:
        return open_preprocessing(choice, home.data, spec.split, spec.seed, label=spec.dataset, fingerprint=spec.data)
    except UserError as error:
        raise UserError(f"export needs the data of {spec.dataset} to fit its scaling again: {error}") from error


def choice_of(ledger: Ledger, name: str, spec: FitSpec, data: Mapping[str, DatasetChoice]) -> DatasetChoice:
    """The dataset of a fit, with the options that the fit saw: the sweep file may have changed since."""
    choice = data.get(spec.dataset)
    if choice is None:
        choices = [DatasetChoice.model_validate(each) for each in ledger.sweeps()[name]["datasets"]]
        choice = dict(zip(labels(choices), choices, strict=True)).get(spec.dataset)
    if choice is None:
        raise UserError(f"{name}: {spec.dataset} is no longer in the sweep file, so its preprocessing is not known")
    return choice.model_copy(update={"scaling": spec.scaling, "pca": spec.pca or 0})


def _facts(name: str, row: ResultRow, spec: FitSpec) -> dict[str, Any]:
    """What goes with the model, so that it can be understood on its own."""
    return {
        "sweep": name,
        "method": row.method,
        "dataset": row.dataset,
        "split": row.split,
        "params": dict(row.params),
        "score": row.score,
        "cv_score": row.cv_score,
        "auc_all": row.auc_all,
        "scaling": spec.scaling,
        "pca": spec.pca,
        "data_fingerprint": spec.data,
        "fit": spec.key,
    }


def _shape(steps: Preprocessing) -> str:
    numbers = steps.n_raw - steps.n_words
    parts = [f"rows of {numbers:,} features"] if numbers else []
    return " and ".join([*parts, *(["texts"] if steps.n_words else [])])
