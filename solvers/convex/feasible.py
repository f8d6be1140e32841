"""The dual of MDML where the regularizer is linear on the cone or a norm on the entries: none, tr, l1, l21.

With Omega(M) = max_{W in B} <W, M>, where B is the identity alone for the trace, weights alpha in [0, 1] on the
dissimilar pairs and W in B prove

    F(M) >= margin mean(alpha)  for all psd M, if  S = C_S + gamma W - mean_k alpha_k z_k z_k'  is psd.

Any (alpha, W) becomes feasible on the way to (0, I), where S = C_S + gamma I =: K. The share of it that may stay is the
inverse of the largest eigenvalue of K^-1/2 H K^-1/2, with H = mean_k alpha_k z_k z_k' + gamma (I - W).

In floating point S is known up to an error, which `prove` keeps away from the edge of the cone. It is measured with
features in units of their own spread, because rounding is relative to each of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solvers.backend import Array, Backend, Namespace, eigh, eigvalsh, symmetrize, to_numpy
from solvers.pairs import PairProblem

_UNIT = 2.0**-53
# Roundings of a single term, before it is summed up.
_PER_TERM = 64
# Of LAPACK's symmetric eigensolvers, in units of D u ||S||.
_SOLVER = 8
# A feature has a unit as if it spread by this many gammas more: where the penalty rules, all are alike.
_PENALTY_SPREAD = 100
# Eigenvectors of a singular K know its null space to about the root of the unit roundoff at worst.
_NULL = 2.0**-30


@dataclass(frozen=True)
class Proof:
    """Feasible weights (m,), W (D, D) unless it is the identity, and the bound that they prove."""

    value: float
    weights: Array
    matrix: Array | None


class DualCone:
    """K = C_S + gamma I in units of each feature's spread, and what may be taken from it."""

    def __init__(self, problem: PairProblem, gamma: float, backend: Backend) -> None:
        self.problem, self.gamma, self.backend, self.xp = problem, gamma, backend, backend.xp
        xp, pairs = self.xp, problem.dissimilar
        C_S = problem.similar_scatter
        self.identity = xp.eye(C_S.shape[0], dtype=backend.dtype, device=backend.device)
        even = xp.full((len(pairs),), 1 / len(pairs), dtype=backend.dtype, device=backend.device)
        spread = xp.linalg.diagonal(C_S) + pairs.sums(even) @ (pairs.X * pairs.X) + _PENALTY_SPREAD * gamma
        self.units = xp.sqrt(xp.where(spread > 0, spread, xp.ones_like(spread)))
        self.K = self._in_units(C_S + gamma * self.identity)
        self.eigenvalues, self.vectors = eigh(self.K, xp=xp)
        self.n_eigh = 1

    def _in_units(self, A: Array) -> Array:
        return A / (self.units[:, None] * self.units[None, :])

    def charge(self, alpha: Array, W: Array | None) -> Array:
        """H in units of the features, made afresh."""
        H = self.problem.dissimilar.scatter(alpha / len(self.problem.dissimilar))
        if W is not None:
            H = H + self.gamma * (self.identity - symmetrize(W, xp=self.xp))
        return self._in_units(H)

    def error(self, alpha: Array, H: Array) -> float:
        """How far eigenvalues of the computed S may be from those of the exact one.

        Sums over n points in any order are off by at most n u times the sum of absolute values, which for C_S is
        at most 4 times the largest square of each feature, whatever the weights of the classes.
        """
        xp, pairs = self.xp, self.problem.dissimilar
        n, D = pairs.X.shape
        largest = xp.max(xp.abs(pairs.X), axis=0) / self.units
        squares = (pairs.X * pairs.X) @ (1 / (self.units * self.units))
        degrees = float(xp.max(pairs.sums(xp.ones_like(alpha))))
        of_pairs = 2 * float(xp.sum(pairs.sums(alpha / len(pairs)) * squares))
        of_solver = _SOLVER * D * (_norm(self.K, xp=xp) + _norm(H, xp=xp))
        of_sums = (n + _PER_TERM) * 4 * float(xp.sum(largest * largest)) + (n + degrees + _PER_TERM) * of_pairs
        return _UNIT * (of_sums + of_solver)

    def prove(self, alpha: Array, W: Array | None) -> Proof:
        """What alpha and W prove, in exact arithmetic, after a step towards (0, I).

        Without a regularizer, K is as singular as C_S. Directions without any spread within classes cost nothing, so
        pairs that differ there get no weight; what rounding leaves of the others there is left out of account.
        """
        xp, margin = self.xp, self.problem.margin
        alpha = xp.clip(alpha, 0.0, 1.0)
        H = self.charge(alpha, W)
        error = self.error(alpha, H)
        positive = to_numpy(self.eigenvalues) > 4 * error
        if not positive.any():
            return Proof(0.0, xp.zeros_like(alpha), None if W is None else self.identity)
        if not positive.all():
            alpha = alpha * xp.astype(~self._free(self._columns(~positive)), alpha.dtype)
            H = self.charge(alpha, W)
        kept = self._columns(positive)
        values = xp.take(self.eigenvalues, self.backend.indices(np.flatnonzero(positive)))
        inside = xp.matrix_transpose(kept) @ H @ kept
        roots = xp.sqrt(values - 2 * error)
        top = float(self._eigenvalues(inside / (roots[:, None] * roots[None, :]))[-1])
        share = min(1.0, 1 / top) if top > 0 else 1.0
        floor, least = float(values[0]), float(self._eigenvalues(_diagonal(values, xp=xp) - share * inside)[0])
        if least < error:  # by rounding in the last two lines; K itself lies further inside
            share = share * (floor - error) / (floor - least)
        proven = share * margin * float(xp.mean(alpha)) * (1 - (len(self.problem.dissimilar) + _PER_TERM) * _UNIT)
        return Proof(proven, share * alpha, None if W is None else share * W + (1 - share) * self.identity)

    def _columns(self, chosen: np.ndarray) -> Array:
        return self.xp.take(self.vectors, self.backend.indices(np.flatnonzero(chosen)), axis=1)

    def _eigenvalues(self, A: Array) -> Array:
        self.n_eigh += 1
        return eigvalsh(A, xp=self.xp)

    def _free(self, null: Array) -> Array:
        """Pairs (m,) that differ in the directions `null` by more than rounding."""
        pairs = self.problem.dissimilar
        points = pairs.X / self.units[None, :]
        part = pairs.projected_distances(points @ null)
        scale = float(self.xp.max(self.xp.vecdot(points, points)))
        return part > _NULL * _NULL * scale


def _diagonal(values: Array, *, xp: Namespace) -> Array:
    return values[:, None] * xp.eye(values.shape[0], dtype=values.dtype, device=values.device)


def _norm(A: Array, *, xp: Namespace) -> float:
    return float(xp.linalg.vector_norm(A))
