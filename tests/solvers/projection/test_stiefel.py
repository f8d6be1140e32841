"""Minimisation over orthonormal rows: feasible throughout, downhill, right where the answer is known."""

from __future__ import annotations

from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest
from scipy.stats import ortho_group

from solvers.backend import Backend, to_numpy
from solvers.projection import stiefel
from solvers.projection.stiefel import cayley, minimize_orthonormal
from tests.conftest import ArrayBackend


@pytest.fixture(name="backend")
def _backend(arrays: ArrayBackend) -> Backend:
    return Backend(arrays.xp, arrays.device, arrays.xp.float64)


SHAPES = {"thin": (3, 12), "wide": (8, 12), "square": (5, 5)}


def orthonormal(k: int, D: int, count: int) -> np.ndarray:
    return np.stack([ortho_group.rvs(D, random_state=i)[:k] for i in range(count)])


def infeasibility(A: Any) -> float:
    A = to_numpy(A)
    return float(np.abs(A @ np.swapaxes(A, -1, -2) - np.eye(A.shape[-2])).max())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("step", [1e-3, 1.0, 1e4])
def test_the_cayley_curve_stays_orthonormal(backend: Backend, shape: str, step: float) -> None:
    k, D = SHAPES[shape]
    A, G = orthonormal(k, D, 2), np.random.default_rng(0).standard_normal((2, k, D))
    moved = cayley(backend.asarray(A), backend.asarray(G), backend.asarray([step, 2 * step]), xp=backend.xp)
    assert infeasibility(moved) < 1e-10


@pytest.mark.parametrize("shape", SHAPES)
def test_the_cayley_curve_is_the_one_of_the_definition(shape: str) -> None:
    k, D = SHAPES[shape]
    A, G = orthonormal(k, D, 1), np.random.default_rng(1).standard_normal((1, k, D))
    W = G[0].T @ A[0] - A[0].T @ G[0]
    identity = np.eye(D)
    expected = np.linalg.solve(identity + 0.15 * W, (identity - 0.15 * W) @ A[0].T).T
    moved = cayley(A, G, np.array([0.3]), xp=numpy_namespace)[0]
    np.testing.assert_allclose(moved, expected, atol=1e-12)


def test_the_curve_starts_downhill_at_half_the_square_of_w() -> None:
    A, C = orthonormal(3, 12, 1), np.diag(np.arange(1.0, 13.0))
    G = 2 * A @ C
    W = G[0].T @ A[0] - A[0].T @ G[0]

    def value(t: float) -> float:
        moved = cayley(A, G, np.array([t]), xp=numpy_namespace)
        return float(np.sum((moved @ C) * moved))

    slope = (value(1e-5) - value(-1e-5)) / 2e-5
    assert slope == pytest.approx(-0.5 * np.sum(W * W), rel=1e-6)


@pytest.mark.parametrize("shape", ["thin", "wide"])
def test_the_smallest_trace_is_the_sum_of_the_smallest_eigenvalues(backend: Backend, shape: str) -> None:
    k, D = SHAPES[shape]
    xp = backend.xp
    root = np.random.default_rng(2).standard_normal((D, D))
    C = backend.asarray(root @ root.T)
    visited = []

    def evaluate(A: Any) -> tuple[Any, Any]:
        visited.append(infeasibility(A))
        return xp.sum(A * (A @ C), axis=(-2, -1)), 2 * A @ C

    result = minimize_orthonormal(evaluate, backend.asarray(orthonormal(k, D, 3)), tol=1e-8, max_iter=1000, xp=xp)
    expected = np.linalg.eigvalsh(root @ root.T)[:k].sum()
    values = to_numpy(xp.sum(result.points * (result.points @ C), axis=(-2, -1)))
    np.testing.assert_allclose(values, expected, rtol=1e-8)
    assert result.converged.all()
    assert max(visited) < 1e-10


@pytest.fixture(name="trace_problem")
def _trace_problem() -> tuple[Any, np.ndarray]:
    C = np.diag(np.linspace(0.1, 30, 20))

    def evaluate(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.sum(A * (A @ C), axis=(-2, -1)), 2 * A @ C

    return evaluate, orthonormal(4, 20, 3)


def test_accepted_values_stay_below_the_average_of_those_before(
    trace_problem: tuple[Any, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate, A = trace_problem
    states: list[Any] = []
    original = stiefel._round

    def watched(state: Any, *args: Any, **kwargs: Any) -> Any:
        states.append(state)
        return original(state, *args, **kwargs)

    monkeypatch.setattr(stiefel, "_round", watched)
    minimize_orthonormal(evaluate, A[:1], tol=1e-7, max_iter=500, xp=numpy_namespace)
    values = np.array([state.current_value[0] for state in states])
    references = np.array([state.reference[0] for state in states])
    moved = np.flatnonzero(np.diff(values))
    assert moved.size > 10
    assert np.all(values[moved + 1] <= references[moved])
    assert np.all(np.diff(references) <= 0)


def test_a_stack_gives_what_a_loop_gives(trace_problem: tuple[Any, np.ndarray]) -> None:
    evaluate, A = trace_problem
    together = minimize_orthonormal(evaluate, A, tol=1e-7, max_iter=500, xp=numpy_namespace)
    for i in range(3):
        alone = minimize_orthonormal(evaluate, A[i : i + 1], tol=1e-7, max_iter=500, xp=numpy_namespace)
        np.testing.assert_allclose(together.points[i], alone.points[0], rtol=1e-6, atol=1e-8)
        assert together.n_iter[i] == alone.n_iter[0]
