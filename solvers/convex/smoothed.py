"""The convex problem with hinge and norm smoothed about centres, which `solvers.convex.multipliers` moves.

    F(M) = <C_S, M> + mean_k max_{0 <= alpha <= 1} alpha (margin - z_k' M z_k) + gamma max_{W in B} <W, M>

Each maximum loses a square, mu / 2 (alpha - centre)^2 or ||W - centre||^2 / (2 kappa), and so becomes smooth.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from solvers.backend import Array, Backend, symmetrize
from solvers.regularizers.entries import EntryNorm


@dataclass
class Smoothed:
    """F with its two maxima smoothed about centres, as a function of N and of the pairs' distances."""

    cost: Array  # R' C_S R, with gamma I in it for the trace
    norm: EntryNorm | None
    gamma: float
    units: Array  # of the features, None for the trace
    margin: float
    alpha: Array  # centres
    W: Array | None  # in units of the features
    mu: float
    kappa: float
    backend: Backend = field(repr=False)

    def multipliers(self, N: Array, distances: Array) -> tuple[Array, Array | None]:
        """alpha and W where the maxima are attained."""
        xp = self.backend.xp
        alpha = xp.clip(self.alpha + (self.margin - distances) / self.mu, 0.0, 1.0)
        if self.norm is None:
            return alpha, None
        return alpha, self.norm.project(self.W + self.kappa * N, self.units, xp=xp)

    def __call__(self, N: Array, distances: Array) -> tuple[float, Array, Array]:
        xp, slack = self.backend.xp, self.margin - distances
        alpha, W = self.multipliers(N, distances)
        value = float(xp.sum(self.cost * N) + xp.mean(alpha * slack - self.mu / 2 * (alpha - self.alpha) ** 2))
        direct = self.cost
        if W is not None:
            value += self.gamma * float(xp.sum(W * N) - xp.sum((W - self.W) ** 2) / (2 * self.kappa))
            direct = direct + self.gamma * symmetrize(W, xp=xp)
        return value, -alpha / distances.shape[0], direct

    def omega(self, N: Array) -> float:
        """gamma times the norm, of M."""
        if self.norm is None:
            return 0.0
        return self.gamma * float(self.norm.value(N * self.units[:, None] * self.units[None, :], xp=self.backend.xp))
