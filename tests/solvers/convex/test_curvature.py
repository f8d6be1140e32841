"""The model of the dual: against finite differences where it is exact, against the truth where it is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

from solvers.backend import Backend, choose_backend, symmetric_product, to_numpy
from solvers.convex import boxmodel
from solvers.convex.curvature import (
    PairModel,
    divided_differences,
    largest_eigenvalue,
    pair_model,
    promised,
    step_length,
)
from solvers.convex.dual import DualPoint, SpectralProblem
from solvers.convex.levels import Level
from solvers.convex.tuning import TUNING, Effort
from solvers.pairs import PairProblem, PairSet, within_class_scatter
from solvers.regularizers.spectral import SPECTRAL, Scaled
from tests.conftest import ArrayBackend

GAMMA = 0.05


def spectral_problem(arrays: ArrayBackend, regularizer: str, n: int, d: int, m: int) -> SpectralProblem:
    """Points in two classes, whose coordinates fall off slowly, and m pairs between the classes."""
    rng = np.random.default_rng(0)
    X = arrays.asarray(rng.normal(size=(n, d)) / np.sqrt(1 + np.arange(d)) / 2)
    backend: Backend = choose_backend(X)
    labels = np.repeat([0, 1], n // 2)
    first, second = rng.integers(n // 2, size=m), n // 2 + rng.integers(n // 2, size=m)
    pairs = PairSet(X, backend.indices(first), backend.indices(second), xp=arrays.xp)
    scatter = within_class_scatter(X, labels, oversample=False, backend=backend)
    problem = PairProblem(scatter, pairs, 1.0, 1, lambda size, rng: (first[:size], second[:size]))
    return SpectralProblem(problem, Scaled(SPECTRAL[regularizer](), 1.0), GAMMA, backend)


def dual_point(p: SpectralProblem, arrays: ArrayBackend, alpha: np.ndarray) -> DualPoint:
    weights = arrays.asarray(alpha)
    return p.point(weights, p.gradient(weights))


def distances(p: SpectralProblem, point: DualPoint) -> np.ndarray:
    """Those of M(alpha)."""
    factor = p.factor(p.penalty.maximizer(-point.g / p.gamma, xp=p.xp), point.U)
    return to_numpy(p.distances(factor))


def model_at(p: SpectralProblem, point: DualPoint) -> PairModel:
    level = Level(p.penalty, p.gamma, 0.0)
    x = level.metric(point.g, xp=p.xp)
    slopes, growth, _ = level.towards(level, point.g, x, xp=p.xp)
    T = divided_differences(slopes, x, growth, xp=p.xp) / len(p.pairs)
    X = p.pairs.X - p.xp.mean(p.pairs.X, axis=0)[None, :]
    return pair_model(p.pairs, X @ point.U, T)


def response(p: SpectralProblem, point: DualPoint, q: np.ndarray, arrays: ArrayBackend) -> np.ndarray:
    return to_numpy(model_at(p, point).response(arrays.asarray(q)))


def central_difference(p: SpectralProblem, alpha: np.ndarray, q: np.ndarray, arrays: ArrayBackend) -> np.ndarray:
    ahead, behind = (dual_point(p, arrays, alpha + sign * 1e-5 * q) for sign in (1, -1))
    return (distances(p, ahead) - distances(p, behind)) / 2e-5


@pytest.mark.parametrize("regularizer", ["csfn", "cvnd", "cldd", "l2", "it"])
def test_with_all_coordinates_it_is_the_derivative_of_the_distances(regularizer: str, arrays: ArrayBackend) -> None:
    p = spectral_problem(arrays, regularizer, n=40, d=6, m=60)
    rng = np.random.default_rng(1)
    alpha, q = rng.uniform(size=60), rng.normal(size=60)
    point = dual_point(p, arrays, alpha * (0.2 if regularizer == "it" else 1.0))
    expected = central_difference(p, to_numpy(point.alpha), q, arrays)
    np.testing.assert_allclose(response(p, point, q, arrays), expected, rtol=2e-5, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("regularizer", ["csfn", "cvnd", "cldd"])
def test_the_rest_of_the_coordinates_is_accounted_for(regularizer: str, arrays: ArrayBackend) -> None:
    """With more coordinates than are taken as they are: the curvature along a step is mostly there."""
    p = spectral_problem(arrays, regularizer, n=120, d=160, m=400)
    rng = np.random.default_rng(2)
    alpha, q, other = rng.uniform(size=(3, 400))
    point = dual_point(p, arrays, alpha)
    exact = central_difference(p, alpha, q, arrays)
    modelled = response(p, point, q, arrays)
    assert q @ modelled == pytest.approx(q @ exact, rel=0.2)
    assert np.linalg.norm(modelled - exact) < 0.3 * np.linalg.norm(exact)
    assert other @ modelled == pytest.approx(q @ response(p, point, other, arrays), rel=1e-9)  # symmetric
    sign = np.where(np.arange(400) % 2 == 0, 1.0, -1.0) * q
    assert sign @ response(p, point, sign, arrays) > 0


@pytest.mark.parametrize("regularizer", ["csfn", "cvnd", "cldd"])
def test_the_step_is_where_the_smoothed_dual_is_about_highest(regularizer: str, arrays: ArrayBackend) -> None:
    """Half of the eigenvalues are followed, the others move straight on."""
    p = spectral_problem(arrays, regularizer, n=40, d=40, m=80)
    alpha, change = np.zeros(80), np.full(80, 0.5)
    point = dual_point(p, arrays, alpha)
    direction = -p.pairs.scatter(arrays.asarray(change) / 80)
    rotated = p.xp.matrix_transpose(point.U) @ direction @ point.U
    level = Level(p.penalty, p.gamma, 0.0)
    share = step_length(promised(p, point, arrays.asarray(change), rotated, level=level, smoothing=0.1), 1.0)

    def smoothed(share: float) -> float:
        return dual_point(p, arrays, share * change).value - 0.0125 * share * share

    assert 0 < share <= 1
    assert smoothed(share) > smoothed(0.0)
    gains = [smoothed(each) - smoothed(0.0) for each in (share, 0.7 * share, min(1.0, share / 0.7))]
    assert gains[0] >= 0.95 * max(gains)


@pytest.mark.parametrize(
    ("effort", "enough"),
    [(TUNING.rough, 0.95), (TUNING.loose, 0.98), (replace(TUNING.loose, sample=25), 0.98), (TUNING.tight, 0.9999)],
)
def test_the_model_is_maximised_over_the_box(effort: Effort, enough: float, arrays: ArrayBackend) -> None:
    """Against a general-purpose optimiser; also where the Newton system is solved on some of the pairs only."""
    p = spectral_problem(arrays, "csfn", n=40, d=6, m=80)
    start, smoothing = np.full(80, 0.3), 0.05
    point = dual_point(p, arrays, start)
    H = np.stack([response(p, point, row, arrays) for row in np.eye(80)])
    d = distances(p, point)

    def loss(b: np.ndarray) -> tuple[float, np.ndarray]:
        step, rise = b - start, 1 - d
        value = rise @ step - smoothing / 2 * b @ b - step @ H @ step / 2
        return -value, -(rise - smoothing * b - H @ step)

    best = scipy.optimize.minimize(loss, start, jac=True, bounds=[(0, 1)] * 80, method="L-BFGS-B")
    model = model_at(p, point)
    found = to_numpy(
        boxmodel.maximize_model(
            model, arrays.asarray(start), arrays.asarray(d), margin=1.0, smoothing=smoothing, effort=effort
        )
    )
    assert found.min() >= 0
    assert found.max() <= 1
    gain, most = loss(start)[0] - loss(found)[0], loss(start)[0] - best.fun
    assert enough * most <= gain <= most + 1e-6


def test_the_largest_eigenvalue_is_found_in_a_cluster(arrays: ArrayBackend) -> None:
    """One direction stands out of many equal ones, and no coordinate shows it."""
    rng = np.random.default_rng(4)
    u = rng.normal(size=200)
    M = arrays.asarray(3 * np.outer(u, u) / (u @ u) - np.eye(200))
    assert largest_eigenvalue(M, xp=arrays.xp) == pytest.approx(2.0, rel=1e-6)
    noise = rng.normal(size=(60, 60))
    noise = noise + noise.T
    most = np.linalg.eigvalsh(noise)[-1]
    assert 0.9 * most <= largest_eigenvalue(arrays.asarray(noise), xp=arrays.xp) <= most + 1e-9


def test_a_symmetric_product_is_the_product(arrays: ArrayBackend) -> None:
    rng = np.random.default_rng(3)
    for d in (5, 257, 300):
        A = rng.normal(size=(30, d))
        weights = rng.uniform(size=(30, 1))
        got = to_numpy(symmetric_product(arrays.asarray(A), arrays.asarray(weights * A), xp=arrays.xp))
        np.testing.assert_allclose(got, A.T @ (weights * A), rtol=1e-12, atol=1e-12)
        assert np.array_equal(got, got.T)
