"""MDMLPath: one run that gives a metric with a proven gap for every gamma of a range."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from solvers.backend import Array, Backend, Namespace, choose_backend, eigh, is_host_data
from solvers.convex.dual import Solution
from solvers.convex.envelope import Line, Mixture
from solvers.convex.follower import Follower
from solvers.convex.mdml import MDML
from solvers.pairs import PairProblem
from solvers.regularizers.table import REGULARIZERS

_WITHOUT_PATH = ("none", "drop")


class MDMLPath(BaseEstimator):
    """Every gamma from `gamma_max` down to `gamma_min`, certified.

    Knots are solved one after the other, each from the one above, and placed so that the best metric found is within
    `tol` of the optimum at every gamma between them. `docs/certified.md` has the theory.

    Parameters
    ----------
    regularizer : one of csfn cvnd cldd l2 it l1 l21 tr.
    gamma_max, gamma_min : the range.
    tol : relative gap to reach everywhere in it.
    max_iter : eigendecompositions at most, altogether.
    margin, epsilon, n_pairs, rank_tol, n_components, oversample, device, random_state : as for MDML; the same seed
        draws the same pairs.

    Attributes
    ----------
    knots_ : gammas that were solved, falling.
    n_eigh_ : eigendecompositions, all together.
    converged_ : whether every gamma is within `tol`.
    n_metrics_ : how many different metrics serve the range.
    """

    def __init__(
        self,
        regularizer: str = "csfn",
        gamma_max: float = 1.0,
        gamma_min: float = 1e-4,
        tol: float = 1e-2,
        max_iter: int = 1000,
        margin: float = 1.0,
        epsilon: float = 1e-5,
        n_pairs: int = 20_000,
        rank_tol: float = 1e-3,
        n_components: int | None = None,
        oversample: bool = False,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.regularizer = regularizer
        self.gamma_max = gamma_max
        self.gamma_min = gamma_min
        self.tol = tol
        self.max_iter = max_iter
        self.margin = margin
        self.epsilon = epsilon
        self.n_pairs = n_pairs
        self.rank_tol = rank_tol
        self.n_components = n_components
        self.oversample = oversample
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> MDMLPath:
        """Learn from labels, on the pairs that MDML would draw."""
        model = self._model(self.gamma_max)
        return self._run(model, *model._problem_from_labels(X, y))

    def fit_pairs(self, X: Any, similar: Any, dissimilar: Any) -> MDMLPath:
        """Learn from exactly these pairs: two (m, 2) integer arrays of row indices of X."""
        model = self._model(self.gamma_max)
        return self._run(model, *model._problem_from_pairs(X, similar, dissimilar))

    def at(self, gamma: float) -> MDML:
        """A fitted MDML at any gamma of the range.

        Metric, weights, objective and bound are its own: anyone can recompute both from them.
        """
        self._check_gamma(gamma)
        line = self._envelope.line(gamma)
        parts = [(share * part, knot) for share, proof in self._envelope.blend(gamma) for part, knot in proof.parts]
        weights = sum(part * knot.weights for part, knot in parts)
        matrix = sum(part * knot.gamma / gamma * knot.matrix for part, knot in parts if knot.matrix is not None)
        model = self._model(float(gamma))
        values, vectors = self._eigenvalues(line)
        solution = Solution(
            M=_matrix(values, vectors, xp=self._backend.xp),
            eigenvalues=values,
            eigenvectors=vectors,
            objective=line.loss + gamma * self._omega(values) if isinstance(line, Mixture) else line.at(gamma),
            loss=line.loss,
            dual_objective=self._envelope.lower(gamma),
            n_iter=0,
            n_eigh=int(isinstance(line, Mixture)),
            converged=self._envelope.gap(gamma) <= self.tol,
            history=[],
            weights=weights,
            matrix=None if parts[0][1].matrix is None else matrix,
            reason="the path was not finished",
        )
        for name in ("n_features_in_", "feature_names_in_", "classes_"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        model._keep(solution, self.n_similar_, self.n_dissimilar_, self._backend, like=self._like, kind=self._kind)
        return model

    def components_at(self, gamma: float) -> Array:
        """L (k, D) at a gamma, with L'L = M above `rank_tol`."""
        return self.at(gamma).components_

    def metric_number(self, gamma: float) -> int:
        """Which of the `n_metrics_` metrics serves a gamma: equal numbers, equal metrics, equal scores."""
        self._check_gamma(gamma)
        line = self._envelope.line(gamma)
        return next(number for number, each in enumerate(self._envelope.lines) if each is line)

    def objective(self, gammas: Any) -> Any:
        """F of the metric that `at` gives, for each gamma."""
        omegas: dict[int, float] = {}  # of mixtures, which have to be decomposed for it

        def objective(gamma: float) -> float:
            line, number = self._envelope.line(gamma), self.metric_number(gamma)
            if isinstance(line, Mixture) and number not in omegas:
                omegas[number] = self._omega(self._eigenvalues(line)[0])
            return line.loss + gamma * omegas.get(number, line.omega)

        return self._each(objective, gammas)

    def gap(self, gammas: Any) -> Any:
        """Relative gap between that metric and what is proved, for each gamma: never less than its true one."""
        return self._each(lambda gamma: self._envelope.gap(gamma), gammas)

    def _eigenvalues(self, line: Line | Mixture) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of a metric."""
        xp, place = self._backend.xp, self._backend.asarray
        if isinstance(line, Line):
            return place(line.values), place(line.vectors)
        first, second = (_matrix(place(each.values), place(each.vectors), xp=xp) for each in (line.first, line.second))
        values, vectors = eigh((1 - line.share) * first + line.share * second, xp=xp)
        return xp.clip(values, 0.0, None), vectors

    def _omega(self, values: Array) -> float:
        xp = self._backend.xp
        return float(xp.sum(self._model(self.gamma_max)._penalty().value(values, xp=xp)))

    def _each(self, function: Any, gammas: Any) -> Any:
        for gamma in np.ravel(gammas):
            self._check_gamma(gamma)
        values = np.array([function(float(gamma)) for gamma in np.ravel(gammas)])
        return values.reshape(np.shape(gammas)) if np.ndim(gammas) else float(values[0])

    def _run(self, model: MDML, problem: PairProblem, backend: Backend, kind: Any, like: Any) -> MDMLPath:
        follower = Follower(
            model,
            problem,
            backend,
            low=float(self.gamma_min),
            high=float(self.gamma_max),
            tol=self.tol,
            max_iter=self.max_iter,
        )
        follower.run()
        self._envelope = follower.envelope
        self._envelope.lines = [line for *_, line in self._envelope.pieces(self.gamma_min, self.gamma_max)]
        self.n_metrics_ = len(self._envelope.lines)
        self.knots_ = np.array(sorted(follower.knots, reverse=True))
        self.n_eigh_, self.converged_ = follower.n_eigh, follower.converged
        self.n_similar_, self.n_dissimilar_ = problem.n_similar, len(problem.dissimilar)
        self._like, self._kind = (None if is_host_data(like) else like[:1, :1]), kind
        for name in ("n_features_in_", "feature_names_in_", "classes_"):
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))
        if not self.converged_:
            warnings.warn(
                f"MDMLPath: largest gap {follower.largest:.2g}, asked for {self.tol:g}: {follower.reason}",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    @property
    def _backend(self) -> Backend:
        """Where `at` puts its metrics: on the host, or where X was."""
        host = np.zeros((1, 1)) if self._like is None else self._like
        backend = choose_backend(host, "cpu" if self._like is None else "auto")
        return Backend(backend.xp, backend.device, backend.xp.float64)

    def _model(self, gamma: float) -> MDML:
        self._check_range()
        return MDML(
            self.regularizer,
            gamma=gamma,
            margin=self.margin,
            epsilon=self.epsilon,
            tol=self.tol,
            n_pairs=self.n_pairs,
            rank_tol=self.rank_tol,
            n_components=self.n_components,
            oversample=self.oversample,
            device=self.device,
            random_state=self.random_state,
        )

    def _check_range(self) -> None:
        names = [name for name in REGULARIZERS if name not in _WITHOUT_PATH]
        if self.regularizer not in names:
            raise ValueError(f"regularizer: a path needs one of {', '.join(names)}, got {self.regularizer!r}")
        for name in ("gamma_min", "gamma_max"):
            value = getattr(self, name)
            if not (isinstance(value, int | float | np.number) and math.isfinite(value) and value > 0):
                raise ValueError(f"{name}: expected a number > 0, got {value!r}")
        if self.gamma_min >= self.gamma_max:
            raise ValueError(f"gamma_min: expected less than gamma_max, got {self.gamma_min!r} and {self.gamma_max!r}")
        if not self.tol > 0:
            raise ValueError(f"tol: expected a number > 0, got {self.tol!r}")

    def _check_gamma(self, gamma: Any) -> None:
        check_is_fitted(self, "knots_")
        if not self.gamma_min <= gamma <= self.gamma_max:
            raise ValueError(f"gamma: expected a number from {self.gamma_min:g} to {self.gamma_max:g}, got {gamma!r}")


def _matrix(values: Array, vectors: Array, *, xp: Namespace) -> Array:
    return (vectors * values[None, :]) @ xp.matrix_transpose(vectors)
