"""Metric learners that end with a full matrix M."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from solvers.backend import Array, Backend, is_host_data, to_numpy
from solvers.base import MetricLearner, factorize


class MahalanobisLearner(MetricLearner):
    """Keeps M itself beside its factor, which lacks what lies below `rank_tol`."""

    rank_tol: float
    _M: Array

    def _set_metric(self, M: Array, backend: Backend, *, like: Any) -> Array:
        """Store M's psd part and its factor, on the host if the data came from there; M's eigenvalues."""
        L, values, vectors = factorize(M, rank_tol=self.rank_tol, n_components=None, backend=backend)
        self._set_factor(L, backend, like=like)
        xp = backend.xp
        half = vectors * xp.sqrt(xp.clip(values, 0.0, None))[None, :]
        whole = half @ xp.matrix_transpose(half)
        self._M = to_numpy(whole) if is_host_data(like) else whole
        return values

    def get_mahalanobis_matrix(self) -> Array:
        """M (D, D), exact: also what lies below `rank_tol`."""
        check_is_fitted(self, "components_")
        return self._M
