"""Certified minimisation of the convex problem through its dual (see `solvers.convex.dual`).

Far from the optimum the metric of a dual point is of little use: it may be huge, zero, or not exist. The iteration
therefore works at easier levels (`solvers.convex.levels`): of all metrics that a decomposition gives it takes the one
that is best and nearest to its level's optimum, and follows the optima of the levels down from there, one decomposition
a step, as interior-point methods do. It only proposes weights: bound and objective are measured in double precision at
the end, with rounding charged (`solvers.convex.certificate`).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace

from solvers.backend import Array, Backend
from solvers.convex.certificate import Bound, decomposition_error, objective_rounding, proven_bound
from solvers.convex.dual import DualPoint, Solution, SpectralProblem, gap_scale, relative_gap
from solvers.convex.levels import Level, Levels
from solvers.convex.normal import NormalProblem, normalize
from solvers.convex.primal import BestMetric, Parts
from solvers.convex.steps import LevelMetric, StepMaker, level_gap
from solvers.convex.tuning import TUNING, Effort
from solvers.pairs import PairProblem
from solvers.regularizers.spectral import SmoothConjugate


def solve_spectral(
    problem: PairProblem,
    penalty: SmoothConjugate,
    gamma: float,
    *,
    tol: float,
    max_iter: int,
    start: DualPoint | Array | None,
    backend: Backend,
) -> Solution:
    """Minimise F to a relative gap of `tol`, with at most about `max_iter` eigendecompositions.

    `problem` has centred points in double precision. `start` is what another solution on the same pairs gives as
    `start`, or weights.
    """
    return Newton(normalize(problem, penalty, gamma, backend), tol, max_iter, backend).run(start)


@dataclass
class State:
    """What is known so far.

    Attributes
    ----------
    best : the best metric so far.
    dual : the dual point with the highest bound so far.
    own : eigenvalues of a metric with its eigenvectors, and F at their best multiple, where it was looked at.
    history : a row per iteration, in the user's units.
    reason : why the iteration ended before the tolerance was reached.
    """

    best: BestMetric
    dual: DualPoint | None = None
    own: tuple[Array, float] | None = None
    history: list[dict[str, float]] = field(default_factory=list)
    reason: str = ""

    @property
    def gap(self) -> float:
        assert self.dual is not None
        return self.best.value - self.dual.value


@dataclass(frozen=True)
class Measured:
    """A metric and its objective in double precision; eigenvalues rise."""

    objective: float
    loss: float
    M: Array
    values: Array
    vectors: Array


class Newton:
    """One fit."""

    def __init__(
        self, normal: NormalProblem, tol: float, max_iter: int, backend: Backend, loose: Effort = TUNING.loose
    ) -> None:
        self.normal, self.tol, self.max_iter = normal, tol, max_iter
        self.loose = TUNING.rough if tol >= TUNING.rough_tol else loose
        self.p = SpectralProblem(normal.problem, normal.penalty, normal.gamma, backend)
        self.xp = backend.xp
        most = TUNING.most_excess / normal.problem.similar_scatter.shape[0]
        self.levels = Levels(normal.penalty, normal.gamma, TUNING.least_excess * tol * most, most)
        self.single = tol >= TUNING.single_tol
        self.state = State(BestMetric(self.p, tight=not self.single))
        self.steps = self._step_maker()
        self.began = time.perf_counter()

    def run(self, start: DualPoint | Array | None) -> Solution:
        """The iteration, then the measurement."""
        self.descend(start)
        return self.complete()

    def descend(self, start: DualPoint | Array | None) -> None:
        """The iteration."""
        point, left_off = self._first(start), None
        if isinstance(start, DualPoint):
            left_off = Level(self.normal.penalty, start.gamma / self.normal.margin, 0.0)
        point = self._descend(point, left_off)
        if not self._reached() and not self._spent() and not self._feasible(point):
            part = point.part
            self._descend(self.p.point(part * point.alpha, part * point.G + (1 - part) * self.p.C_S))

    def complete(self) -> Solution:
        """The measurement; where that is not enough, the iteration again in double precision."""
        solution = self._finish()
        for part in TUNING.retries:
            if solution.converged or self._spent():
                break
            self._descend(self._use_double(part))
            solution = self._finish()
        return solution

    def _step_maker(self) -> StepMaker:
        effort = self.loose if self.single else TUNING.tight
        return StepMaker(self.p, self.state.best, effort, single=self.single)

    def _use_double(self, part: float) -> DualPoint:
        """Go on in double precision, from G made afresh, at a part of the best weights; returns the point."""
        self.single = False
        self.steps = self._step_maker()
        self.state.best.line_steps = TUNING.tight_line_steps
        best, p = self.state.dual, self.p
        assert best is not None
        best = self.state.dual = p.fresh_point(best.alpha)
        return best if part == 1 else p.point(part * best.alpha, part * best.G + (1 - part) * p.C_S)

    def _first(self, start: DualPoint | Array | None) -> DualPoint:
        """Where to begin: at another fit's weights, else at alpha = 0."""
        p, xp = self.p, self.xp
        if isinstance(start, DualPoint):
            # The decomposition serves again unless it is of other pairs, as one product tells.
            probe = 1.1 + xp.cos(1.7 * xp.arange(start.g.shape[0], dtype=start.g.dtype, device=p.backend.device))
            expected = p.gradient_product(start.alpha, probe)
            drift, size = (float(xp.sqrt(xp.sum(v * v))) for v in (start.G @ probe - expected, expected))
            return p.reread(replace(start, fresh=False)) if drift <= 1e-5 * size else p.fresh_point(start.alpha)
        if start is not None:
            return p.fresh_point(start)
        alpha = xp.zeros((len(p.pairs),), dtype=p.backend.dtype, device=p.backend.device)
        return p.point(alpha, p.C_S, fresh=True)

    # -- what is known ------------------------------------------------------------------------------

    def _record(self, point: DualPoint, metric: LevelMetric) -> None:
        """Take what a dual point and its metric give."""
        state, p = self.state, self.p
        metrics = [(metric.kept, metric.kept_distances)]
        if metric.kept is not metric.x:
            metrics.append((metric.x, metric.distances))
        parts = [(x, state.best.measure(point.g, point.alpha, x, distances)) for x, distances in metrics]
        own = state.best.offer(point.U, [(x, *state.best.multiple(x, each)) for x, each in parts])
        highest = state.dual is None or point.value > state.dual.value
        if highest:
            state.dual, state.own = replace(point, along=metric.XU), own
        if not self._reached() and state.gap <= TUNING.polish * self.tol * self._scale():
            x, distances = self.steps.polished(point, metric)
            polished = state.best.offer(point.U, [(x, 1.0, state.best.measure(point.g, point.alpha, x, distances))])
            if highest and polished[1] < own[1]:
                state.own = polished
        state.history.append(
            {
                "n_eigh": p.n_eigh,
                "seconds": time.perf_counter() - self.began,
                "objective": self.normal.margin * state.best.value,
                "gap": state.gap / self._scale(),
            }
        )

    def _scale(self) -> float:
        """What the gap of the best metric is relative to."""
        best = self.state.best
        return gap_scale(best.value, best.loss_value, self.p.margin)

    def _reached(self) -> bool:
        """Whether the gap is closed, as far as the loop's precision can tell."""
        return self.state.gap <= (0.9 * self.tol if self.single else self.tol) * self._scale()

    def _feasible(self, point: DualPoint) -> bool:
        """Whether G has a metric at gamma."""
        return -float(point.g[0]) < self.p.gamma * self.p.penalty.dual_limit

    def _spent(self) -> bool:
        return self.p.n_eigh >= self.max_iter

    # -- the iteration ------------------------------------------------------------------------------

    def _descend(self, point: DualPoint, aimed: Level | None = None) -> DualPoint:
        """Follow the optima of the levels down to the one asked for, one decomposition a step; returns the last point.

        `aimed` is the level whose optimum the point should be near.

        Where no step is found, the next one stays at its level, with less smoothing.
        """
        p, state, levels = self.p, self.state, self.levels
        failed = 0
        most_sigma = 0.0 if aimed is None else 2 * aimed.sigma
        gaps: list[float] = []
        while True:
            choices = list(levels.choices(-float(point.g[0]), most_sigma, aimed))
            least, known = (aimed.mu, state.gap) if aimed is not None and gaps else (0.0, math.inf)
            metric = self.steps.metric(point, choices, levels.below if failed == 0 else levels.same, least, known)
            self._record(point, metric)
            if self._reached():
                return point
            gaps.append(state.gap)
            if self._spent():
                state.reason = f"{self.max_iter} eigendecompositions were not enough; raise max_iter or tol"
                return point
            patience = TUNING.patience if self._feasible(point) else TUNING.outside
            if len(gaps) > patience and gaps[-1] > TUNING.progress * gaps[-1 - patience]:
                state.reason = "the gap does not shrink any more"
                return point
            gap = level_gap(point.alpha, metric.distances, margin=p.margin, xp=self.xp)
            following = self._search(point, metric, gap, TUNING.smoothing / 4**failed)
            if following is not None:
                point, failed, aimed = following, 0, metric.target
                most_sigma = 2 * metric.target.sigma if metric.level.sigma > p.gamma else 0.0
                continue
            failed += 1
            if failed > TUNING.most_failed:
                state.reason = "no step raises the bound any more"
                return point

    def _search(self, point: DualPoint, metric: LevelMetric, gap: float, factor: float) -> DualPoint | None:
        """A step towards the optimum at the metric's target that raises the smoothed dual there."""
        p, xp = self.p, self.xp
        smoothing = min(p.margin, max(factor * gap, TUNING.path_smoothing * self.state.gap))

        def smoothed(at: DualPoint) -> float:
            value = p.margin * float(xp.mean(at.alpha)) - metric.target.conjugate(at.g, xp=xp)
            return value - smoothing / 2 * float(xp.mean(at.alpha * at.alpha))

        step = self.steps.step(point, metric, smoothing, max(gap, 1e-3 * self.state.gap))
        base, share = smoothed(point), step.share
        while step.slope > 0 and not self._spent() and share > TUNING.shortest:
            trial = p.point(point.alpha + share * step.change, point.G + share * step.direction)
            gain = smoothed(trial) - base
            if not math.isfinite(base) or gain >= TUNING.armijo * share * step.slope:
                return trial
            if math.isfinite(gain):
                share *= min(max(0.5 * share * step.slope / (share * step.slope - gain), 0.2), 0.5)
            else:
                share *= 0.25
        return None

    # -- result -------------------------------------------------------------------------------------

    def _finish(self) -> Solution:
        """Measure the result in double precision: the bound at a G made afresh, F at the metric that is returned."""
        p, state, normal = self.p, self.state, self.normal
        dual, bound = self.proven()
        found = None
        if state.own is not None and state.own[1] - bound.value <= self.tol * self._scale():
            found = self._own_metric(dual, state.own[0], bound.share)  # decomposed already
        if found is None or self._gap(found, bound) > self.tol:
            mixed = self._mixed_metric()
            found = mixed if found is None or mixed.objective < found.objective else found
        rounding = bound.rounding + objective_rounding(p, normal.problem, found.M, found.values)
        gap = self._gap(found, bound)
        converged = gap <= self.tol
        scale = normal.margin
        state.history[-1] |= {"n_eigh": p.n_eigh, "objective": scale * found.objective, "gap": gap}
        return Solution(
            M=normal.unit * found.M,
            eigenvalues=normal.unit * found.values,
            eigenvectors=found.vectors,
            objective=scale * found.objective,
            loss=scale * found.loss,
            dual_objective=scale * bound.value,
            n_iter=len(state.history),
            n_eigh=p.n_eigh,
            converged=converged,
            history=state.history,
            weights=bound.part * dual.alpha,
            start=replace(dual, along=None),  # of the size of the data
            curve=bound.curve,
            reason="" if converged else self._reason(rounding / gap_scale(found.objective, found.loss, p.margin)),
        )

    def _gap(self, found: Measured, bound: Bound) -> float:
        return relative_gap(found.objective, bound.value, found.loss, self.p.margin)

    def proven(self, dual: DualPoint | None = None) -> tuple[DualPoint, Bound]:
        """The best dual point with G made afresh, and what it proves; decomposed again only if that proves more.

        The point has gamma in the user's units: another fit can start from it.
        """
        p, dual = self.p, dual or self.state.dual
        assert dual is not None
        dual = replace(dual, gamma=self.normal.margin * p.gamma)
        G = dual.G if dual.fresh else p.gradient(dual.alpha)
        known = proven_bound(p, self.normal, dual.alpha, G, dual.g, dual.U, dual.part)
        if not dual.fresh and known.rounding > TUNING.reuse * self.tol * self._scale():
            fresh = p.point(dual.alpha, G)
            bound = proven_bound(p, self.normal, fresh.alpha, G, fresh.g, fresh.U, fresh.part)
            if bound.value > known.value:
                return replace(fresh, gamma=dual.gamma), bound
        return replace(dual, G=G), known

    def _reason(self, rounding: float) -> str:
        if rounding > 0.5 * self.tol:
            return f"rounding alone leaves {rounding:.1g} unproven: features differ too much in scale"
        return self.state.reason

    def _own_metric(self, dual: DualPoint, x: Array, share: float) -> Measured:
        """The best multiple of U diag(x) U'; `share` is what U lacks of being orthogonal."""
        p, xp = self.p, self.xp
        rank = int(xp.max(xp.where(x > 0, xp.arange(1, x.shape[0] + 1, device=p.backend.device), 0)))
        kept, root = dual.U[:, :rank], xp.sqrt(x[:rank])
        factor = kept * root[None, :]
        M, distances = factor @ xp.matrix_transpose(factor), p.distances(factor)
        scale, _ = self.state.best.multiple(x, Parts(float(xp.sum(p.C_S * M)), distances, 0.0))
        order = xp.argsort(x, stable=True)
        values, vectors = scale * xp.take(x, order), xp.take(dual.U, order, axis=1)
        return self._measured(scale * M, scale * distances, values, vectors, share)

    def _mixed_metric(self) -> Measured:
        """The best mixture of the metrics so far, decomposed."""
        p, xp = self.p, self.xp
        values, vectors = p.eigh(self.state.best.mixture.dense(xp=xp))
        values = xp.clip(values, 0.0, None)
        factor = p.factor(values, vectors)
        M = factor @ xp.matrix_transpose(factor)
        _, share = decomposition_error(M, values, vectors, p=p)
        return self._measured(M, p.distances(factor), values, vectors, share)

    def _measured(self, M: Array, distances: Array, values: Array, vectors: Array, share: float) -> Measured:
        """M = V diag(values) V' with its pairs' distances; F is charged for what V lacks of being orthogonal."""
        p, xp = self.p, self.xp
        # By Ostrowski's theorem eigenvalues of M are off by this share of themselves; h is convex.
        ends = [p.penalty.value((1 + each) * values, xp=xp) for each in (0.0, share, -min(share, 1.0))]
        more = p.gamma * float(xp.sum(xp.maximum(ends[1], ends[2]))) - p.gamma * float(xp.sum(ends[0]))
        loss = p.loss(M, distances)
        F = loss + p.regularizer(values)
        return Measured(F + max(more, 0.0) if math.isfinite(F) else F, loss, M, values, vectors)
