"""A learned metric as an MLflow model: code as text and arrays as .npz, nothing pickled."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from sweep.errors import UserError, nearest
from sweep.fits import FitSpec
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.store.results import group_records, result_row


def export_metric(
    home: Home,
    ledger: Ledger,
    name: str,
    *,
    method: str | None = None,
    dataset: str | None = None,
    output: str | None = None,
    register: str | None = None,
    note: Callable[[str], None],
) -> Path:
    """Write the best metric of a method; returns the model's folder.

    Of several splits, the one with the best test AUC is taken. The folder holds an MLflow model whose
    input is what a fit sees (features after the sweep's scaling and PCA) and whose output is
    X @ L.T; its `artifacts/metric.npz` holds `components` (L) for use without MLflow.

    Parameters
    ----------
    method, dataset : the best method, and the only dataset, if not given.
    output : folder to create.
    register : name under which the model is registered in the home's MLflow store.
    """
    row, spec, arrays = _choose(home, ledger, name, method, dataset)
    L = arrays["components"]
    folder = Path(output) if output else home.folder / "exports" / f"{name}-{row['method']}"
    if folder.exists():
        if not (folder / "MLmodel").exists():
            raise UserError(f"-o: {folder} exists and is no exported model; name another folder")
        shutil.rmtree(folder)
    _save(folder, L, _facts(name, row, spec))
    note(
        f"{row['method']} on {row['dataset']}, split {row['split']}: {L.shape[0]} projection vectors of "
        f"{L.shape[1]} features, test AUC {row['auc_all']:.4f}"
    )
    if register:
        tracking = ledger.sweeps()[name]["tracking"]
        note(f"registered as {register}, version {_register(home, tracking, folder, register)}")
    return folder


def _choose(
    home: Home, ledger: Ledger, name: str, method: str | None, dataset: str | None
) -> tuple[dict[str, Any], FitSpec, dict[str, np.ndarray]]:
    """The row, the spec and the arrays of the refit to export."""
    found = []
    for study in group_records(ledger.records(name)):
        row = result_row(study)
        if row is not None and study.refit is not None and study.refit[1].artifact:
            found.append((row, *study.refit))
    if not found:
        raise UserError(f"{name}: no method has its result yet; let `sweep run` finish")
    for option, column, wanted in (("--method", "method", method), ("--dataset", "dataset", dataset)):
        names = list(dict.fromkeys(row[column] for row, _, _ in found))
        if wanted is not None and wanted not in names:
            raise UserError(f"{option}: {wanted!r} has no result in {name}.{nearest(wanted, names)}")
        if wanted is not None:
            found = [entry for entry in found if entry[0][column] == wanted]
        elif column == "dataset" and len(names) > 1:
            raise UserError(f"--dataset: {name} has several, choose one of {', '.join(names)}")
    for row, spec, record in sorted(found, key=lambda entry: -entry[0]["auc_all"]):
        arrays = home.read_artifact(spec.key, record.artifact or "")
        if arrays is not None and "components" in arrays:
            return row, spec, arrays
    raise UserError(f"{name}: none of the chosen methods has a linear metric to export (ilhd has codes only)")


def _facts(name: str, row: dict[str, Any], spec: FitSpec) -> dict[str, Any]:
    """What goes with the model, so that it can be understood on its own."""
    return {
        "sweep": name,
        "method": row["method"],
        "dataset": row["dataset"],
        "split": row["split"],
        "gamma": spec.gamma,
        "rank": spec.rank,
        "auc_all": row["auc_all"],
        "scaling": spec.scaling,
        "pca": spec.pca,
        "data_fingerprint": spec.data,
        "fit": spec.key,
    }


def _save(folder: Path, L: np.ndarray, facts: dict[str, Any]) -> None:
    import logging
    import tempfile

    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.pyfunc import save_model
    from mlflow.types import Schema, TensorSpec

    logging.getLogger("mlflow").setLevel(logging.ERROR)
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    number = np.dtype(np.float64)
    signature = ModelSignature(
        inputs=Schema([TensorSpec(number, (-1, L.shape[1]))]),
        outputs=Schema([TensorSpec(number, (-1, L.shape[0]))]),
    )
    with tempfile.TemporaryDirectory() as scratch, resources.as_file(resources.files("sweep.store")) as package:
        arrays = Path(scratch) / "metric.npz"
        np.savez_compressed(arrays, allow_pickle=False, components=L)
        save_model(
            folder,
            python_model=str(package / "exported_metric.py"),
            artifacts={"metric": str(arrays)},
            signature=signature,
            input_example=np.zeros((2, L.shape[1])),
            pip_requirements=[f"mlflow>={mlflow.__version__}", f"numpy>={np.__version__}"],
            metadata=facts,
        )


def _register(home: Home, tracking: dict[str, Any], folder: Path, model: str) -> str:
    """Log the model into the sweep's MLflow store and register it; returns the version."""
    import mlflow

    own = tracking["mlflow"] == "sqlite"
    uri = home.mlflow_url if own else tracking["mlflow"]
    artifacts = tracking["artifacts"] or (home.mlflow_artifacts.as_uri() if own else None)
    client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
    experiment = client.get_experiment_by_name("exports")
    place = experiment.experiment_id if experiment else client.create_experiment("exports", artifacts)
    run = client.create_run(place, run_name=model)
    client.log_artifacts(run.info.run_id, str(folder), "model")
    client.set_terminated(run.info.run_id)
    if not client.search_registered_models(f"name = '{model}'"):
        client.create_registered_model(model)
    version = client.create_model_version(model, f"{run.info.artifact_uri}/model", run.info.run_id)
    return str(version.version)
