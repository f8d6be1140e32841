"""Metric learning with equivalence constraints (KISSME): a difference of two inverse covariances."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvers.backend import Array, Backend, eigh, to_numpy
from solvers.mahalanobis import MahalanobisLearner
from solvers.pairs import problem_from_labels


class MLEC(MahalanobisLearner):
    """KISSME (Koestinger et al., CVPR 2012), called MLEC in the paper, in closed form.

    M is the psd part of S^-1 - D^-1, with S and D the mean of z z' over similar and over dissimilar
    pairs: the log-likelihood ratio of two zero-mean Gaussians on pair differences.

    The paper leaves the pairs open: S takes all similar pairs, D takes `n_pairs` drawn ones. Negative
    eigenvalues become 0 (the authors' code puts 1e-6 there, so that every rank would be D). Both
    inverses need full-rank scatter, hence the ridge, which the original does not have.

    Parameters
    ----------
    ridge : float >= 0, added to the diagonal of S and of D as a share of the mean diagonal entry of D.
        With 0 a singular scatter (fewer pairs than features, constant features) is an error.
    n_pairs : int, dissimilar pairs to draw.
    rank_tol : float, eigenvalues of M below this share of the largest count as zero.
    device : "auto", "cpu", "cuda" or "cuda:<number>".
    random_state : int, Generator or None.

    Attributes
    ----------
    components_ : (k, D) array, L.
    rank_ : int, k.
    n_iter_ : int, 1; n_eigh_ : int, 3.
    converged_ : bool, always true.
    """

    def __init__(
        self,
        ridge: float = 1e-3,
        n_pairs: int = 100_000,
        rank_tol: float = 1e-3,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.ridge = ridge
        self.n_pairs = n_pairs
        self.rank_tol = rank_tol
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> MLEC:
        """Learn from points X (n, D) and labels y (n,)."""
        if self.ridge < 0:
            raise ValueError(f"ridge: expected a number >= 0, got {self.ridge}")
        points, labels, backend = self._validate_fit(X, y)
        xp = backend.xp
        problem = problem_from_labels(
            points,
            labels,
            n_pairs=self.n_pairs,
            margin=1.0,
            oversample=False,
            rng=np.random.default_rng(self.random_state),
            backend=backend,
        )
        drawn = len(problem.dissimilar)
        weights = xp.full((drawn,), 1.0 / drawn, dtype=backend.dtype, device=backend.device)
        dissimilar = problem.dissimilar.scatter(weights)
        n_features = int(points.shape[1])
        ridge = self.ridge * float(xp.linalg.trace(dissimilar)) / n_features
        M = _inverse(problem.similar_scatter, ridge, "similar", backend=backend) - _inverse(
            dissimilar, ridge, "dissimilar", backend=backend
        )
        self._set_metric(M, backend, like=X)
        self.n_iter_, self.n_eigh_, self.converged_ = 1, 3, True
        return self


def _inverse(scatter: Array, ridge: float, kind: str, *, backend: Backend) -> Array:
    """(scatter + ridge I)^-1 by eigenvalues, refusing what is singular in the working precision."""
    xp = backend.xp
    values, vectors = eigh(scatter, xp=xp)
    host_values = np.maximum(to_numpy(values), 0.0) + ridge
    precision = float(np.finfo(host_values.dtype).eps) * host_values.size
    if host_values[0] <= precision * host_values[-1]:
        raise ValueError(
            f"mlec: the scatter of {kind} pairs is singular (fewer pairs than features, or constant "
            f"features); raise ridge above {ridge:.0e}, draw more pairs or reduce the features by PCA"
        )
    return (vectors / backend.asarray(host_values)[None, :]) @ xp.matrix_transpose(vectors)
