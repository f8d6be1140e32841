"""Geometric mean metric learning: one point on a geodesic between two scatter matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvers.backend import Array, Namespace, eigh, symmetrize
from solvers.mahalanobis import MahalanobisLearner
from solvers.pairs import problem_from_labels


class GMML(MahalanobisLearner):
    """Geometric mean metric learning (Zadeh, Hosseini and Sra, ICML 2016), in closed form.

    M = S^-1 #_t D, the point at t on the geodesic from S^-1 to D, with S and D the sums of z z' over
    similar and over dissimilar pairs, each plus `ridge` times I (the prior A0 = I).

    The paper gives ridge (its lambda) 0.1 and t 0.3 and leaves the pairs open. Here D sums `n_pairs`
    drawn pairs and S is the mean over all similar pairs times as many; since both are sums, as in
    the authors' code, the ridge weighs less the more pairs there are. `normalize` takes means.

    Parameters
    ----------
    t : float in [0, 1]. 0 gives S^-1, 1 gives D.
    ridge : float >= 0.
    normalize : bool, means instead of sums.
    n_pairs : int, dissimilar pairs to draw.
    rank_tol : float, eigenvalues of M below this share of the largest count as zero.
    device : "auto", "cpu", "cuda" or "cuda:<number>".
    random_state : int, Generator or None.

    Attributes
    ----------
    components_ : (k, D) array, L.
    rank_ : int, k.
    n_iter_ : int, 1; n_eigh_ : int, 2.
    converged_ : bool, always true.
    """

    def __init__(
        self,
        t: float = 0.3,
        ridge: float = 0.1,
        normalize: bool = False,
        n_pairs: int = 100_000,
        rank_tol: float = 1e-3,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.t = t
        self.ridge = ridge
        self.normalize = normalize
        self.n_pairs = n_pairs
        self.rank_tol = rank_tol
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> GMML:
        """Learn from points X (n, D) and labels y (n,)."""
        if not 0 <= self.t <= 1:
            raise ValueError(f"t: expected a number from 0 to 1, got {self.t}")
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
        weight = 1.0 / drawn if self.normalize else 1.0
        weights = xp.full((drawn,), weight, dtype=backend.dtype, device=backend.device)
        prior = self.ridge * xp.eye(points.shape[1], dtype=backend.dtype, device=backend.device)
        similar = weight * drawn * problem.similar_scatter + prior
        dissimilar = problem.dissimilar.scatter(weights) + prior
        M = geodesic_point(similar, dissimilar, self.t, xp=xp)
        self._set_metric(M, backend, like=X)
        self.n_iter_, self.n_eigh_, self.converged_ = 1, 2, True
        return self


def geodesic_point(S: Array, D: Array, t: float, *, xp: Namespace) -> Array:
    """S^-1 #_t D = S^-1/2 (S^1/2 D S^1/2)^t S^-1/2, for S positive definite and D semidefinite.

    Any factor of S serves in place of its square root, and Cholesky's needs no eigenvectors: with
    S = R R', the point is R^-T (R' D R)^t R^-1.
    """
    singular = "gmml: the scatter of similar pairs is singular; set ridge above 0 (the paper's is 0.1)"
    try:
        R = xp.linalg.cholesky(symmetrize(S, xp=xp))
        inverse = xp.linalg.inv(R)
    except np.linalg.LinAlgError as error:
        raise ValueError(singular) from error
    if not bool(xp.all(xp.isfinite(inverse))):  # CuPy reports a failed Cholesky as NaN
        raise ValueError(singular)
    values, vectors = eigh(xp.matrix_transpose(R) @ D @ R, xp=xp)
    half = xp.matrix_transpose(inverse) @ (vectors * xp.clip(values, 0.0, None)[None, :] ** (t / 2))
    return half @ xp.matrix_transpose(half)
