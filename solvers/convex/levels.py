"""Easier problems on the way to the one asked for, that share the eigenvectors of a dual point.

At the level (sigma, mu) the penalty on an eigenvalue is

    psi(x) = sigma h(x) - mu log x ,

and alpha with G = U diag(g) U' has the metric U diag(x) U' with psi'(x) = -g; where mu = 0, x = 0 if psi'(0) > -g. The
problem asked for is (gamma, 0). A larger sigma makes the regularizer stronger. The barrier -mu log x lets every
eigenvalue find its own scale, so features of mixed scales do it no harm, and it leaves a gap of at most mu for each.
From one level to a lower one the conditions of optimality are linearised: the predictor of `solvers.convex.certified`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from solvers.backend import Array, Namespace
from solvers.convex.tuning import TUNING
from solvers.regularizers.spectral import Scaled


@dataclass(frozen=True)
class Level:
    """A penalty psi of the family above."""

    penalty: Scaled
    sigma: float
    mu: float

    def metric(self, g: Array, *, xp: Namespace) -> Array:
        """Eigenvalues x (falling) for eigenvalues g of G (rising)."""
        if self.mu == 0:
            return self.penalty.maximizer(-g / self.sigma, xp=xp)
        return _interior(self.penalty, self.sigma, self.mu, g, xp=xp)

    def conjugate(self, g: Array, *, xp: Namespace) -> float:
        """sum_i psi*(-g_i); infinite outside the domain."""
        if -float(g[0]) >= self.sigma * self.penalty.dual_limit:
            return math.inf
        x = self.metric(g, xp=xp)
        total = xp.sum(-g * x - self.sigma * self.penalty.value(x, xp=xp))
        return float(total) if self.mu == 0 else float(total + self.mu * xp.sum(xp.log(x)))

    def excess(self, x: Array, gamma: float, *, xp: Namespace) -> float:
        """How much more than at gamma the gap of a metric can be than the level's own."""
        least = float(self.penalty.value(self.penalty.maximizer(xp.zeros_like(x[:1]), xp=xp), xp=xp)[0])
        stronger = (self.sigma - gamma) * float(xp.sum(self.penalty.value(x, xp=xp) - least))
        return stronger + self.mu * x.shape[0]

    def towards(self, lower: Level, g: Array, x: Array, *, xp: Namespace) -> tuple[Array, Array, Array]:
        """The conditions at a lower level, linearised at this one's x and at s = mu / x.

        These are sigma h'(x) - s = -g and s x = mu: as in primal-dual interior-point methods the product is linearised,
        not the quotient.

        Returns
        -------
        slopes, growth : (D,) a function of x and the inverse of its derivative, by which x answers to -g; zero growth
            where x is zero.
        predicted : (D,) to first order, eigenvalues of the metric at the lower level if G stayed the same.
        """
        positive = x > 0
        safe = xp.where(positive, x, xp.ones_like(x))
        strength = self._between(lower, float(safe[0]), g, xp=xp)
        slope = self.penalty.slope(safe, xp=xp)
        slopes = xp.where(positive, strength * slope - self.mu / safe, -strength / self.sigma * g)
        bend = strength * self.penalty.curvature(safe, xp=xp) + self.mu / (safe * safe)
        growth = xp.where(positive, 1 / bend, xp.zeros_like(x))
        pull = (self.sigma - lower.sigma) * slope + (lower.mu - self.mu) / safe
        return slopes, growth, x + growth * pull

    def _between(self, lower: Level, x: float, like: Array, *, xp: Namespace) -> float:
        """The strength at which h is linearised between two levels.

        A quadratic h is exact at the lower one. A logarithm is a barrier itself, whose product is linearised as above:
        that is its curvature at the present level. h'' falls like x to the power -q, with q = 0 and 2.
        """
        if lower.sigma == self.sigma:
            return self.sigma
        at = xp.asarray([x, x / 2], dtype=like.dtype, device=like.device)
        there, half = (float(each) for each in self.penalty.curvature(at, xp=xp))
        q = min(max(math.log2(half / there), 0.0), 2.0)
        return float(lower.sigma ** (1 - q / 2) * self.sigma ** (q / 2))


@dataclass(frozen=True)
class Levels:
    """The levels that a fit may use, and which come next.

    Attributes
    ----------
    penalty, gamma : of the problem.
    least, most : barriers; what would be below the least is none.
    """

    penalty: Scaled
    gamma: float
    least: float
    most: float

    @property
    def final(self) -> Level:
        return Level(self.penalty, self.gamma, 0.0)

    def below(self, level: Level, gap: float, excess: float) -> Level:
        """What a step from a level aims at: a lower one as far as the weights are near this one's optimum."""
        share = max(1 / TUNING.descent, min(1.0, gap / (TUNING.centred * excess))) if excess > 0 else 1.0
        most = TUNING.weaken if math.isinf(self.penalty.dual_limit) else TUNING.weaken_to_limit
        sigma, mu = max(share, 1 / most) * level.sigma, share * level.mu
        return Level(self.penalty, max(self.gamma, sigma), mu if mu > self.least else 0.0)

    def same(self, level: Level, gap: float, excess: float) -> Level:
        """The level itself, as a target."""
        return level

    def choices(self, steepest: float, most_sigma: float, aimed: Level | None) -> Iterator[Level]:
        """Levels at which G has a metric, `steepest` being minus its least eigenvalue; the one that was aimed at first.

        Barriers where it has one at gamma; a stronger regularizer where it has none, or where a fit with a larger gamma
        has left off: there the metric has a rank already, and barriers are not needed.
        """
        limit = self.penalty.dual_limit
        if aimed is not None and aimed != self.final and steepest < aimed.sigma * limit:
            yield aimed
        if steepest < self.gamma * limit:
            yield self.final
            for mu in _ladder(self.least, self.most) if most_sigma <= self.gamma else ():
                yield Level(self.penalty, self.gamma, mu)
        if most_sigma > self.gamma or steepest >= self.gamma * limit:
            least = max(self.gamma, 1.02 * steepest / limit)
            for sigma in _ladder(least, max(most_sigma, 1.5 * steepest / min(limit, 10.0 * self.penalty.scale))):
                if sigma > self.gamma:
                    yield Level(self.penalty, sigma, 0.0)


def metrics(levels: Sequence[Level], g: Array, *, xp: Namespace) -> list[Array]:
    """The metric of each level, those with a barrier all at once."""
    barriers = [level for level in levels if level.mu > 0]
    if barriers:
        sigma, mu = (
            xp.asarray(values, dtype=g.dtype, device=g.device)[:, None]
            for values in ([each.sigma for each in barriers], [each.mu for each in barriers])
        )
        found = _interior(barriers[0].penalty, sigma, mu, g + xp.zeros_like(mu), xp=xp)
    places = iter(range(len(barriers)))
    return [found[next(places), ...] if level.mu > 0 else level.metric(g, xp=xp) for level in levels]


def _interior(penalty: Scaled, sigma: float | Array, mu: float | Array, g: Array, *, xp: Namespace) -> Array:
    """The root x > 0 of sigma h'(x) - mu / x + g, which rises: halving in log x, then Newton steps.

    h' is concave for every regularizer here, so Newton steps from below the root stay below it.
    """

    def rest(x: Array) -> Array:
        return sigma * penalty.slope(x, xp=xp) - mu / x + g

    low, high = xp.full_like(g, -80.0), xp.full_like(g, 80.0)
    for _ in range(13):
        middle = (low + high) / 2
        below = rest(xp.exp(middle)) < 0
        low, high = xp.where(below, middle, low), xp.where(below, high, middle)
    x = xp.exp(low)
    for _ in range(5):
        x = x - rest(x) / (sigma * penalty.curvature(x, xp=xp) + mu / (x * x))
    return x


def _ladder(low: float, high: float) -> list[float]:
    """From low to high in equal ratios."""
    if high <= low:
        return [low]
    ratio = (high / low) ** (1 / (TUNING.levels - 1))
    return [low * ratio**k for k in range(TUNING.levels)]
