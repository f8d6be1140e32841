"""Information-theoretic metric learning, all multipliers at once."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from solvers.backend import Array, Backend, eigh, to_numpy
from solvers.convex.accelerated import Iterate, minimize_psd, scaled_identity
from solvers.mahalanobis import MahalanobisLearner
from solvers.pairs import PairSet, draw_dissimilar, draw_similar
from solvers.regularizers.spectral import InformationTheoretic

_BOUND_SAMPLE = 20_000


class ITML(MahalanobisLearner):
    """Information-theoretic metric learning (Davis et al., ICML 2007).

    The log-determinant divergence of M to I plus `slack_weight` times that of the bounds to their
    start is smallest, subject to z'Mz <= its bound for similar and >= its bound for dissimilar pairs.
    Optimal is, with one multiplier >= 0 per pair,

        M^-1 = I + sum_similar multiplier z z' - sum_dissimilar multiplier z z' ,

    an identity that the M returned here satisfies whatever the tolerance. The cyclic Bregman
    projections of the original change one multiplier at a time, which is coordinate ascent on the
    dual; proximal steps on all of them reach the same M in far fewer passes over the pairs, and the
    dual value says how near.

    The paper leaves open the slack weight (1 here), the bounds (5th and 95th percentile of the squared
    distances of random pairs; metric-learn takes plain distances there), and the pairs, of which
    `n_pairs` are drawn of each kind. Pairs at distance zero are skipped: no M can move them.

    Parameters
    ----------
    slack_weight : float > 0. Large values enforce the bounds.
    percentiles : (float, float), for the upper bound on similar and the lower on dissimilar pairs.
    n_pairs : int, pairs of each kind.
    max_iter : int, proximal steps.
    tol : float, relative duality gap at which to stop.
    rank_tol : float, eigenvalues of M below this share of the largest count as zero.
    device : "auto", "cpu", "cuda" or "cuda:<number>".
    random_state : int, Generator or None.

    Attributes
    ----------
    components_ : (k, D) array, L.
    rank_ : int, k.
    bounds_ : (float, float), upper for similar, lower for dissimilar pairs; squared distances.
    pairs_ : (m, 2) integer array, `n_similar_` similar ones first.
    multipliers_ : (m,) array, one per pair.
    objective_, dual_objective_ : float, value of M and certified lower bound.
    relative_gap_ : float, (objective_ - dual_objective_) / max(1, |objective_|).
    n_iter_, n_eigh_ : int.
    converged_ : bool, whether the gap reached `tol`.
    """

    def __init__(
        self,
        slack_weight: float = 1.0,
        percentiles: tuple[float, float] = (5.0, 95.0),
        n_pairs: int = 20_000,
        max_iter: int = 500,
        tol: float = 1e-2,
        rank_tol: float = 1e-3,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.slack_weight = slack_weight
        self.percentiles = percentiles
        self.n_pairs = n_pairs
        self.max_iter = max_iter
        self.tol = tol
        self.rank_tol = rank_tol
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> ITML:
        """Learn from points X (n, D) and labels y (n,)."""
        if self.slack_weight <= 0:
            raise ValueError(f"slack_weight: expected a number above 0, got {self.slack_weight}")
        points, labels, backend = self._validate_fit(X, y)
        problem = self._draw(points, labels, backend)
        start = scaled_identity(1.0, problem.pairs, backend)
        best = problem.certify(start.distances)
        checks = 1

        def finished(iterate: Iterate) -> bool:
            nonlocal best, checks
            candidate = problem.certify(iterate.distances)
            best = min(best, candidate, key=lambda solution: solution.gap)
            checks += 1
            return best.gap <= self.tol

        last, self.converged_ = minimize_psd(
            problem.loss,
            problem.pairs,
            start,
            max_iter=self.max_iter,
            tol=self.tol,
            penalty=InformationTheoretic(),
            finished=finished,
            backend=backend,
        )
        if not self.converged_:
            self.converged_ = finished(last)
        if not self.converged_:
            warnings.warn(
                f"itml: relative gap {best.gap:.1e} after {last.n_iter} steps, above tol={self.tol:g}; "
                "raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        self._set_metric(best.M, backend, like=X)
        self.bounds_, self.n_similar_ = problem.bounds, problem.n_similar
        self.pairs_, self.multipliers_ = problem.ends, best.multipliers
        self.objective_, self.dual_objective_, self.relative_gap_ = best.objective, best.dual, best.gap
        self.n_iter_, self.n_eigh_ = last.n_iter, last.n_eigh + checks + 1
        return self

    def _draw(self, X: Array, labels: np.ndarray, backend: Backend) -> _Problem:
        """Pairs at positive distance, and the bounds."""
        if np.bincount(labels).size < 2:
            raise ValueError("pairs: y has one class only, so no dissimilar pair exists; give at least two classes")
        rng = np.random.default_rng(self.random_state)
        dissimilar = draw_dissimilar(labels, self.n_pairs, rng=rng)
        similar = draw_similar(labels, self.n_pairs, rng=rng)
        sample = rng.integers(labels.size, size=_BOUND_SAMPLE)
        partner = (sample + rng.integers(1, labels.size, size=_BOUND_SAMPLE)) % labels.size

        def pair_set(first: np.ndarray, second: np.ndarray) -> PairSet:
            return PairSet(X, backend.indices(first), backend.indices(second), xp=backend.xp)

        spread = to_numpy(pair_set(sample, partner).projected_distances(X))
        first, second = (np.concatenate(ends) for ends in zip(similar, dissimilar, strict=True))
        apart = to_numpy(pair_set(first, second).projected_distances(X)) > 0
        if not (apart.any() and (spread > 0).any()):
            raise ValueError("itml: all drawn pairs have distance zero; the rows of X must differ")
        upper, lower = np.percentile(spread[spread > 0], self.percentiles)
        ends = np.stack([first[apart], second[apart]], axis=1)
        pairs = pair_set(ends[:, 0], ends[:, 1])
        if ends.shape[0] < labels.size:
            # Fewer pairs than points: their differences, each paired with zero, are the smaller data.
            Z = backend.xp.take(X, pairs.graph.first, axis=0) - backend.xp.take(X, pairs.graph.second, axis=0)
            origin = backend.xp.zeros((1, X.shape[1]), dtype=backend.dtype, device=backend.device)
            every = np.arange(ends.shape[0])
            pairs = PairSet(
                backend.xp.concat([Z, origin]),
                backend.indices(every),
                backend.indices(np.full_like(every, every.size)),
                xp=backend.xp,
            )
        return _Problem(
            pairs=pairs,
            ends=ends,
            n_similar=int(apart[: similar[0].size].sum()),
            bounds=(float(upper), float(lower)),
            slack_weight=float(self.slack_weight),
            backend=backend,
        )


@dataclass(frozen=True)
class _Certified:
    """M by the inverse identity, its multipliers (m,), its value and the dual's."""

    M: Array
    multipliers: np.ndarray
    objective: float
    dual: float

    @property
    def gap(self) -> float:
        return (self.objective - self.dual) / max(1.0, abs(self.objective))


@dataclass(frozen=True)
class _Problem:
    """Pairs, similar ones first, with the bounds on their squared distances."""

    pairs: PairSet
    ends: np.ndarray  # (m, 2) rows of the data
    n_similar: int
    bounds: tuple[float, float]
    slack_weight: float
    backend: Backend

    def _sides(self) -> tuple[Array, Array]:
        """Sign (+1 similar, -1 dissimilar) and bound of each pair, both (m,)."""
        similar = np.arange(len(self.pairs)) < self.n_similar
        return tuple(self.backend.asarray(np.where(similar, *ends)) for ends in ((1.0, -1.0), self.bounds))

    def loss(self, distances: Array) -> tuple[float, Array]:
        """Divergence of the nearest allowed bounds to their start, and its slope.

        The best slack moves a violated bound onto the distance, at slack_weight (r - log r - 1) with r
        the ratio of the two. The slope's size is the pair's multiplier.
        """
        xp = self.backend.xp
        signs, bounds = self._sides()
        ratio = distances / bounds
        violated = signs * (ratio - 1) > 0
        if bool(xp.any(violated & (ratio <= 0))):
            return float("inf"), xp.zeros_like(ratio)
        safe = xp.where(violated, ratio, xp.ones_like(ratio))
        value = self.slack_weight * float(xp.sum(safe - xp.log(safe) - 1))
        return value, self.slack_weight * (1 - 1 / safe) / bounds

    def certify(self, distances: Array) -> _Certified:
        """The multipliers at these distances, shrunk until M^-1 is positive definite, and what they prove."""
        xp = self.backend.xp
        signs, bounds = self._sides()
        _, slope = self.loss(distances)
        values, vectors = eigh(self.pairs.scatter(slope), xp=xp)
        lowest = float(values[0])
        shrink = min(1.0, -0.99 / lowest) if lowest < 0 else 1.0
        inverse_values = 1 + shrink * values
        half = vectors / xp.sqrt(inverse_values)[None, :]
        log_det = float(xp.sum(xp.log(inverse_values)))
        slack, _ = self.loss(self.pairs.projected_distances(self.pairs.X @ half))
        multipliers = shrink * signs * slope
        dual = log_det + self.slack_weight * float(xp.sum(xp.log(1 - shrink * slope * bounds / self.slack_weight)))
        divergence = float(xp.sum(1 / inverse_values)) + log_det - int(values.shape[0])
        return _Certified(half @ xp.matrix_transpose(half), to_numpy(multipliers), divergence + slack, dual)
