"""The paper's two theorems as calculators: as printed, and as corrected (docs/theory.md)."""

from solvers.theory.balance import (
    ClassGeometry,
    NonConvexValues,
    class_geometry,
    condition_bound_ldd,
    condition_bound_ldd_published,
    condition_bound_sfn,
    condition_bound_vnd,
    distance_ratio,
    non_convex_values,
)
from solvers.theory.generalization import (
    error_bound,
    error_bound_published,
    omega_hat,
    omega_hat_at_zero,
    pair_radius,
    trace_bound,
)
from solvers.theory.report import imbalance_factor, theory_report

__all__ = [
    "ClassGeometry",
    "NonConvexValues",
    "class_geometry",
    "condition_bound_ldd",
    "condition_bound_ldd_published",
    "condition_bound_sfn",
    "condition_bound_vnd",
    "distance_ratio",
    "error_bound",
    "error_bound_published",
    "imbalance_factor",
    "non_convex_values",
    "omega_hat",
    "omega_hat_at_zero",
    "pair_radius",
    "theory_report",
    "trace_bound",
]
