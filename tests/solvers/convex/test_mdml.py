"""MDML finds the optimum, proves it, and behaves as the mathematics says it must."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import MinMaxScaler

from solvers.backend import to_numpy
from solvers.convex.mdml import MDML
from solvers.regularizers.spectral import SPECTRAL
from solvers.regularizers.table import REGULARIZERS
from tests.conftest import ArrayBackend

CERTIFIED = [name for name in REGULARIZERS if name != "drop"]
NEWTON = ["csfn", "cvnd", "cldd", "l2", "it"]


def data(name: str = "wine", n: int = 150) -> tuple[np.ndarray, np.ndarray]:
    loader = {"wine": load_wine, "digits": load_digits, "cancer": load_breast_cancer}[name]
    X, y = loader(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:n]
    return MinMaxScaler().fit_transform(X[rows]), y[rows]


def exact_objective(model: MDML, X: np.ndarray, y: np.ndarray, M: np.ndarray) -> float:
    """F(M) by its definition, pair by pair, on all pairs."""
    i, j = np.triu_indices(len(y), 1)
    z = X[i] - X[j]
    d = np.sum((z @ M) * z, axis=1)
    same = y[i] == y[j]
    value = d[same].mean() + np.maximum(0, model.margin - d[~same]).mean()
    if model.regularizer in SPECTRAL and model.regularizer != "none":
        import array_api_compat.numpy as xp

        eigenvalues = np.clip(np.linalg.eigvalsh(M), 0, None)
        value += model.gamma * model._penalty().value(eigenvalues, xp=xp).sum()
    elif model.regularizer == "l1":
        value += model.gamma * np.abs(M).sum()
    elif model.regularizer == "l21":
        value += model.gamma * np.linalg.norm(M, axis=1).sum()
    return float(value)


@pytest.mark.parametrize("regularizer", CERTIFIED)
def test_objective_is_its_definition_and_the_bound_is_below(regularizer: str) -> None:
    X, y = data(n=60)
    tol = 1e-3
    model = MDML(regularizer, gamma=0.05, tol=tol, n_pairs=10**6, random_state=0).fit(X, y)
    M = model.get_mahalanobis_matrix()
    assert model.objective_ == pytest.approx(exact_objective(model, X, y, M), rel=1e-9, abs=1e-9)
    assert np.linalg.eigvalsh(M)[0] >= -1e-12
    assert model.dual_objective_ <= model.objective_ + 1e-12
    scale = max(abs(model.objective_), min(model.loss_, 1.0), 0.01)
    assert model.relative_gap_ == (model.objective_ - model.dual_objective_) / scale <= tol
    assert model.converged_
    rng = np.random.default_rng(1)
    for scale in (0.01, 0.1, 1.0):  # no psd matrix whatever lies below the bound
        A = rng.normal(size=(5, X.shape[1])) * scale
        for candidate in (A.T @ A, M + A.T @ A, 0.9 * M):
            assert exact_objective(model, X, y, candidate) >= model.dual_objective_ - 1e-9


@pytest.mark.parametrize("name", ["wine", "digits", "cancer"])
@pytest.mark.parametrize("regularizer", NEWTON)
def test_a_tight_certificate_is_reached_over_the_whole_grid(name: str, regularizer: str) -> None:
    X, y = data(name)
    for gamma in (1e-3, 1e-2, 1e-1, 1.0):
        model = MDML(regularizer, gamma=gamma, tol=1e-5, n_pairs=1000, random_state=0).fit(X, y)
        assert -1e-10 <= model.relative_gap_ <= 1e-5, gamma


@pytest.mark.parametrize("regularizer", ["csfn", "cvnd"])
def test_rank_is_the_number_of_gradient_eigenvalues_below_the_threshold(regularizer: str) -> None:
    X, y = data("digits", 120)
    model = MDML(regularizer, gamma=0.01, tol=1e-5, n_pairs=800, random_state=0).fit(X, y)
    penalty = model._penalty()
    alpha = model.dual_weights_
    rng = np.random.default_rng(0)
    from solvers.pairs import draw_dissimilar

    first, second = draw_dissimilar(np.unique(y, return_inverse=True)[1], 800, rng=rng)
    z = X[first] - X[second]
    centred = X - np.stack([X[y == label].mean(axis=0) for label in y])
    counts = np.bincount(y)
    weight = 2 * counts[y] / np.sum(counts * (counts - 1))
    G = (centred.T * weight) @ centred - (z.T * alpha) @ z / len(z)
    below = int(np.sum(np.linalg.eigvalsh(G) < -0.01 * penalty.slope_at_zero))
    assert model.exact_rank_ == below
    M = model.get_mahalanobis_matrix()
    assert np.abs(G @ M - M @ G).max() <= 2e-2 * np.abs(M).max()  # they commute at the optimum


@pytest.mark.parametrize(
    ("regularizer", "c"), [("csfn", 0.5), ("cvnd", 1 / np.e - 1e-5), ("cldd", 0.0868489), ("it", 1.0)]
)
def test_a_huge_gamma_gives_a_multiple_of_the_identity(regularizer: str, c: float) -> None:
    X, y = data()
    model = MDML(regularizer, gamma=1e4, tol=1e-8, n_pairs=500, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.get_mahalanobis_matrix(), c * np.eye(X.shape[1]), atol=2e-3)


def test_regularizers_raise_the_rank_and_the_trace_lowers_it() -> None:
    X, y = data("digits", 150)
    ranks = {
        name: MDML(name, gamma=0.1, tol=1e-2, n_pairs=1000, random_state=0).fit(X, y).rank_
        for name in ("none", "csfn", "cvnd", "cldd", "tr")
    }
    assert ranks["tr"] <= ranks["none"] < ranks["csfn"] <= ranks["cvnd"] <= ranks["cldd"]


@pytest.mark.parametrize("regularizer", NEWTON)
@pytest.mark.parametrize("factor", [1e-3, 1.0, 30.0, 1e6])
def test_ordinary_data_of_any_scale_are_solved(regularizer: str, factor: float) -> None:
    X, y = make_blobs(120, 8, centers=4, random_state=0)
    for gamma in (1e-5, 1e-3, 1e-1):
        model = MDML(regularizer, gamma=gamma, tol=1e-3, n_pairs=2000, random_state=0).fit(factor * X, y)
        assert model.converged_, (gamma, model.relative_gap_)
        assert model.n_eigh_ <= 80


@pytest.mark.parametrize("regularizer", NEWTON)
def test_tiny_and_degenerate_data_are_solved_at_once(regularizer: str) -> None:
    rng = np.random.default_rng(0)
    line = rng.normal(size=(20, 1)) + np.repeat([0.0, 1.0], 10)[:, None], np.repeat([0, 1], 10)
    three = np.array([[0.0, 0], [1, 0], [3, 1]]), np.array([0, 0, 1])
    coincident = np.ones((6, 2)), np.repeat([0, 1], 3)
    two_places = np.repeat([[0.0, 0], [1, 1]], 3, axis=0), np.repeat([0, 1], 3)
    collinear = np.outer(np.arange(12.0), [1, 2, 3]), np.repeat([0, 1, 2], 4)
    raw_wine = load_wine(return_X_y=True)
    for X, y in (line, three, coincident, two_places, collinear, raw_wine):
        for gamma in (1e-3, 1.0):
            model = MDML(regularizer, gamma=gamma, tol=1e-3, n_pairs=500, random_state=0).fit(X, y)
            assert model.converged_, (X.shape, gamma, model.relative_gap_)
            assert model.n_eigh_ <= 80


def test_zero_is_found_where_it_is_the_optimum() -> None:
    """Similar pairs further apart than dissimilar ones: every metric costs more than none."""
    X = np.array([[0.0, 0], [4, 0], [0, 4], [4, 4]]) + 1e-3 * np.arange(8).reshape(4, 2)
    model = MDML("l2", gamma=0.1, tol=1e-6).fit_pairs(X, np.array([[0, 3], [1, 2]]), np.array([[0, 1], [2, 3]]))
    assert np.array_equal(model.get_mahalanobis_matrix(), np.zeros((2, 2)))
    assert model.objective_ == 1.0
    assert model.exact_rank_ == 0
    assert model.n_eigh_ <= 5


@pytest.mark.parametrize("regularizer", NEWTON)
def test_rotation_translation_and_scale_act_as_they_must(regularizer: str) -> None:
    X, y = data(n=80)
    settings: dict[str, Any] = {"gamma": 0.1, "tol": 1e-6, "n_pairs": 400, "random_state": 0}
    base = MDML(regularizer, **settings).fit(X, y)
    M = base.get_mahalanobis_matrix()
    V, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(X.shape[1],) * 2))
    rotated = MDML(regularizer, **settings).fit(X @ V, y).get_mahalanobis_matrix()
    tolerance = 5e-3 * np.abs(M).max()
    np.testing.assert_allclose(rotated, V.T @ M @ V, atol=tolerance)
    shifted = MDML(regularizer, **settings).fit(X + 7.0, y).get_mahalanobis_matrix()
    np.testing.assert_allclose(shifted, M, atol=tolerance)
    scaled = MDML(regularizer, **(settings | {"margin": 4.0, "gamma": 0.4})).fit(2 * X, y)
    # F(M; 2X, 4 margin, 4 gamma) = 4 F(M; X, margin, gamma)
    assert scaled.objective_ == pytest.approx(4 * base.objective_, abs=5 * settings["tol"])  # by both certificates
    np.testing.assert_allclose(scaled.get_mahalanobis_matrix(), M, atol=tolerance)


@pytest.mark.parametrize("regularizer", ["csfn", "cvnd", "cldd", "tr", "l1"])
def test_backends_agree_and_keep_dtype_and_device(regularizer: str, arrays: ArrayBackend) -> None:
    import array_api_compat

    X, y = data(n=40)
    X = X[:, :6]
    # The method of multipliers takes many steps, and array-api-strict is slow: a looser tolerance for those two.
    tol = 1e-3 if regularizer in ("tr", "l1") else 1e-5
    settings: dict[str, Any] = {"gamma": 0.1, "tol": tol, "n_pairs": 100, "random_state": 0}
    expected = MDML(regularizer, device="cpu", **settings).fit(X, y)
    model = MDML(regularizer, **settings).fit(arrays.asarray(X), y)
    assert model.components_.dtype == arrays.xp.float64
    assert array_api_compat.device(model.components_) == array_api_compat.device(arrays.asarray(X))
    assert model.objective_ == pytest.approx(expected.objective_, rel=2 * tol)
    if tol == 1e-5:
        np.testing.assert_allclose(
            to_numpy(model.get_mahalanobis_matrix()), expected.get_mahalanobis_matrix(), rtol=1e-2, atol=2e-3
        )
    assert model.transform(arrays.asarray(X)).shape == (40, model.rank_)


def test_float32_stays_float32_and_is_close() -> None:
    X, y = data()
    settings: dict[str, Any] = {"gamma": 0.05, "tol": 1e-4, "n_pairs": 500, "random_state": 0}
    double = MDML(**settings).fit(X, y)
    single = MDML(**settings).fit(X.astype(np.float32), y)
    assert single.components_.dtype == np.float32
    assert single.objective_ == pytest.approx(double.objective_, rel=1e-3)


@pytest.mark.parametrize("regularizer", ["csfn", "cvnd", "cldd"])
def test_a_warm_path_costs_less_and_ends_the_same(regularizer: str) -> None:
    X, y = data("digits", 300)
    gammas = (1.0, 0.1, 0.01, 0.001)
    settings: dict[str, Any] = {"tol": 1e-3, "n_pairs": 2000, "random_state": 0}
    cold = [MDML(regularizer, gamma=g, **settings).fit(X, y) for g in gammas]
    warm: list[MDML] = []
    for gamma in gammas:
        warm.append(MDML(regularizer, gamma=gamma, **settings).fit(X, y, init=warm[-1] if warm else None))
    assert sum(m.n_eigh_ for m in warm) < sum(m.n_eigh_ for m in cold)
    for a, b in zip(cold, warm, strict=True):
        assert a.objective_ == pytest.approx(b.objective_, abs=1e-3 * max(1, abs(a.objective_)))


@pytest.mark.parametrize("weights_only", [False, True])
@pytest.mark.parametrize("max_iter", [1, 2, 4])
def test_a_start_outside_the_duals_domain_still_ends_with_a_bound(max_iter: int, weights_only: bool) -> None:
    """At a tenth of gamma the old weights of cldd have no finite bound."""
    X, y = data("digits", 300)
    settings: dict[str, Any] = {"n_pairs": 2000, "random_state": 0}
    other = MDML("cldd", gamma=1e-2, **settings).fit(X, y)
    optimum = MDML("cldd", gamma=1e-3, **settings).fit(X, y)
    for tol in (1e-3, 1e-5):  # in single and in double precision
        model = MDML("cldd", gamma=1e-3, tol=tol, max_iter=max_iter, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y, init=other.dual_weights_ if weights_only else other)
        assert np.isfinite([[row["objective"], row["gap"]] for row in model.history_]).all()
        assert np.isfinite(model.dual_objective_)
        assert model.dual_objective_ <= optimum.objective_
        assert model.objective_ >= optimum.dual_objective_


@pytest.mark.parametrize("weight", [1.1, -0.1, np.nan])
def test_weights_that_would_prove_nothing_are_refused(weight: float) -> None:
    X, y = data()
    with pytest.raises(ValueError, match="init: expected weights from 0 to 1"):
        MDML("csfn", n_pairs=500, random_state=0).fit(X, y, init=np.full(500, weight))


def dual_value(model: MDML, X: np.ndarray, similar: np.ndarray, dissimilar: np.ndarray) -> float:
    """D at the model's weights, by its definition."""
    z, w = (X[each[:, 0]] - X[each[:, 1]] for each in (similar, dissimilar))
    G = z.T @ z / len(z) - w.T @ (model.dual_weights_[:, None] * w) / len(w)
    penalty, y = SPECTRAL[model.regularizer](), -np.linalg.eigvalsh(G) / model.gamma
    x = penalty.maximizer(y, xp=np)
    return float(model.dual_weights_.mean() - model.gamma * np.sum(x * y - penalty.value(x, xp=np)))


@pytest.mark.parametrize("regularizer", ["csfn", "cvnd", "cldd", "l2", "it"])
def test_bounds_in_single_precision_stay_below_the_dual_also_from_start_to_start(regularizer: str) -> None:
    X, y = data("digits", 200)
    i, j = np.triu_indices(len(y), 1)
    pairs, same = np.stack([i, j], axis=1), y[i] == y[j]
    chosen = pairs[same], pairs[~same][::10]
    previous = None
    for _ in range(3):
        model = MDML(regularizer, gamma=0.01, tol=1e-3).fit_pairs(X, *chosen, init=previous)
        assert previous is None or model.n_eigh_ == 0  # what is known of the same weights serves again
        value = dual_value(model, X, *chosen)
        assert value - 1e-4 <= model.dual_objective_ <= value + 1e-12
        assert 0 <= model.relative_gap_ <= 1e-3
        previous = model


@pytest.mark.parametrize("regularizer", ["csfn", "cvnd", "cldd"])
def test_a_start_from_other_data_of_the_same_shape_proves_nothing_by_it(regularizer: str) -> None:
    X, y = data("digits", 200)
    settings: dict[str, Any] = {"gamma": 0.01, "tol": 1e-4, "n_pairs": 1000, "random_state": 0}
    other = MDML(regularizer, **settings).fit(2 * X, y)
    cold, warm = MDML(regularizer, **settings).fit(X, y), MDML(regularizer, **settings).fit(X, y, init=other)
    assert warm.converged_
    assert warm.n_eigh_ > 0
    assert warm.dual_objective_ <= cold.objective_
    assert cold.dual_objective_ <= warm.objective_


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("regularizer", ["csfn", "cvnd", "cldd"])
def test_a_start_whose_weights_are_nearly_its_own_proves_nothing_by_them(regularizer: str, fresh: bool) -> None:
    X, y = data("digits", 200)
    i, j = np.triu_indices(len(y), 1)
    pairs, same = np.stack([i, j], axis=1), y[i] == y[j]
    chosen = pairs[same], pairs[~same][::10]
    start = MDML(regularizer, gamma=0.01, tol=1e-7).fit_pairs(X, *chosen)._start
    more = replace(start, alpha=np.minimum(1.0, start.alpha + 1e-6), fresh=fresh)
    model = MDML(regularizer, gamma=0.01, tol=2e-3).fit_pairs(X, *chosen, init=more)
    np.testing.assert_array_equal(model.dual_weights_, more.alpha)
    assert model.dual_objective_ <= dual_value(model, X, *chosen) + 1e-12


def test_an_unreached_tolerance_is_warned_of_and_not_called_converged() -> None:
    X, y = data("digits", 150)
    with pytest.warns(ConvergenceWarning, match="relative gap"):
        model = MDML("cvnd", gamma=1e-3, tol=1e-9, max_iter=5, n_pairs=500, random_state=0).fit(X, y)
    assert not model.converged_
    assert model.relative_gap_ > 1e-9


def test_the_published_algorithm_is_measured_on_the_same_pairs() -> None:
    X, y = data(n=80)
    certified = MDML("csfn", gamma=0.1, tol=1e-5, n_pairs=500, random_state=0).fit(X, y)
    published = MDML("csfn", gamma=0.1, algorithm="paper", max_iter=400, n_pairs=500, random_state=0).fit(X, y)
    assert published.n_eigh_ == 400
    assert published.objective_ > certified.objective_
    assert published.dual_objective_ <= certified.objective_ + 1e-9
    objectives = [row["objective"] for row in published.history_]
    assert objectives[-1] < objectives[0]


def test_the_printed_cldd_formula_runs_with_the_published_algorithm_only() -> None:
    X, y = data(n=60)
    model = MDML("cldd", algorithm="paper", cldd_prox="printed", max_iter=50, n_pairs=200, random_state=0).fit(X, y)
    assert np.isfinite(model.objective_)
    with pytest.raises(ValueError, match="algorithm='paper' only"):
        MDML("cldd", cldd_prox="printed").fit(X, y)


def test_drop_has_no_certificate_and_says_so() -> None:
    X, y = data(n=60)
    model = MDML("drop", gamma=0.1, max_iter=100, n_pairs=200, random_state=0).fit(X, y)
    assert model.dual_objective_ is None
    assert model.relative_gap_ is None
    assert not model.converged_


def test_exact_metric_and_truncated_factor() -> None:
    X, y = data("digits", 150)
    model = MDML("cldd", gamma=0.01, rank_tol=0.5, n_pairs=500, random_state=0).fit(X, y)
    L, M = model.components_, model.get_mahalanobis_matrix()
    eigenvalues = np.linalg.eigvalsh(M)[::-1]
    assert model.rank_ == len(L) == np.sum(eigenvalues > 0.5 * eigenvalues[0]) < model.exact_rank_
    np.testing.assert_allclose(np.linalg.norm(L.T @ L - M, 2), eigenvalues[len(L)], rtol=1e-6)
    assert MDML("cldd", gamma=0.01, n_components=3, n_pairs=500, random_state=0).fit(X, y).components_.shape[0] == 3


def test_fit_pairs_uses_the_pairs_and_agrees_with_fit_on_all_of_them() -> None:
    X, y = data(n=40)
    i, j = np.triu_indices(len(y), 1)
    pairs = np.stack([i, j], axis=1)
    same = y[i] == y[j]
    by_pairs = MDML(gamma=0.1, tol=1e-6).fit_pairs(X, pairs[same], pairs[~same])
    by_labels = MDML(gamma=0.1, tol=1e-6, n_pairs=10**6).fit(X, y)
    assert by_pairs.objective_ == pytest.approx(by_labels.objective_, abs=2e-6)


def test_oversampling_gives_classes_equal_weight() -> None:
    X, y = data(n=100)
    rows = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:3], np.flatnonzero(y == 2)])
    plain = MDML(gamma=0.1, n_pairs=2000, random_state=0).fit(X[rows], y[rows])
    equal = MDML(gamma=0.1, n_pairs=2000, random_state=0, oversample=True).fit(X[rows], y[rows])
    assert np.abs(plain.get_mahalanobis_matrix() - equal.get_mahalanobis_matrix()).max() > 1e-3


def test_the_same_seed_gives_the_same_metric_and_frames_work() -> None:
    X, y = data(n=60)
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(X.shape[1])])
    a = MDML(n_pairs=300, random_state=3).fit(X, y)
    b = MDML(n_pairs=300, random_state=3).fit(frame, y)
    np.testing.assert_array_equal(a.components_, b.components_)
    assert list(b.feature_names_in_) == list(frame.columns)


def test_a_model_survives_pickling_and_cloning() -> None:
    X, y = data(n=60)
    model = MDML(n_pairs=300, random_state=0).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    assert clone(model).get_params() == model.get_params()


def test_pair_distance_is_the_metric_everywhere() -> None:
    X, y = data(n=60)
    model = MDML(n_pairs=300, random_state=0, rank_tol=0).fit(X, y)
    pairs = np.stack([X[:5], X[5:10]], axis=1)
    z = X[:5] - X[5:10]
    squared = np.sum((z @ model.get_mahalanobis_matrix()) * z, axis=1)
    np.testing.assert_allclose(model.pair_distance(pairs) ** 2, squared, rtol=1e-8)
    np.testing.assert_array_equal(model.pair_score(pairs), -model.pair_distance(pairs))
    metric = model.get_metric()
    assert metric(X[0], X[5]) == pytest.approx(model.pair_distance(pairs)[0])
    assert metric(X[0], X[5], squared=True) == pytest.approx(squared[0], rel=1e-8)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"gamma": -1}, "gamma: expected a number >= 0, got -1"),
        ({"gamma": float("nan")}, "gamma: expected a number >= 0"),
        ({"epsilon": 0}, "epsilon: expected a number > 0, got 0"),
        ({"margin": 0}, "margin: expected a number > 0, got 0"),
        ({"regularizer": "cvdn"}, "regularizer: expected one of"),
        ({"algorithm": "sgd"}, "algorithm: expected 'certified' or 'paper'"),
        ({"n_pairs": 0}, "n_pairs: expected at least 1, got 0"),
        ({"regularizer": "drop", "gamma": 1.0}, "a probability below 1, got 1.0"),
        ({"device": "gpu"}, "device: expected 'auto', 'cpu', 'cuda'"),
        ({"tol": 0}, "tol: expected a number > 0"),
        ({"n_components": 0}, "n_components: expected at least 1"),
    ],
)
def test_a_wrong_parameter_gets_one_line(changes: dict[str, Any], expected: str) -> None:
    X, y = data(n=40)
    with pytest.raises(ValueError, match=expected) as caught:
        MDML(**({"n_pairs": 50} | changes)).fit(X, y)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("X", "y", "expected"),
    [
        ([[0.0, np.nan], [1, 2], [3, 4]], [0, 0, 1], "NaN"),
        ([[0.0, np.inf], [1, 2], [3, 4]], [0, 0, 1], "infinity"),
        ([[0.0, 1], [1, 2], [3, 4]], [0, 0, 0], "one class only"),
        ([[0.0, 1], [1, 2], [3, 4]], [0, 1, 2], "every class has one example"),
    ],
)
def test_bad_data_gets_one_line(X: Any, y: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        MDML().fit(np.array(X), np.array(y))


@pytest.mark.parametrize("regularizer", CERTIFIED)
def test_awkward_data_still_gives_a_certified_metric(regularizer: str) -> None:
    rng = np.random.default_rng(0)
    singleton = rng.normal(size=(13, 4)), np.repeat([0, 1, 2], [6, 6, 1])
    constant = np.hstack([rng.normal(size=(12, 2)), np.ones((12, 2))]), np.repeat([0, 1], 6)
    wide = rng.normal(size=(8, 15)), np.repeat([0, 1], 4)
    twins = np.repeat(rng.normal(size=(4, 3)), 3, axis=0), np.repeat([0, 1], 6)
    for X, y in (singleton, constant, wide, twins):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = MDML(regularizer, gamma=0.1, tol=1e-2, n_pairs=100, random_state=0, max_iter=300).fit(X, y)
        assert np.all(np.isfinite(model.components_))
        assert model.dual_objective_ <= model.objective_ + 1e-9
