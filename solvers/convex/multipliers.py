"""Certified minimisation where the dual has no Hessian to use: no regularizer, tr, l1, l21.

    F(M) = <C_S, M> + mean_k max(0, margin - z_k' M z_k) + gamma Omega(M),   Omega(M) = max_{W in B} <W, M>

Hinge and norm are maxima over alpha in [0, 1] and W in B. Each is smoothed about a centre,

    max_alpha  alpha u - mu / 2 (alpha - centre)^2 ,     max_W  <W, M> - ||W - centre||^2 / (2 kappa) ,

and minimised by accelerated steps over the psd cone. At the minimum alpha and W are feasible in the dual, and what
is left of the gap is the smoothing. Then the centres move to alpha and W (the method of multipliers), so that the gap
closes while mu and kappa, which decide how fast the steps are, change little.

For the trace and without a regularizer M has coordinates in which C_S + gamma I is near the identity: the problem
is the same in all of them. A norm on the entries knows features, so there each feature has its own unit.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from solvers.backend import Array, Backend, eigh, eigvalsh, symmetrize, to_numpy
from solvers.convex.accelerated import Accelerated, Iterate, scaled_identity
from solvers.convex.dual import Solution, relative_gap
from solvers.convex.feasible import DualCone, Proof
from solvers.convex.smoothed import Smoothed
from solvers.pairs import PairProblem
from solvers.regularizers.entries import EntryNorm
from solvers.regularizers.spectral import NoPenalty

_CHECK_EVERY = 5
# Smoothing at the start: of the hinge, as a part of the margin over the first bound's share of it; of an entry of M,
# as a multiple of its mean. Set on digits and wine by the steps to a gap of 1e-5, as are all of these.
_HINGE, _ENTRY = 0.03, 10.0
# K is taken to be this large where it is smaller, in units of its largest eigenvalue.
_FREE = 1e-12
# Steps that a smoothed problem gets at least, and what is left of the smoothing after each.
_STEPS_AT_LEAST, _SHARPER = 10, 0.7
# Only where metric and bound are no further apart than this many times the smoothing: it is what is in the way.
_NEARLY = 4
# Directions in which classes spread little get units as if they spread this much of what pairs do.
_LEAST_SPREAD = 1e-4
# How often a bound that rounding spoils is tried to be made better by more steps.
_PROOFS = 6


@dataclass(frozen=True)
class Coordinates:
    """M = R N R' with R (D, k); for norms on the entries R = diag(units)."""

    R: Array
    inverse: Array  # (k, D)
    units: Array  # (D,), None for the trace


def solve_multipliers(
    problem: PairProblem,
    norm: EntryNorm | None,
    gamma: float,
    *,
    tol: float,
    max_iter: int,
    start: Array | None,
    backend: Backend,
) -> Solution:
    """Minimise F to a relative gap of `tol`, from the metric `start` or from a multiple of I.

    `norm` is a norm on the entries or None for the trace, gamma = 0 for no regularizer.
    """
    dual = DualCone(problem, gamma, backend)
    if not float(backend.xp.max(problem.dissimilar.projected_distances(problem.dissimilar.X))) > 0:
        return _zero(problem, norm, dual, backend)
    return _Run(problem, norm, gamma, dual, start, backend).run(tol, max_iter)


class _Run:
    """One fit: the method, the best metric and the best bound so far."""

    def __init__(
        self,
        problem: PairProblem,
        norm: EntryNorm | None,
        gamma: float,
        dual: DualCone,
        start: Array | None,
        backend: Backend,
    ) -> None:
        xp = backend.xp
        self.problem, self.norm, self.gamma, self.dual, self.backend, self.xp = problem, norm, gamma, dual, backend, xp
        self.began, self.n_eigh = time.perf_counter(), 0
        self.history: list[dict[str, float]] = []
        original, m = problem.dissimilar, len(problem.dissimilar)
        self.coordinates = self._coordinates()
        R = self.coordinates.R
        self.pairs = original.of(original.X @ R)
        C = self._inner(problem.similar_scatter)
        self.K = C + gamma * self._inner(dual.identity)
        values, vectors = self._eigh(self.K)
        # What costs nothing must not make the loop's bound infinite; `prove` looks closer.
        floor = _FREE * (float(values[-1]) or 1.0)
        self.whitener = vectors / xp.sqrt(xp.clip(values, floor, None))[None, :]
        even = xp.full((m,), 1.0, dtype=backend.dtype, device=backend.device)
        share = self._share(self.pairs.scatter(even / m))
        first = self._start(start)
        units, squares = self.coordinates.units, self.pairs.projected_distances(self.pairs.X)
        self.smoothed = Smoothed(
            cost=self.K if norm is None else C,
            norm=norm,
            gamma=gamma,
            units=units,
            margin=problem.margin,
            alpha=share * even,
            W=None if units is None else (units * units)[None, :] * dual.identity,
            mu=_HINGE * problem.margin / share,
            kappa=0.0 if units is None else float(xp.sum(units * units) * xp.mean(squares)) / (_ENTRY * problem.margin),
            backend=backend,
        )
        first = replace(first, step=self.smoothed.mu / float(xp.mean(squares * squares)))
        self.method = Accelerated(self.smoothed, self.pairs, first, penalty=NoPenalty(), backend=backend)
        # M = 0 is the best where no metric pays.
        nothing = xp.zeros_like(first.M)
        zero = Iterate(nothing, nothing, xp.zeros_like(first.distances))
        self.best, self.value = min(((each, self._objective(each)) for each in (zero, first)), key=lambda pair: pair[1])
        self.multipliers, self.bound = (self.smoothed.alpha, self.smoothed.W), share * problem.margin

    def _start(self, metric: Array | None) -> Iterate:
        """The given metric, or else the multiple of I with the least loss."""
        xp = self.xp
        if metric is not None:
            inverse = self.coordinates.inverse
            values, vectors = self._eigh(inverse @ metric @ xp.matrix_transpose(inverse))
            L = xp.matrix_transpose(vectors * xp.sqrt(xp.clip(values, 0.0, None))[None, :])
            return Iterate(xp.matrix_transpose(L) @ L, L, self.pairs.distances(L))
        first = scaled_identity(1.0, self.pairs, self.backend)
        cost, margin = float(xp.linalg.trace(self.K)), self.problem.margin
        scales = [margin / float(xp.mean(first.distances)) * 2.0**power for power in range(-3, 20)]
        losses = [s * cost + float(xp.mean(xp.clip(margin - s * first.distances, 0.0, None))) for s in scales]
        scale = scales[int(np.argmin(losses))]
        return Iterate(scale * first.M, math.sqrt(scale) * first.L, scale * first.distances)

    def _share(self, H: Array) -> float:
        """The part of H that may be taken from K."""
        xp = self.xp
        inside = xp.matrix_transpose(self.whitener) @ H @ self.whitener
        self.n_eigh += 1
        top = float(eigvalsh(inside, xp=xp)[-1])
        return min(1.0, 1 / top) if top > 0 else 1.0

    def _eigh(self, A: Array) -> tuple[Array, Array]:
        self.n_eigh += 1
        return eigh(A, xp=self.xp)

    def _inner(self, A: Array) -> Array:
        """R' A R."""
        R = self.coordinates.R
        return symmetrize(self.xp.matrix_transpose(R) @ A @ R, xp=self.xp)

    def _coordinates(self) -> Coordinates:
        """Units of the features, or directions in which K and a little of the pairs' scatter are the identity."""
        xp, units = self.xp, self.dual.units
        if self.norm is not None:
            scale = float(xp.sqrt(xp.mean(units * units)))
            own = scale / units
            return Coordinates(own * self.dual.identity, self.dual.identity / own[None, :], own)
        pairs = self.problem.dissimilar
        even = xp.full((len(pairs),), 1 / len(pairs), dtype=self.backend.dtype, device=self.backend.device)
        both = self.dual.K + self.dual.charge(even, None)
        values, vectors = self._eigh(both)
        # Nothing differs in the other directions.
        alive = np.flatnonzero(to_numpy(values) > both.shape[0] * 2.0**-52 * float(values[-1]))
        basis = xp.take(vectors, self.backend.indices(alive), axis=1)
        spread = self.dual.K + _LEAST_SPREAD * both
        values, vectors = self._eigh(xp.matrix_transpose(basis) @ spread @ basis)
        roots, directions = xp.sqrt(values), basis @ vectors
        return Coordinates(
            directions / roots[None, :] / units[:, None],
            xp.matrix_transpose(directions * roots[None, :] * units[:, None]),
            None,
        )

    def run(self, tol: float, max_iter: int) -> Solution:
        since, target, reason = 0, tol, ""
        for iteration in range(1, max_iter + 1):
            current = self.method.step()
            since += 1
            if iteration % _CHECK_EVERY and iteration != max_iter:
                continue
            apart, infeasible, smoothing = self._check(current)
            gap = self._gap(self.bound)
            spent = self.n_eigh + self.dual.n_eigh + current.n_eigh
            seconds = time.perf_counter() - self.began
            self.history.append({"n_eigh": spent, "seconds": seconds, "objective": self.value, "gap": gap})
            if gap <= target:
                if self._gap(self._prove().value) <= tol:
                    break
                target /= 2
                if target < tol / 2**_PROOFS:
                    reason = "rounding: classes hardly spread in some direction; add a little of a regularizer"
                    break
            if since >= _STEPS_AT_LEAST and infeasible <= sum(smoothing):
                self._recentre(current, *smoothing, sharper=apart <= _NEARLY * sum(smoothing))
                since = 0
        return self._solution(self._prove(), tol, reason)

    def _gap(self, bound: float) -> float:
        return relative_gap(self.value, bound, self.value, self.problem.margin)  # Omega is not negative

    def _check(self, current: Iterate) -> tuple[float, float, tuple[float, float]]:
        """Update the best metric and bound.

        Returns how far the current metric and bound are apart, and what of this is infeasibility and what the smoothing
        of the hinge and of the norm; more steps would take away the rest.
        """
        xp, smoothed, margin = self.xp, self.smoothed, self.problem.margin
        alpha, W = smoothed.multipliers(current.M, current.distances)
        H = self.pairs.scatter(alpha / len(self.pairs))
        if W is not None:
            unit = (smoothed.units * smoothed.units)[None, :] * self.dual.identity
            H = H + self.gamma * (unit - symmetrize(W, xp=xp))
        whole = margin * float(xp.mean(alpha))
        bound = self._share(H) * whole
        if bound > self.bound:
            self.multipliers, self.bound = (alpha, W), bound
        value = self._objective(current)
        if value < self.value:
            self.best, self.value = current, value
        slack = margin - current.distances
        of_hinge = float(xp.mean(xp.clip(slack, 0.0, None) - alpha * slack))
        of_norm = 0.0 if W is None else smoothed.omega(current.M) - self.gamma * float(xp.sum(W * current.M))
        return value - bound, whole - bound, (of_hinge, of_norm)

    def _recentre(self, current: Iterate, of_hinge: float, of_norm: float, sharper: bool) -> None:
        """Move the centres, and sharpen what smooths most."""
        smoothed = self.smoothed
        smoothed.alpha, smoothed.W = smoothed.multipliers(current.M, current.distances)
        if sharper and of_hinge > 0.1 * of_norm:
            smoothed.mu *= _SHARPER
        if sharper and of_norm > 0.1 * of_hinge:
            smoothed.kappa /= _SHARPER
        self.method.forget()

    def _objective(self, iterate: Iterate) -> float:
        xp = self.xp
        hinge = xp.mean(xp.clip(self.problem.margin - iterate.distances, 0.0, None))
        return float(xp.sum(self.smoothed.cost * iterate.M) + hinge) + self.smoothed.omega(iterate.M)

    def _prove(self) -> Proof:
        alpha, W = self.multipliers
        units = self.smoothed.units
        return self.dual.prove(alpha, None if W is None else W / (units[:, None] * units[None, :]))

    def _solution(self, proof: Proof, tol: float, reason: str) -> Solution:
        """The best metric in the features' own coordinates, with F measured there."""
        xp, problem = self.xp, self.problem
        L = self.best.L @ xp.matrix_transpose(self.coordinates.R)
        M = xp.matrix_transpose(L) @ L
        hinge = xp.mean(xp.clip(problem.margin - problem.dissimilar.distances(L), 0.0, None))
        loss = float(xp.sum(problem.similar_scatter * M) + hinge)
        value = loss + self.gamma * float(xp.linalg.trace(M) if self.norm is None else self.norm.value(M, xp=xp))
        values, vectors = self._eigh(M)
        # M has the rank of its factor; what else the decomposition shows is rounding.
        rank = int(to_numpy(xp.astype(xp.sum(L * L, axis=1) > 0, xp.int64)).sum())
        below = self.backend.indices(np.arange(values.shape[0])) < values.shape[0] - rank
        values = xp.where(below, xp.zeros_like(values), xp.clip(values, 0.0, None))
        return Solution(
            M=M,
            eigenvalues=values,
            eigenvectors=vectors,
            objective=value,
            loss=loss,
            dual_objective=proof.value,
            n_iter=self.method.current.n_iter,
            n_eigh=self.n_eigh + self.dual.n_eigh + self.method.current.n_eigh,
            converged=relative_gap(value, proof.value, loss, problem.margin) <= tol,
            history=self.history,
            weights=proof.weights,
            matrix=proof.matrix,
            reason=reason,
        )


def _zero(problem: PairProblem, norm: EntryNorm | None, dual: DualCone, backend: Backend) -> Solution:
    """No pair differs, so that nothing but M = 0 is cheaper than the margin."""
    xp = backend.xp
    M = xp.zeros_like(problem.similar_scatter)
    return Solution(
        M=M,
        eigenvalues=xp.linalg.diagonal(M),
        eigenvectors=dual.identity,
        objective=problem.margin,
        loss=problem.margin,
        dual_objective=problem.margin,
        n_iter=0,
        n_eigh=dual.n_eigh,
        converged=True,
        history=[],
        weights=xp.ones((len(problem.dissimilar),), dtype=backend.dtype, device=backend.device),
        matrix=None if norm is None else dual.identity,
    )
