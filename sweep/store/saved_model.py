"""Writing a model in MLflow's format, and registering it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from sweep.datasets.features import Preprocessing
from sweep.errors import UserError, first_line
from sweep.store.home import Home

# The column of texts in a model's input.
TEXT = "text"


def model_arrays(steps: Preprocessing, L: np.ndarray) -> dict[str, Any]:
    """What `exported_metric.ExportedMetric` needs, by the names of its formula; texts as JSON, no pickle."""
    arrays: dict[str, Any] = {"components": L, "scaling": np.array(steps.scaling)}
    if steps.words is not None:
        words, dictionary, vectors = _names(steps)[1], steps.words.columns, steps.words.vectors
        if vectors is None:  # then only the dictionary counts
            words, dictionary = [words[column] for column in dictionary], np.arange(len(dictionary))
        arrays |= {"words": np.array(json.dumps(words)), "dictionary": dictionary, "idf": steps.words.idf}
        arrays |= {} if vectors is None else {"word_vectors": vectors}
    if steps.feature_names is not None:
        arrays["feature_names"] = np.array(json.dumps(_names(steps)[0]))
    named = {"factor": steps.factor, "offset": steps.offset, "pca": steps.components}
    return arrays | {name: array for name, array in named.items() if array is not None}


def save_model(folder: Path, steps: Preprocessing, L: np.ndarray, facts: dict[str, Any]) -> None:
    """Write preprocessing and metric as an MLflow model that takes raw rows."""
    import mlflow
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.pyfunc import save_model
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec
    from mlflow.types.schema import AnyType

    numbers, _ = _names(steps)
    # MLflow takes neither whole numbers for a column of type double nor others for one of type long;
    # a column of whole numbers is free to come as either, and the model itself asks for numbers.
    whole = np.zeros(len(numbers), dtype=bool) if steps.whole is None else steps.whole
    columns = [ColSpec(AnyType() if w else DataType.double, n) for n, w in zip(numbers, whole, strict=True)]
    example = pd.DataFrame(np.zeros((1, len(numbers))), columns=numbers)
    if steps.n_words:
        columns.append(ColSpec(DataType.string, TEXT))
        example[TEXT] = "a text"
    signature = ModelSignature(
        inputs=Schema(columns), outputs=Schema([TensorSpec(np.dtype(np.float64), (-1, L.shape[0]))])
    )
    with (
        _quiet(),
        tempfile.TemporaryDirectory() as scratch,
        resources.as_file(resources.files("sweep.store")) as package,
    ):
        arrays = Path(scratch) / "metric.npz"
        np.savez_compressed(arrays, allow_pickle=False, **model_arrays(steps, L))
        save_model(
            folder,
            python_model=str(package / "exported_metric.py"),
            artifacts={"metric": str(arrays)},
            signature=signature,
            input_example=example,
            pip_requirements=[f"mlflow>={mlflow.__version__}", f"numpy>={np.__version__}"],
            metadata=facts,
        )


def register_model(home: Home, tracking: dict[str, Any], folder: Path, model: str) -> str:
    """Log the model into the sweep's MLflow store and register it; returns the version."""
    import mlflow
    from mlflow.exceptions import MlflowException

    own = tracking["mlflow"] == "sqlite"
    uri = home.mlflow_url if own else tracking["mlflow"]
    artifacts = tracking["artifacts"] or (home.mlflow_artifacts.as_uri() if own else None)
    try:
        with _quiet():
            client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
            # Before anything is logged, because MLflow does not take every name.
            with _existing_allowed():
                client.create_registered_model(model)
            experiment = client.get_experiment_by_name("exports")
            place = experiment.experiment_id if experiment else client.create_experiment("exports", artifacts)
            run = client.create_run(place, run_name=model)
            client.log_artifacts(run.info.run_id, str(folder), "model")
            client.set_terminated(run.info.run_id)
            version = client.create_model_version(model, f"{run.info.artifact_uri}/model", run.info.run_id)
    except MlflowException as error:
        raise UserError(
            f"--register: MLflow refuses {model!r} ({first_line(error)}); the model is in {folder}"
        ) from error
    return str(version.version)


@contextlib.contextmanager
def _existing_allowed() -> Iterator[None]:
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _names(steps: Preprocessing) -> tuple[list[Any], list[str]]:
    """Names of the numeric columns (their places, where they have no names), and the words."""
    n_numbers = steps.n_raw - steps.n_words
    if steps.feature_names is not None:
        return list(steps.feature_names[:n_numbers]), list(steps.feature_names[n_numbers:])
    if steps.n_words:
        raise UserError(
            "export: the prepared data of an earlier version do not hold their words;"
            " run `sweep data prepare NAME --from PATH` again"
        )
    return list(range(n_numbers)), []


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what MLflow says about itself, the machine's paths included."""
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    logger = logging.getLogger("mlflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logger.setLevel(level)
