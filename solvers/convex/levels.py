"""Easier problems on the way to the one asked for, that share the eigenvectors of a dual point.

At the level (sigma, tau) the penalty on an eigenvalue is

    psi(x) = sigma h(x) + tau (x / typical - 1)^2 / 2 ,

and alpha with G = U diag(g) U' has the metric U diag(x) U' with psi'(x) = -g, or x = 0 where psi'(0) > -g. The
problem asked for is (gamma, 0). A larger sigma makes the regularizer stronger; a positive tau keeps the metric near
a multiple of I whose scale the data set, also where the regularizer is next to nothing at that scale. From one level
to a lower one the conditions of optimality are linearised in x: the path predictor of `solvers.convex.certified`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from solvers.backend import Array, Namespace
from solvers.convex.tuning import TUNING
from solvers.regularizers.spectral import Scaled


@dataclass(frozen=True)
class Level:
    """A penalty psi of the family above."""

    penalty: Scaled
    sigma: float
    tau: float
    typical: float

    def metric(self, g: Array, *, xp: Namespace) -> Array:
        """Eigenvalues x (falling) for eigenvalues g of G (rising)."""
        if self.tau == 0:
            return self.penalty.maximizer(-g / self.sigma, xp=xp)
        length = self.typical * self.typical / self.tau
        return self.penalty.prox(self.typical - length * g, length * self.sigma, xp=xp)

    def conjugate(self, g: Array, *, xp: Namespace) -> float:
        """sum_i psi*(-g_i); infinite outside the domain."""
        if self.tau == 0 and -float(g[0]) >= self.sigma * self.penalty.dual_limit:
            return float("inf")
        x = self.metric(g, xp=xp)
        psi = self.sigma * self.penalty.value(x, xp=xp) + self.tau / 2 * (x / self.typical - 1) ** 2
        return float(xp.sum(-g * x - psi))

    def excess(self, x: Array, gamma: float, *, xp: Namespace) -> float:
        """How much more than at gamma the penalty of a metric is, counted from the least that it can be."""
        least = float(self.penalty.value(self.penalty.maximizer(xp.zeros_like(x[:1]), xp=xp), xp=xp)[0])
        stronger = (self.sigma - gamma) * float(xp.sum(self.penalty.value(x, xp=xp) - least))
        return stronger + self.tau / 2 * float(xp.sum((x / self.typical - 1) ** 2))

    def towards(self, lower: Level, g: Array, x: Array, *, xp: Namespace) -> tuple[Array, Array, Array]:
        """The conditions at a lower level, linearised at this one's x.

        Returns
        -------
        slopes : (D,) psi'(x) at the lower level, what takes the place of psi'(0) where x is zero.
        growth : (D,) 1 / psi''(x) there, zero where x is.
        predicted : (D,) to first order, eigenvalues of the metric at the lower level if G stayed the same.
        """
        pull = (x - self.typical) / self.typical**2
        share = lower.sigma / self.sigma
        slopes = -share * g + (lower.tau - share * self.tau) * pull
        positive = x > 0
        safe = xp.where(positive, x, xp.full_like(x, self.typical))
        bend = lower.sigma * self.penalty.curvature(safe, xp=xp) + lower.tau / self.typical**2
        growth = xp.where(positive, 1 / bend, xp.zeros_like(x))
        return slopes, growth, x + growth * (-g - slopes)


@dataclass(frozen=True)
class Levels:
    """The levels that a fit may use, and which come next."""

    penalty: Scaled
    gamma: float
    typical: float

    @property
    def final(self) -> Level:
        return Level(self.penalty, self.gamma, 0.0, self.typical)

    def below(self, level: Level) -> Level:
        """What a step from a level aims at."""
        tau = level.tau / TUNING.descent
        return Level(
            self.penalty,
            max(self.gamma, level.sigma / TUNING.descent),
            tau if tau > TUNING.lowest_level else 0.0,
            self.typical,
        )

    def choices(self, steepest: float, most_sigma: float, most_tau: float) -> Iterator[Level]:
        """Levels up to those given at which G has a metric, `steepest` being minus its least eigenvalue."""
        limit = self.penalty.dual_limit
        if steepest < self.gamma * limit:
            yield self.final
        if most_sigma > self.gamma:  # from where the metric exists to where it is not huge
            least = max(self.gamma, 1.02 * steepest / limit)
            for sigma in _ladder(least, max(most_sigma, 1.5 * steepest / min(limit, 10.0 * self.penalty.scale))):
                if sigma > self.gamma:
                    yield Level(self.penalty, sigma, 0.0, self.typical)
        if most_tau > 0 or (most_sigma <= self.gamma and steepest >= self.gamma * limit):
            tau = max(most_tau, 30 * TUNING.lowest_level)
            for _ in range(TUNING.taus):
                yield Level(self.penalty, self.gamma, tau, self.typical)
                tau /= TUNING.descent


def _ladder(low: float, high: float) -> list[float]:
    """From low to high in equal ratios."""
    if high <= low:
        return [low]
    ratio = (high / low) ** (1 / (TUNING.levels - 1))
    return [low * ratio**k for k in range(TUNING.levels)]
