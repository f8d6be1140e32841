"""MDMLPath: one run that gives a metric with a proven gap for every gamma of a range."""

from __future__ import annotations

import math
import warnings
from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from solvers.backend import Array, Backend, choose_backend, is_host_data, to_numpy
from solvers.convex.diagonal import diagonal
from solvers.convex.dual import DualPoint, Solution, SpectralProblem
from solvers.convex.envelope import Envelope, Knot, Line, Proof, Ray
from solvers.convex.mdml import MDML, solver_for
from solvers.convex.tuning import TUNING
from solvers.pairs import PairProblem
from solvers.regularizers.spectral import SmoothConjugate
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
        blend = self._envelope.blend(gamma)
        weights = sum(share * proof.part * proof.knot.weights for share, proof in blend)
        matrix = sum(
            share * proof.part * proof.knot.gamma / gamma * proof.knot.matrix
            for share, proof in blend
            if proof.knot.matrix is not None
        )
        xp, place = self._backend.xp, self._backend.asarray
        values, vectors = place(line.values), place(line.vectors)
        solution = Solution(
            M=(vectors * values[None, :]) @ xp.matrix_transpose(vectors),
            eigenvalues=values,
            eigenvectors=vectors,
            objective=line.at(gamma),
            loss=line.loss,
            dual_objective=self._envelope.lower(gamma),
            n_iter=0,
            n_eigh=0,
            converged=self._envelope.gap(gamma) <= self.tol,
            history=[],
            weights=weights,
            matrix=None if blend[0][1].knot.matrix is None else matrix,
            reason="the path was not finished",
        )
        model = self._model(float(gamma))
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
        return self._each(lambda gamma: self._envelope.line(gamma).at(gamma), gammas)

    def gap(self, gammas: Any) -> Any:
        """Relative gap between that metric and what is proved, for each gamma: never less than its true one."""
        return self._each(self._envelope_gap, gammas)

    def _envelope_gap(self, gamma: float) -> float:
        return self._envelope.gap(gamma)

    def _each(self, function: Any, gammas: Any) -> Any:
        for gamma in np.ravel(gammas):
            self._check_gamma(gamma)
        values = np.array([function(float(gamma)) for gamma in np.ravel(gammas)])
        return values.reshape(np.shape(gammas)) if np.ndim(gammas) else float(values[0])

    def _run(self, model: MDML, problem: PairProblem, backend: Backend, kind: Any, like: Any) -> MDMLPath:
        follower = _Follower(self, model, problem, backend)
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


class _Follower:
    """One run down the range: knots, and the envelope that they leave."""

    def __init__(self, path: MDMLPath, model: MDML, problem: PairProblem, backend: Backend) -> None:
        self.path, self.model, self.problem, self.backend = path, model, problem, backend
        self.penalty = model._penalty()
        self.solver = solver_for(self.penalty, path.regularizer)
        self.envelope = Envelope(path.margin)
        self.knots: dict[float, DualPoint | Array | None] = {}  # what a fit can start from: of the lowest only
        self.solved: dict[float, Knot] = {}
        self.n_eigh = 0
        self.reason = ""
        self.largest = math.inf

    @property
    def converged(self) -> bool:
        self.largest, _ = self.envelope.worst(self.path.gamma_min, self.path.gamma_max)
        return self.largest <= self.path.tol

    def run(self) -> None:
        low, above = float(self.path.gamma_min), float(self.path.gamma_max)
        self._solve(above)
        ratio = TUNING.first_ratio
        while above > low and not self._spent():
            reach = self._reach(above, low)
            below = min(above / ratio, max(reach * reach / above, reach / TUNING.most_reach))
            below = low if below < 1.3 * low else below
            if reach > low:
                self._solve(below)
            closed = self._close(below, above)
            ratio = ratio**0.7 if not closed else min(ratio**1.2, TUNING.most_ratio)
            above = below
        if self._spent():
            self._prove([low])
            self.reason = f"{self.path.max_iter} eigendecompositions were not enough; raise max_iter or tol"

    def _spent(self) -> bool:
        return self.n_eigh >= self.path.max_iter

    def _close(self, low: float, high: float) -> bool:
        """Solve at the worst gammas between two knots until every gap is within the tolerance; True if none had to."""
        self._prove([low * (high / low) ** (k / (TUNING.proofs + 1)) for k in range(TUNING.proofs + 2)])
        worst, gamma = self.envelope.worst(low, high)
        solved = 0
        while worst > self.path.tol and not self._spent():
            if min(abs(math.log(gamma / knot)) for knot in self.knots) < 1e-3:
                self.reason = f"the fit at gamma {gamma:.3g} did not reach its tolerance"
                break
            self._solve(gamma)
            solved += 1
            around = sorted([*self.knots, low])
            left = max(knot for knot in around if knot < gamma)
            right = min(knot for knot in around if knot > gamma)
            self._prove(
                [
                    a * (b / a) ** (k / (TUNING.proofs + 1))
                    for a, b in ((left, gamma), (gamma, right))
                    for k in range(1, TUNING.proofs + 1)
                ]
            )
            worst, gamma = self.envelope.worst(low, high)
        return solved == 0

    def _reach(self, above: float, low: float) -> float:
        """How far down the lines and weights at hand are within the tolerance, without any more fits."""
        reach, gamma = above, above
        while gamma > low:
            gamma = max(low, gamma / TUNING.reach_step)
            self._prove([gamma])
            if self.envelope.worst(gamma, above)[0] > self.path.tol:
                break
            reach = gamma
        return reach

    def _prove(self, gammas: list[float]) -> None:
        """What knots around each gamma prove there."""
        for gamma in gammas:
            below = [g for g in self.solved if g <= gamma]
            above = [g for g in self.solved if g >= gamma]
            for near in {*sorted(below)[-1:], *sorted(above)[:1]}:
                knot = self.solved[near]
                value, part = knot.curve.at(gamma)
                self.envelope.add(Proof(gamma, value, knot, part))

    def _solve(self, gamma: float) -> None:
        """A knot: its fit, its bound, and the lines of all metrics that its decomposition gives."""
        start = self._start(gamma)
        self.model.gamma, self.model.tol = gamma, TUNING.knot_tol * self.path.tol
        self.model.max_iter = max(1, self.path.max_iter - self.n_eigh) if self._newton else None
        solution = self.solver.solve(self.problem, self.penalty, gamma, self.model, start, self.backend)
        self.n_eigh += solution.n_eigh
        if not solution.converged:
            self.reason = solution.reason
        assert solution.dual_objective is not None
        weights = solution.weights if solution.start is None else solution.start.alpha
        knot = Knot(
            gamma,
            to_numpy(weights),
            None if solution.matrix is None else to_numpy(solution.matrix),
            solution.curve or Ray(gamma, solution.dual_objective),
        )
        value, part = knot.curve.at(gamma)
        self.solved[gamma] = knot
        self.envelope.add(Proof(gamma, value, knot, part))
        self.envelope.lines += self._lines(solution, gamma)
        self.knots[gamma] = solution.start if self._newton else solution.M
        for old in self.knots.keys() - {min(self.knots)}:
            self.knots[old] = None  # a decomposition is large: the path goes on from the lowest

    def _start(self, gamma: float) -> DualPoint | Array | None:
        """Between two knots the blend of their weights, below them the lowest knot's decomposition."""
        if not self.knots:
            return None
        low = min(self.knots)
        if gamma > low and self._newton:
            left = max(knot for knot in self.knots if knot < gamma)
            right = min(knot for knot in self.knots if knot > gamma)
            share = (gamma - left) / (right - left)
            weights = (1 - share) * self.solved[left].weights + share * self.solved[right].weights
            return self.backend.asarray(weights)
        return self.knots[low]

    @property
    def _newton(self) -> bool:
        return isinstance(self.penalty, SmoothConjugate)

    def _lines(self, solution: Solution, gamma: float) -> list[Line]:
        """The fit's own metric, and those that the eigenvectors of G give at gammas nearby."""
        xp, problem = self.backend.xp, self.problem
        p = SpectralProblem(problem, self.penalty, gamma, self.backend)
        values, vectors, loss = solution.eigenvalues, solution.eigenvectors, solution.loss
        kept = xp.nonzero(values > 0)[0]
        if kept.shape[0] == 0:  # M = 0 still has a shape
            kept = self.backend.indices([values.shape[0] - 1])
        own = Line(
            loss,
            (solution.objective - loss) / gamma,
            to_numpy(xp.take(values, kept)),
            to_numpy(xp.take(vectors, kept, axis=1)),
        )
        return [own, *self._nearby(p, solution, gamma)] if self._newton else [own]

    def _nearby(self, p: SpectralProblem, solution: Solution, gamma: float) -> list[Line]:
        """For some gamma' around a knot about the best metric with the eigenvectors of its G."""
        xp, point = self.backend.xp, solution.start
        assert point is not None
        g = solution.gradient_unit * point.g

        def suggested(each: float) -> Array:
            feasible = -float(g[0]) < 0.99 * each * self.penalty.dual_limit
            return self.penalty.maximizer(-g / each, xp=xp) if feasible else xp.zeros_like(g)

        x, more = suggested(gamma), suggested(gamma * max(TUNING.nearby))
        x = xp.where(x > 0, x, more)
        rank = int(xp.sum(xp.astype(x > 0, xp.int64)))
        if rank == 0:
            return []
        vectors, along = point.U[:, :rank], self._along(solution, rank)
        family = diagonal(p, self.penalty, vectors, along, x[:rank])
        found: list[np.ndarray] = []
        for ratios in ([r for r in TUNING.nearby if r >= 1], [r for r in reversed(TUNING.nearby) if r < 1]):
            w = found[0] if found else np.ones(len(family.starts))
            for ratio in ratios:  # away from the knot, each from the one before
                found.append(w := family.best(gamma * ratio, w, p, near=len(found) > 0))
        eigenvalues = np.stack([family.eigenvalues(w) for w in found], axis=1)
        distances = p.pairs.diagonal_forms(along, self.backend.asarray(eigenvalues))
        apart = to_numpy(xp.mean(xp.clip(p.margin - distances, 0.0, None), axis=0))
        host, rest = to_numpy(vectors), self.penalty.value(np.zeros(g.shape[0] - rank), xp=numpy_namespace)
        omegas = np.sum(self.penalty.value(eigenvalues, xp=numpy_namespace), axis=0) + np.sum(rest)
        return [
            Line(float(family.similar @ w + apart[k]), float(omegas[k]), eigenvalues[:, k], host)
            for k, w in enumerate(found)
        ]

    def _along(self, solution: Solution, rank: int) -> Array:
        """(n, rank) the points along leading eigenvectors; some of it is at hand."""
        xp, X, point = self.backend.xp, self.problem.dissimilar.X, solution.start
        assert point is not None
        known = solution.projected
        if known is None:
            return X @ point.U[:, :rank]
        more = [X @ point.U[:, known.shape[1] : rank]] if known.shape[1] < rank else []
        return xp.concat([known[:, : min(rank, known.shape[1])], *more], axis=1)
