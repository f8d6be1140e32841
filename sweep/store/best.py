"""A refitted estimator as a scikit-learn pipeline that takes raw rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline

from sweep.datasets.card import open_split
from sweep.datasets.choice import DatasetChoice
from sweep.datasets.features import Preprocessing
from sweep.errors import UserError
from sweep.fits import FitRecord, FitSpec, Help, Solved, build_model
from sweep.methods import IN_MEMORY
from sweep.store.export import choice_of, choose_refit, fitted_preprocessing
from sweep.store.home import Home
from sweep.store.ledger import Ledger


class Preprocessor(TransformerMixin, BaseEstimator):
    """Scaling, PCA and dictionary as they were fitted on a split's training part; fitting it again changes nothing."""

    def __init__(self, steps: Preprocessing) -> None:
        self.steps = steps

    def fit(self, X: Any, y: Any = None) -> Preprocessor:
        return self

    def transform(self, X: Any) -> Any:
        """Features as the metric saw them, from raw rows (n, D); a table's columns are taken by name."""
        names = self.steps.feature_names
        if hasattr(X, "columns") and names is not None:
            missing = [name for name in names if name not in X.columns]
            if missing:
                raise UserError(f"transform: column {missing[0]!r} is missing; expected {', '.join(names[:8])} ...")
            X = X[list(names)].to_numpy(dtype=np.float64)
        return self.steps.transform(X, np.arange(X.shape[0]))

    def __sklearn_is_fitted__(self) -> bool:
        return True


class LinearMap(TransformerMixin, BaseEstimator):
    """What an estimator of the user's learned, as far as distances go: X @ components.T + offset."""

    def __init__(self, components: np.ndarray, offset: np.ndarray | float = 0.0) -> None:
        self.components = components
        self.offset = offset

    def fit(self, X: Any, y: Any = None) -> LinearMap:
        return self

    def transform(self, X: Any) -> Any:
        return X @ self.components.T + self.offset

    def __sklearn_is_fitted__(self) -> bool:
        return True


def arrays_of_map(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: arrays[name] for name in ("components", "offset") if name in arrays}


def best_pipeline(
    home: Home,
    ledger: Ledger,
    name: str,
    *,
    method: str | None = None,
    dataset: str | None = None,
    split: int | None = None,
    data: Mapping[str, DatasetChoice] | None = None,
    estimators: Mapping[str, Any] | None = None,
) -> Pipeline:
    """The refit of a method behind its preprocessing; the method with the best cross-validated score by default.

    A linear metric is put together from what was kept; any other estimator is fitted again on the same rows, where
    `estimators` (objects of this process, by method) says that this process ran the sweep.
    """
    _, spec, arrays = choose_refit(home, ledger, name, method=method, dataset=dataset, split=split)
    steps = fitted_preprocessing(home, ledger, name, spec, data or {})
    record = ledger.record(spec.key)
    assert record is not None
    if "components" in arrays:
        model = LinearMap(**arrays_of_map(arrays)) if spec.estimator else _restored(spec, record, arrays)
    else:
        model = _fitted_again(home, ledger, name, spec, data or {}, estimators)
    return Pipeline([("preprocessing", Preprocessor(steps)), ("metric", model)])


def _restored(spec: FitSpec, record: FitRecord, arrays: Mapping[str, np.ndarray]) -> Any:
    """One of our estimators as its fit left it, as far as the record goes."""
    model = build_model(spec, Help(device="cpu"))
    for part in fields(Solved):
        value = getattr(record.fit, part.name)
        if value is not None and part.name != "params":
            setattr(model, f"{part.name}_", value)
    model.components_ = arrays["components"]
    model._M = model.components_.T @ model.components_
    model.n_features_in_ = model.components_.shape[1]
    return model


def _fitted_again(
    home: Home,
    ledger: Ledger,
    name: str,
    spec: FitSpec,
    data: Mapping[str, DatasetChoice],
    estimators: Mapping[str, Any] | None,
) -> Any:
    """An estimator without a linear map, fitted on the same rows again.

    `estimators` is None for a home that was opened. Records may come from elsewhere, so what they name is imported
    only by the run that the user's own file asked for.
    """
    if spec.estimator and estimators is None:
        raise UserError(f"{name}: {spec.method} has to be fitted again; ask the `sweep.run` of its sweep file for it")
    estimator = (estimators or {}).get(spec.method)
    if spec.estimator == IN_MEMORY and estimator is None:
        raise UserError(f"{name}: {spec.method} was handed over in memory; ask the run that had it")
    rows = open_split(
        choice_of(ledger, name, spec, data), home.data, spec.split, spec.folds, spec.seed,
        label=spec.dataset, fingerprint=spec.data,
    )  # fmt: skip
    return build_model(spec, Help(device="cpu", estimator=estimator)).fit(rows.X_train, rows.y_train)
