"""One run down a range of gammas: where it is solved, and the lines and proofs that cover what lies between."""

from __future__ import annotations

import math

import array_api_compat.numpy as numpy_namespace
import numpy as np

from solvers.backend import Array, Backend, to_numpy
from solvers.convex.diagonal import diagonal
from solvers.convex.dual import DualPoint, Solution, SpectralProblem
from solvers.convex.envelope import Envelope, Knot, Line, Proof, Ray
from solvers.convex.mdml import MDML, solver_for
from solvers.convex.tuning import TUNING
from solvers.pairs import PairProblem
from solvers.regularizers.spectral import SmoothConjugate


class Follower:
    """One run down the range: knots, and the envelope that they leave."""

    def __init__(
        self, model: MDML, problem: PairProblem, backend: Backend, *, low: float, high: float, tol: float, max_iter: int
    ) -> None:
        self.model, self.problem, self.backend = model, problem, backend
        self.low, self.high, self.tol, self.max_iter = low, high, tol, max_iter
        self.penalty = model._penalty()
        self.solver = solver_for(self.penalty, model.regularizer)
        self.envelope = Envelope(model.margin)
        self.knots: dict[float, DualPoint | Array | None] = {}  # what a fit can start from: of the lowest only
        self.solved: dict[float, Knot] = {}
        self.n_eigh = 0
        self.reason = ""
        self.largest = math.inf

    @property
    def converged(self) -> bool:
        self.largest, _ = self.envelope.worst(self.low, self.high)
        return self.largest <= self.tol

    def run(self) -> None:
        low, above = self.low, self.high
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
            self.reason = f"{self.max_iter} eigendecompositions were not enough; raise max_iter or tol"

    def _spent(self) -> bool:
        return self.n_eigh >= self.max_iter

    def _close(self, low: float, high: float) -> bool:
        """Solve at the worst gammas between two knots until every gap is within the tolerance; True if none had to."""
        self._prove([low * (high / low) ** (k / (TUNING.proofs + 1)) for k in range(TUNING.proofs + 2)])
        worst, gamma = self.envelope.worst(low, high)
        solved = 0
        while worst > self.tol and not self._spent():
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
            if self.envelope.worst(gamma, above)[0] > self.tol:
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
        self.model.gamma, self.model.tol = gamma, TUNING.knot_tol * self.tol
        self.model.max_iter = max(1, self.max_iter - self.n_eigh) if self._newton else None
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
