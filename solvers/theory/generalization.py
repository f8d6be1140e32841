"""Theorem 2: how far the error on unseen pairs can exceed the error on the training pairs.

The hypothesis class is {M psd : Omega-hat(M) <= C} for one of the convex regularizers with all its
constants. The corrected bound holds for independent pairs; pairs drawn from n points are not, so
its value is nominal.
"""

from __future__ import annotations

import math

import numpy as np

from solvers.regularizers.spectral import SPECTRAL

CONVEX = ("csfn", "cvnd", "cldd")


def omega_hat(regularizer: str, eigenvalues: np.ndarray, *, epsilon: float = 1e-5) -> float:
    """The convex regularizer of M with its constants, from all D eigenvalues of M.

    csfn: ||M - I||_F^2 + tr M; cvnd: Gamma_vnd(M + eps I, I) + tr M;
    cldd: Gamma_ldd(M + eps I, I) - (1 + log eps) tr M.
    """
    _check(regularizer)
    penalty = SPECTRAL[regularizer]() if regularizer == "csfn" else SPECTRAL[regularizer](epsilon=epsilon)
    constant = {"csfn": 0.0, "cvnd": 1 - epsilon, "cldd": epsilon - 1}[regularizer]
    values = penalty.value(np.clip(eigenvalues, 0.0, None), xp=np)
    return float(np.sum(values) + eigenvalues.size * constant)


def omega_hat_at_zero(regularizer: str, n_features: int, *, epsilon: float = 1e-5) -> float:
    """Omega-hat(0). Plus margin / gamma, it bounds Omega-hat of the optimum before any data are seen."""
    return omega_hat(regularizer, np.zeros(n_features), epsilon=epsilon)


def trace_bound(regularizer: str, C: float, *, epsilon: float = 1e-5) -> float:
    """T: the trace of M is at most this wherever Omega-hat(M) <= C."""
    _check(regularizer)
    return C / (math.log(1 / epsilon) - 1) if regularizer == "cldd" else C


def error_bound(
    regularizer: str,
    C: float,
    *,
    radius: float,
    margin: float,
    n_similar: int,
    n_dissimilar: int,
    epsilon: float = 1e-5,
    delta: float = 0.05,
) -> float:
    """Corrected bound on L(M) - L-hat(M), with probability at least 1 - delta.

    2 B^2 T' sqrt(1/|S| + 1/|D|) + sqrt(log(1/delta) (B^4 T^2 / |S| + margin^2 / |D|) / 2),
    where T' is min(C, sqrt C) for csfn and T otherwise.

    Parameters
    ----------
    radius : B, at least the norm of every difference of a pair, similar or dissimilar.
    """
    T = trace_bound(regularizer, C, epsilon=epsilon)
    complexity = min(C, math.sqrt(C)) if regularizer == "csfn" else T
    spread = math.sqrt(1 / n_similar + 1 / n_dissimilar)
    deviation = (radius**2 * T) ** 2 / n_similar + margin**2 / n_dissimilar
    return 2 * radius**2 * complexity * spread + math.sqrt(math.log(1 / delta) * deviation / 2)


def error_bound_published(
    regularizer: str,
    C: float,
    *,
    radius: float,
    margin: float,
    n_pairs: int,
    n_features: int,
    epsilon: float = 1e-5,
    delta: float = 0.05,
) -> float:
    """The bound as printed, for m = `n_pairs` in all; `radius` is B over similar pairs only there.

    It lacks a factor B^2 in the maximum for cldd and csfn, takes a trace bound for cldd that does
    not hold, and is short by 2 in the first term for csfn.
    """
    _check(regularizer)
    tilt = math.log(1 / epsilon) - 1
    if regularizer == "cvnd":
        first, largest = 4 * radius**2 * C, radius**2 * C
    elif regularizer == "cldd":
        first, largest = 4 * radius**2 * C / tilt, (C - n_features * epsilon) / tilt
    else:
        first, largest = 2 * radius**2 * min(2 * C, math.sqrt(C)), C
    return (first + max(margin, largest) * math.sqrt(2 * math.log(1 / delta))) / math.sqrt(n_pairs)


def pair_radius(distances: np.ndarray) -> float:
    """Upper bound on the distance of two points from their distances (n,) to any one point."""
    two = np.sort(distances)[-2:]
    return float(two[0] + two[1]) if two.size == 2 else 0.0


def _check(regularizer: str) -> None:
    if regularizer not in CONVEX:
        raise ValueError(f"regularizer: expected one of {', '.join(CONVEX)}, got {regularizer!r}")
