"""Eigenvalues polished with their eigenvectors held: against a general-purpose optimiser, on every backend."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from solvers.backend import to_numpy
from solvers.convex.diagonal import Diagonal, diagonal
from solvers.convex.dual import SpectralProblem
from solvers.convex.tuning import TUNING
from tests.conftest import ArrayBackend
from tests.solvers.convex.test_curvature import GAMMA, dual_point, spectral_problem


def family_at(p: SpectralProblem, arrays: ArrayBackend, weight: float = 0.4) -> tuple[Diagonal, np.ndarray]:
    """Around the metric of weights away from the optimum, and its eigenvectors."""
    point = dual_point(p, arrays, np.full(len(p.pairs), weight))
    x = p.penalty.maximizer(-point.g / p.gamma, xp=p.xp)
    rank = int(np.sum(to_numpy(x) > 0))
    U = point.U[:, :rank]
    return diagonal(p, p.penalty, U, p.pairs.X @ U, x[:rank]), to_numpy(U)


def objective(p: SpectralProblem, U: np.ndarray, x: np.ndarray) -> float:
    """F(U diag(x) U') by its definition."""
    X, first, second = (to_numpy(each) for each in (p.pairs.X, p.pairs.graph.first, p.pairs.graph.second))
    M = (U * x) @ U.T
    z = X[first] - X[second]
    loss = np.sum(to_numpy(p.C_S) * M) + np.maximum(0, 1 - np.einsum("ka,ab,kb->k", z, M, z)).mean()
    h = p.penalty.value(np.concatenate([x, np.zeros(len(M) - len(x))]), xp=np)
    return float(loss + GAMMA * np.sum(h))


@pytest.mark.parametrize("regularizer", ["csfn", "cvnd", "cldd", "l2", "it"])
def test_it_finds_about_the_best_eigenvalues(regularizer: str, arrays: ArrayBackend) -> None:
    p = spectral_problem(arrays, regularizer, n=60, d=8, m=300)
    family, U = family_at(p, arrays, 1.0 if regularizer == "l2" else 0.4)
    ones = np.ones(len(family.starts))
    found = objective(p, U, family.eigenvalues(family.best(GAMMA, ones, p)))
    assert len(ones) == len(family.x)  # so few move each on its own
    best = min(
        scipy.optimize.minimize(
            lambda x: objective(p, U, x), start, bounds=[(1e-6, None)] * len(start), method="L-BFGS-B"
        ).fun
        for start in (family.x, family.eigenvalues(family.best(GAMMA, ones, p)))
    )
    assert found <= best + 2e-3 * abs(best)
    assert found <= objective(p, U, family.x)


def test_groups_cover_every_eigenvalue_once(arrays: ArrayBackend) -> None:
    p = spectral_problem(arrays, "csfn", n=160, d=120, m=300)
    family, U = family_at(p, arrays)
    groups = len(family.starts)
    assert groups <= TUNING.single_factors + TUNING.grouped_factors < U.shape[1]
    np.testing.assert_allclose(family.eigenvalues(np.ones(groups)), family.x)
    w = np.linspace(0.5, 2, groups)
    x = family.eigenvalues(w)
    assert set(np.round(x / family.x, 9)) == set(np.round(w, 9))
    X, first, second = (to_numpy(each) for each in (p.pairs.X, p.pairs.graph.first, p.pairs.graph.second))
    z = (X[first] - X[second]) @ U
    np.testing.assert_allclose(to_numpy(family.distances(x[:, None], p))[:, 0], (z * z) @ x, rtol=1e-9)
    np.testing.assert_allclose(to_numpy(family.judges) @ w, (z * z) @ x, rtol=1e-9)  # so few pairs are all looked at
    assert family.similar @ w == pytest.approx(np.sum(to_numpy(p.C_S) * ((U * x) @ U.T)))


@pytest.mark.parametrize("regularizer", ["csfn", "cvnd", "cldd"])
def test_the_gradient_and_the_hessian_are_those_of_the_smoothed_objective(
    regularizer: str, arrays: ArrayBackend
) -> None:
    p = spectral_problem(arrays, regularizer, n=60, d=8, m=300)
    family, _ = family_at(p, arrays)
    w, width, step = np.linspace(0.6, 1.4, len(family.starts)), 0.5, 1e-5
    value, slope, bend = family._smoothed(GAMMA, w, width, p)
    for k, each in enumerate(np.eye(len(w)) * step):
        ahead, behind = family._smoothed(GAMMA, w + each, width, p), family._smoothed(GAMMA, w - each, width, p)
        assert slope[k] == pytest.approx((ahead[0] - behind[0]) / (2 * step), rel=1e-5, abs=1e-7)
        # The smoothed hinge has kinks in its slope: a pair that crosses one is off by a little.
        np.testing.assert_allclose(
            bend[k], (ahead[1] - behind[1]) / (2 * step), rtol=0.02, atol=1e-3 * np.abs(bend).max()
        )
    assert np.isfinite(value)
