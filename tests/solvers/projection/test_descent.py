"""The descent of PDML: its coordinates, precision and left-out rows change nothing but the time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine

from solvers.backend import Backend, to_numpy
from solvers.pairs import problem_from_labels
from solvers.projection import descent
from solvers.projection import objective as objective_module
from solvers.projection.descent import descend
from solvers.projection.objective import ProjectionObjective
from solvers.regularizers.rows import ROWS, Decorrelation
from tests.conftest import ArrayBackend


def objective_on(arrays: ArrayBackend, regularizer: str = "none", n_pairs: int = 400) -> ProjectionObjective:
    X, y = load_wine(return_X_y=True)
    backend = Backend(arrays.xp, arrays.device, arrays.xp.float64)
    problem = problem_from_labels(
        backend.asarray((X - X.min(axis=0)) / np.ptp(X, axis=0)),
        y,
        n_pairs=n_pairs,
        margin=1.0,
        oversample=False,
        rng=np.random.default_rng(0),
        backend=backend,
    )
    penalty: Any = ROWS[regularizer] if regularizer != "dec" else lambda: Decorrelation(root=problem.dissimilar.X / 10)
    return ProjectionObjective(problem, penalty(), 0.1, backend.xp)


def starts(count: int, rank: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, rank, 13)) / 13**0.5


@pytest.mark.parametrize("regularizer", sorted(ROWS))
def test_other_coordinates_give_the_same_values_and_gradients(arrays: ArrayBackend, regularizer: str) -> None:
    objective = objective_on(arrays, regularizer)
    whitened, root = objective.whitened()
    A, smoothing = arrays.asarray(starts(2, 4)), arrays.asarray([0.1, 0.5])
    value, gradient = objective.smoothed(A, smoothing)
    there, there_gradient = whitened.smoothed(A @ root, smoothing)
    np.testing.assert_allclose(to_numpy(there), to_numpy(value), rtol=1e-9)
    # The chain rule: dF/dA = dF/dB R'.
    back = to_numpy(there_gradient @ arrays.xp.matrix_transpose(root))
    np.testing.assert_allclose(back, to_numpy(gradient), rtol=0, atol=1e-9 * np.abs(back).max())
    np.testing.assert_allclose(to_numpy(whitened.exact(A @ root)), to_numpy(objective.exact(A)), rtol=1e-9)
    single = whitened.single().smoothed(
        arrays.xp.astype(A @ root, arrays.xp.float32), arrays.xp.astype(smoothing, arrays.xp.float32)
    )
    assert single[0].dtype == single[1].dtype == arrays.xp.float32
    np.testing.assert_allclose(to_numpy(single[0]), to_numpy(value), rtol=1e-5)


def test_a_tolerance_beyond_single_precision_is_met_in_double(arrays: ArrayBackend) -> None:
    objective = objective_on(arrays, "sfn", n_pairs=50)
    result = descend(objective, arrays.asarray(starts(2, 3)), tol=1e-7, max_iter=3000)
    assert result.converged.all()
    assert result.points.dtype == arrays.xp.float64
    rough = descend(objective, arrays.asarray(starts(2, 3)), tol=1e-2, max_iter=3000)
    assert np.all(rough.n_iter < result.n_iter)
    assert np.all(to_numpy(objective.exact(rough.points)) < to_numpy(objective.exact(result.points)) * 1.02)


def test_rows_left_out_do_not_change_the_minimum(arrays: ArrayBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    objective, A = objective_on(arrays), arrays.asarray(starts(3, 12))
    widths: list[int] = []
    original = descent._compressed

    def watched(B: Any, *, xp: Any) -> Any:
        few, expand = original(B, xp=xp)
        widths.append(few.shape[-2])
        return few, expand

    monkeypatch.setattr(descent, "_compressed", watched)
    fewer = descend(objective, A, tol=1e-3, max_iter=2000)
    assert widths[0] < 12
    monkeypatch.setattr(descent, "_SMALL", 1e-12)
    monkeypatch.setattr(descent, "_NEGLIGIBLE", 1e-12)
    every = descend(objective, A, tol=1e-3, max_iter=2000)
    assert widths[1] == 12
    values = [to_numpy(objective.exact(result.points)) for result in (fewer, every)]
    np.testing.assert_allclose(values[0], values[1], rtol=2e-3)
    assert np.linalg.norm(to_numpy(fewer.points), axis=-1).min() > 0


def test_the_limit_counts_all_stages(arrays: ArrayBackend) -> None:
    objective, heard = objective_on(arrays, "vnd"), []
    result = descend(
        objective, arrays.asarray(starts(2, 4)), tol=0.0, max_iter=60, on_check=lambda n, values: heard.append(n)
    )
    assert result.n_iter.tolist() == [60, 60]
    assert not result.converged.any()
    assert heard[-1] <= 63


@pytest.mark.parametrize("few", [0.0, 0.3, 100.0], ids=["Laplacian", "mixed", "differences"])
def test_every_way_to_the_gradient_gives_the_same(
    arrays: ArrayBackend, few: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restart by restart through all points or through the pairs with weight, whichever are fewer."""
    objective = objective_on(arrays)
    A = starts(3, 4) * np.array([0.5, 2.0, 100.0])[:, None, None]  # most, some and none of the pairs have weight
    difference = np.concatenate(
        [
            to_numpy(objective.problem.dissimilar.X)[to_numpy(end)][None]
            for end in (objective.problem.dissimilar.graph.first, objective.problem.dissimilar.graph.second)
        ]
    )
    Z = difference[0] - difference[1]
    distances = np.sum((Z @ np.swapaxes(A, 1, 2)) ** 2, axis=-1)
    weights = np.clip((1 - distances) / 0.2, 0, 1)
    share = np.mean(weights > 0, axis=1)
    assert share[0] > 0.8 > share[1] > 0.01 > share[2]
    pushed = np.stack([(w[:, None] * (Z @ a.T)).T @ Z for w, a in zip(weights, A, strict=True)]) / len(Z)
    expected = 2 * (A @ to_numpy(objective.problem.similar_scatter) - pushed)
    monkeypatch.setattr(objective_module, "_FEW_PAIRS", few)
    gradient = objective.smoothed(arrays.asarray(A), arrays.asarray([0.2, 0.2, 0.2]))[1]
    np.testing.assert_allclose(to_numpy(gradient), expected, rtol=0, atol=1e-10 * np.abs(expected).max())
