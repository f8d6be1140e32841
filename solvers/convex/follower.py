"""One run down a range of gammas: where it is solved, and the lines and proofs that cover what lies between."""

from __future__ import annotations

import math
from dataclasses import dataclass

import array_api_compat.numpy as numpy_namespace
import numpy as np

from solvers.backend import Array, Backend, to_numpy
from solvers.convex.diagonal import diagonal
from solvers.convex.dual import DualCurve, DualPoint, Solution, SpectralProblem
from solvers.convex.envelope import Envelope, Knot, Line, Mixture, Proof, Ray
from solvers.convex.mdml import MDML, solver_for
from solvers.convex.search import golden_section
from solvers.convex.tuning import TUNING
from solvers.pairs import PairProblem
from solvers.regularizers.spectral import SmoothConjugate


@dataclass(frozen=True)
class Near:
    """A metric of a knot, and what its mixtures need: <C_S, M> and the distances of the pairs, on the host."""

    line: Line
    similar: float
    distances: np.ndarray


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
        self.near: dict[float, list[Near]] = {}  # of the knots that what is open lies between
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
            ratio = self._next_ratio(below, above, self._close(below, above))
            above = below
        if self._spent():
            self._prove(low)
            self.reason = f"{self.max_iter} eigendecompositions were not enough; raise max_iter or tol"

    def _next_ratio(self, low: float, high: float, worst: float) -> float:
        """Of the next knot to this one: between the last two the gap rose by about the square of their distance."""
        ends = max(self.envelope.gap(low), self.envelope.gap(high))
        room, added = max(self.tol - ends, 0.1 * self.tol), max(worst - ends, 1e-9 * self.tol)
        factor = min(max(math.sqrt(TUNING.filled * room / added), 0.5), 1.5)
        return min((high / low) ** factor, TUNING.most_ratio)

    def _spent(self) -> bool:
        return self.n_eigh >= self.max_iter

    def _close(self, low: float, high: float) -> float:
        """Solve at the worst gammas between two knots until every gap is within the tolerance.

        Returns the largest gap before that.
        """
        self._cover(low, high)
        worst, gamma = self.envelope.worst(low, high)
        first = worst
        while worst > self.tol and not self._spent():
            if min(abs(math.log(gamma / knot)) for knot in self.knots) < 1e-3:
                self.reason = f"the fit at gamma {gamma:.3g} did not reach its tolerance"
                break
            self._solve(gamma)
            around = sorted([*self.knots, low])
            self._cover(max(knot for knot in around if knot < gamma), gamma)
            self._cover(gamma, min(knot for knot in around if knot > gamma))
            worst, gamma = self.envelope.worst(low, high)
        for knot in [knot for knot in self.near if knot > low]:
            del self.near[knot]  # distances of all pairs are large
        return first

    def _reach(self, above: float, low: float) -> float:
        """How far down the lines and weights at hand are within the tolerance, without any more fits."""
        reach, gamma = above, above
        while gamma > low:
            gamma = max(low, gamma / TUNING.reach_step)
            self._prove(gamma)
            if self.envelope.worst(gamma, above)[0] > self.tol:
                break
            reach = gamma
        return reach

    def _cover(self, low: float, high: float) -> None:
        """Bounds and metrics at some gammas from low to high, by what is known around them."""
        for k in range(TUNING.proofs + 2):
            self._prove(low * (high / low) ** (k / (TUNING.proofs + 1)))

    def _prove(self, gamma: float) -> None:
        """What knots around a gamma prove there, each by itself and blended; and the best mixture of their metrics."""
        around = [*sorted(g for g in self.solved if g <= gamma)[-1:], *sorted(g for g in self.solved if g > gamma)[:1]]
        for each in around:
            value, part = self.solved[each].curve.at(gamma)
            self.envelope.add(Proof(gamma, value, ((part, self.solved[each]),)))
        if len(around) == 2 and around[0] < gamma and self._newton:
            left, right = (self.solved[each] for each in around)
            share = self._share(left, right, gamma)
            value, part = _curve(left).blended(_curve(right), share).at(gamma)
            self.envelope.add(Proof(gamma, value, ((part * (1 - share), left), (part * share, right))))
            if all(self.near.get(each) for each in around):
                first, second = (min(self.near[each], key=lambda metric: metric.line.at(gamma)) for each in around)
                self.envelope.lines.append(self._mixture(first, second, gamma))

    def _share(self, left: Knot, right: Knot, gamma: float) -> float:
        """About the share of the right one of two knots' weights with which their blend proves most."""
        first, second, own = _curve(left), _curve(right), gamma / self.model.margin
        chord = (gamma - left.gamma) / (right.gamma - left.gamma)

        def missing(share: float) -> float:
            return -first.blended(second, share).value(own, 1.0)

        return min(chord, golden_section(missing, 0.0, 1.0, TUNING.blending), key=missing)

    def _mixture(self, first: Near, second: Near, gamma: float) -> Mixture:
        """About the best mixture of two metrics at a gamma."""
        spectra = [np.sort(each.line.values)[::-1] for each in (first, second)]
        d, rank = self.problem.similar_scatter.shape[0], max(len(each) for each in spectra)
        tops = [np.pad(each, (0, rank - len(each))) for each in spectra]
        rest = (d - rank) * float(self.penalty.value(np.zeros(1), xp=numpy_namespace)[0])

        def mixed(share: float) -> Mixture:
            similar = (1 - share) * first.similar + share * second.similar
            hinge = self.model.margin - ((1 - share) * first.distances + share * second.distances)
            values = (1 - share) * tops[0] + share * tops[1]
            omega = float(np.sum(self.penalty.value(values, xp=numpy_namespace))) + rest
            loss = similar + float(np.mean(np.maximum(hinge, 0.0)))
            return Mixture(loss, omega, first.line, second.line, share)

        return mixed(golden_section(lambda share: mixed(share).at(gamma), 0.0, 1.0, TUNING.blending))

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
        self.envelope.add(Proof(gamma, value, ((part, knot),)))
        self.near[gamma] = self._nearby(solution, gamma) if self._newton else []
        self.envelope.lines += [self._own(solution, gamma), *(each.line for each in self.near[gamma])]
        self.knots[gamma] = solution.start if self._newton else solution.M
        for old in self.knots.keys() - {min(self.knots)}:
            self.knots[old] = None  # a decomposition is large: the path goes on from the lowest

    def _start(self, gamma: float) -> DualPoint | Array | None:
        """Between two knots the blend of their weights, below them the lowest knot's decomposition."""
        if not self.knots:
            return None
        low = min(self.knots)
        if gamma > low and self._newton:
            left = self.solved[max(knot for knot in self.knots if knot < gamma)]
            right = self.solved[min(knot for knot in self.knots if knot > gamma)]
            share = self._share(left, right, gamma)
            return self.backend.asarray((1 - share) * left.weights + share * right.weights)
        return self.knots[low]

    @property
    def _newton(self) -> bool:
        return isinstance(self.penalty, SmoothConjugate)

    def _own(self, solution: Solution, gamma: float) -> Line:
        """The fit's own metric."""
        xp = self.backend.xp
        values, vectors, loss = solution.eigenvalues, solution.eigenvectors, solution.loss
        kept = xp.nonzero(values > 0)[0]
        if kept.shape[0] == 0:  # M = 0 still has a shape
            kept = self.backend.indices([values.shape[0] - 1])
        omega = (solution.objective - loss) / gamma
        return Line(loss, omega, to_numpy(xp.take(values, kept)), to_numpy(xp.take(vectors, kept, axis=1)))

    def _nearby(self, solution: Solution, gamma: float) -> list[Near]:
        """For some gamma' around a knot about the best metric with the eigenvectors of its G."""
        xp, point = self.backend.xp, solution.start
        p = SpectralProblem(self.problem, self.penalty, gamma, self.backend)
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
        distances = to_numpy(p.pairs.diagonal_forms(along, self.backend.asarray(eigenvalues)))
        apart = np.mean(np.maximum(p.margin - distances, 0.0), axis=0)
        host, rest = to_numpy(vectors), self.penalty.value(np.zeros(g.shape[0] - rank), xp=numpy_namespace)
        omegas = np.sum(self.penalty.value(eigenvalues, xp=numpy_namespace), axis=0) + np.sum(rest)
        similar = [float(family.similar @ w) for w in found]
        return [
            Near(
                Line(of_similar + float(apart[k]), float(omegas[k]), eigenvalues[:, k], host),
                of_similar,
                distances[:, k],
            )
            for k, of_similar in enumerate(similar)
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


def _curve(knot: Knot) -> DualCurve:
    assert isinstance(knot.curve, DualCurve)
    return knot.curve
