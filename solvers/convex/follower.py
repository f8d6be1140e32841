"""One run down a range of gammas: where it is solved, and the lines and proofs that cover what lies between."""

from __future__ import annotations

import math

import array_api_compat.numpy as numpy_namespace
import numpy as np

from solvers.backend import Array, Backend
from solvers.convex.dual import DualCurve, DualPoint
from solvers.convex.envelope import Envelope, Knot, Mixture, Proof
from solvers.convex.knots import Blend, Course, Found, Near, blend, fitted_knot, newton_knot
from solvers.convex.mdml import MDML
from solvers.convex.search import golden_section
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
        self.envelope = Envelope(model.margin)
        self.knots: dict[float, Knot] = {}
        # Of the knots that what is open lies between: distances of all pairs, and G.
        self.near: dict[float, list[Near]] = {}
        self.blends: dict[float, Blend] = {}
        self.lowest: DualPoint | Array | None = None  # what a knot below the lowest can start from
        limited = isinstance(self.penalty, SmoothConjugate) and math.isfinite(self.penalty.dual_limit)
        self.most_reach = TUNING.most_reach_to_limit if limited else TUNING.most_reach
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
            covered = max(reach * reach / above, reach / self.most_reach)
            below = min(self._evenly(above, low, ratio), covered if covered > 1.3 * low else low)
            if reach > low:
                self._solve(below)
            ratio = self._next_ratio(below, above, self._close(below, above))
            above = below
        if self._spent():
            self._prove(low)
            self.reason = f"{self.max_iter} eigendecompositions were not enough; raise max_iter or tol"

    def _evenly(self, above: float, low: float, ratio: float) -> float:
        """The next knot, at about this ratio; the last two at equal ones."""
        left = math.log(above / low) / math.log(ratio)
        if left < 2:
            return low if left < TUNING.last else math.sqrt(above * low)
        return above / ratio

    def _next_ratio(self, low: float, high: float, worst: float) -> float:
        """Of the next knot to this one: between the last two the gap rose by about the cube of their distance."""
        ends = max(self.envelope.gap(low), self.envelope.gap(high))
        room, added = max(self.tol - ends, 0.1 * self.tol), max(worst - ends, 1e-9 * self.tol)
        factor = min(max((TUNING.filled * room / added) ** (1 / 3), 0.5), 1.5)
        return min((high / low) ** factor, TUNING.most_ratio ** min(1.0, (self.tol / TUNING.most_ratio_tol) ** (1 / 3)))

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
        for kept in (self.near, self.blends):
            for knot in [knot for knot in kept if knot > low]:
                del kept[knot]
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
        around = [*sorted(g for g in self.knots if g <= gamma)[-1:], *sorted(g for g in self.knots if g > gamma)[:1]]
        for each in around:
            value, part = self.knots[each].curve.at(gamma)
            self.envelope.add(Proof(gamma, value, ((part, self.knots[each]),)))
        if len(around) == 2 and around[0] < gamma and isinstance(self.penalty, SmoothConjugate):
            left, right = (self.knots[each] for each in around)
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
        rest = float(np.sum(self.penalty.value(np.zeros(d - rank), xp=numpy_namespace)))

        def mixed(share: float) -> Mixture:
            similar = (1 - share) * first.similar + share * second.similar
            hinge = self.model.margin - ((1 - share) * first.distances + share * second.distances)
            values = (1 - share) * tops[0] + share * tops[1]
            omega = float(np.sum(self.penalty.value(values, xp=numpy_namespace))) + rest
            loss = similar + float(np.mean(np.maximum(hinge, 0.0)))
            return Mixture(loss, omega, first.line, second.line, share)

        return mixed(golden_section(lambda share: mixed(share).at(gamma), 0.0, 1.0, TUNING.blending))

    def _solve(self, gamma: float) -> None:
        """A knot, and the lines of all metrics that come with it."""
        found = self._found(gamma)
        if gamma < min(self.knots, default=math.inf):
            self.lowest = found.start
        self.n_eigh += found.n_eigh
        self.reason = found.reason or self.reason
        self.knots[gamma], self.near[gamma] = found.knot, found.near
        if isinstance(found.start, DualPoint):
            self.blends[gamma] = Blend(found.start.alpha, found.start.G)
        value, part = found.knot.curve.at(gamma)
        self.envelope.add(Proof(gamma, value, ((part, found.knot),)))
        self.envelope.lines += [*found.lines, *(each.line for each in found.near)]

    def _found(self, gamma: float) -> Found:
        """Below the lowest knot from its decomposition, between two from the blend of their weights."""
        start: DualPoint | Blend | Array | None = self.lowest
        tol = TUNING.knot_tol * self.tol
        if not isinstance(self.penalty, SmoothConjugate):
            return fitted_knot(self.problem, gamma, tol=tol, model=self.model, start=start, backend=self.backend)
        if gamma > min(self.knots, default=math.inf):
            left = max(each for each in self.knots if each < gamma)
            right = min(each for each in self.knots if each > gamma)
            share = self._share(self.knots[left], self.knots[right], gamma)
            start = blend(self.blends[left], self.blends[right], share)
            tol = self.tol
        course = Course(self.problem, self.penalty, self.low, self.tol, self.backend)
        return newton_knot(course, gamma, tol=tol, max_iter=max(1, self.max_iter - self.n_eigh), start=start)


def _curve(knot: Knot) -> DualCurve:
    assert isinstance(knot.curve, DualCurve)
    return knot.curve
