"""What is proved about a result, in floating point: bounds that hold for the exact numbers behind the computed ones.

u is the unit roundoff of double precision, in which all of this is done. Three errors are charged to the eigenvalues of
G before the bound is taken from them, which it can only lower, because h* rises:

* of G itself: sums over n points in any order are off by at most n u times the sum of absolute values;
* of the decomposition: G = V diag(g) V' + E with what the computer calls V and g, so by Weyl's theorem eigenvalues are
  off by at most |E|, and by Ostrowski's by the share |V' V - I| of themselves;
* of evaluating the bound from them: the number of terms times u times the sum of absolute values.
"""

from __future__ import annotations

from dataclasses import dataclass

from solvers.backend import Array, to_numpy
from solvers.convex.dual import PER_TERM, UNIT, DualCurve, SpectralProblem
from solvers.convex.normal import NormalProblem
from solvers.pairs import PairProblem


@dataclass(frozen=True)
class Bound:
    """A lower bound on F that holds in exact arithmetic.

    Attributes
    ----------
    value : the bound, at the weights part alpha.
    part : how much of alpha proves it.
    rounding : how much of it was given up to rounding.
    share : what the eigenvectors lack of being orthogonal.
    curve : the same for other gammas.
    """

    value: float
    part: float
    rounding: float
    share: float
    curve: DualCurve


def gradient_error(p: SpectralProblem, problem: PairProblem, alpha: Array) -> float:
    """How far eigenvalues of the computed G(alpha) can be from those of the exact one."""
    xp, pairs = p.xp, p.pairs
    n, m = pairs.X.shape[0], len(pairs)
    squares = xp.vecdot(pairs.X, pairs.X)
    size = 2 * float(xp.sum(pairs.sums(alpha / m) * squares))
    degree = float(xp.max(pairs.sums(xp.ones_like(alpha))))
    return UNIT * ((n + PER_TERM) * problem.similar_size + (n + degree + PER_TERM) * size)


def decomposition_error(G: Array, g: Array, U: Array, *, p: SpectralProblem) -> tuple[float, float]:
    """Errors of g as eigenvalues of G, absolute and relative."""
    xp, d = p.xp, G.shape[0]
    size = float(xp.sum(xp.abs(g)))
    residual = G - (U * g[None, :]) @ xp.matrix_transpose(U)
    overlap = xp.matrix_transpose(U) @ U - xp.eye(d, dtype=G.dtype, device=p.backend.device)
    absolute = _norm(residual, p) + (d + PER_TERM) * UNIT * 2 * size
    return absolute, _norm(overlap, p) + (d + PER_TERM) * UNIT * d


def proven_bound(
    p: SpectralProblem, normal: NormalProblem, alpha: Array, G: Array, g: Array, U: Array, part: float
) -> Bound:
    """The bound at a part of alpha, given G(alpha) made in double precision and (about) its decomposition."""
    xp = p.xp
    absolute, relative = decomposition_error(G, g, U, p=p)
    lowered = xp.sort(g - relative * xp.abs(g) - absolute - gradient_error(p, normal.problem, alpha))
    plain = part * p.margin * float(xp.mean(alpha)) - p.conjugate(part * g)
    curve = DualCurve(to_numpy(lowered), float(xp.mean(alpha)), len(p.pairs), p.penalty, normal.margin)
    value, best = curve.at(normal.margin * p.gamma)
    return Bound(value / normal.margin, best, plain - value / normal.margin, relative, curve)


def objective_rounding(p: SpectralProblem, problem: PairProblem, M: Array, values: Array) -> float:
    """How far the computed F(M) can be from the exact one."""
    xp, d, n = p.xp, M.shape[0], p.pairs.X.shape[0]
    squares = xp.vecdot(p.pairs.X, p.pairs.X)
    reach = 4 * float(xp.sum(p.pairs.sums(xp.ones((len(p.pairs),), dtype=M.dtype, device=p.backend.device)) * squares))
    top = float(xp.max(values))
    penalty = p.gamma * float(xp.sum(xp.abs(p.penalty.value(values, xp=xp)))) if top > 0 else 0.0
    similar = float(xp.sum(xp.abs(p.C_S * M)))
    own = (d + PER_TERM) * (similar + reach / len(p.pairs) * top + penalty)
    return UNIT * (own + (n + PER_TERM) * problem.similar_size * float(xp.sum(values)))


def _norm(M: Array, p: SpectralProblem) -> float:
    """Frobenius norm, which bounds every eigenvalue."""
    return float(p.xp.sqrt(p.xp.sum(M * M)))
