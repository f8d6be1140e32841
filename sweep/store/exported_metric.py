"""The code inside an exported model. MLflow copies this file, so it needs NumPy, pandas and MLflow only."""

import json
import re
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.pyfunc import PythonModel

TEXT = "text"
_ROWS = 1024


class ExportedMetric(PythonModel):
    """Raw rows -> (n, k): squared Euclidean distance there is the learned distance.

    The steps between are those that the metric was learned behind; `metric.npz` holds their numbers,
    and what is not in it is left out:

    words (W words), dictionary, idf     t = unit length(counts[:, dictionary] * idf), put behind the numbers
    word_vectors                         mean vector of the words that have one, put behind that
    scaling                              "l2": x / |x|
    factor, offset                       x * factor - offset
    pca                                  x @ pca
    components                           x @ components.T
    """

    def load_context(self, context: Any) -> None:
        with np.load(context.artifacts["metric"], allow_pickle=False) as arrays:
            self._arrays = dict(arrays)
        words = json.loads(str(self._arrays["words"])) if "words" in self._arrays else []
        self._column = {word: column for column, word in enumerate(words)}

    def predict(self, context: Any, model_input: pd.DataFrame, params: Any = None) -> np.ndarray:
        frame = pd.DataFrame(model_input)
        blocks = [self._embed(frame.iloc[start : start + _ROWS]) for start in range(0, len(frame), _ROWS)]
        return np.concatenate(blocks) if blocks else np.empty((0, len(self._arrays["components"])))

    def _embed(self, frame: pd.DataFrame) -> np.ndarray:
        arrays = self._arrays
        x = self._numbers(frame.drop(columns=TEXT) if self._column else frame)
        if self._column:
            counts = self._counts(frame[TEXT])
            parts = [x, _unit_rows(counts[:, arrays["dictionary"]] * arrays["idf"])]
            if "word_vectors" in arrays:
                vectors = arrays["word_vectors"]
                known = np.any(vectors != 0, axis=1)
                parts.append(counts @ vectors / np.maximum(counts @ known, 1.0)[:, None])
            x = np.hstack(parts)
        if str(arrays["scaling"]) == "l2":
            x = _unit_rows(x)
        x = x * arrays.get("factor", 1.0) - arrays.get("offset", 0.0)
        if "pca" in arrays:
            x = x @ arrays["pca"]
        return np.asarray(x @ arrays["components"].T)

    def _numbers(self, frame: pd.DataFrame) -> np.ndarray:
        values = np.empty(frame.shape)
        for place, column in enumerate(frame.columns):
            try:
                values[:, place] = frame[column].to_numpy(dtype=np.float64, na_value=np.nan)
            except (TypeError, ValueError):
                raise ValueError(f"column {column!r}: expected numbers, got {frame[column].dtype}") from None
            if not np.isfinite(values[:, place]).all():
                row = frame.index[int(np.argmin(np.isfinite(values[:, place])))]
                raise ValueError(f"column {column!r}: the value of row {row} is missing or infinite; fill or drop it")
        return values

    def _counts(self, texts: pd.Series) -> np.ndarray:
        counts = np.zeros((len(texts), len(self._column)))
        for row, text in enumerate(texts):
            for word in re.findall("[a-z][a-z]+", str(text).lower()):
                column = self._column.get(word)
                if column is not None:
                    counts[row, column] += 1
        return counts


def _unit_rows(x: np.ndarray) -> np.ndarray:
    length = np.sqrt(np.sum(x * x, axis=1, keepdims=True))
    return np.asarray(x / np.where(length > 0, length, 1.0))


mlflow.models.set_model(ExportedMetric())
