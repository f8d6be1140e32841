"""What every metric learner shares: validation, the learned metric and how it is applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from solvers.backend import Array, Backend, choose_backend, eigh, is_host_data, to_numpy


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of all methods: learns L (k, D) and measures ||L x - L x'||.

    As in scikit-learn, `set_output` makes `transform` give data frames, whose columns `get_feature_names_out` names
    after the method (`mdml0`, `mdml1`, ...), and a data frame's own columns are kept in `feature_names_in_`.

    Subclasses implement `fit` and set `components_` (with `_set_factor` or `_set_metric`). A
    method whose metric is not exactly L'L above its tolerance overrides `get_mahalanobis_matrix`.

    Attributes
    ----------
    components_ : (k, D) array, L.
    rank_ : int, number of projection vectors k.
    """

    components_: Array
    rank_: int

    def _validate_fit(self, X: Any, y: Any) -> tuple[Array, np.ndarray, Backend]:
        """Checked data on the device, class codes 0..K-1 (NumPy), backend. Sets `classes_`."""
        if y is None:
            # The words that scikit-learn's own checks look for.
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if is_host_data(X):
            # Rows are gathered all the time: an array kept by columns would be copied each time.
            X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C", ensure_min_samples=2)
            _check_classification(y)
        else:
            self._check_device_data(X)
            self.n_features_in_ = int(X.shape[1])
            y = to_numpy(y)
            if y.shape != (X.shape[0],):
                raise ValueError(f"y: expected shape ({X.shape[0]},), got {y.shape}")
        backend = choose_backend(X, getattr(self, "device", "cpu"))
        self.classes_, codes = np.unique(y, return_inverse=True)
        return backend.asarray(X), codes.astype(np.int64), backend

    def _validate_points(self, X: Any, *, reset: bool) -> tuple[Array, Backend]:
        """Checked points on the device, without labels."""
        if is_host_data(X):
            X = validate_data(self, X, dtype=[np.float64, np.float32], order="C", reset=reset)
        else:
            self._check_device_data(X)
            if reset:
                self.n_features_in_ = int(X.shape[1])
            elif X.shape[1] != self.n_features_in_:
                raise ValueError(f"X: expected {self.n_features_in_} features, got {X.shape[1]}")
        backend = choose_backend(X, getattr(self, "device", "cpu"))
        return backend.asarray(X), backend

    @staticmethod
    def _check_device_data(X: Array) -> None:
        xp = choose_backend(X).xp
        if X.ndim != 2:
            raise ValueError(f"X: expected a 2-D array, got {X.ndim}-D")
        if not bool(xp.all(xp.isfinite(X))):
            raise ValueError("X: contains NaN or infinity; remove or impute those values")

    def _set_factor(self, L: Array, backend: Backend, *, like: Any) -> None:
        """Store L, on the host if the data came from there."""
        self.components_ = to_numpy(L) if is_host_data(like) else L
        self.rank_ = int(L.shape[0])

    def transform(self, X: Any) -> Array:
        """Points in the learned space, X @ components_.T, (n, k): squared Euclidean distance there is z'Mz."""
        check_is_fitted(self, "components_")
        if is_host_data(X):
            X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
            return X @ to_numpy(self.components_).T
        points, backend = self._validate_points(X, reset=False)
        return points @ backend.xp.matrix_transpose(backend.asarray(self.components_))

    def get_mahalanobis_matrix(self) -> Array:
        """M (D, D), symmetric positive semidefinite, with squared distance z'Mz."""
        check_is_fitted(self, "components_")
        return self.components_.T @ self.components_

    def pair_distance(self, pairs: Any) -> np.ndarray:
        """Distance (plain, not squared) of each pair, (m,), for pairs (m, 2, D), as in metric-learn."""
        check_is_fitted(self, "components_")
        points = to_numpy(pairs)
        if points.ndim != 3 or points.shape[1:] != (2, self.n_features_in_):
            raise ValueError(f"pairs: expected shape (m, 2, {self.n_features_in_}), got {points.shape}")
        projected = (points[:, 0] - points[:, 1]) @ to_numpy(self.components_).T
        return np.sqrt(np.sum(projected * projected, axis=1))

    def pair_score(self, pairs: Any) -> np.ndarray:
        """Minus the plain distance of each pair: larger is more similar."""
        return -self.pair_distance(pairs)

    def get_metric(self) -> Callable[..., float]:
        """Function metric(u, v, squared=False) for use as `metric=` in scikit-learn."""
        check_is_fitted(self, "components_")
        L = to_numpy(self.components_).copy()

        def metric(u: Any, v: Any, squared: bool = False) -> float:
            projected = L @ (np.asarray(u, dtype=L.dtype) - np.asarray(v, dtype=L.dtype))
            squared_distance = float(projected @ projected)
            return squared_distance if squared else float(np.sqrt(squared_distance))

        return metric

    @property
    def _n_features_out(self) -> int:
        return self.rank_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def seed_from(random_state: Any) -> int:
    """One integer from whatever scikit-learn accepts as a random state."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _check_classification(y: np.ndarray) -> None:
    from sklearn.utils.multiclass import check_classification_targets

    check_classification_targets(y)


def factorize(M: Array, *, rank_tol: float, n_components: int | None, backend: Backend) -> tuple[Array, Array, Array]:
    """L (k, D) with L'L = M up to eigenvalues below rank_tol x the largest; and M's eigenpairs."""
    values, vectors = eigh(M, xp=backend.xp)
    L = factor_from_eigenpairs(values, vectors, rank_tol=rank_tol, n_components=n_components, backend=backend)
    return L, values, vectors


def factor_from_eigenpairs(
    values: Array, vectors: Array, *, rank_tol: float, n_components: int | None, backend: Backend
) -> Array:
    """L (k, D) from eigenvalues in any order: what is above rank_tol x the largest, by falling value.

    Each row has its largest entry positive, so that the result does not depend on the sign an
    eigensolver happens to choose.
    """
    xp = backend.xp
    host_values = to_numpy(values)
    falling = np.argsort(-host_values, kind="stable")
    top = max(float(host_values.max()), 0.0)
    kept = int(np.sum(host_values > rank_tol * top)) if top > 0 else 0
    if n_components is not None:
        kept = min(kept, n_components)
    kept = max(kept, 1)  # a zero metric still has a shape
    order = backend.indices(falling[:kept])
    leading = xp.matrix_transpose(xp.take(vectors, order, axis=1))
    largest = xp.argmax(xp.abs(leading), axis=1)
    signs = xp.sign(xp.take_along_axis(leading, largest[:, None], axis=1))
    scale = xp.sqrt(xp.clip(xp.take(values, order), 0.0, None))
    return leading * signs * scale[:, None]
