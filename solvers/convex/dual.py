"""The convex problem on fixed pairs: its objective F, its dual D and what certifies a solution.

    F(M) = <C_S, M> + mean_k max(0, margin - z_k' M z_k) + gamma sum_j h(lambda_j(M)),   M psd

Any weights alpha in [0, 1] on the dissimilar pairs give the lower bound

    D(alpha) = margin mean(alpha) - gamma sum_i h*(-g_i / gamma),   g = eig(G),   G = C_S - mean_k alpha_k z_k z_k'

`docs/certified.md` derives this and what is built on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import array_api_compat.numpy as numpy_namespace
import numpy as np

from solvers.backend import Array, Backend, Namespace, eigh
from solvers.convex.search import golden_section
from solvers.pairs import PairProblem
from solvers.regularizers.spectral import Spectral

# Unit roundoff of double precision, and the roundings of a single term before it is summed up.
UNIT = 2.0**-53
PER_TERM = 64
# A gap is measured against this share of the margin, F's data part at M = 0, where F and its data part are smaller.
GAP_FLOOR = 0.01


@dataclass(frozen=True)
class DualPoint:
    """Weights alpha with the eigendecomposition of their G, and a bound that part of them proves.

    Attributes
    ----------
    alpha : (m,) weights.
    G, g, U : G(alpha), its eigenvalues in ascending order, its eigenvectors.
    value : D(part alpha) at least: G(s alpha) >= s G(alpha), because C_S is psd.
    part : the share of alpha that proves it.
    gamma : what it holds for.
    fresh : whether G was made from alpha in double precision, not step by step.
    along : (n, k) the points along the leading eigenvectors, in any precision, where they are at hand.
    """

    alpha: Array
    G: Array
    g: Array
    U: Array
    value: float
    part: float
    gamma: float
    fresh: bool = False
    along: Array | None = None


@dataclass
class Solution:
    """A metric with what is known about it.

    Attributes
    ----------
    M, eigenvalues, eigenvectors : the metric.
    objective, loss, dual_objective : F(M), its data part, and a lower bound on F, if there is one.
    n_iter, n_eigh, history : the course of the fit.
    converged, reason : whether the tolerance was reached; if not, what stood in the way.
    weights : (m,) those that prove the bound, where the solver has them.
    matrix : (D, D) the norm's dual, where the bound needs one.
    start : what a fit with another gamma on the same pairs can begin from.
    curve : what the weights prove at other gammas.
    """

    M: Array
    eigenvalues: Array
    eigenvectors: Array
    objective: float
    loss: float
    dual_objective: float | None
    n_iter: int
    n_eigh: int
    converged: bool
    history: list[dict[str, float]]
    weights: Array | None = None
    matrix: Array | None = None
    start: DualPoint | None = None
    reason: str = ""
    curve: DualCurve | None = None


@dataclass(frozen=True)
class DualCurve:
    """What fixed weights prove at any gamma, from the eigenvalues of their G alone.

    Attributes
    ----------
    lowered : (D,) eigenvalues of G, rising, less what rounding may have added; on the host.
    rise : mean of the weights.
    n_pairs : how many there are.
    penalty, margin : of the problem in its own units, and what 1 is in the user's.
    """

    lowered: np.ndarray
    rise: float
    n_pairs: int
    penalty: Spectral
    margin: float

    def at(self, gamma: float) -> tuple[float, float]:
        """The highest bound for a gamma, and the part of the weights that proves it."""
        own = gamma / self.margin
        _, part = best_part(self.penalty, own, self.rise, self.lowered, xp=numpy_namespace)
        both = ((self.value(own, s), s) for s in (part, 1.0))
        value, part = max(both)
        return self.margin * value, part

    def blended(self, other: DualCurve, share: float) -> DualCurve:
        """What (1 - share) of these weights and share of others prove, by the sums of their eigenvalues in order.

        The eigenvalues of the blend's own G are majorised by these sums, so the bound from them is higher still.
        """
        lowered = (1 - share) * self.lowered + share * other.lowered
        return replace(self, lowered=lowered, rise=(1 - share) * self.rise + share * other.rise)

    def value(self, gamma: float, part: float) -> float:
        """The bound in the problem's units, less the rounding of its own evaluation."""
        xp, d = numpy_namespace, self.lowered.shape[0]
        total = conjugate(self.penalty, gamma, part * self.lowered, xp=xp)
        if not math.isfinite(total):
            return -math.inf
        y = -part * self.lowered / gamma
        x = self.penalty.maximizer(y, xp=xp)
        size = gamma * float(np.sum(np.abs(x * y) + np.abs(self.penalty.value(x, xp=xp))))
        rise = part * self.rise
        return rise - total - UNIT * ((self.n_pairs + PER_TERM) * rise + (d + PER_TERM) * size)


def gap_scale(objective: float, loss: float, margin: float) -> float:
    """What a gap is relative to: |F|, or F's data part f (up to the margin), or a hundredth of the margin: the largest.

    Without its constants Omega may be negative (csfn, cvnd), and F crosses zero where f and gamma Omega cancel, which
    means nothing. f is never negative.
    """
    return max(abs(objective), gap_floor(loss, margin))


def gap_floor(loss: float, margin: float) -> float:
    """The least that a gap is relative to, whatever Omega is."""
    return max(min(loss, margin), GAP_FLOOR * margin)


def relative_gap(objective: float, bound: float, loss: float, margin: float) -> float:
    """(F - D) / `gap_scale`."""
    return (objective - bound) / gap_scale(objective, loss, margin)


class SpectralProblem:
    """F and D on fixed pairs, counting eigendecompositions."""

    def __init__(self, problem: PairProblem, penalty: Spectral, gamma: float, backend: Backend) -> None:
        self.pairs, self.C_S, self.margin = problem.dissimilar, problem.similar_scatter, problem.margin
        self.penalty, self.gamma, self.backend, self.xp = penalty, gamma, backend, backend.xp
        self.n_eigh = 0

    def eigh(self, M: Array) -> tuple[Array, Array]:
        self.n_eigh += 1
        return eigh(M, xp=self.xp)

    def point(self, alpha: Array, G: Array, *, fresh: bool = False) -> DualPoint:
        """The dual point at alpha; its bound is that of alpha itself if it is finite, else of a part of it."""
        g, U = self.eigh(G)
        return self.reread(DualPoint(alpha, G, g, U, -math.inf, 1.0, self.gamma, fresh))

    def fresh_point(self, alpha: Array) -> DualPoint:
        """The same, with G made from alpha."""
        return self.point(alpha, self.gradient(alpha), fresh=True)

    def reread(self, point: DualPoint) -> DualPoint:
        """What a decomposition says at this problem's gamma."""
        value, part = self.best_part(point.alpha, point.g)
        return replace(point, value=value, part=part, gamma=self.gamma)

    def conjugate(self, g: Array) -> float:
        """gamma sum_i h*(-g_i / gamma), infinite outside its domain."""
        return conjugate(self.penalty, self.gamma, g, xp=self.xp)

    def best_part(self, alpha: Array, g: Array) -> tuple[float, float]:
        """The highest bound that a part of alpha proves, and the part."""
        return best_part(self.penalty, self.gamma, self.margin * float(self.xp.mean(alpha)), g, xp=self.xp)

    def gradient(self, alpha: Array) -> Array:
        """G(alpha)."""
        return self.C_S - self.pairs.sparse_scatter(alpha / len(self.pairs))

    def gradient_product(self, alpha: Array, v: Array) -> Array:
        """G(alpha) v."""
        X = self.pairs.X
        L = self.pairs.laplacian(alpha / len(self.pairs), (X @ v)[:, None])
        return self.C_S @ v - (self.xp.matrix_transpose(X) @ L)[:, 0]

    def dual(self, alpha: Array) -> tuple[Array, float]:
        """Eigenvalues of G and the bound D that alpha, or a part of it, proves."""
        point = self.point(alpha, self.gradient(alpha))
        return point.g, point.value

    def loss(self, M: Array, distances: Array) -> float:
        """The data part of F(M) from M and the dissimilar pairs' distances."""
        xp = self.xp
        return float(xp.sum(self.C_S * M) + xp.mean(xp.clip(self.margin - distances, 0.0, None)))

    def regularizer(self, values: Array) -> float:
        """gamma Omega(M) from the eigenvalues of M."""
        return self.gamma * float(self.xp.sum(self.penalty.value(values, xp=self.xp))) if self.gamma > 0 else 0.0

    def factor(self, values: Array, vectors: Array) -> Array:
        """(D, k) with factor factor' = U diag(values) U'; what is zero costs nothing."""
        xp = self.xp
        kept = xp.nonzero(values > 0)[0]
        return xp.take(vectors, kept, axis=1) * xp.sqrt(xp.take(values, kept))[None, :]

    def distances(self, factor: Array) -> Array:
        """z' M z of the dissimilar pairs for M = factor factor'."""
        return self.between(self.pairs.X @ factor)

    def between(self, projected: Array) -> Array:
        """Squared distances of the dissimilar pairs between projected points (n, k)."""
        if projected.shape[1] == 0:
            return self.xp.zeros((len(self.pairs),), dtype=projected.dtype, device=self.backend.device)
        return self.pairs.projected_distances(projected)


def conjugate(penalty: Spectral, gamma: float, g: Array, *, xp: Namespace) -> float:
    """gamma sum_i h*(-g_i / gamma) for rising g, infinite outside its domain."""
    y = -g / gamma
    if float(y[0]) >= penalty.dual_limit:
        return math.inf
    x = penalty.maximizer(y, xp=xp)
    return gamma * float(xp.sum(x * y - penalty.value(x, xp=xp)))


def best_part(penalty: Spectral, gamma: float, rise: float, g: Array, *, xp: Namespace) -> tuple[float, float]:
    """The highest bound s rise - gamma sum_i h*(-s g_i / gamma) for s in [0, 1], and s.

    `rise` is margin mean(alpha). The bound is concave in s; at s = 0 it is the least of gamma Omega.
    """
    most, steepest = 1.0, -float(g[0])
    if steepest > 0 and steepest / gamma >= penalty.dual_limit:
        most = 0.999 * gamma * penalty.dual_limit / steepest
    elif rise + float(xp.sum(g * penalty.maximizer(-g / gamma, xp=xp))) >= 0:  # it still rises at s = 1
        return rise - conjugate(penalty, gamma, g, xp=xp), 1.0
    s = golden_section(lambda s: conjugate(penalty, gamma, s * g, xp=xp) - s * rise, 0.0, most, 30)
    return max((s * rise - conjugate(penalty, gamma, s * g, xp=xp), s) for s in (0.0, s, most))
