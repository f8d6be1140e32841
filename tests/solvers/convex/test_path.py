"""MDMLPath: every gamma of the range is within the tolerance, by certificates that anyone can recompute."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import MinMaxScaler

from solvers import MDML, MDMLPath
from solvers.backend import to_numpy
from solvers.convex.dual import relative_gap
from solvers.convex.envelope import Mixture
from solvers.convex.follower import Follower
from solvers.regularizers.table import make_regularizer
from tests.conftest import ArrayBackend

NEWTON = ["csfn", "cvnd", "cldd", "l2", "it"]


def pairs_of_digits(n: int = 120, d: int = 64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:n]
    X, y = MinMaxScaler().fit_transform(X[rows])[:, :d], y[rows]
    i, j = np.triu_indices(n, 1)
    pairs, same = np.stack([i, j], axis=1), y[i] == y[j]
    return X, pairs[same], pairs[~same][::9]


def recomputed(model: MDML, X: np.ndarray, similar: np.ndarray, dissimilar: np.ndarray) -> tuple[float, float]:
    """F at the metric and D at the weights, by their definitions; the data part of F is what the model says."""
    z, w = (X[each[:, 0]] - X[each[:, 1]] for each in (similar, dissimilar))
    M, alpha, gamma = model.get_mahalanobis_matrix(), model.dual_weights_, model.gamma
    penalty = make_regularizer(model.regularizer)
    C_S = z.T @ z / len(z)
    hinge = np.maximum(0, model.margin - np.sum((w @ M) * w, axis=1)).mean()
    assert model.loss_ == pytest.approx(np.sum(C_S * M) + hinge, rel=1e-8, abs=1e-8)
    G = C_S - w.T @ (alpha[:, None] * w) / len(w)
    if model.regularizer in ("l1", "l21"):
        omega = penalty.value(M, xp=np)
        W = model.dual_matrix_
        assert np.linalg.eigvalsh(G + gamma * (W + W.T) / 2)[0] >= -1e-10
        np.testing.assert_allclose(penalty.project(W, xp=np), W, atol=1e-12)
        return np.sum(C_S * M) + hinge + gamma * omega, model.margin * alpha.mean()
    values = np.clip(np.linalg.eigvalsh(M), 0, None)
    F = np.sum(C_S * M) + hinge + gamma * np.sum(penalty.value(values, xp=np))
    if model.regularizer == "tr":
        assert np.linalg.eigvalsh(G)[0] >= -gamma - 1e-10
        return F, model.margin * alpha.mean()
    y = -np.linalg.eigvalsh(G) / gamma
    assert y.max() < penalty.dual_limit
    x = penalty.maximizer(y, xp=np)
    return F, model.margin * alpha.mean() - gamma * np.sum(x * y - penalty.value(x, xp=np))


@pytest.mark.parametrize("regularizer", NEWTON)
def test_every_gamma_is_within_the_tolerance_by_a_certificate_of_its_own(regularizer: str) -> None:
    X, similar, dissimilar = pairs_of_digits()
    path = MDMLPath(regularizer, tol=1e-2).fit_pairs(X, similar, dissimilar)
    assert path.converged_
    assert path.n_eigh_ <= 100
    gammas = 10 ** np.random.default_rng(1).uniform(-4, 0, size=25)
    assert path.gap(gammas).max() <= 1e-2
    for gamma in (*gammas, 1.0, 1e-4):
        model = path.at(gamma)
        F, D = recomputed(model, X, similar, dissimilar)
        assert model.objective_ == pytest.approx(F, rel=1e-8, abs=1e-8)
        assert model.dual_objective_ <= D + 1e-12
        assert relative_gap(F, D, model.loss_, 1.0) <= path.gap(gamma) + 1e-8 <= 1e-2 + 1e-8
        assert model.objective_ == path.objective(gamma)
        assert model.converged_


@pytest.mark.parametrize("regularizer", NEWTON)
def test_mixtures_and_blends_are_no_better_than_is_said(regularizer: str) -> None:
    X, similar, dissimilar = pairs_of_digits()
    path = MDMLPath(regularizer, tol=1e-2).fit_pairs(X, similar, dissimilar)
    envelope = path._envelope
    pieces = envelope.pieces(path.gamma_min, path.gamma_max)
    mixtures = [math.sqrt(start * end) for start, end, line in pieces if isinstance(line, Mixture)]
    blends = [proof for proof in envelope.proofs if len(proof.parts) > 1]
    assert mixtures
    assert blends
    for gamma in mixtures:
        F, _ = recomputed(path.at(gamma), X, similar, dissimilar)
        assert envelope.line(gamma).at(gamma) + 1e-10 >= F
    for proof in blends:
        _, D = recomputed(path.at(proof.gamma), X, similar, dissimilar)
        assert proof.value <= D + 1e-12


@pytest.mark.parametrize("regularizer", NEWTON)
def test_between_two_knots_one_decomposition_of_their_blend_is_enough(regularizer: str) -> None:
    X, similar, dissimilar = pairs_of_digits()
    model = MDML(regularizer)
    problem, backend, *_ = model._problem_from_pairs(X, similar, dissimilar)
    follower = Follower(model, problem, backend, low=0.01, high=0.02, tol=1e-2, max_iter=100)
    high, low, between = 0.02, 0.01, 0.014
    follower._solve(high)
    follower._solve(low)
    before = follower.n_eigh
    follower._solve(between)
    assert follower.n_eigh == before + 1
    assert follower.envelope.gap(between) <= 1e-2
    blend = follower.blends[between]
    w = X[dissimilar[:, 0]] - X[dissimilar[:, 1]]
    G = problem.similar_scatter - w.T @ (blend.alpha[:, None] * w) / len(w)
    assert blend.alpha.min() >= 0
    assert blend.alpha.max() <= 1
    scale = np.sum(blend.G * G) / np.sum(G * G)  # the knots' problem has units of its own
    np.testing.assert_allclose(blend.G, scale * G, atol=1e-12 * abs(scale) * np.abs(G).max())
    penalty, y = make_regularizer(regularizer), -np.linalg.eigvalsh(G) / between
    x = penalty.maximizer(y, xp=np)
    D = blend.alpha.mean() - between * np.sum(x * y - penalty.value(x, xp=np))
    bound, part = follower.knots[between].curve.at(between)
    assert part == 1.0
    assert D - 1e-9 <= bound <= D + 1e-12


@pytest.mark.parametrize("regularizer", ["tr", "l1", "l21"])
def test_regularizers_without_a_smooth_dual_have_a_path_too(regularizer: str) -> None:
    X, similar, dissimilar = pairs_of_digits(40, 12)
    path = MDMLPath(regularizer, gamma_max=0.1, gamma_min=0.01, tol=0.05).fit_pairs(X, similar, dissimilar)
    assert path.converged_
    for gamma in (0.1, 0.07, 0.03, 0.011, 0.01):
        model = path.at(gamma)
        F, D = recomputed(model, X, similar, dissimilar)
        assert model.objective_ == pytest.approx(F, rel=1e-8)
        assert relative_gap(F, D, model.loss_, 1.0) <= path.gap(gamma) + 1e-8 <= 0.05 + 1e-8


@pytest.mark.parametrize("regularizer", ["csfn", "cldd"])
def test_it_costs_less_than_a_grid(regularizer: str) -> None:
    X, y = load_digits(return_X_y=True)
    X = MinMaxScaler().fit_transform(X)
    settings: dict[str, Any] = {"tol": 1e-2, "n_pairs": 2000, "random_state": 0}
    path = MDMLPath(regularizer, **settings).fit(X, y)
    gammas = 10.0 ** np.arange(-4, 0.5, 0.5)
    assert path.n_eigh_ < sum(MDML(regularizer, gamma=gamma, **settings).fit(X, y).n_eigh_ for gamma in gammas)
    cold = MDML(regularizer, gamma=1e-3, tol=1e-4, n_pairs=2000, random_state=0).fit(X, y)
    for init in (path, path.at(1e-3)):
        warm = MDML(regularizer, gamma=1e-3, tol=1e-4, n_pairs=2000, random_state=0).fit(X, y, init=init)
        assert warm.n_eigh_ < cold.n_eigh_
        assert warm.objective_ == pytest.approx(cold.objective_, rel=2e-4)
    assert path.at(1e-3).transform(X).shape == (len(X), path.components_at(1e-3).shape[0])
    assert path.at(1e-3).dual_objective_ <= cold.objective_


def test_gammas_with_one_number_share_one_metric() -> None:
    X, similar, dissimilar = pairs_of_digits(60)
    path = MDMLPath("csfn", tol=5e-2).fit_pairs(X, similar, dissimilar)
    gammas = np.geomspace(1e-4, 1, 40)
    numbers = [path.metric_number(gamma) for gamma in gammas]
    assert max(numbers) < path.n_metrics_
    for a, b, gamma, following in zip(numbers, numbers[1:], gammas, gammas[1:], strict=False):
        same = np.array_equal(path.components_at(gamma), path.components_at(following))
        assert same == (a == b)


def test_an_unfinished_path_says_so_and_keeps_what_it_proved() -> None:
    X, similar, dissimilar = pairs_of_digits()
    with pytest.warns(ConvergenceWarning, match="MDMLPath: largest gap"):
        path = MDMLPath("csfn", tol=1e-4, max_iter=3).fit_pairs(X, similar, dissimilar)
    assert not path.converged_
    model = path.at(1e-2)
    F, D = recomputed(model, X, similar, dissimilar)
    assert model.dual_objective_ <= D + 1e-12
    assert model.objective_ == pytest.approx(F, rel=1e-8)


def test_it_follows_the_data_to_their_device(arrays: ArrayBackend) -> None:
    X, similar, dissimilar = pairs_of_digits(40, 8)
    expected = MDMLPath("csfn", tol=5e-2, device="cpu").fit_pairs(X, similar, dissimilar)
    path = MDMLPath("csfn", tol=5e-2).fit_pairs(arrays.asarray(X), similar, dissimilar)
    assert path.objective([1e-3, 0.1]) == pytest.approx(expected.objective([1e-3, 0.1]), rel=5e-2)
    model = path.at(0.03)
    import array_api_compat

    assert array_api_compat.device(model.components_) == array_api_compat.device(arrays.asarray(X))
    assert to_numpy(model.get_mahalanobis_matrix()).shape == (8, 8)


def test_a_path_survives_pickling() -> None:
    X, similar, dissimilar = pairs_of_digits(40, 8)
    path = MDMLPath("cvnd", tol=5e-2).fit_pairs(X, similar, dissimilar)
    again = pickle.loads(pickle.dumps(path))
    np.testing.assert_array_equal(again.components_at(0.01), path.components_at(0.01))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"gamma_min": 1.0}, "gamma_min: expected less than gamma_max, got 1.0 and 1.0"),
        ({"gamma_min": 0.0}, "gamma_min: expected a number > 0, got 0.0"),
        ({"gamma_max": -1.0}, "gamma_max: expected a number > 0, got -1.0"),
        ({"gamma_max": float("inf")}, "gamma_max: expected a number > 0, got inf"),
        ({"regularizer": "drop"}, "regularizer: a path needs one of csfn, .*, got 'drop'"),
        ({"regularizer": "none"}, "regularizer: a path needs one of csfn, .*, got 'none'"),
        ({"tol": 0.0}, "tol: expected a number > 0, got 0.0"),
    ],
)
def test_a_wrong_setting_gets_one_line(settings: dict[str, Any], expected: str) -> None:
    X, similar, dissimilar = pairs_of_digits(30, 6)
    with pytest.raises(ValueError, match=expected) as caught:
        MDMLPath(**settings).fit_pairs(X, similar, dissimilar)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("gamma", [2.0, 1e-5, -1.0, float("nan")])
def test_a_gamma_outside_the_range_gets_one_line(gamma: float) -> None:
    X, similar, dissimilar = pairs_of_digits(30, 6)
    path = MDMLPath("csfn", tol=0.1).fit_pairs(X, similar, dissimilar)
    for method in (path.at, path.gap, path.objective, path.metric_number):
        with pytest.raises(ValueError, match=r"gamma: expected a number from 0\.0001 to 1, got"):
            method(gamma)
