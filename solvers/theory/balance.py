"""Theorem 1: how far apart the largest and the smallest distance between class means can be.

The imbalance factor of a metric is bounded by C, its value under Euclidean distance, times the
condition number of A A', and that by a function of an orthogonality-promoting regularizer of A.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.optimize

# A mean difference counts as inside the row space of A if at most this share of it sticks out.
ROW_SPACE_TOL = 1e-6


@dataclass(frozen=True)
class NonConvexValues:
    """The non-convex regularizers of a projection matrix A (R, D), all 0 at orthonormal rows."""

    sfn: float  # ||A A' - I||_F^2
    vnd: float  # tr(A A' log(A A') - A A') + R
    ldd: float  # tr(A A') - logdet(A A') - R; infinite without full row rank


def non_convex_values(eigenvalues: np.ndarray) -> NonConvexValues:
    """SFN, VND and LDD from the eigenvalues (R,) of A A'."""
    positive = np.clip(eigenvalues, 0.0, None)
    with np.errstate(divide="ignore"):
        log = np.log(positive)
    product = positive * np.where(positive > 0, log, 0.0)
    return NonConvexValues(
        sfn=float(np.sum((positive - 1) ** 2)),
        vnd=float(np.sum(product - positive + 1)),
        ldd=float(np.sum(positive - log - 1)),
    )


def condition_bound_sfn(omega: float) -> float:
    """Largest condition number of A A' with SFN(A) = omega; infinite from 1 on. Tight; not in the paper."""
    if omega >= 1:
        return math.inf
    high, low = math.sqrt(2 - omega), math.sqrt(max(omega, 0.0))
    return (high + low) / (high - low)


def condition_bound_vnd(omega: float) -> float:
    """Largest condition number of A A' with VND(A) = omega; infinite from 1 on. Tight, as published.

    It is the c >= 1 with f(c) = c^(1/(c+1)) (1 + 1/c) = 2 - omega.
    """
    if omega <= 0:
        return 1.0

    def excess(log_c: float) -> float:  # f(c) - 1 - (1 - omega), without cancellation at large c
        c = math.exp(log_c)
        return math.expm1(log_c / (c + 1)) + math.exp(log_c / (c + 1)) / c - (1 - omega)

    largest = 80.0  # f(c) - 1 is about log(c) / c: beyond this c, omega is 1 in double precision
    if excess(largest) >= 0:
        return math.inf
    return math.exp(scipy.optimize.brentq(excess, 0.0, largest, xtol=1e-14))


def condition_bound_ldd(omega: float) -> float:
    """Largest condition number of A A' with LDD(A) = omega: (sqrt(e^omega) + sqrt(e^omega - 1))^2. Tight."""
    if omega > 600:  # past the range of double precision soon, and of any use long ago
        return math.inf
    return (math.exp(omega / 2) + math.sqrt(max(math.expm1(omega), 0.0))) ** 2


def condition_bound_ldd_published(omega: float) -> float:
    """The paper's looser 4 e^omega, which is 4 where the condition number is 1."""
    return math.inf if omega > 600 else 4 * math.exp(omega)


def distance_ratio(means: np.ndarray) -> float:
    """Largest over smallest squared distance among class means (K, R), K >= 2; infinite if two coincide."""
    largest, smallest = _extreme_distances(means)
    return largest / smallest if smallest > 0 else math.inf


def _extreme_distances(points: np.ndarray) -> tuple[float, float]:
    """Largest and smallest squared distance among rows (K, R) that differ in index."""
    centred = points - points.mean(axis=0)
    norms = np.sum(centred * centred, axis=1)
    distance = norms[:, None] + norms[None, :] - 2 * centred @ centred.T
    extremes = []
    for fill, find in ((-np.inf, np.argmax), (np.inf, np.argmin)):
        np.fill_diagonal(distance, fill)
        j, k = divmod(int(find(distance)), points.shape[0])
        difference = points[j] - points[k]  # once more without cancellation
        extremes.append(float(difference @ difference))
    return extremes[0], extremes[1]


@dataclass(frozen=True)
class ClassGeometry:
    """What Theorem 1 asks of the classes alone.

    `noise` is the paper's xi: the largest mean distance of a class's points from their mean as
    printed, the root of the largest mean squared distance as corrected (what the proof uses).
    `feature_value` is beta_{K-1}: the printed definition (argmin) picks the largest eigenvalue of
    the weighted scatter of mean differences, the corrected one (argmax) the (K-1)-th largest.
    """

    means: np.ndarray  # (K, D)
    mean_ratio: float  # C
    largest_difference: float  # B_0, plain distance
    noise: float
    noise_published: float
    feature_value: float
    feature_value_published: float

    def noise_limit(self, eigenvalues: np.ndarray, *, published: bool = False) -> float:
        """Upper limit on `noise` for a metric with these eigenvalues (R,) of A A'; 0 if R < K - 1."""
        n_needed = self.means.shape[0] - 1
        if eigenvalues.size < n_needed:
            return 0.0
        kth = np.sort(eigenvalues)[::-1][n_needed - 1]
        beta = self.feature_value_published if published else self.feature_value
        gain = max(float(kth), 0.0) * beta / (2 * float(np.sum(eigenvalues)) or math.inf)
        b0 = self.largest_difference
        # (sqrt(b0^2 + gain) - b0) / 4 without cancellation for small gains
        return gain / (4 * (math.sqrt(b0 * b0 + gain) + b0)) if gain > 0 else 0.0


def class_geometry(means: np.ndarray, counts: np.ndarray, noise: float, noise_published: float) -> ClassGeometry:
    """Geometry of classes with means (K, D) and sizes (K,); K >= 2."""
    share = counts / counts.sum()
    centred = means - share @ means
    # sum_{j != k} p_jk (mu_j - mu_k)(mu_j - mu_k)' is twice the weighted covariance of the means.
    weighted = centred * np.sqrt(2 * share / (1 - np.sum(share**2)))[:, None]
    gram = weighted @ weighted.T if means.shape[0] <= means.shape[1] else weighted.T @ weighted
    eigenvalues = np.linalg.eigvalsh(gram)[::-1]
    n_needed = means.shape[0] - 1
    top = float(eigenvalues[0])
    beta = float(eigenvalues[n_needed - 1]) if eigenvalues.size >= n_needed else 0.0
    # Below rounding the means span fewer than K - 1 dimensions, and the feature value is zero.
    spans = beta > eigenvalues.size * np.finfo(np.float64).eps * top
    return ClassGeometry(
        means=means,
        mean_ratio=distance_ratio(means),
        largest_difference=math.sqrt(_extreme_distances(means)[0]),
        noise=noise,
        noise_published=noise_published,
        feature_value=beta if spans else 0.0,
        feature_value_published=top if spans else 0.0,
    )


def row_space_residual(means: np.ndarray, basis: np.ndarray) -> float:
    """Largest share of a class mean (from the mean of means) outside the span of `basis` (R, D) rows.

    Zero if and only if every difference of means is in the row space. The rows are orthonormal.
    """
    centred = means - means.mean(axis=0)
    outside = centred - (centred @ basis.T) @ basis
    scale = float(np.max(np.linalg.norm(centred, axis=1)))
    return float(np.max(np.linalg.norm(outside, axis=1))) / scale if scale > 0 else 0.0
