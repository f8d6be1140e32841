"""Regularizers on the rows of A (k, D): Omega(A), smaller where rows are more diverse.

Every class gives Omega and its gradient together, because both need the same Gram matrix
G = A A' and, often, its eigendecomposition. All reduce over the last two axes: A may be one
matrix (k, D) or a stack of restarts (r, k, D), with one value per matrix.

Cosines s_ij belong to the normalised rows. A function of those alone has a gradient F with
respect to them; with respect to row i itself it is (F_i - (F_i . u_i) u_i) / ||a_i||, u_i = a_i / ||a_i||.
Logarithms and inverses see eigenvalues no smaller than 1e-10, so that rows which are linearly
dependent give finite values and a gradient that drives them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import array_api_compat

from solvers.backend import Array, Namespace, eigh

_SMALLEST_EIGENVALUE = 1e-10


class RowRegularizer:
    """Base: a subclass gives `value_and_gradient`.

    Attributes
    ----------
    nonnegative : whether Omega(A) >= 0 for every A and every choice of options.
    eigendecompositions : small (k, k) eigendecompositions that one evaluation of one matrix takes.
    curvature : roughly, how much gamma Omega bends alike in all directions, in units of gamma; solvers
        that scale their variables to the data use it.
    """

    nonnegative: ClassVar[bool] = False
    eigendecompositions: ClassVar[int] = 0
    curvature: ClassVar[float] = 1.0

    def value_and_gradient(self, A: Array, rounding: Array | None = None, *, xp: Namespace) -> tuple[Array, Array]:
        """Omega(A), shape (...), and its gradient, shape (..., k, D), for A (..., k, D).

        With `rounding` delta (...), |x| is taken as sqrt(x^2 + delta^2) - delta by those that use it:
        orthogonal rows are a kink of |x|, where a descent method would not move at all.
        """
        raise NotImplementedError

    def value(self, A: Array, *, xp: Namespace) -> Array:
        """Omega(A), shape (...)."""
        return self.value_and_gradient(A, xp=xp)[0]

    def gradient(self, A: Array, *, xp: Namespace) -> Array:
        """dOmega/dA, shape (..., k, D)."""
        return self.value_and_gradient(A, xp=xp)[1]


@dataclass(frozen=True)
class NoRowPenalty(RowRegularizer):
    """Omega(A) = 0: plain PDML."""

    nonnegative: ClassVar[bool] = True
    curvature: ClassVar[float] = 0.0

    def value_and_gradient(self, A: Array, rounding: Array | None = None, *, xp: Namespace) -> tuple[Array, Array]:
        return _total(xp.zeros_like(A), xp=xp), xp.zeros_like(A)


@dataclass(frozen=True)
class SquaredFrobenius(RowRegularizer):
    """SFN: Omega(A) = ||G - I||_F^2, zero at orthonormal rows."""

    nonnegative: ClassVar[bool] = True

    def value_and_gradient(self, A: Array, rounding: Array | None = None, *, xp: Namespace) -> tuple[Array, Array]:
        excess = _gram(A, xp=xp) - _identity(A, xp=xp)
        return _total(excess * excess, xp=xp), 4 * excess @ A


@dataclass(frozen=True)
class VonNeumann(RowRegularizer):
    """VND: Omega(A) = tr(G log G - G) + k, zero at orthonormal rows."""

    nonnegative: ClassVar[bool] = True
    eigendecompositions: ClassVar[int] = 1

    def value_and_gradient(self, A: Array, rounding: Array | None = None, *, xp: Namespace) -> tuple[Array, Array]:
        values, vectors = eigh(_gram(A, xp=xp), xp=xp)
        values = xp.clip(values, _SMALLEST_EIGENVALUE, None)
        logs = xp.log(values)
        return xp.sum(values * (logs - 1) + 1, axis=-1), 2 * _spectral(vectors, logs, A, xp=xp)


@dataclass(frozen=True)
class LogDeterminant(RowRegularizer):
    """LDD: Omega(A) = tr G - log det G - k, zero at orthonormal rows."""

    nonnegative: ClassVar[bool] = True
    eigendecompositions: ClassVar[int] = 1

    def value_and_gradient(self, A: Array, rounding: Array | None = None, *, xp: Namespace) -> tuple[Array, Array]:
        values, vectors = eigh(_gram(A, xp=xp), xp=xp)
        values = xp.clip(values, _SMALLEST_EIGENVALUE, None)
        gradient = 2 * _spectral(vectors, 1 - 1 / values, A, xp=xp)
        return xp.sum(values - xp.log(values) - 1, axis=-1), gradient


@dataclass(frozen=True)
class DeterminantOfCovariance(RowRegularizer):
    """DC: Omega(A) = -log det(A P A' / D + delta I), P = I - 11'/D: covariance of rows over coordinates.

    Unbounded below as A grows; the data term is what bounds it.
    """

    delta: float = 1e-6
    eigendecompositions: ClassVar[int] = 1

    def value_and_gradient(self, A: Array, rounding: Array | None = None, *, xp: Namespace) -> tuple[Array, Array]:
        D = A.shape[-1]
        centred = A - xp.mean(A, axis=-1, keepdims=True)
        value, inverse_times = _minus_log_det(_gram(centred, xp=xp) / D, self.delta, centred, xp=xp)
        return value, -2 / D * inverse_times


@dataclass(frozen=True)
class CosineSimilarity(RowRegularizer):
    """CS: Omega(A) = sum_{i<j} s_ij, or |s_ij| with `absolute`.

    The signed form is smallest, -k/2, at rows that point away from each other, not at orthogonal ones.
    """

    absolute: bool = False
    curvature: ClassVar[float] = 0.0

    def value_and_gradient(self, A: Array, rounding: Array | None = None, *, xp: Namespace) -> tuple[Array, Array]:
        units, norms = _normalize(A, xp=xp)
        cosines = _off_diagonal(_gram(units, xp=xp), xp=xp)
        sizes, slopes = cosines, xp.ones_like(cosines)
        if self.absolute:
            sizes, slopes = _absolute(cosines, rounding, xp=xp)
        slopes = _off_diagonal(slopes, xp=xp)
        value = _total(_off_diagonal(sizes, xp=xp), xp=xp) / 2
        return value, _through_units(slopes @ units, units, norms, xp=xp)


@dataclass(frozen=True)
class DeterminantalPointProcess(RowRegularizer):
    """DPP: Omega(A) = -log det(K + delta I) of a kernel between rows.

    linear: K = G, feels the scale of rows. cosine: K_ij = s_ij.
    rbf: K_ij = exp(-||a_i - a_j||^2 / 2 bandwidth^2), no delta, promotes spread rather than orthogonality.
    """

    kernel: str = "linear"
    bandwidth: float = 1.0
    delta: float = 1e-6
    eigendecompositions: ClassVar[int] = 1

    def value_and_gradient(self, A: Array, rounding: Array | None = None, *, xp: Namespace) -> tuple[Array, Array]:
        if self.kernel == "linear":
            value, inverse_times = _minus_log_det(_gram(A, xp=xp), self.delta, A, xp=xp)
            return value, -2 * inverse_times
        if self.kernel == "cosine":
            units, norms = _normalize(A, xp=xp)
            value, inverse_times = _minus_log_det(_gram(units, xp=xp), self.delta, units, xp=xp)
            return value, _through_units(-2 * inverse_times, units, norms, xp=xp)
        G = _gram(A, xp=xp)
        squares = xp.linalg.diagonal(G)
        squared_distances = squares[..., :, None] + squares[..., None, :] - 2 * G
        K = xp.exp(-xp.clip(squared_distances, 0.0, None) / (2 * self.bandwidth**2))
        identity = xp.broadcast_to(_identity(A, xp=xp), K.shape)
        value, inverse = _minus_log_det(K, 0.0, identity, xp=xp)
        W = inverse * K
        pulled = xp.sum(W, axis=-1, keepdims=True) * A - W @ A
        return value, 2 / self.bandwidth**2 * pulled


@dataclass(frozen=True)
class Incoherence(RowRegularizer):
    """IC: the largest |s_ij|, softly.

    lse: Omega(A) = 1/beta log mean_{i!=j} exp(beta |s_ij|), zero at orthogonal rows.
    pow: Omega(A) = 1/beta log(mean_{i!=j} |s_ij|^beta + delta), bounded below through delta only.
    """

    form: str = "lse"
    beta: float = 50.0
    delta: float = 1e-6
    curvature: ClassVar[float] = 0.1

    def value_and_gradient(self, A: Array, rounding: Array | None = None, *, xp: Namespace) -> tuple[Array, Array]:
        k = A.shape[-2]
        if k == 1:
            return _total(xp.zeros_like(A), xp=xp), xp.zeros_like(A)
        units, norms = _normalize(A, xp=xp)
        cosines = _off_diagonal(_gram(units, xp=xp), xp=xp)
        (sizes, signs), count = _absolute(cosines, rounding, xp=xp), k * (k - 1)
        if self.form == "lse":
            # A cosine is at most 1: taken out of the exponent, it cannot overflow.
            terms = _off_diagonal(xp.exp(self.beta * (sizes - 1)), xp=xp)
            mean = _total(terms, xp=xp) / count
            value = 1 + xp.log(mean) / self.beta
        else:
            terms = _off_diagonal(sizes ** (self.beta - 1), xp=xp)
            mean = _total(terms * sizes, xp=xp) / count + self.delta
            value = xp.log(mean) / self.beta
        slopes = terms * signs / (count * mean[..., None, None])
        return value, _through_units(2 * slopes @ units, units, norms, xp=xp)


@dataclass(frozen=True)
class Decorrelation(RowRegularizer):
    """DeC: Omega(A) = 1/2 sum_{i!=j} C_ij^2, C = A S A' with S the covariance of the inputs.

    `root` (..., q, D) has root' root = S. Zero where projected inputs are uncorrelated.
    """

    root: Array
    nonnegative: ClassVar[bool] = True
    curvature: ClassVar[float] = 0.0

    def value_and_gradient(self, A: Array, rounding: Array | None = None, *, xp: Namespace) -> tuple[Array, Array]:
        projected = A @ xp.matrix_transpose(self.root)
        C = _off_diagonal(_gram(projected, xp=xp), xp=xp)
        return _total(C * C, xp=xp) / 2, 2 * (C @ projected) @ self.root


@dataclass(frozen=True)
class VariationalGram(RowRegularizer):
    """VGF: Omega(A) = sum_ij K_ij |a_i . a_j|, K_ij = 1 off the diagonal, `diagonal` on it (None: k - 1).

    Convex in A where the matrix with K_ii on and -K_ij off its diagonal is positive semidefinite,
    which holds from k - 1 on.
    """

    diagonal: float | None = None
    nonnegative: ClassVar[bool] = True

    def value_and_gradient(self, A: Array, rounding: Array | None = None, *, xp: Namespace) -> tuple[Array, Array]:
        k = A.shape[-2]
        on_diagonal = float(k - 1) if self.diagonal is None else self.diagonal
        G = _gram(A, xp=xp)
        sizes, signs = _absolute(G, rounding, xp=xp)
        weights = 1 + (on_diagonal - 1) * _identity(A, xp=xp)
        return _total(weights * sizes, xp=xp), 2 * (weights * signs) @ A


@dataclass(frozen=True)
class MutualAngles(RowRegularizer):
    """MA: Omega(A) = -(mean - variance) over i < j of the angles arccos |s_ij|; -pi/2 at orthogonal rows."""

    curvature: ClassVar[float] = 0.1

    def value_and_gradient(self, A: Array, rounding: Array | None = None, *, xp: Namespace) -> tuple[Array, Array]:
        k = A.shape[-2]
        if k == 1:
            return _total(xp.zeros_like(A), xp=xp), xp.zeros_like(A)
        units, norms = _normalize(A, xp=xp)
        cosines = _gram(units, xp=xp)
        sizes, signs = _absolute(cosines, rounding, xp=xp)
        # The slope of arccos is infinite at parallel rows.
        sizes = xp.clip(sizes, None, 1 - (1e-12 if A.dtype == xp.float64 else 1e-6))
        angles, count = _off_diagonal(xp.acos(sizes), xp=xp), k * (k - 1)
        mean = _total(angles, xp=xp) / count
        deviations = _off_diagonal(angles - mean[..., None, None], xp=xp)
        variance = _total(deviations * deviations, xp=xp) / count
        slopes = (1 - 2 * deviations) * signs / xp.sqrt(1 - sizes * sizes)
        gradient = _through_units(_off_diagonal(slopes, xp=xp) @ units * (2 / count), units, norms, xp=xp)
        return variance - mean, gradient


ROWS: dict[str, type[RowRegularizer]] = {
    "none": NoRowPenalty,
    "sfn": SquaredFrobenius,
    "vnd": VonNeumann,
    "ldd": LogDeterminant,
    "dc": DeterminantOfCovariance,
    "cs": CosineSimilarity,
    "dpp": DeterminantalPointProcess,
    "ic": Incoherence,
    "dec": Decorrelation,
    "vgf": VariationalGram,
    "ma": MutualAngles,
}


def _total(matrices: Array, *, xp: Namespace) -> Array:
    return xp.sum(matrices, axis=(-2, -1))


def _gram(A: Array, *, xp: Namespace) -> Array:
    return A @ xp.matrix_transpose(A)


def _identity(A: Array, *, xp: Namespace) -> Array:
    return xp.eye(A.shape[-2], dtype=A.dtype, device=array_api_compat.device(A))


def _off_diagonal(K: Array, *, xp: Namespace) -> Array:
    return K * (1 - _identity(K, xp=xp))


def _absolute(K: Array, rounding: Array | None, *, xp: Namespace) -> tuple[Array, Array]:
    """|K| and its slope, or their smooth form for rounding (...)."""
    if rounding is None:
        return xp.abs(K), xp.sign(K)
    delta = rounding[..., None, None]
    hypotenuse = xp.sqrt(K * K + delta * delta)
    return hypotenuse - delta, K / hypotenuse


def _spectral(vectors: Array, values: Array, A: Array, *, xp: Namespace) -> Array:
    """U diag(values) U' A."""
    return vectors @ (values[..., :, None] * (xp.matrix_transpose(vectors) @ A))


def _minus_log_det(K: Array, delta: float, A: Array, *, xp: Namespace) -> tuple[Array, Array]:
    """-log det(K + delta I) and (K + delta I)^-1 A."""
    values, vectors = eigh(K, xp=xp)
    values = xp.clip(values + delta, _SMALLEST_EIGENVALUE, None)
    return -xp.sum(xp.log(values), axis=-1), _spectral(vectors, 1 / values, A, xp=xp)


def _normalize(A: Array, *, xp: Namespace) -> tuple[Array, Array]:
    """Rows of length one, and the lengths (..., k, 1)."""
    norms = xp.sqrt(xp.sum(A * A, axis=-1, keepdims=True))
    norms = xp.clip(norms, 1e-30, None)  # a zero row has no direction; keep it finite
    return A / norms, norms


def _through_units(F: Array, units: Array, norms: Array, *, xp: Namespace) -> Array:
    """Gradient with respect to rows from the gradient F with respect to rows of length one."""
    return (F - xp.sum(F * units, axis=-1, keepdims=True) * units) / norms
