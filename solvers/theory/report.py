"""Both theorems for one fitted metric, as flat numbers to record."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from solvers.backend import Array, choose_backend, is_host_data, to_numpy
from solvers.pairs import class_means
from solvers.theory.balance import (
    ROW_SPACE_TOL,
    ClassGeometry,
    class_geometry,
    condition_bound_ldd,
    condition_bound_ldd_published,
    condition_bound_sfn,
    condition_bound_vnd,
    distance_ratio,
    non_convex_values,
    row_space_residual,
)
from solvers.theory.generalization import (
    CONVEX,
    error_bound,
    error_bound_published,
    omega_hat,
    omega_hat_at_zero,
    pair_radius,
    trace_bound,
)

Value = float | bool | None


def theory_report(
    L: Array,
    X: Array,
    y: Any,
    *,
    regularizer: str,
    gamma: float,
    margin: float,
    epsilon: float,
    n_similar: int,
    n_dissimilar: int,
    M: Array | None = None,
    delta: float = 0.05,
) -> dict[str, Value]:
    """Theorem 1 and Theorem 2 at a fitted metric, as published and as corrected.

    Parameters
    ----------
    L : (R, D) projection of the fit (`components_`): Theorem 1 and the non-convex values are its own.
    X, y : (n, D), (n,) training data.
    regularizer, gamma, margin, epsilon : those of the fit; Theorem 2 knows csfn, cvnd and cldd.
    n_similar, n_dissimilar : numbers of training pairs.
    M : (D, D) exact Mahalanobis matrix where L dropped small eigenvalues; L'L if not given.
    delta : the bound of Theorem 2 holds with probability 1 - delta.

    Returns
    -------
    dict
        Names begin with `theory.`. None stands for infinite or not defined: no finite bound.
    """
    factor = to_numpy(L).astype(np.float64)
    geometry, radius, similar_radius = _measure(X, _class_codes(y))
    report = _balance(factor, geometry, margin)
    if regularizer in CONVEX:
        spectrum = _spectrum(factor) if M is None else np.linalg.eigvalsh(to_numpy(M).astype(np.float64))
        n_features = factor.shape[1]
        report |= _generalization(
            regularizer,
            C=omega_hat(regularizer, spectrum, epsilon=epsilon),
            C_ahead=omega_hat_at_zero(regularizer, n_features, epsilon=epsilon)
            + (margin / gamma if gamma > 0 else math.inf),
            n_features=n_features,
            radius=radius,
            similar_radius=similar_radius,
            margin=margin,
            epsilon=epsilon,
            n_similar=n_similar,
            n_dissimilar=n_dissimilar,
            delta=delta,
        )
    return {f"theory.{name}": _recordable(value) for name, value in report.items()}


def imbalance_factor(L: Array, X: Array, y: Any) -> float:
    """Largest over smallest squared distance ||L (mu_j - mu_k)||^2 between the class means of X.

    At least 1; infinite if two classes coincide under L (R, D).
    """
    geometry, _, _ = _measure(X, _class_codes(y))
    return distance_ratio(geometry.means @ to_numpy(L).T)


def _class_codes(y: Any) -> np.ndarray:
    classes, codes = np.unique(to_numpy(y), return_inverse=True)
    if classes.size < 2:
        raise ValueError("theory: y has one class only, so no distance between classes exists")
    return codes


def _measure(X: Array, codes: np.ndarray) -> tuple[ClassGeometry, float, float]:
    """Geometry of the classes; bounds on ||z|| over all pairs, and over pairs of one class."""
    backend = choose_backend(X, "cpu" if is_host_data(X) else "auto")
    xp, points = backend.xp, backend.asarray(X)
    counts = np.bincount(codes)
    own_mean = class_means(points, codes, backend=backend)
    _, first = np.unique(codes, return_index=True)
    means = to_numpy(xp.take(own_mean, backend.indices(first), axis=0)).astype(np.float64)
    from_class = to_numpy(xp.linalg.vector_norm(points - own_mean, axis=1)).astype(np.float64)
    from_centre = to_numpy(xp.linalg.vector_norm(points - xp.mean(points, axis=0), axis=1)).astype(np.float64)
    geometry = class_geometry(
        means,
        counts,
        noise=math.sqrt(float(np.max(np.bincount(codes, weights=from_class**2) / counts))),
        noise_published=float(np.max(np.bincount(codes, weights=from_class) / counts)),
    )
    # The two points of each class that are farthest from its mean.
    order = np.lexsort((from_class, codes))
    last = np.cumsum(counts)[counts > 1] - 1
    within = from_class[order[last]] + from_class[order[last - 1]]
    return geometry, pair_radius(from_centre), float(within.max()) if within.size else 0.0


def _balance(factor: np.ndarray, geometry: ClassGeometry, margin: float) -> dict[str, Value]:
    """Theorem 1."""
    eigenvalues, vectors = np.linalg.eigh(factor @ factor.T)
    kept = eigenvalues > eigenvalues.size * np.finfo(np.float64).eps * max(float(eigenvalues[-1]), 0.0)
    basis = (vectors[:, kept] / np.sqrt(eigenvalues[kept])).T @ factor
    values = non_convex_values(eigenvalues)
    residual = row_space_residual(geometry.means, basis)
    n_needed = geometry.means.shape[0] - 1
    bounds = {
        "sfn": condition_bound_sfn(values.sfn),
        "vnd": condition_bound_vnd(values.vnd),
        "ldd": condition_bound_ldd(values.ldd),
        "ldd_published": condition_bound_ldd_published(values.ldd),
    }
    # As in the proof: eigenvalues within 1 +- eps_0 keep all distances of means below the margin.
    eps0 = float(np.max(np.abs(eigenvalues - 1)))
    margin_needed = (1 + eps0) * geometry.largest_difference**2
    limit = geometry.noise_limit(eigenvalues)
    limit_published = geometry.noise_limit(eigenvalues, published=True)
    report: dict[str, Value] = {
        "imbalance_factor": distance_ratio(geometry.means @ factor.T),
        "mean_ratio": geometry.mean_ratio,
        "condition_number": float(eigenvalues[-1] / eigenvalues[0]) if kept.all() else math.inf,
        "sfn": values.sfn,
        "vnd": values.vnd,
        "ldd": values.ldd,
        "row_space_residual": residual,
        "row_space_holds": residual <= ROW_SPACE_TOL,
        "rank_holds": eigenvalues.size >= n_needed,
        "noise": geometry.noise,
        "noise_published": geometry.noise_published,
        "noise_limit": limit,
        "noise_limit_published": limit_published,
        "noise_holds": geometry.noise <= limit,
        "noise_holds_published": geometry.noise_published <= limit_published,
        "margin_needed": margin_needed,
        "margin_needed_published": (n_needed + 1) * margin_needed,
        "margin_holds": margin >= margin_needed,
        "margin_holds_published": margin >= (n_needed + 1) * margin_needed,
    }
    for name, bound in bounds.items():
        report[f"condition_bound_{name}"] = bound
        report[f"imbalance_bound_{name}"] = geometry.mean_ratio * bound
    return report


def _generalization(
    regularizer: str,
    *,
    C: float,
    C_ahead: float,
    n_features: int,
    radius: float,
    similar_radius: float,
    margin: float,
    epsilon: float,
    n_similar: int,
    n_dissimilar: int,
    delta: float,
) -> dict[str, Value]:
    """Theorem 2: at C = Omega-hat(M), and at the C that is known before the fit."""

    def corrected(level: float) -> float:
        return error_bound(
            regularizer,
            level,
            radius=radius,
            margin=margin,
            n_similar=n_similar,
            n_dissimilar=n_dissimilar,
            epsilon=epsilon,
            delta=delta,
        )

    return {
        "omega_hat": C,
        "omega_hat_ahead": C_ahead,
        "trace_bound": trace_bound(regularizer, C, epsilon=epsilon),
        "pair_radius": radius,
        "pair_radius_published": similar_radius,
        "n_pairs": float(n_similar + n_dissimilar),
        "error_bound": corrected(C),
        "error_bound_ahead": corrected(C_ahead),
        "error_bound_published": error_bound_published(
            regularizer,
            C,
            radius=similar_radius,
            margin=margin,
            n_pairs=n_similar + n_dissimilar,
            n_features=n_features,
            epsilon=epsilon,
            delta=delta,
        ),
    }


def _spectrum(factor: np.ndarray) -> np.ndarray:
    """All D eigenvalues of L'L (R, D), zeros included."""
    n_zero = max(0, factor.shape[1] - factor.shape[0])
    return np.concatenate([np.zeros(n_zero), np.linalg.eigvalsh(factor @ factor.T)[-factor.shape[1] :]])


def _recordable(value: Value) -> Value:
    return value if isinstance(value, bool) or value is None or math.isfinite(value) else None
