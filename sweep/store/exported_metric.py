"""The code inside an exported model. MLflow copies this file, so it needs NumPy and MLflow only."""

import warnings
from typing import Any

import mlflow
import numpy as np
from mlflow.pyfunc import PythonModel

# MLflow takes a type hint on model_input for a schema and asks for one; the model brings its own.
warnings.filterwarnings("ignore", message=".*Add type hints to the `predict` method")


class ExportedMetric(PythonModel):
    """Rows of X (n, D) -> X @ L.T (n, k): squared Euclidean distance there is the learned distance."""

    def load_context(self, context: Any) -> None:
        with np.load(context.artifacts["metric"], allow_pickle=False) as arrays:
            self.components_ = arrays["components"]

    def predict(self, context, model_input, params=None) -> np.ndarray:  # type: ignore[no-untyped-def]
        return np.asarray(model_input, dtype=np.float64) @ self.components_.T


mlflow.models.set_model(ExportedMetric())
