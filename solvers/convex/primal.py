"""The best metric found so far, kept as a mixture of the metrics that dual points gave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from solvers.backend import Array, Namespace
from solvers.convex.dual import SpectralProblem
from solvers.convex.search import best_scale, golden_section
from solvers.convex.tuning import TUNING


@dataclass(frozen=True)
class Parts:
    """What F needs of a metric M: <C_S, M>, the distances, gamma Omega(M)."""

    similar: float
    distances: Array
    penalty: float

    def mixed(self, other: Parts, share: float) -> Parts:
        """Parts of (1 - share) M + share M'; the penalty, being convex, is at most what is given here."""
        return Parts(
            (1 - share) * self.similar + share * other.similar,
            (1 - share) * self.distances + share * other.distances,
            (1 - share) * self.penalty + share * other.penalty,
        )


class Mixture:
    """A metric put together of others, sum_i w_i U_i diag(x_i) U_i', added up only when asked for."""

    def __init__(self) -> None:
        self._terms: list[tuple[float, Array, Array]] = []
        self._sum: Array | None = None

    def blend(self, share: float, scale: float, U: Array, x: Array, *, xp: Namespace) -> None:
        """Become (1 - share) times itself plus share times scale U diag(x) U'."""
        if share == 1:
            self._terms, self._sum = [], None
        self._terms = [((1 - share) * weight, *rest) for weight, *rest in self._terms]
        self._sum = None if self._sum is None else (1 - share) * self._sum
        self._terms.append((share * scale, U, x))
        if len(self._terms) > TUNING.terms:  # each holds a matrix
            self._sum, self._terms = self.dense(xp=xp), []

    def dense(self, *, xp: Namespace) -> Array:
        """The matrix itself."""
        products = [(U * (weight * x)[None, :]) @ xp.matrix_transpose(U) for weight, U, x in self._terms]
        return sum(products[1:], products[0]) if self._sum is None else sum(products, self._sum)


class BestMetric:
    """The metric with the least F between all that were offered, on the lines from each to the best before it."""

    def __init__(self, p: SpectralProblem, *, tight: bool) -> None:
        self.p, self.xp = p, p.xp
        self.line_steps = TUNING.tight_line_steps if tight else TUNING.line_steps
        self.parts: Parts | None = None
        self.mixture = Mixture()
        self.value = self.loss_value = math.inf

    def measure(self, g: Array, alpha: Array, x: Array, distances: Array) -> Parts:
        """Parts of U diag(x) U', from the distances of pairs with the weights alpha."""
        p, xp = self.p, self.xp
        # <C_S, M> = <G, M> + mean(alpha d), and M shares the eigenvectors of G.
        similar = float(xp.sum(g * x)) + float(xp.mean(alpha * distances))
        return Parts(similar, distances, p.gamma * float(xp.sum(p.penalty.value(x, xp=xp))))

    def loss(self, parts: Parts) -> float:
        """The data part of F."""
        xp = self.xp
        return parts.similar + float(xp.mean(xp.clip(self.p.margin - parts.distances, 0.0, None)))

    def objective(self, parts: Parts) -> float:
        """F."""
        return self.loss(parts) + parts.penalty

    def offer(self, U: Array, metrics: Sequence[tuple[Array, float, Parts]]) -> tuple[Array, float]:
        """Take one of some metrics scale U diag(x) U' with their parts, then the best point from it to the best so far.

        Returns x of that metric and its F.
        """
        own, k = min((self.objective(candidate), k) for k, (_, _, candidate) in enumerate(metrics))
        x, scale, candidate = metrics[k]
        share, best = 1.0, self.parts
        if best is not None:
            inner = golden_section(lambda t: self.objective(best.mixed(candidate, t)), 0.0, 1.0, self.line_steps)
            share = min((0.0, inner, 1.0), key=lambda t: self.objective(best.mixed(candidate, t)))
            candidate = best.mixed(candidate, share)
        if share > 0:
            self.mixture.blend(share, scale, U, x, xp=self.xp)
            self.parts, self.loss_value = candidate, self.loss(candidate)
            self.value = self.loss_value + candidate.penalty
        return x, own

    def multiple(self, x: Array, parts: Parts) -> tuple[float, Parts]:
        """The scale at which the metric with eigenvalues x has the least F, and its parts there."""
        p, xp = self.p, self.xp

        def scaled(log_scale: float) -> Parts:
            scale = math.exp(log_scale)
            penalty = p.gamma * float(xp.sum(p.penalty.value(scale * x, xp=xp)))
            return Parts(scale * parts.similar, scale * parts.distances, penalty)

        if not float(xp.max(x)) > 0:
            return 1.0, scaled(0.0)
        best = best_scale(lambda s: self.objective(scaled(s)), self.line_steps)
        none = Parts(0.0, 0 * parts.distances, p.gamma * float(xp.sum(p.penalty.value(0 * x, xp=xp))))
        if self.objective(none) <= self.objective(scaled(best)):
            return 0.0, none
        return math.exp(best), scaled(best)
