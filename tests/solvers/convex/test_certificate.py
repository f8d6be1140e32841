"""The certificate is true: recomputed from the returned metric and weights in 60 digits, over awkward data."""

from __future__ import annotations

import warnings
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from solvers.convex.mdml import MDML

NEWTON = ["csfn", "cvnd", "cldd", "l2", "it"]
EPSILON = mpmath.mpf(1e-5)
TILT = -mpmath.log(EPSILON)


def h(name: str, x: Any) -> Any:
    """The regularizer on one eigenvalue, as methods.md states it."""
    return {
        "csfn": lambda: (x - 1) ** 2 + x,
        "cvnd": lambda: (x + EPSILON) * mpmath.log(x + EPSILON),
        "cldd": lambda: TILT * x - mpmath.log(x + EPSILON),
        "l2": lambda: x * x,
        "it": lambda: x - mpmath.log(x),
    }[name]()


def maximizer(name: str, y: Any) -> Any:
    x = {
        "csfn": lambda: (y + 1) / 2,
        "cvnd": lambda: mpmath.exp(y - 1) - EPSILON,
        "cldd": lambda: 1 / (TILT - y) - EPSILON,
        "l2": lambda: y / 2,
        "it": lambda: 1 / (1 - y),
    }[name]()
    return max(x, mpmath.mpf(0))


def exact(X: np.ndarray) -> Any:
    return mpmath.matrix([[mpmath.mpf(float(value)) for value in row] for row in X])


def exact_values(model: MDML, X: np.ndarray, similar: np.ndarray, dissimilar: np.ndarray) -> tuple[Any, Any]:
    """F at the returned metric and D at the returned weights."""
    name, gamma, margin = model.regularizer, mpmath.mpf(model.gamma), mpmath.mpf(model.margin)
    points, M = exact(X), exact(model.get_mahalanobis_matrix())
    d = X.shape[1]

    def differences(pairs: np.ndarray) -> list[Any]:
        return [(points[int(i), :] - points[int(j), :]).T for i, j in pairs]

    z, w = differences(similar), differences(dissimilar)
    alpha = [mpmath.mpf(float(each)) for each in model.dual_weights_]
    C_S = sum((each * each.T for each in z), mpmath.zeros(d)) / len(z)
    G = C_S - sum((a * each * each.T for a, each in zip(alpha, w, strict=True)), mpmath.zeros(d)) / len(w)
    hinge = sum(max(margin - (each.T * M * each)[0], mpmath.mpf(0)) for each in w) / len(w)
    eigenvalues = [max(x, mpmath.mpf(0)) for x in mpmath.eigsy((M + M.T) / 2, eigvals_only=True)]
    F = sum((C_S[i, j] * M[i, j] for i in range(d) for j in range(d)), mpmath.mpf(0)) + hinge
    F += gamma * sum(h(name, x) for x in eigenvalues)
    conjugate = mpmath.mpf(0)
    for g in mpmath.eigsy(G, eigvals_only=True):
        y = -g / gamma
        assert y < {"cldd": TILT, "it": 1}.get(name, mpmath.inf)
        x = maximizer(name, y)
        conjugate += x * y - h(name, x)
    return F, margin * sum(alpha) / len(alpha) - gamma * conjugate


def awkward(seed: int, scale: float, offset: float, outlier: float, twins: bool, spread: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], 4)
    X = rng.normal(size=(3, 3))[y] + 0.5 * rng.normal(size=(12, 3))
    if twins:
        X[1] = X[0]
        X[5] = X[4]
    X[11] *= outlier
    return (X * [1.0, spread, 1 / spread] + offset) * scale


PAIRS = np.array([(i, j) for i in range(12) for j in range(i + 1, 12)])
SAME = PAIRS[:, 0] // 4 == PAIRS[:, 1] // 4


@pytest.mark.parametrize("regularizer", NEWTON)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 100),
    scale=st.sampled_from([1e-5, 1e-2, 1.0, 30.0, 1e6]),
    offset=st.sampled_from([0.0, 100.0, 1e4, 1e8]),
    outlier=st.sampled_from([1.0, 1e4]),
    twins=st.booleans(),
    spread=st.sampled_from([1.0, 1e3]),
    gamma=st.sampled_from([1e-5, 1e-3, 0.1, 10.0]),
    tol=st.sampled_from([1e-3, 1e-6]),
    single=st.booleans(),
)
def test_no_bound_exceeds_the_dual_and_the_objective_is_the_objective(
    regularizer: str,
    seed: int,
    scale: float,
    offset: float,
    outlier: float,
    twins: bool,
    spread: float,
    gamma: float,
    tol: float,
    single: bool,
) -> None:
    X = awkward(seed, scale, offset, outlier, twins, spread).astype(np.float32 if single else np.float64)
    model = MDML(regularizer, gamma=gamma, tol=tol, max_iter=150)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit_pairs(X, PAIRS[SAME], PAIRS[~SAME])
    with mpmath.workdps(60):
        F, D = exact_values(model, X, PAIRS[SAME], PAIRS[~SAME])
        assert mpmath.mpf(model.dual_objective_) <= D
        assert model.dual_objective_ <= F
        assert abs(mpmath.mpf(model.objective_) - F) <= 1e-3 * tol * max(abs(F), 0.01) or not model.converged_


@pytest.mark.parametrize("regularizer", ["cvnd", "it"])
def test_scales_that_rounding_swallows_are_named(regularizer: str) -> None:
    """Double precision cannot prove this much here; it must say so, not claim it."""
    X = awkward(0, 1.0, 0.0, 1.0, False, 1e6)
    with pytest.warns(ConvergenceWarning, match="rounding alone leaves"):
        MDML(regularizer, gamma=1e-3, tol=1e-13, max_iter=60).fit_pairs(X, PAIRS[SAME], PAIRS[~SAME])
