"""Logistic discriminant metric learning, with bias."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from solvers.backend import Array, Namespace
from solvers.convex.accelerated import minimize_psd, scaled_identity
from solvers.mahalanobis import MahalanobisLearner
from solvers.pairs import PairSet, draw_dissimilar, draw_similar


class LDML(MahalanobisLearner):
    """Logistic discriminant metric learning (Guillaumin, Verbeek and Schmid, ICCV 2009).

    A pair is similar with probability sigma(bias - z'Mz); the mean negative log-likelihood is smallest
    over psd M and the bias, a convex problem. The bias is solved for exactly at every M.

    The paper prints the model without a bias, so that no pair could be more likely similar than not;
    here it is learned. The paper leaves open the optimiser (accelerated proximal gradient) and the
    pairs, of which `n_pairs` are drawn of each kind.

    Parameters
    ----------
    n_pairs : int, pairs of each kind.
    max_iter : int, proximal steps.
    tol : float, relative decrease of the objective per step at which to stop. Separable pairs have no
        finite optimum, since a larger M is always more certain: `tol` or `max_iter` ends the growth.
    rank_tol : float, eigenvalues of M below this share of the largest count as zero.
    device : "auto", "cpu", "cuda" or "cuda:<number>".
    random_state : int, Generator or None.

    Attributes
    ----------
    components_ : (k, D) array, L.
    rank_ : int, k.
    bias_ : float, the squared distance at which a pair is as likely similar as not.
    objective_ : float, mean negative log-likelihood of the drawn pairs.
    n_iter_, n_eigh_ : int.
    converged_ : bool.
    """

    def __init__(
        self,
        n_pairs: int = 20_000,
        max_iter: int = 200,
        tol: float = 1e-4,
        rank_tol: float = 1e-3,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_pairs = n_pairs
        self.max_iter = max_iter
        self.tol = tol
        self.rank_tol = rank_tol
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> LDML:
        """Learn from points X (n, D) and labels y (n,)."""
        points, labels, backend = self._validate_fit(X, y)
        if np.bincount(labels).size < 2:
            raise ValueError("pairs: y has one class only, so no dissimilar pair exists; give at least two classes")
        xp = backend.xp
        rng = np.random.default_rng(self.random_state)
        dissimilar = draw_dissimilar(labels, self.n_pairs, rng=rng)
        similar = draw_similar(labels, self.n_pairs, rng=rng)
        first, second = (backend.indices(np.concatenate(ends)) for ends in zip(similar, dissimilar, strict=True))
        pairs = PairSet(points, first, second, xp=xp)
        is_similar = backend.asarray((np.arange(len(pairs)) < similar[0].size).astype(np.float64))
        bias = 1.0

        def loss(distances: Array) -> tuple[float, Array]:
            nonlocal bias
            bias = best_bias(distances, is_similar, bias, xp=xp)
            return logistic_loss(distances, is_similar, bias, xp=xp)

        mean = float(xp.mean(pairs.projected_distances(points)))
        last, self.converged_ = minimize_psd(
            loss,
            pairs,
            scaled_identity(1 / mean if mean > 0 else 1.0, pairs, backend),
            max_iter=self.max_iter,
            tol=self.tol,
            backend=backend,
        )
        if not self.converged_:
            warnings.warn(
                f"ldml: the objective was still falling after {last.n_iter} steps; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        self._set_metric(last.M, backend, like=X)
        self.objective_, _ = loss(last.distances)
        self.bias_ = bias
        self.n_iter_, self.n_eigh_ = last.n_iter, last.n_eigh + 1
        return self


def logistic_loss(distances: Array, is_similar: Array, bias: float, *, xp: Namespace) -> tuple[float, Array]:
    """Mean negative log-likelihood and its derivative by each distance, (y - p) / m, (m,)."""
    logit = bias - distances
    # log(1 + exp(t)) without overflow; t is the logit against the label.
    against = xp.where(is_similar > 0, -logit, logit)
    losses = xp.clip(against, 0.0, None) + xp.log1p(xp.exp(-xp.abs(against)))
    return float(xp.mean(losses)), (is_similar - _sigmoid(logit, xp=xp)) / distances.shape[0]


def best_bias(distances: Array, is_similar: Array, start: float, *, xp: Namespace) -> float:
    """Bias of smallest loss: where the probabilities sum to the number of similar pairs.

    Newton on a monotone function, inside a bracket that halves where Newton would leave it.
    """
    low, high = float(xp.min(distances)) - 40.0, float(xp.max(distances)) + 40.0
    share = float(xp.mean(is_similar))
    bias = min(max(start, low), high)
    for _ in range(60):
        p = _sigmoid(bias - distances, xp=xp)
        excess = float(xp.mean(p)) - share
        if abs(excess) < 1e-10:
            break
        low, high = (low, bias) if excess > 0 else (bias, high)
        curvature = float(xp.mean(p * (1 - p)))
        bias = bias - excess / curvature if curvature > 0 else low
        if not low < bias < high:
            bias = (low + high) / 2
    return bias


def _sigmoid(t: Array, *, xp: Namespace) -> Array:
    small = xp.exp(-xp.abs(t))
    return xp.where(t >= 0, 1 / (1 + small), small / (1 + small))
