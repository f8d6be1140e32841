"""MDML: a Mahalanobis matrix from pairs, by convex optimisation."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from solvers.backend import Array, Backend, is_host_data, to_numpy
from solvers.base import MetricLearner, factor_from_eigenpairs, seed_from
from solvers.convex.accelerated import ConeProx, EntryCone, TraceCone, solve_accelerated
from solvers.convex.certified import solve_spectral
from solvers.convex.dual import DualPoint, Solution, relative_gap
from solvers.convex.published import solve_published
from solvers.pairs import PairProblem, problem_from_labels, problem_from_pairs
from solvers.regularizers.entries import ENTRIES
from solvers.regularizers.spectral import SPECTRAL, ConvexLDD, ConvexVND, NoPenalty

REGULARIZERS: dict[str, type] = {**SPECTRAL, **ENTRIES, "drop": NoPenalty}

# Eigendecompositions of the Newton method; iterations of the accelerated one; steps of the published one.
_CERTIFIED_STEPS = 500
_ACCELERATED_STEPS = 3000
_PUBLISHED_STEPS = 2000


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
    objective_, dual_objective_, relative_gap_ : F(M), a certified lower bound, their relative gap.
    rank_, exact_rank_ : rows of `components_`; eigenvalues of M that are not zero.
    n_iter_, n_eigh_, converged_, history_ : the course of the fit.
    dual_weights_ : (n_pairs,) weights that prove the bound, None where the solver has none; a start for
        another gamma on the same pairs.
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
        """Learn from labels: all similar pairs, `n_pairs` dissimilar ones; `init` is a fit to start from."""
        self._check_parameters()
        points, labels, backend = self._validate_fit(X, y)
        seed = seed_from(self.random_state)
        problem = problem_from_labels(
            points,
            labels,
            n_pairs=self.n_pairs,
            margin=self.margin,
            oversample=self.oversample,
            rng=np.random.default_rng(seed),
            backend=backend,
        )
        return self._solve(problem, init, seed, backend, like=X)

    def fit_pairs(self, X: Any, similar: Any, dissimilar: Any, *, init: Any = None) -> MDML:
        """Learn from exactly these pairs: two (m, 2) integer arrays of row indices of X."""
        self._check_parameters()
        points, backend = self._validate_points(X, reset=True)
        problem = problem_from_pairs(
            points, to_numpy(similar), to_numpy(dissimilar), margin=self.margin, backend=backend
        )
        return self._solve(problem, init, seed_from(self.random_state), backend, like=X)

    def get_mahalanobis_matrix(self) -> Array:
        """M (D, D), exact: also what lies below `rank_tol`."""
        super().get_mahalanobis_matrix()
        return self._M

    def _solve(self, problem: PairProblem, init: Any, seed: int, backend: Backend, *, like: Any) -> MDML:
        common: dict[str, Any] = {"tol": self.tol, "backend": backend}
        gamma = 0.0 if self.regularizer in ("none", "drop") else float(self.gamma)
        metric = backend.asarray(init.get_mahalanobis_matrix()) if isinstance(init, MDML) else None
        if self.algorithm == "paper" or self.regularizer == "drop":
            solution = solve_published(
                problem,
                self._penalty(),
                gamma,
                max_iter=self.max_iter or _PUBLISHED_STEPS,
                start=metric,
                drop=float(self.gamma) if self.regularizer == "drop" else 0.0,
                rng=np.random.default_rng([seed, 2]),
                **common,
            )
        elif gamma == 0 or self.regularizer in ("tr", *ENTRIES):
            solution = solve_accelerated(
                problem,
                self._cone(problem, gamma, backend),
                max_iter=self.max_iter or _ACCELERATED_STEPS,
                start=metric,
                **common,
            )
        else:
            solution = solve_spectral(
                problem,
                self._penalty(),
                gamma,
                max_iter=self.max_iter or _CERTIFIED_STEPS,
                start=self._dual_start(init, problem, backend),
                **common,
            )
        self._keep(solution, problem, backend, like=like)
        return self

    def _keep(self, solution: Solution, problem: PairProblem, backend: Backend, *, like: Any) -> None:
        values = solution.eigenvalues
        L = factor_from_eigenpairs(
            values,
            solution.eigenvectors,
            rank_tol=self.rank_tol,
            n_components=self.n_components,
            backend=backend,
        )
        self._set_factor(L, backend, like=like)
        self._M = to_numpy(solution.M) if is_host_data(like) else solution.M
        # Not across devices: a model in host memory holds none of a GPU's.
        self._dual = solution.dual if is_host_data(like) == is_host_data(solution.M) else None
        self.dual_weights_ = None if solution.dual is None else to_numpy(solution.dual.alpha)
        spectrum = to_numpy(values)
        zero = 1e-10 if backend.dtype == backend.xp.float64 else 1e-5
        counted = int(np.sum(spectrum > zero * spectrum.max()))
        self.exact_rank_ = counted if solution.exact_rank is None else solution.exact_rank
        self.objective_ = solution.objective
        self.dual_objective_ = solution.dual_objective
        self.relative_gap_ = (
            None if solution.dual_objective is None else relative_gap(solution.objective, solution.dual_objective)
        )
        self.n_iter_, self.n_eigh_ = solution.n_iter, solution.n_eigh
        self.converged_, self.history_ = solution.converged, solution.history
        self.n_similar_, self.n_dissimilar_ = problem.n_similar, len(problem.dissimilar)
        if not self.converged_ and self.relative_gap_ is not None and self.algorithm == "certified":
            warnings.warn(
                f"MDML: relative gap {self.relative_gap_:.2g} after {self.n_iter_} iterations, "
                f"asked for {self.tol:g}; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _cone(self, problem: PairProblem, gamma: float, backend: Backend) -> ConeProx:
        if gamma > 0 and self.regularizer in ENTRIES:
            return EntryCone(problem.similar_scatter, ENTRIES[self.regularizer](), gamma, backend.xp)
        return TraceCone(problem.similar_scatter, gamma, backend.xp)

    def _dual_start(self, init: Any, problem: PairProblem, backend: Backend) -> DualPoint | Array | None:
        """Another fit's dual point or weights for these pairs, else those that its metric suggests."""
        if init is None:
            return None
        weights = getattr(init, "dual_weights_", None) if isinstance(init, MDML) else init
        if isinstance(init, MDML) and self._continues(init, problem, backend):
            return init._dual
        if weights is not None and weights.shape == (len(problem.dissimilar),):
            weights, xp = backend.asarray(weights), backend.xp
            if not bool(xp.all((weights >= -1e-6) & (weights <= 1 + 1e-6))):
                raise ValueError("init: expected weights from 0 to 1, got others; give `dual_weights_` of a fit")
            return xp.clip(weights, 0.0, 1.0)
        if not isinstance(init, MDML):
            raise ValueError(
                f"init: expected a fitted MDML or weights of {len(problem.dissimilar)} pairs, got {init!r}"
            )
        distances = problem.dissimilar.distances(backend.asarray(init.components_))
        return backend.xp.clip((self.margin - distances) / (0.1 * self.margin), 0.0, 1.0)

    def _continues(self, init: MDML, problem: PairProblem, backend: Backend) -> bool:
        """Whether a fit's dual point has the shape and the kind of this problem's."""
        dual = getattr(init, "_dual", None)
        return (
            dual is not None
            and dual.alpha.shape == (len(problem.dissimilar),)
            and dual.G.shape == problem.similar_scatter.shape
            and (type(dual.G), dual.G.dtype) == (type(problem.similar_scatter), backend.dtype)
        )

    def _penalty(self) -> Any:
        if self.regularizer == "cldd":
            return ConvexLDD(self.epsilon, printed=self.cldd_prox == "printed")
        if self.regularizer == "cvnd":
            return ConvexVND(self.epsilon)
        return REGULARIZERS[self.regularizer]()

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
