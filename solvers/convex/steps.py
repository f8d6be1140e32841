"""From a dual point to the next: the metric it has at some level, the model of the dual there, the step it suggests.

One eigendecomposition G = U diag(g) U' gives the bound, the metrics of all levels (`solvers.convex.levels`), the
gradient (margin - z_k' M z_k) / m, and through the divided differences of the metric's eigenvalues the Hessian
(`solvers.convex.curvature`). The quadratic model of the dual is maximised over the box without any further
decomposition (`solvers.convex.boxmodel`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solvers.backend import Array
from solvers.convex.boxmodel import maximize_model, spread
from solvers.convex.curvature import (
    PairModel,
    divided_differences,
    largest_eigenvalue,
    pair_model,
    promised,
    step_length,
)
from solvers.convex.diagonal import diagonal
from solvers.convex.dual import DualPoint, SpectralProblem
from solvers.convex.levels import Level, metrics
from solvers.convex.primal import BestMetric
from solvers.convex.tuning import TUNING, Effort
from solvers.pairs import PairSet


@dataclass(frozen=True)
class LevelMetric:
    """The metric of a dual point at a level, and what a step from it to a lower one needs.

    Attributes
    ----------
    level, target : where it belongs, and where a step from here aims.
    x : (D,) its eigenvalues; falling.
    kept : (D,) these, but zero where the metric at gamma is: a barrier alone leaves none out.
    slopes, growth : (D,) the conditions at the target, linearised (see `Level.towards`).
    XU : (n, d) the points along the leading eigenvectors. The others are far beyond the metric's own.
    distances, kept_distances : (m,) of the pairs, by x and by what is kept of it.
    predicted : (m,) to first order, the distances of the metric at `target` if alpha stayed the same.
    """

    level: Level
    target: Level
    x: Array
    kept: Array
    slopes: Array
    growth: Array
    XU: Array
    distances: Array
    kept_distances: Array
    predicted: Array


@dataclass(frozen=True)
class Step:
    """A change of alpha that maximises the model of the smoothed dual.

    Attributes
    ----------
    change : (m,) of alpha.
    direction : (D, D) of G.
    slope : of the smoothed dual along it.
    share : how much of it to take.
    """

    change: Array
    direction: Array
    slope: float
    share: float


class StepMaker:
    """Metrics and steps, with the pairs' work in a precision of choice.

    Parameters
    ----------
    effort : how accurately the box model is solved.
    single : whether all work on pairs and points is in single precision; eigenvalues stay in double.
    """

    def __init__(self, p: SpectralProblem, best: BestMetric, effort: Effort, *, single: bool) -> None:
        self.p, self.xp, self.best = p, p.xp, best
        self.kind = p.xp.float32 if single else p.xp.float64
        self.effort = effort
        self.X = p.xp.astype(p.pairs.X, self.kind)

    def metric(
        self,
        point: DualPoint,
        levels: Sequence[Level],
        aim: Callable[[Level, float, float], Level],
        least: float,
        known: float,
    ) -> LevelMetric:
        """The point's metric at that of several levels where F and the level's own gap together are least.

        `aim` gives the target, from the level, its gap and its excess. Barriers below `least` are not for points whose
        gap there is far above the `known` one: off the path of optima, steps are best at the barrier that they left.
        """
        p, xp, g = self.p, self.xp, point.g
        found = metrics(levels, g, xp=xp)
        near = min(_rank(xp.stack(found), xp=xp) + int(self.effort.beyond * g.shape[0]), g.shape[0])
        XU = self._along(point, near)

        def forms(pairs: PairSet, eigenvalues: list[Array]) -> Array:
            W = xp.astype(xp.stack([each[:near] for each in eigenvalues], axis=1), self.kind)
            return xp.astype(pairs.diagonal_forms(XU, W), g.dtype)

        # Some of the pairs tell which is best.
        chosen = xp.arange(0, len(p.pairs), -(-len(p.pairs) // TUNING.judges), device=p.backend.device)
        judged, alpha = forms(p.pairs.subset(chosen, XU), found), xp.take(point.alpha, chosen)
        gaps = [level_gap(alpha, judged[:, k], margin=p.margin, xp=xp) for k in range(len(levels))]
        values = [
            gap + self.best.objective(self.best.measure(g, alpha, x, judged[:, k]))
            for k, (gap, x) in enumerate(zip(gaps, found, strict=True))
        ]
        k = values.index(min(values))
        if levels[k].mu < least and gaps[k] > TUNING.astray * known:
            k = min((k for k, level in enumerate(levels) if level.mu >= least), key=values.__getitem__, default=k)
        level, x = levels[k], found[k]
        excess = level.excess(x, p.gamma, xp=xp)
        if point.part < 1:  # only a part of the weights proves anything: F - D is more than the level explains
            excess = max(excess, values[k] - 2 * gaps[k] - point.value)
        target = aim(level, gaps[k], excess)
        slopes, growth, predicted = level.towards(target, g, x, xp=xp)
        kept = x
        if level.mu > 0:
            kept = xp.where(p.penalty.maximizer(-g / p.gamma, xp=xp) > 0, x, xp.zeros_like(x))
        every = forms(p.pairs, [x, kept, predicted])
        return LevelMetric(level, target, x, kept, slopes, growth, XU, every[:, 0], every[:, 1], every[:, 2])

    def polished(self, point: DualPoint, metric: LevelMetric) -> tuple[Array, Array]:
        """The eigenvalues (D,) about best with the metric's eigenvectors, and the distances of the pairs."""
        p, xp = self.p, self.xp
        near, rank = metric.XU.shape[1], _rank(metric.x, xp=xp)
        if rank == 0:
            return metric.x, metric.distances
        U = xp.astype(point.U[:, :near], self.kind)
        family = diagonal(p, metric.level.penalty, U, metric.XU, metric.x[:rank])
        found = family.eigenvalues(family.best(p.gamma, np.ones(len(family.starts)), p))
        x = xp.concat([p.backend.asarray(found), metric.x[rank:]])
        return x, xp.astype(family.distances(found[:, None], p)[:, 0], point.g.dtype)

    def step(self, point: DualPoint, metric: LevelMetric, smoothing: float, gap: float) -> Step:
        """The step that the model at a metric's target suggests; `gap` says how much there is to gain."""
        p, xp = self.p, self.xp
        near = metric.XU.shape[1]
        T = divided_differences(metric.slopes[:near], metric.x[:near], metric.growth[:near], xp=xp)
        T, U = xp.astype(T, self.kind), xp.astype(point.U[:, :near], self.kind)
        change, direction, rotated = self._maximum(point, metric, T, U, smoothing, gap)
        slope = float(xp.mean((p.margin - metric.predicted - smoothing * point.alpha) * change))
        bend = float(xp.sum(T * rotated * rotated)) + smoothing * float(xp.mean(change * change))
        most = min(1.0, max(slope, 0.0) / max(bend, 1e-300))
        share = 0.0
        if most > 0:
            rotated = xp.astype(rotated, point.g.dtype)
            promise = promised(p, point, change, rotated, level=metric.target, smoothing=smoothing)
            if metric.level.mu > 0:  # not where a barrier would be crossed
                relative = xp.sqrt(metric.growth[:near] / metric.x[:near])
                crossed = largest_eigenvalue(-relative[:, None] * rotated * relative[None, :], xp=xp)
                most = min(most, TUNING.to_barrier / max(crossed, 1e-300))
            share = step_length(promise, most)
        return Step(change, xp.astype(direction, p.backend.dtype), slope, share)

    def _maximum(
        self, point: DualPoint, metric: LevelMetric, T: Array, U: Array, smoothing: float, gap: float
    ) -> tuple[Array, Array, Array]:
        """Change of alpha about where the quadratic model of the smoothed dual is highest, that of G, and U' that U.

        The pair model of many coordinates is not exact, but the exact one along a single change costs two products: the
        best point on the way is taken, and the pair model asked again from there while that still gains. Distances of
        pairs that are far from the margin by then are left to the pair model.
        """
        p, xp = self.p, self.xp
        model = pair_model(p.pairs, metric.XU, T / len(p.pairs))
        alpha, distances, total = point.alpha, metric.predicted, 0.0
        rotated, watched, pairs = xp.zeros_like(T), None, None
        for _ in range(self.effort.proposals):
            change = self._proposal(model, alpha, distances, smoothing, gap)
            if change is None:
                break
            if model.rest is None:  # exact: the caller finds the best point on the way
                turn = self._direction(change, self.X)
                return change, turn, xp.matrix_transpose(U) @ (turn @ U)
            turned = self._direction(change, metric.XU)
            slope = float(xp.mean((p.margin - distances - smoothing * alpha) * change))
            bend = float(xp.sum(T * turned * turned)) + smoothing * float(xp.mean(change * change))
            length = min(1.0, slope / max(bend, 1e-300))
            alpha, rotated = alpha + length * change, rotated + length * turned
            gain = length * slope - length * length * bend / 2
            total += gain
            if gain < self.effort.proposed * total:
                break
            if watched is None or pairs is None:
                watched = self._in_play(alpha, distances, smoothing, self.effort.watched * gap)
                pairs = p.pairs.among(watched, metric.XU)
            exact = xp.astype(pairs.products(pairs.X @ (T * rotated)), alpha.dtype)
            about = model.response(alpha - point.alpha)
            distances = metric.predicted + xp.where(watched, -spread(exact, watched, xp=xp), about)
        change = alpha - point.alpha
        if U.shape[1] == U.shape[0]:
            return change, U @ rotated @ xp.matrix_transpose(U), rotated
        return change, self._direction(change, self.X), rotated

    def _proposal(self, whole: PairModel, alpha: Array, distances: Array, smoothing: float, gap: float) -> Array | None:
        """Change of alpha that maximises the quadratic model of the smoothed dual; None if it finds nothing to gain."""
        p, xp = self.p, self.xp
        target = xp.clip((p.margin - distances) / smoothing, 0.0, 1.0)
        # Pairs far from the margin that are where they belong go onto their bound.
        settled = ~self._in_play(alpha, distances, smoothing, gap)
        for fixed in (settled, xp.zeros_like(settled)):
            chosen = xp.nonzero(~fixed)[0]
            moved = xp.where(fixed, target - alpha, xp.zeros_like(alpha))
            in_play = distances
            if float(xp.sum(xp.abs((p.margin - distances) * moved))) <= TUNING.idle * gap * len(p.pairs):
                moved = xp.zeros_like(moved)  # not worth a pass over them
            else:
                in_play = in_play + whole.response(moved)
            proposal = maximize_model(
                whole.subset(chosen),
                xp.take(alpha, chosen),
                xp.take(in_play, chosen),
                margin=p.margin,
                smoothing=smoothing,
                effort=self.effort,
            )
            change = moved + spread(proposal - xp.take(alpha, chosen), ~fixed, xp=xp)
            slope = float(xp.mean((p.margin - distances - smoothing * alpha) * change))
            if slope > 0:
                return change
            # Settling the far pairs overshot: near the dual's limit it bends sharply.
        return None

    def _in_play(self, alpha: Array, distances: Array, smoothing: float, gap: float) -> Array:
        """Pairs (m,) that are near the margin, or not where they belong."""
        p, xp = self.p, self.xp
        target = xp.clip((p.margin - distances) / smoothing, 0.0, 1.0)
        reach = p.margin * min(1.0, math.sqrt(max(gap, 0.0) / p.margin)) + smoothing
        return (xp.abs(p.margin - distances) < reach) | (xp.abs(target - alpha) > TUNING.settled)

    def _along(self, point: DualPoint, count: int) -> Array:
        """The points along so many leading eigenvectors (n, count); what is at hand is not computed again."""
        xp, known = self.xp, point.along
        if known is None:
            return self.X @ xp.astype(point.U[:, :count], self.kind)
        shared = min(known.shape[1], count)
        parts = [xp.astype(known[:, :shared], self.kind)]
        if shared < count:
            parts.append(self.X @ xp.astype(point.U[:, shared:count], self.kind))
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)

    def _direction(self, change: Array, points: Array) -> Array:
        """Change of G that a change of alpha makes, in the coordinates that the points have."""
        weights = self.xp.astype(change / len(self.p.pairs), self.kind)
        return -self.p.pairs.of(points).sparse_scatter(weights)


def _rank(x: Array, *, xp: Any) -> int:
    """How many eigenvalues (..., D) are positive, in a stack at most."""
    return int(xp.max(xp.sum(xp.astype(x > 0, xp.int64), axis=-1)))


def level_gap(alpha: Array, distances: Array, *, margin: float, xp: Any) -> float:
    """F - D at the level whose metric has these distances: what the pairs' weights fall short of."""
    hinge = margin - distances
    return float(xp.mean(xp.clip(hinge, 0.0, None) - alpha * hinge))
