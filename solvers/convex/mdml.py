"""MDML: a Mahalanobis matrix from pairs, by convex optimisation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from solvers.backend import Array, Backend, is_host_data, to_numpy
from solvers.base import MetricLearner, factor_from_eigenpairs, seed_from
from solvers.convex.certified import solve_spectral
from solvers.convex.dual import DualPoint, Solution, relative_gap
from solvers.convex.multipliers import solve_multipliers
from solvers.convex.published import solve_published
from solvers.convex.tuning import TUNING
from solvers.pairs import PairProblem, problem_from_labels, problem_from_pairs
from solvers.regularizers.entries import EntryNorm
from solvers.regularizers.spectral import Linear, SmoothConjugate
from solvers.regularizers.table import REGULARIZERS, make_regularizer

# Eigendecompositions of the Newton method; steps of that of multipliers; steps of the published one.
_CERTIFIED_STEPS = 500
_MULTIPLIER_STEPS = 5000
_PUBLISHED_STEPS = 2000
# How far a bound may lie above its objective, relatively, before it is called wrong.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Solver:
    """A certified solver, and what it needs of a regularizer.

    Attributes
    ----------
    needs : protocols, one of which the regularizer has to fulfil.
    solve : from problem, regularizer, gamma, the estimator's settings, a start and the backend to a solution.
    """

    name: str
    needs: tuple[type, ...]
    solve: Callable[[PairProblem, Any, float, MDML, Any, Backend], Solution]


def solver_for(penalty: Any, name: str) -> Solver:
    """The first solver that the regularizer offers enough for."""
    for solver in SOLVERS:
        if isinstance(penalty, solver.needs):
            return solver
    needs = "; ".join(f"{solver.name}: {' or '.join(each.__name__ for each in solver.needs)}" for solver in SOLVERS)
    raise ValueError(f"regularizer: no certified solver takes {name!r}; they need ({needs}); use algorithm='paper'")


class MDML(MetricLearner):
    """Mahalanobis distance metric learning with a convex regularizer.

    Minimises  mean over similar pairs of z'Mz + mean over dissimilar pairs of max(0, margin - z'Mz)
    + gamma Omega(M)  over positive semidefinite M, and certifies the result by a dual point.

    Parameters
    ----------
    regularizer : one of none csfn cvnd cldd l2 l1 l21 tr it drop.
    gamma : strength of the regularizer; for `drop`, the probability of dropping an entry of M.
    margin : squared distance that dissimilar pairs should reach.
    epsilon : the small constant inside cvnd and cldd.
    algorithm : "certified" stops on the duality gap; "paper" is the published stochastic
        proximal subgradient method.
    tol : relative duality gap to reach.
    max_iter : iterations at most; None picks a default for the algorithm.
    n_pairs : dissimilar pairs that `fit` samples; all of them where there are no more.
    rank_tol : `components_` keeps eigenvalues above this share of the largest.
    n_components : at most so many rows of `components_`.
    oversample : weigh classes equally, as if small ones had been resampled.
    cldd_prox : "corrected", or "printed" for the paper's own formula (algorithm "paper" only).
    device : "auto", "cpu", "cuda" or "cuda:<number>".
    random_state : seed of the pairs (and of the stochastic algorithm).

    Attributes
    ----------
    components_ : (k, D), L with L'L = M above `rank_tol`.
    objective_, dual_objective_ : F(M), a certified lower bound.
    relative_gap_ : their difference over max(|objective_|, min(loss_, margin), margin / 100).
    loss_ : the data part of objective_.
    rank_, exact_rank_ : rows of `components_`; eigenvalues of M that are not zero.
    n_iter_, n_eigh_, converged_, history_ : the course of the fit.
    dual_weights_ : (n_pairs,) weights that prove the bound, None where the solver has none; a start for
        another gamma on the same pairs.
    dual_matrix_ : (D, D) W that proves the bound together with them, for l1 (entries from -1 to 1) and l21 (rows of
        norm 1 at most), else None. For none, tr, l1 and l21 the bound is margin mean(dual_weights_), proved by
        C_S + gamma W - mean_k weight_k z_k z_k' being psd, with W = I for tr and gamma = 0 for none.
    """

    def __init__(
        self,
        regularizer: str = "cvnd",
        gamma: float = 1e-2,
        margin: float = 1.0,
        epsilon: float = 1e-5,
        algorithm: str = "certified",
        tol: float = 1e-4,
        max_iter: int | None = None,
        n_pairs: int = 20_000,
        rank_tol: float = 1e-3,
        n_components: int | None = None,
        oversample: bool = False,
        cldd_prox: str = "corrected",
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.regularizer = regularizer
        self.gamma = gamma
        self.margin = margin
        self.epsilon = epsilon
        self.algorithm = algorithm
        self.tol = tol
        self.max_iter = max_iter
        self.n_pairs = n_pairs
        self.rank_tol = rank_tol
        self.n_components = n_components
        self.oversample = oversample
        self.cldd_prox = cldd_prox
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, init: Any = None) -> MDML:
        """Learn from labels: all similar pairs, `n_pairs` dissimilar ones.

        `init` is what to start from: a fit, a path (`MDMLPath`) or the weights of one on the same pairs; or a metric
        that was learned on others, as `components_` (k, D) for csfn, cvnd, cldd, l2, it, as M (D, D) for the rest.
        """
        problem, backend, kind, like = self._problem_from_labels(X, y)
        return self._solve(problem, init, backend, like=like, kind=kind)

    def fit_pairs(self, X: Any, similar: Any, dissimilar: Any, *, init: Any = None) -> MDML:
        """Learn from exactly these pairs: two (m, 2) integer arrays of row indices of X.

        Or, as in metric-learn, `fit_pairs(X, pairs, y)`: one such array, and y (m,) of +1 (similar) and -1.
        """
        problem, backend, kind, like = self._problem_from_pairs(X, similar, dissimilar)
        return self._solve(problem, init, backend, like=like, kind=kind)

    def _problem_from_labels(self, X: Any, y: Any) -> tuple[PairProblem, Backend, Any, Any]:
        """The problem on centred points in double precision, its backend, the data's precision, the data."""
        self._check_parameters()
        points, labels, backend = self._validate_fit(X, y)
        points, exact = centred(points, backend)
        problem = problem_from_labels(
            points,
            labels,
            n_pairs=self.n_pairs,
            margin=self.margin,
            oversample=self.oversample,
            rng=np.random.default_rng(seed_from(self.random_state)),
            backend=exact,
        )
        return problem, exact, backend.dtype, X

    def _problem_from_pairs(self, X: Any, similar: Any, dissimilar: Any) -> tuple[PairProblem, Backend, Any, Any]:
        self._check_parameters()
        points, backend = self._validate_points(X, reset=True)
        points, exact = centred(points, backend)
        pairs = to_numpy(similar), to_numpy(dissimilar)
        problem = problem_from_pairs(points, *pairs, margin=self.margin, backend=exact)
        return problem, exact, backend.dtype, X

    def get_mahalanobis_matrix(self) -> Array:
        """M (D, D), exact: also what lies below `rank_tol`, and in double precision whatever X was in."""
        super().get_mahalanobis_matrix()
        return self._M

    def _solve(self, problem: PairProblem, init: Any, backend: Backend, *, like: Any, kind: Any) -> MDML:
        gamma = 0.0 if self.regularizer in ("none", "drop") else float(self.gamma)
        if self.algorithm == "paper" or self.regularizer == "drop":
            solution = solve_published(
                problem,
                self._penalty(),
                gamma,
                tol=self.tol,
                max_iter=self.max_iter or _PUBLISHED_STEPS,
                start=_metric_of(init, backend),
                drop=float(self.gamma) if self.regularizer == "drop" else 0.0,
                rng=np.random.default_rng([seed_from(self.random_state), 2]),
                backend=backend,
            )
        else:
            penalty = self._penalty() if gamma > 0 else make_regularizer("none")
            solver = solver_for(penalty, self.regularizer)
            solution = solver.solve(problem, penalty, gamma, self, init, backend)
        self._keep(solution, problem.n_similar, len(problem.dissimilar), backend, like=like, kind=kind)
        return self

    def _keep(
        self, solution: Solution, n_similar: int, n_dissimilar: int, backend: Backend, *, like: Any, kind: Any
    ) -> None:
        """Store what was found, on the host if the data came from there; the factor in the data's precision."""
        L = factor_from_eigenpairs(
            solution.eigenvalues,
            solution.eigenvectors,
            rank_tol=self.rank_tol,
            n_components=self.n_components,
            backend=backend,
        )
        self._set_factor(backend.xp.astype(L, kind), backend, like=like)
        self._M = to_numpy(solution.M) if is_host_data(like) else solution.M
        # Not across devices: a model in host memory holds none of a GPU's.
        self._start = solution.start if is_host_data(like) == is_host_data(solution.M) else None
        self.dual_weights_ = None if solution.weights is None else to_numpy(solution.weights)
        self.dual_matrix_ = None if solution.matrix is None else to_numpy(solution.matrix)
        spectrum = to_numpy(solution.eigenvalues)
        self.exact_rank_ = int(np.sum(spectrum > spectrum.size * np.finfo(np.float64).eps * spectrum.max()))
        self.objective_, self.loss_, self.dual_objective_ = solution.objective, solution.loss, solution.dual_objective
        self.n_iter_, self.n_eigh_, self.history_ = solution.n_iter, solution.n_eigh, solution.history
        self.n_similar_, self.n_dissimilar_ = n_similar, n_dissimilar
        self.converged_, self.relative_gap_ = solution.converged, None
        if solution.dual_objective is None:
            return
        self.relative_gap_ = relative_gap(solution.objective, solution.dual_objective, solution.loss, self.margin)
        reason = solution.reason or "raise max_iter or tol"
        if self.relative_gap_ < -_ROUNDING:
            self.converged_, reason = False, "the bound lies above the objective, which is a defect; please report it"
        if not self.converged_ and self.algorithm == "certified":
            warnings.warn(
                f"MDML: relative gap {self.relative_gap_:.2g} after {self.n_eigh_} eigendecompositions, "
                f"asked for {self.tol:g}: {reason}",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _penalty(self) -> Any:
        return make_regularizer(self.regularizer, epsilon=self.epsilon, printed=self.cldd_prox == "printed")

    def _check_parameters(self) -> None:
        if self.regularizer not in REGULARIZERS:
            raise ValueError(f"regularizer: expected one of {', '.join(REGULARIZERS)}, got {self.regularizer!r}")
        if not (math.isfinite(self.gamma) and self.gamma >= 0):
            raise ValueError(f"gamma: expected a number >= 0, got {self.gamma!r}")
        if not self.epsilon > 0:
            raise ValueError(f"epsilon: expected a number > 0, got {self.epsilon!r}")
        if not self.margin > 0:
            raise ValueError(f"margin: expected a number > 0, got {self.margin!r}")
        if self.algorithm not in ("certified", "paper"):
            raise ValueError(f"algorithm: expected 'certified' or 'paper', got {self.algorithm!r}")
        if self.cldd_prox not in ("corrected", "printed"):
            raise ValueError(f"cldd_prox: expected 'corrected' or 'printed', got {self.cldd_prox!r}")
        if self.cldd_prox == "printed" and self.algorithm != "paper":
            raise ValueError("cldd_prox: the printed formula minimises nothing, so it goes with algorithm='paper' only")
        if self.regularizer == "drop" and self.gamma >= 1:
            raise ValueError(f"gamma: for drop it is a probability below 1, got {self.gamma!r}")
        if not self.tol > 0:
            raise ValueError(f"tol: expected a number > 0, got {self.tol!r}")
        if self.max_iter is not None and self.max_iter < 1:
            raise ValueError(f"max_iter: expected at least 1, got {self.max_iter!r}")
        if self.n_components is not None and self.n_components < 1:
            raise ValueError(f"n_components: expected at least 1, got {self.n_components!r}")


def centred(X: Array, backend: Backend) -> tuple[Array, Backend]:
    """Points in double precision about their mean, and the backend for them.

    Pairs stay the same, and no digits are spent on where the points lie.
    """
    xp = backend.xp
    points = xp.astype(X, xp.float64)
    return points - xp.mean(points, axis=0)[None, :], replace(backend, dtype=xp.float64)


def _newton(
    problem: PairProblem, penalty: SmoothConjugate, gamma: float, settings: MDML, init: Any, backend: Backend
) -> Solution:
    return solve_spectral(
        problem,
        penalty,
        gamma,
        tol=settings.tol,
        max_iter=settings.max_iter or _CERTIFIED_STEPS,
        start=_dual_start(init, gamma, problem, backend),
        backend=backend,
    )


def _multipliers(
    problem: PairProblem, penalty: Any, gamma: float, settings: MDML, init: Any, backend: Backend
) -> Solution:
    norm = penalty if isinstance(penalty, EntryNorm) else None
    return solve_multipliers(
        problem,
        norm,
        gamma if norm is not None else gamma * penalty.weight,
        tol=settings.tol,
        max_iter=settings.max_iter or _MULTIPLIER_STEPS,
        start=_metric_of(init, backend),
        backend=backend,
    )


SOLVERS = (
    Solver("newton", (SmoothConjugate,), _newton),
    Solver("multipliers", (Linear, EntryNorm), _multipliers),
)


def _metric_of(init: Any, backend: Backend) -> Array | None:
    if isinstance(init, MDML):
        return backend.asarray(init.get_mahalanobis_matrix())
    if getattr(init, "ndim", 0) != 2:
        return None
    if init.shape[0] != init.shape[1]:
        raise ValueError(f"init: expected a square M for this method, got shape {tuple(init.shape)}")
    return init


def _dual_start(init: Any, gamma: float, problem: PairProblem, backend: Backend) -> DualPoint | Array | None:
    """Another fit's dual point or weights for these pairs, else those that its metric suggests."""
    if init is None or isinstance(init, DualPoint):
        return init
    m, xp = len(problem.dissimilar), backend.xp
    if getattr(init, "ndim", 0) == 2:
        return _suggested(init, problem, backend)
    if hasattr(init, "at"):
        init = init.at(min(max(gamma, init.gamma_min), init.gamma_max))
    weights = getattr(init, "dual_weights_", None) if isinstance(init, MDML) else init
    start = getattr(init, "_start", None)
    if start is not None and start.alpha.shape == (m,) and start.G.shape == problem.similar_scatter.shape:
        same_kind = type(start.G) is type(problem.similar_scatter)
        return start if same_kind else xp.clip(backend.asarray(to_numpy(start.alpha)), 0.0, 1.0)
    if weights is not None and weights.shape == (m,):
        weights = backend.asarray(weights)
        if not bool(xp.all((weights >= -1e-6) & (weights <= 1 + 1e-6))):
            raise ValueError("init: expected weights from 0 to 1, got others; give `dual_weights_` of a fit")
        return xp.clip(weights, 0.0, 1.0)
    if not isinstance(init, MDML):
        raise ValueError(
            f"init: expected a fitted MDML, a fitted MDMLPath, weights of {m} pairs or components (k, D), got {init!r}"
        )
    return _suggested(init.components_, problem, backend)


def _suggested(L: Any, problem: PairProblem, backend: Backend) -> Array:
    """Weights that a metric L'L suggests for these pairs: those that it leaves within the margin count."""
    dimension = problem.similar_scatter.shape[0]
    if L.shape[1] != dimension:
        raise ValueError(f"init: expected components of {dimension} features, got shape {tuple(L.shape)}")
    distances = problem.dissimilar.distances(backend.asarray(L))
    return backend.xp.clip((problem.margin - distances) / (TUNING.handover * problem.margin), 0.0, 1.0)
