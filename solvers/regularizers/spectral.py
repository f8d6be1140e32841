"""Regularizers on the eigenvalues of M: Omega(M) = sum_j h(lambda_j).

Each class gives h and, for the certificate, the pieces of duality. With M = U diag(x) U' the
prox acts on eigenvalues alone:

    prox solves  argmin_{x >= 0}  step * h(x) + 1/2 (x - l)^2 ,

and since h is convex the answer is max(0, stationary point). The conjugate is taken over x >= 0:
h*(y) = max_{x >= 0} x y - h(x), attained at `maximizer(y)`, finite for y < `dual_limit`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from solvers.backend import Array, Namespace, wright_omega


@runtime_checkable
class Spectral(Protocol):
    """A regularizer on eigenvalues: what every solver needs of it."""

    @property
    def dual_limit(self) -> float:
        """Largest y that a dual point may use; h*(y) is finite below it."""

    @property
    def slope_at_zero(self) -> float:
        """h'(0+): an eigenvalue of M* is zero where the gradient's is >= -gamma h'(0)."""

    def value(self, x: Array, *, xp: Namespace) -> Array:
        """h(x), elementwise."""

    def slope(self, x: Array, *, xp: Namespace) -> Array:
        """h'(x), elementwise, for x >= 0."""

    def prox(self, l: Array, step: float, *, xp: Namespace) -> Array:
        """argmin_{x >= 0} step h(x) + (x - l)^2 / 2, elementwise."""

    def maximizer(self, y: Array, *, xp: Namespace) -> Array:
        """argmax_{x >= 0} x y - h(x), elementwise, for y below `dual_limit`."""


@runtime_checkable
class SmoothConjugate(Spectral, Protocol):
    """One that is strictly convex: its conjugate is smooth, so that the dual has a Hessian."""

    def curvature(self, x: Array, *, xp: Namespace) -> Array:
        """h''(x), elementwise; `maximizer` grows by its inverse where it is positive."""


@runtime_checkable
class Linear(Spectral, Protocol):
    """h(x) = weight x."""

    @property
    def weight(self) -> float:
        """The slope."""


@dataclass(frozen=True)
class NoPenalty:
    """h(x) = 0: plain MDML."""

    weight: float = 0.0
    dual_limit: float = 0.0
    slope_at_zero: float = 0.0

    def value(self, x: Array, *, xp: Namespace) -> Array:
        return xp.zeros_like(x)

    def slope(self, x: Array, *, xp: Namespace) -> Array:
        return xp.zeros_like(x)

    def prox(self, l: Array, step: float, *, xp: Namespace) -> Array:
        return xp.clip(l, 0.0, None)

    def maximizer(self, y: Array, *, xp: Namespace) -> Array:
        return xp.zeros_like(y)


@dataclass(frozen=True)
class ConvexSFN:
    """Convex squared Frobenius norm: h(x) = (x - 1)^2 + x, smallest at 1/2."""

    dual_limit: float = math.inf
    slope_at_zero: float = -1.0

    def value(self, x: Array, *, xp: Namespace) -> Array:
        return (x - 1) ** 2 + x

    def slope(self, x: Array, *, xp: Namespace) -> Array:
        return 2 * x - 1

    def prox(self, l: Array, step: float, *, xp: Namespace) -> Array:
        return xp.clip((l + step) / (1 + 2 * step), 0.0, None)

    def maximizer(self, y: Array, *, xp: Namespace) -> Array:
        return xp.clip((y + 1) / 2, 0.0, None)

    def curvature(self, x: Array, *, xp: Namespace) -> Array:
        return xp.full_like(x, 2.0)


@dataclass(frozen=True)
class ConvexVND:
    """Convex von Neumann divergence: h(x) = (x + eps) log(x + eps), smallest at 1/e - eps."""

    epsilon: float = 1e-5
    # h* is finite everywhere, but grows like exp(y): past this no bound is of use, and 1e13 overflows soon.
    dual_limit: float = 31.0

    @property
    def slope_at_zero(self) -> float:
        return 1 + math.log(self.epsilon)

    def value(self, x: Array, *, xp: Namespace) -> Array:
        return (x + self.epsilon) * xp.log(x + self.epsilon)

    def slope(self, x: Array, *, xp: Namespace) -> Array:
        return xp.log(x + self.epsilon) + 1

    def prox(self, l: Array, step: float, *, xp: Namespace) -> Array:
        shifted = (self.epsilon - step + l) / step - math.log(step)
        return xp.clip(step * wright_omega(shifted, xp=xp) - self.epsilon, 0.0, None)

    def maximizer(self, y: Array, *, xp: Namespace) -> Array:
        return xp.clip(xp.exp(y - 1) - self.epsilon, 0.0, None)

    def curvature(self, x: Array, *, xp: Namespace) -> Array:
        return 1 / (x + self.epsilon)


@dataclass(frozen=True)
class ConvexLDD:
    """Convex log-determinant divergence: h(x) = -log(x + eps) + log(1/eps) x, smallest at 1/log(1/eps) - eps.

    `printed` uses the paper's own prox, whose constant has the wrong sign (errata E1): it
    thresholds small eigenvalues away and does not minimise anything.
    """

    epsilon: float = 1e-5
    printed: bool = False

    @property
    def _tilt(self) -> float:
        return -math.log(self.epsilon)

    @property
    def dual_limit(self) -> float:
        return self._tilt

    @property
    def slope_at_zero(self) -> float:
        return self._tilt - 1 / self.epsilon

    def value(self, x: Array, *, xp: Namespace) -> Array:
        return self._tilt * x - xp.log(x + self.epsilon)

    def slope(self, x: Array, *, xp: Namespace) -> Array:
        return self._tilt - 1 / (x + self.epsilon)

    def prox(self, l: Array, step: float, *, xp: Namespace) -> Array:
        # Stationarity is x^2 + a x + b = 0; the larger root, in the form without cancellation.
        sign = -1 if self.printed else 1
        a = self.epsilon - l + step * self._tilt
        b = -self.epsilon * l - step * (1 + sign * self.epsilon * math.log(self.epsilon))
        root = xp.sqrt(xp.clip(a * a - 4 * b, 0.0, None))
        positive_a = xp.where(a > 0, a, xp.zeros_like(a))
        stationary = xp.where(a <= 0, (root - a) / 2, -2 * b / (positive_a + root))
        return xp.clip(stationary, 0.0, None)

    def maximizer(self, y: Array, *, xp: Namespace) -> Array:
        return xp.clip(1 / (self._tilt - y) - self.epsilon, 0.0, None)

    def curvature(self, x: Array, *, xp: Namespace) -> Array:
        return 1 / (x + self.epsilon) ** 2


@dataclass(frozen=True)
class SquaredL2:
    """h(x) = x^2, that is ||M||_F^2."""

    dual_limit: float = math.inf
    slope_at_zero: float = 0.0

    def value(self, x: Array, *, xp: Namespace) -> Array:
        return x * x

    def slope(self, x: Array, *, xp: Namespace) -> Array:
        return 2 * x

    def prox(self, l: Array, step: float, *, xp: Namespace) -> Array:
        return xp.clip(l / (1 + 2 * step), 0.0, None)

    def maximizer(self, y: Array, *, xp: Namespace) -> Array:
        return xp.clip(y / 2, 0.0, None)

    def curvature(self, x: Array, *, xp: Namespace) -> Array:
        return xp.full_like(x, 2.0)


@dataclass(frozen=True)
class TraceNorm:
    """h(x) = x, that is tr(M) on the psd cone: the one that lowers rank."""

    weight: float = 1.0
    dual_limit: float = 1.0
    slope_at_zero: float = 1.0

    def value(self, x: Array, *, xp: Namespace) -> Array:
        return x

    def slope(self, x: Array, *, xp: Namespace) -> Array:
        return xp.ones_like(x)

    def prox(self, l: Array, step: float, *, xp: Namespace) -> Array:
        return xp.clip(l - step, 0.0, None)

    def maximizer(self, y: Array, *, xp: Namespace) -> Array:
        return xp.zeros_like(y)


@dataclass(frozen=True)
class InformationTheoretic:
    """h(x) = x - log x, the log-determinant divergence to I up to a constant; keeps M positive definite."""

    dual_limit: float = 1.0
    slope_at_zero: float = -math.inf

    def value(self, x: Array, *, xp: Namespace) -> Array:
        positive = x > 0
        logarithm = xp.log(xp.where(positive, x, xp.ones_like(x)))
        return xp.where(positive, x - logarithm, xp.full_like(x, math.inf))

    def slope(self, x: Array, *, xp: Namespace) -> Array:
        return 1 - 1 / x

    def prox(self, l: Array, step: float, *, xp: Namespace) -> Array:
        shifted = l - step
        root = xp.sqrt(shifted * shifted + 4 * step)
        # For a negative l the sum cancels; the product of the two roots is -step.
        positive = xp.where(shifted > 0, shifted, xp.zeros_like(shifted))
        return xp.where(shifted > 0, (positive + root) / 2, 2 * step / (root - xp.clip(shifted, None, 0.0)))

    def maximizer(self, y: Array, *, xp: Namespace) -> Array:
        return 1 / (1 - y)

    def curvature(self, x: Array, *, xp: Namespace) -> Array:
        return 1 / x**2


@dataclass(frozen=True)
class Scaled:
    """h(scale x): the regularizer `base` in a problem whose eigenvalues are measured in units of `scale`."""

    base: SmoothConjugate
    scale: float

    @property
    def dual_limit(self) -> float:
        return self.scale * self.base.dual_limit

    @property
    def slope_at_zero(self) -> float:
        return self.scale * self.base.slope_at_zero

    def value(self, x: Array, *, xp: Namespace) -> Array:
        return self.base.value(self.scale * x, xp=xp)

    def slope(self, x: Array, *, xp: Namespace) -> Array:
        return self.scale * self.base.slope(self.scale * x, xp=xp)

    def prox(self, l: Array, step: float, *, xp: Namespace) -> Array:
        return self.base.prox(self.scale * l, self.scale * self.scale * step, xp=xp) / self.scale

    def maximizer(self, y: Array, *, xp: Namespace) -> Array:
        return self.base.maximizer(y / self.scale, xp=xp) / self.scale

    def curvature(self, x: Array, *, xp: Namespace) -> Array:
        return self.scale * self.scale * self.base.curvature(self.scale * x, xp=xp)


SPECTRAL: dict[str, type] = {
    "none": NoPenalty,
    "csfn": ConvexSFN,
    "cvnd": ConvexVND,
    "cldd": ConvexLDD,
    "l2": SquaredL2,
    "tr": TraceNorm,
    "it": InformationTheoretic,
}
