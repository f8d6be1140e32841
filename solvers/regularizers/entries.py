"""Regularizers on the entries of M: norms that the eigenvalues alone do not determine.

Each is the support function of a set, Omega(M) = max_{W in B} <W, M>, and the solver needs the
value and the projection onto B. Soft-thresholding and then projecting on the psd cone would not
be the prox of both together, so these go through a splitting (`solvers.splitting`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from solvers.backend import Array, Namespace


@runtime_checkable
class EntryNorm(Protocol):
    """A norm of M by its value and its dual ball."""

    def value(self, M: Array, *, xp: Namespace) -> Array:
        """Omega(M)."""

    def project(self, W: Array, *, xp: Namespace) -> Array:
        """Nearest point of B."""


@dataclass(frozen=True)
class L1:
    """Omega(M) = sum_ij |M_ij|; B: |W_ij| <= 1."""

    def value(self, M: Array, *, xp: Namespace) -> Array:
        return xp.sum(xp.abs(M))

    def project(self, W: Array, *, xp: Namespace) -> Array:
        return xp.clip(W, -1.0, 1.0)


@dataclass(frozen=True)
class L21:
    """Omega(M) = sum of the rows' Euclidean norms; B: every row of W within the unit ball."""

    def value(self, M: Array, *, xp: Namespace) -> Array:
        return xp.sum(xp.sqrt(xp.sum(M * M, axis=-1)))

    def project(self, W: Array, *, xp: Namespace) -> Array:
        norms = xp.sqrt(xp.sum(W * W, axis=-1, keepdims=True))
        return W / xp.clip(norms, 1.0, None)


ENTRIES: dict[str, type] = {"l1": L1, "l21": L21}
