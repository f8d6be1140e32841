"""Batched L-BFGS: finds minima, treats restarts independently, drops those that ended."""

from __future__ import annotations

from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest

from solvers.backend import Backend, to_numpy
from solvers.projection.lbfgs import minimize, stationarity
from tests.conftest import ArrayBackend


@pytest.fixture(name="backend")
def _backend(arrays: ArrayBackend) -> Backend:
    return Backend(arrays.xp, arrays.device, arrays.xp.float64)


def rosenbrock(A: Any, xp: Any) -> tuple[Any, Any]:
    """Sum over rows of the two-dimensional Rosenbrock function, minimum 0 at ones."""
    x, y = A[..., 0], A[..., 1]
    bend = y - x * x
    value = xp.sum((1 - x) ** 2 + 20 * bend**2, axis=-1)
    return value, xp.stack([-2 * (1 - x) - 80 * x * bend, 40 * bend], axis=-1)


def starts(count: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1.5, 1.5, (count, 3, 2))


def test_every_restart_reaches_the_minimum(backend: Backend) -> None:
    result = minimize(
        lambda A: rosenbrock(A, backend.xp),
        backend.asarray(starts(4)),
        tol=1e-8,
        max_iter=400,
        xp=backend.xp,
    )
    assert result.converged.all()
    np.testing.assert_allclose(to_numpy(result.points), 1.0, atol=1e-5)


def test_a_stack_gives_what_a_loop_gives() -> None:
    def run(start: np.ndarray) -> Any:
        return minimize(
            lambda A: rosenbrock(A, numpy_namespace),
            start,
            tol=1e-6,
            max_iter=200,
            xp=numpy_namespace,
        )

    A = starts(5)
    together = run(A)
    assert len(set(together.n_iter.tolist())) > 1, "restarts should end at different times here"
    for i in range(5):
        alone = run(A[i : i + 1])
        np.testing.assert_allclose(together.points[i], alone.points[0], rtol=1e-9)
        assert together.n_iter[i] == alone.n_iter[0]


def test_restarts_that_ended_cost_nothing_any_more() -> None:
    sizes = []

    def evaluate(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sizes.append(len(A))
        return rosenbrock(A, numpy_namespace)

    A = starts(3)
    A[1] = 1.0  # starts at the minimum
    result = minimize(evaluate, A, tol=1e-6, max_iter=200, xp=numpy_namespace)
    assert result.n_iter[1] == 1
    assert sizes[0] == 3
    assert sizes[10] == 2
    assert sorted(sizes, reverse=True) == sizes


def test_a_value_that_no_longer_falls_ends_a_restart() -> None:
    """Ten steps within a part of the value count as the end, long before the gradient is small."""

    def evaluate(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, gradient = rosenbrock(A, numpy_namespace)
        return 1000 + value, gradient

    settings = {"tol": 1e-12, "max_iter": 500, "xp": numpy_namespace}
    early = minimize(evaluate, starts(3), stall=1e-4, **settings)
    late = minimize(evaluate, starts(3), stall=1e-8, **settings)
    assert early.converged.all()
    assert late.converged.all()
    assert np.all(early.n_iter >= 11)
    assert np.all(early.n_iter < late.n_iter)


def test_stationarity_is_what_moving_each_row_by_its_length_gains() -> None:
    rng = np.random.default_rng(1)
    A, gradient = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 3, 4))
    lengths = np.linalg.norm(A, axis=-1, keepdims=True)
    moved = lengths * gradient / np.linalg.norm(gradient, axis=-1, keepdims=True)
    expected = np.sum(moved * gradient, axis=(1, 2)) / [1.0, 5.0]
    np.testing.assert_allclose(stationarity(A, np.array([0.1, -5.0]), gradient, xp=numpy_namespace), expected)


def test_the_limit_on_evaluations_holds() -> None:
    result = minimize(
        lambda A: rosenbrock(A, numpy_namespace),
        starts(2),
        tol=1e-12,
        max_iter=7,
        xp=numpy_namespace,
    )
    assert result.n_iter.tolist() == [7, 7]
    assert not result.converged.any()


def test_each_restart_has_a_limit_of_its_own() -> None:
    settings = {"tol": 1e-12, "xp": numpy_namespace}
    result = minimize(lambda A: rosenbrock(A, numpy_namespace), starts(3), max_iter=np.array([3, 7, 5]), **settings)
    assert result.n_iter.tolist() == [3, 7, 5]


def test_an_infinite_trial_value_shortens_the_step() -> None:
    """-log det blows up beyond its domain; the search has to come back, not to end there."""

    def evaluate(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inside = A > 0
        safe = np.where(inside, A, 1.0)
        value = np.where(inside.all(axis=(-2, -1)), np.sum(safe - np.log(safe), axis=(-2, -1)), np.inf)
        return value, 1 - 1 / safe

    result = minimize(evaluate, np.full((1, 2, 2), 1e-3), tol=1e-8, max_iter=200, xp=numpy_namespace)
    np.testing.assert_allclose(result.points, 1.0, atol=1e-4)


def test_a_kink_ends_the_restart_without_claiming_convergence() -> None:
    def absolute(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.sum(np.abs(A), axis=(-2, -1)), np.sign(A + 1e-300)

    result = minimize(absolute, np.ones((1, 1, 3)) * 0.7, tol=1e-9, max_iter=500, xp=numpy_namespace)
    assert result.n_iter[0] < 500
    assert float(np.abs(result.points).sum()) < 1e-3
