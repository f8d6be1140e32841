"""Batched L-BFGS: finds minima, treats restarts independently, drops those that ended."""

from __future__ import annotations

from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest

from solvers.backend import Backend, to_numpy
from solvers.projection.lbfgs import minimize
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
        lambda A, _: rosenbrock(A, backend.xp),
        backend.asarray(starts(4)),
        levels=[1.0],
        tol=1e-8,
        max_iter=400,
        xp=backend.xp,
    )
    assert result.converged.all()
    np.testing.assert_allclose(to_numpy(result.points), 1.0, atol=1e-5)


def test_a_stack_gives_what_a_loop_gives() -> None:
    def run(start: np.ndarray) -> Any:
        return minimize(
            lambda A, _: rosenbrock(A, numpy_namespace),
            start,
            levels=[1.0, 0.1],
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

    def evaluate(A: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sizes.append(len(A))
        return rosenbrock(A, numpy_namespace)

    A = starts(3)
    A[1] = 1.0  # starts at the minimum
    result = minimize(evaluate, A, levels=[1.0], tol=1e-6, max_iter=200, xp=numpy_namespace)
    assert result.n_iter[1] == 1
    assert sizes[0] == 3
    assert sizes[10] == 2
    assert sorted(sizes, reverse=True) == sizes


def test_every_level_is_used_in_turn_and_by_each_restart() -> None:
    seen: list[set[float]] = []

    def evaluate(A: np.ndarray, smoothing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seen.append(set(smoothing.tolist()))
        value, gradient = rosenbrock(A, numpy_namespace)
        return value * (1 + smoothing), gradient * (1 + smoothing)[:, None, None]

    minimize(evaluate, starts(3), levels=[0.5, 0.25], tol=1e-6, max_iter=300, xp=numpy_namespace)
    assert seen[0] == {0.5}
    assert seen[-1] == {0.25}


def test_the_limit_on_evaluations_holds() -> None:
    result = minimize(
        lambda A, _: rosenbrock(A, numpy_namespace),
        starts(2),
        levels=[1.0],
        tol=1e-12,
        max_iter=7,
        xp=numpy_namespace,
    )
    assert result.n_iter.tolist() == [7, 7]
    assert not result.converged.any()


def test_an_infinite_trial_value_shortens_the_step() -> None:
    """-log det blows up beyond its domain; the search has to come back, not to end there."""

    def evaluate(A: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inside = A > 0
        safe = np.where(inside, A, 1.0)
        value = np.where(inside.all(axis=(-2, -1)), np.sum(safe - np.log(safe), axis=(-2, -1)), np.inf)
        return value, 1 - 1 / safe

    result = minimize(evaluate, np.full((1, 2, 2), 1e-3), levels=[1.0], tol=1e-8, max_iter=200, xp=numpy_namespace)
    np.testing.assert_allclose(result.points, 1.0, atol=1e-4)


def test_a_kink_ends_the_restart_without_claiming_convergence() -> None:
    def absolute(A: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.sum(np.abs(A), axis=(-2, -1)), np.sign(A + 1e-300)

    result = minimize(absolute, np.ones((1, 1, 3)) * 0.7, levels=[1.0], tol=1e-9, max_iter=500, xp=numpy_namespace)
    assert result.n_iter[0] < 500
    assert float(np.abs(result.points).sum()) < 1e-3
