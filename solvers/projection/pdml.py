"""PDML: a projection A (k, D) learned from pairs, non-convex, best of several restarts."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from solvers.backend import Array, Backend, is_host_data, to_numpy
from solvers.base import MetricLearner, seed_from
from solvers.pairs import PairProblem, problem_from_labels, problem_from_pairs
from solvers.projection import stiefel
from solvers.projection.descent import LEVELS, descend
from solvers.projection.objective import ProjectionObjective
from solvers.projection.restarts import StackResult, joined
from solvers.projection.stochastic import stochastic_subgradient
from solvers.regularizers.rows import ROWS, Decorrelation, RowRegularizer

_DEFAULT_MAX_ITER = {"lbfgs": 1000, "paper": 2000, "oc": 1000}
# Restarts that run before `agree_tol` is asked.
_FIRST_RESTARTS = 2
_CHOICES: dict[str, tuple[str, ...]] = {
    "regularizer": (*ROWS, "oc"),
    "algorithm": ("lbfgs", "paper"),
    "init": ("orthonormal", "gaussian"),
    "dpp_kernel": ("linear", "cosine", "rbf"),
    "ic_form": ("lse", "pow"),
}


class PDML(MetricLearner):
    """Projection-matrix distance metric learning with diversity-promoting regularizers.

    Minimises  mean_S ||A z||^2 + mean_D max(0, margin - ||A z||^2) + gamma Omega(A)  over A (k, D),
    from `n_restarts` starts computed as one stack; the lowest objective wins.

    Parameters
    ----------
    regularizer : one of none sfn vnd ldd dc cs dpp ic dec vgf ma, or oc: A A' = I instead of a penalty.
    n_components, rank : k, under scikit-learn's name and the sweep file's; None for min(D, 100). Give one of them.
    gamma : weight of the regularizer; oc has none.
    margin : squared distance that dissimilar pairs should exceed.
    n_restarts : number of starts.
    agree_tol : None: all restarts run. Else two run first, and the others only if the objectives of these
        two differ by more than this part of the lower one.
    algorithm : "lbfgs", deterministic on the smoothed hinge with stopping rules, or "paper",
        stochastic subgradient steps of 0.001 on 50 + 50 pairs. oc is Wen and Yin's method in both cases.
    init : "orthonormal" or "gaussian" (entries of variance 1/D) rows. oc always starts orthonormal. With
        k = D, where all orthonormal rows make one metric, rows from the second start on differ in length.
    n_pairs : dissimilar pairs that `fit` draws; similar pairs are all taken, in closed form.
    max_iter : evaluations (lbfgs and oc: None for 1,000) or steps (paper: 2,000) per restart.
    tol : lbfgs has converged where moving each row by its own length would gain at most tol max(1, |objective|)
        to first order, in coordinates in which the data have unit scatter; or where ten steps gained
        no more than tol / 20 of the objective. oc: ||tangent|| ||A|| <= tol max(1, |objective|).
    oversample : every class counts the same, as if resampled to the size of the largest.
    dpp_kernel, dpp_bandwidth : "linear", "cosine" or "rbf" with this bandwidth.
    ic_form, ic_beta : "lse" or "pow", and its sharpness; "pow" wants a small one, such as 4.
    cs_abs : penalise |cosine| instead of the signed cosine.
    vgf_diagonal : weight of squared row norms; None for k - 1, the smallest that keeps VGF convex.
    lower_bound : certified lower bound of `MDML(regularizer="none")` on the same pairs and margin.
    device : "auto", "cpu", "cuda" or "cuda:<number>".
    random_state : pairs come from it as they do in MDML, starts from a child of it; neither
        depends on regularizer, gamma or algorithm, nor start i on the number of restarts.

    Attributes
    ----------
    components_ : (k, D), the best restart. restart_components_ : (restarts_run_, k, D), all that ran.
    best_restart_, restart_objectives_, restart_n_iter_ : which was best; of each restart its objective
        (exact, not smoothed) and its evaluations or steps.
    objective_, converged_ : of the best restart; "paper" has no criterion, so it never counts as converged.
    stationarity_ : of the best restart, what `tol` is compared with, measured in the precision of X; None for "paper".
    restarts_run_, n_restarts_saved_ : restarts that ran, and those that `agree_tol` made unnecessary.
    n_iter_ : sum of restart_n_iter_.
    n_eigh_ : eigendecompositions, all of (k, k) Gram matrices: one per evaluation of a restart where
        the regularizer needs one, none of size D.
    bound_gap_ : objective_ - lower_bound, or None.
    resolved_params_ : what the parameters left open was set to.
    history_ : list of {"seconds", "n_iter", "objective"}: lowest objective among running restarts,
        smoothed for lbfgs and oc.

    Notes
    -----
    `bound_gap_` bounds how far this fit can be from the best A. With M = A'A the data terms are those
    of plain MDML, so its certified bound holds below them for every A, and below the objective where
    Omega >= 0 (none, sfn, vnd, ldd, dec, vgf) or there is no penalty (oc). For none it is tight when
    k reaches the rank of the convex optimum. The bounds of csfn, cvnd and cldd do not carry over:
    sfn(A) = csfn(M) - tr(M) - (D - k), and nothing bounds tr(M) from above before A is known;
    cvnd and cldd differ from vnd and ldd by tr(M) and by errors in epsilon in the same way. dc, dpp, cs,
    ma and ic can be negative, so no gap is given for them.

    dc and dpp with its linear kernel fall without end along directions in which similar pairs do not
    differ (constant features, D >= n); such a fit ends at `max_iter`. Where rows become linearly
    dependent, vnd, ldd, dc and dpp see Gram eigenvalues of at least 1e-10.

    cs, ic and ma look at the directions of rows only, and the data let rows shrink that they do not need: the
    shorter a row, the steeper the penalty, so that the gradient does not vanish on the way to a row of
    zeros, where they have no limit. Such fits end where the objective stands; many more steps can still lower
    it by a percent or so.
    """

    def __init__(
        self,
        regularizer: str = "none",
        n_components: int | None = None,
        gamma: float = 1e-2,
        margin: float = 1.0,
        n_restarts: int = 5,
        agree_tol: float | None = None,
        algorithm: str = "lbfgs",
        init: str = "orthonormal",
        n_pairs: int = 20_000,
        max_iter: int | None = None,
        tol: float = 3e-3,
        oversample: bool = False,
        dpp_kernel: str = "linear",
        dpp_bandwidth: float = 1.0,
        ic_form: str = "lse",
        ic_beta: float = 50.0,
        cs_abs: bool = False,
        vgf_diagonal: float | None = None,
        lower_bound: float | None = None,
        device: str = "auto",
        random_state: Any = None,
        rank: int | None = None,
    ) -> None:
        self.regularizer = regularizer
        self.n_components = n_components
        self.rank = rank
        self.gamma = gamma
        self.margin = margin
        self.n_restarts = n_restarts
        self.agree_tol = agree_tol
        self.algorithm = algorithm
        self.init = init
        self.n_pairs = n_pairs
        self.max_iter = max_iter
        self.tol = tol
        self.oversample = oversample
        self.dpp_kernel = dpp_kernel
        self.dpp_bandwidth = dpp_bandwidth
        self.ic_form = ic_form
        self.ic_beta = ic_beta
        self.cs_abs = cs_abs
        self.vgf_diagonal = vgf_diagonal
        self.lower_bound = lower_bound
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> PDML:
        """Learn from all similar and `n_pairs` sampled dissimilar pairs of labelled examples."""
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
        return self._fit(problem, seed, backend, like=X)

    def fit_pairs(self, X: Any, similar: Any, dissimilar: Any) -> PDML:
        """Learn from exactly these pairs, two (m, 2) arrays of row indices of X.

        Or, as in metric-learn, `fit_pairs(X, pairs, y)`: one such array, and y (m,) of +1 (similar) and -1.
        """
        self._check_parameters()
        points, backend = self._validate_points(X, reset=True)
        problem = problem_from_pairs(points, similar, dissimilar, margin=self.margin, backend=backend)
        return self._fit(problem, seed_from(self.random_state), backend, like=X)

    def _check_parameters(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}: expected one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        minima = {"n_components": 1, "rank": 1, "n_restarts": 1, "max_iter": 1, "gamma": 0, "tol": 0, "agree_tol": 0}
        for name, least in minima.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"{name}: expected at least {least}, got {value}")
        if None not in (self.n_components, self.rank) and self.n_components != self.rank:
            raise ValueError(f"rank: is n_components, got {self.rank} and {self.n_components}; give one of them")
        for name in ("margin", "dpp_bandwidth", "ic_beta"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: expected a positive number, got {getattr(self, name)}")

    def _fit(self, problem: PairProblem, seed: int, backend: Backend, *, like: Any) -> PDML:
        began = time.perf_counter()
        xp, D = backend.xp, problem.dissimilar.X.shape[1]
        asked = self.n_components if self.rank is None else self.rank
        rank = min(D, 100) if asked is None else int(asked)
        if rank > D:
            raise ValueError(f"n_components: expected at most the {D} features of X, got {rank}")
        kind = "oc" if self.regularizer == "oc" else self.algorithm
        max_iter = _DEFAULT_MAX_ITER[kind] if self.max_iter is None else int(self.max_iter)
        penalty = self._regularizer(problem.dissimilar.X, backend)
        objective = ProjectionObjective(problem, penalty, 0.0 if kind == "oc" else self.gamma, xp)
        self.history_: list[dict[str, float]] = []

        def record(n_iter: int, values: np.ndarray) -> None:
            seconds = time.perf_counter() - began
            self.history_.append({"seconds": seconds, "n_iter": n_iter, "objective": float(values.min())})

        def run(restarts: range) -> StackResult:
            start = self._starts(restarts, rank, D, seed, backend)
            if kind == "lbfgs":
                return descend(objective, start, tol=self.tol, max_iter=max_iter, on_check=record)
            if kind == "oc":
                return self._orthonormal(objective, start, max_iter, record, backend)
            return self._paper(objective, start, restarts, max_iter, record, seed, backend)

        n_first = self.n_restarts if self.agree_tol is None else min(_FIRST_RESTARTS, self.n_restarts)
        result = run(range(n_first))
        objectives = to_numpy(objective.exact(result.points))
        if n_first < self.n_restarts and not self._agree(objectives):
            others = run(range(n_first, self.n_restarts))
            objectives = np.concatenate([objectives, to_numpy(objective.exact(others.points))])
            result = joined(result, others, xp=xp)
        best = int(np.argmin(np.where(np.isfinite(objectives), objectives, np.inf)))
        self._set_factor(result.points[best, ...], backend, like=like)
        self.restart_components_ = to_numpy(result.points) if is_host_data(like) else result.points
        self.restart_objectives_ = objectives.astype(np.float64)
        self.restart_n_iter_ = result.n_iter
        self.best_restart_ = best
        self.objective_ = float(objectives[best])
        self.n_iter_ = int(result.n_iter.sum())
        self.restarts_run_ = int(objectives.size)
        self.n_restarts_saved_ = self.n_restarts - self.restarts_run_
        self.n_eigh_ = penalty.eigendecompositions * (self.n_iter_ + self.restarts_run_)
        self.converged_ = bool(result.converged[best])
        self.stationarity_ = None if result.stationarity is None else float(result.stationarity[best])
        bounded = self.lower_bound is not None and penalty.nonnegative
        self.bound_gap_ = self.objective_ - float(self.lower_bound or 0.0) if bounded else None
        self.resolved_params_ = {
            "n_components": rank,
            "max_iter": max_iter,
            "init": "orthonormal" if kind == "oc" else self.init,
            "vgf_diagonal": float(rank - 1) if self.vgf_diagonal is None else float(self.vgf_diagonal),
        }
        if kind != "paper" and not self.converged_:
            warnings.warn(
                f"PDML: not converged in {max_iter} evaluations (stationarity {self.stationarity_:.1e}, "
                f"tol {self.tol:.1e}); raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _regularizer(self, X: Array, backend: Backend) -> RowRegularizer:
        options: dict[str, dict[str, Any]] = {
            "cs": {"absolute": self.cs_abs},
            "dpp": {"kernel": self.dpp_kernel, "bandwidth": self.dpp_bandwidth},
            "ic": {"form": self.ic_form, "beta": self.ic_beta},
            "vgf": {"diagonal": self.vgf_diagonal},
        }
        if self.regularizer == "dec":
            # The triangular factor stands for the data: as many rows as features, same covariance.
            root = backend.xp.linalg.qr(_centred(X, backend), mode="reduced")[1]
            return Decorrelation(root=root / X.shape[0] ** 0.5)
        name = "none" if self.regularizer == "oc" else self.regularizer
        return ROWS[name](**options.get(name, {}))

    def _agree(self, objectives: np.ndarray) -> bool:
        return self.agree_tol is not None and bool(np.ptp(objectives) <= self.agree_tol * np.abs(objectives.min()))

    def _starts(self, restarts: range, rank: int, D: int, seed: int, backend: Backend) -> Array:
        """(r, k, D); start i comes from a generator of its own."""
        starts = []
        for restart in restarts:
            rng = np.random.default_rng([seed, 1, restart])
            gaussian = rng.standard_normal((D, rank))
            if self.init == "gaussian" and self.regularizer != "oc":
                starts.append(gaussian.T / np.sqrt(D))
                continue
            rows = np.linalg.qr(gaussian)[0].T
            if rank == D and restart > 0 and self.regularizer != "oc":
                rows = rows * np.exp(0.5 * rng.standard_normal((rank, 1)))
            starts.append(rows)
        return backend.asarray(np.stack(starts))

    def _orthonormal(
        self,
        objective: ProjectionObjective,
        start: Array,
        max_iter: int,
        record: Callable[[int, np.ndarray], None],
        backend: Backend,
    ) -> StackResult:
        xp = backend.xp

        def evaluate(A: Array) -> tuple[Array, Array]:
            smoothing = xp.full((A.shape[0],), LEVELS[-1] * self.margin, dtype=backend.dtype, device=backend.device)
            return objective.smoothed(A, smoothing)

        return stiefel.minimize_orthonormal(evaluate, start, tol=self.tol, max_iter=max_iter, xp=xp, on_check=record)

    def _paper(
        self,
        objective: ProjectionObjective,
        start: Array,
        restarts: range,
        max_iter: int,
        record: Callable[[int, np.ndarray], None],
        seed: int,
        backend: Backend,
    ) -> StackResult:
        penalty, looks = objective.regularizer, max(1, max_iter // 10)

        def penalty_of(batch: Array) -> RowRegularizer:
            if self.regularizer != "dec":
                return penalty
            centred = batch - backend.xp.mean(batch, axis=-2, keepdims=True)
            return Decorrelation(root=centred / batch.shape[-2] ** 0.5)

        def look(n_steps: int, A: Array) -> None:
            if n_steps % looks == 0 or n_steps == max_iter:
                record(n_steps, to_numpy(objective.exact(A)))

        points = stochastic_subgradient(
            objective.problem,
            penalty_of,
            self.gamma,
            start,
            rngs=[np.random.default_rng([seed, 2, restart]) for restart in restarts],
            n_steps=max_iter,
            backend=backend,
            on_check=look,
        )
        return StackResult(points, np.full(len(restarts), max_iter), np.zeros(len(restarts), dtype=bool))


def best_of_restarts(objectives: np.ndarray, scores: np.ndarray | None = None) -> list[dict[str, float]]:
    """What 1, 2, ..., m restarts would have given: lowest objective, and the score of that restart."""
    rows = []
    for count in range(1, len(objectives) + 1):
        best = int(np.argmin(objectives[:count]))
        row = {"n_restarts": count, "objective": float(objectives[best])}
        if scores is not None:
            row["score"] = float(scores[best])
        rows.append(row)
    return rows


def _centred(X: Array, backend: Backend) -> Array:
    return X - backend.xp.mean(X, axis=0, keepdims=True)
