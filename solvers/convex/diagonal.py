"""The best metric that shares the eigenvectors of a dual point: F over its eigenvalues alone.

The eigenvalues that a dual point suggests answer to its weights exponentially (cvnd) or without bound (cldd), so F lags
behind the bound. With the eigenvectors U held, M = U diag(x) U' has

    F = sum_j c_j x_j + mean_k max(0, margin - sum_j x_j (U'z_k)_j^2) + gamma sum_j h(x_j),    c = diag(U' C_S U) ,

a convex problem without any eigendecomposition. Eigenvalues move in groups, the leading ones alone, so that it has a
few dozen unknowns: the factors w of the groups. It is solved by projected Newton steps on a smoothed hinge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import array_api_compat.numpy as numpy_namespace
import numpy as np

from solvers.backend import Array, to_numpy
from solvers.convex.dual import SpectralProblem
from solvers.convex.tuning import TUNING
from solvers.regularizers.spectral import SmoothConjugate


@dataclass(frozen=True)
class Diagonal:
    """Metrics U diag(x) U' with x a multiple of a given one in each group of coordinates.

    Attributes
    ----------
    x : (r,) the eigenvalues at w = 1, all positive; on the host, like all of size r or K.
    starts : (K,) where in x each group starts.
    XU : (n, d) the points along U.
    judges : (s, K) what each group adds to the distances of the pairs that F is minimised on.
    similar : (K,) what it adds to <C_S, M>.
    penalty, margin : of the problem.
    least : of the factors; above zero where h is infinite at zero.
    """

    x: np.ndarray
    starts: np.ndarray
    XU: Array
    judges: Array
    similar: np.ndarray
    penalty: SmoothConjugate
    margin: float
    least: float

    def eigenvalues(self, w: np.ndarray) -> np.ndarray:
        """(r,) at factors w (K,) of the groups."""
        return np.repeat(w, np.diff(self.starts, append=len(self.x))) * self.x

    def distances(self, x: np.ndarray, p: SpectralProblem) -> Array:
        """Of all pairs (m, c), at eigenvalues (r, c)."""
        columns = np.pad(x, ((0, self.XU.shape[1] - len(x)), (0, 0)))
        return p.pairs.diagonal_forms(self.XU, p.xp.asarray(columns, dtype=self.XU.dtype, device=p.backend.device))

    def best(self, gamma: float, w: np.ndarray, p: SpectralProblem, *, near: bool = False) -> np.ndarray:
        """Factors at which F is about least, from w; `near` where w is about best for nearly the same gamma."""
        for width in TUNING.hinge_widths[-1:] if near else TUNING.hinge_widths:
            for _ in range(TUNING.diagonal_steps):
                following = self._step(gamma, w, width * self.margin, p)
                if following is None:
                    break
                w = following
        return w

    def _step(self, gamma: float, w: np.ndarray, width: float, p: SpectralProblem) -> np.ndarray | None:
        """A projected Newton step on F with its hinge smoothed over `width`; None where it gains next to nothing."""
        value, slope, bend = self._smoothed(gamma, w, width, p)
        free = np.flatnonzero((w > self.least) | (slope < 0))
        inner, size = bend[np.ix_(free, free)], float(np.max(np.diag(bend)))
        if not 0 < size < math.inf:  # nothing bends, or a number is not one
            return None
        for damping in TUNING.factor_damping:
            trial = w.copy()
            trial[free] -= np.linalg.solve(inner + damping * size * np.eye(len(free)), slope[free])
            trial = np.maximum(trial, self.least)
            gain = value - self._total(gamma, trial, self._hinge(trial, p), width, p)
            if gain > 0:
                return trial if gain > TUNING.diagonal_enough * abs(value) else None
        return None

    def _smoothed(
        self, gamma: float, w: np.ndarray, width: float, p: SpectralProblem
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Value, gradient and Hessian of F with its hinge smoothed."""
        xp, m = p.xp, self.judges.shape[0]
        hinge = self._hinge(w, p)
        rise = xp.clip(hinge / width + 0.5, 0.0, 1.0)
        inside = xp.take(self.judges, xp.nonzero((rise > 0) & (rise < 1))[0], axis=0)
        curved = xp.matrix_transpose(inside) @ inside / width
        sums = to_numpy(xp.concat([curved, (rise @ self.judges)[None, :]], axis=0)) / m  # one wait for the device
        x = self.eigenvalues(w)
        first, second = (f(x, xp=numpy_namespace) for f in (self.penalty.slope, self.penalty.curvature))
        slope = self.similar - sums[-1] + gamma * np.add.reduceat(first * self.x, self.starts)
        ridge = gamma * np.add.reduceat(second * self.x * self.x, self.starts)
        return self._total(gamma, w, hinge, width, p), slope, sums[:-1] + np.diag(ridge)

    def _total(self, gamma: float, w: np.ndarray, hinge: Array, width: float, p: SpectralProblem) -> float:
        """F with its hinge smoothed."""
        xp = p.xp
        near = xp.clip(hinge + width / 2, 0.0, width)
        smooth = float(xp.mean(near * near / (2 * width) + xp.clip(hinge - width / 2, 0.0, None)))
        omega = float(np.sum(self.penalty.value(self.eigenvalues(w), xp=numpy_namespace)))
        return float(self.similar @ w) + smooth + gamma * omega

    def _hinge(self, w: np.ndarray, p: SpectralProblem) -> Array:
        return self.margin - self.judges @ p.xp.asarray(w, dtype=self.judges.dtype, device=p.backend.device)


def diagonal(p: SpectralProblem, penalty: SmoothConjugate, U: Array, XU: Array, x: Array) -> Diagonal:
    """The metrics around U diag(x) U' with eigenvalues x (r,) > 0, U (D, d) with d >= r, and the points along U (n, d).

    F is minimised on as many of the pairs as `TUNING.polishers` says.
    """
    xp, r = p.xp, x.shape[0]
    singles = min(TUNING.single_factors, r)
    grouped = np.geomspace(singles, r, TUNING.grouped_factors + 1)[:-1]
    starts = np.unique(np.concatenate([np.arange(singles), np.minimum(grouped, r - 1)]).astype(int))
    host, place = to_numpy(x), np.arange(U.shape[1])[:, None]
    member = (place >= starts) & (place < np.append(starts[1:], r))
    weights = member * np.pad(host, (0, U.shape[1] - r))[:, None]
    chosen = xp.arange(0, len(p.pairs), -(-len(p.pairs) // TUNING.polishers), device=p.backend.device)
    parts = xp.asarray(weights, dtype=XU.dtype, device=p.backend.device)
    judges = p.pairs.subset(chosen, XU).diagonal_forms(XU, parts)
    along = to_numpy(xp.sum((xp.astype(p.C_S, U.dtype) @ U) * U, axis=0)).astype(float)
    least = 0.0 if math.isfinite(penalty.slope_at_zero) else TUNING.least_factor
    return Diagonal(host, starts, XU, judges, along @ weights, penalty, p.margin, least)
