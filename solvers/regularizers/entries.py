"""Regularizers on the entries of M: norms that the eigenvalues alone do not determine.

Each is the support function of a set, Omega(M) = max_{W in B} <W, M>, and the solvers need the value and the
projection onto B, also where row and column i of M and W are measured in units of their own. Soft-thresholding and
then projecting on the psd cone would not be the prox of both together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from solvers.backend import Array, Namespace

# Newton's method on the secular equation converges from one side, and quadratically: far fewer are needed.
_SECULAR_STEPS = 50


@runtime_checkable
class EntryNorm(Protocol):
    """A norm of M by its value and its dual ball."""

    def value(self, M: Array, *, xp: Namespace) -> Array:
        """Omega(M)."""

    def project(self, V: Array, units: Array | None = None, *, xp: Namespace) -> Array:
        """Nearest point of B, or of { u_i u_j W_ij : W in B } for units u (D,)."""


@dataclass(frozen=True)
class L1:
    """Omega(M) = sum_ij |M_ij|; B: |W_ij| <= 1."""

    def value(self, M: Array, *, xp: Namespace) -> Array:
        return xp.sum(xp.abs(M))

    def project(self, V: Array, units: Array | None = None, *, xp: Namespace) -> Array:
        limits = xp.ones_like(V) if units is None else units[:, None] * units[None, :]
        return xp.minimum(xp.maximum(V, -limits), limits)


@dataclass(frozen=True)
class L21:
    """Omega(M) = sum of the rows' Euclidean norms; B: every row of W within the unit ball.

    In units u, row i of B is the ellipsoid of half axes u_i u_j. The nearest point of it to v outside is
    v_j / (1 + l / (u_i u_j)^2) with the l > 0 that puts it on the surface.
    """

    def value(self, M: Array, *, xp: Namespace) -> Array:
        return xp.sum(xp.sqrt(xp.sum(M * M, axis=-1)))

    def project(self, V: Array, units: Array | None = None, *, xp: Namespace) -> Array:
        if units is None:
            return V / xp.clip(_row_norms(V, xp=xp), 1.0, None)
        axes = units[:, None] * units[None, :]
        target, weights = V / axes, 1 / (axes * axes)
        # In units of the largest axis, so that l is neither tiny nor huge.
        weights = weights / xp.min(weights, axis=1, keepdims=True)
        # No single entry may be longer than 1, which is a start below the root.
        multiplier = xp.clip(xp.max((xp.abs(target) - 1) / weights, axis=1, keepdims=True), 0.0, None)
        for _ in range(_SECULAR_STEPS):
            shrunk = target / (1 + multiplier * weights)
            norms = _row_norms(shrunk, xp=xp)
            outside = norms > 1
            slope = xp.sum(shrunk * shrunk * weights / (1 + multiplier * weights), axis=1, keepdims=True)
            # On 1 / norm, which is nearly straight in the multiplier.
            step = xp.where(outside, norms * norms * (norms - 1) / xp.where(outside, slope, xp.ones_like(slope)), 0.0)
            multiplier = multiplier + step
            if not bool(xp.any(step > 1e-14 * (1 + multiplier))):
                break
        shrunk = target / (1 + multiplier * weights)
        return axes * (shrunk / xp.clip(_row_norms(shrunk, xp=xp), 1.0, None))


def _row_norms(V: Array, *, xp: Namespace) -> Array:
    return xp.sqrt(xp.sum(V * V, axis=-1, keepdims=True))


ENTRIES: dict[str, type] = {"l1": L1, "l21": L21}
