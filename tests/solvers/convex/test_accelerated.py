"""none, tr, l1 and l21: optima, and bounds that anybody can check with more digits than we compute with."""

from __future__ import annotations

import time
import warnings
from typing import Any

import array_api_compat.numpy as xp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import MinMaxScaler

from solvers.backend import to_numpy
from solvers.convex.mdml import MDML
from solvers.regularizers.entries import ENTRIES, L1, L21
from tests.conftest import ArrayBackend

LINEAR = ["none", "tr", "l1", "l21"]
Long = np.longdouble


def pairs_of(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All similar and all dissimilar pairs."""
    ends = np.stack(np.triu_indices(len(y), 1), axis=1)
    same = y[ends[:, 0]] == y[ends[:, 1]]
    return ends[same], ends[~same]


def scatter(X: np.ndarray, pairs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Mean of weight z z', in extended precision."""
    z = X[pairs[:, 0]].astype(Long) - X[pairs[:, 1]].astype(Long)
    return (z.T * weights.astype(Long)) @ z / len(z)


def objective(model: MDML, X: np.ndarray, similar: np.ndarray, dissimilar: np.ndarray) -> Long:
    """F(M) by its definition, in extended precision."""
    M = np.asarray(model.get_mahalanobis_matrix()).astype(Long)
    z = X[dissimilar[:, 0]].astype(Long) - X[dissimilar[:, 1]].astype(Long)
    value = np.sum(scatter(X, similar, np.ones(len(similar))) * M)
    value += np.maximum(0, model.margin - np.sum((z @ M) * z, axis=1)).mean()
    norm = {"none": Long(0), "tr": np.trace(M), "l1": np.abs(M).sum(), "l21": np.sqrt((M * M).sum(axis=1)).sum()}
    return Long(value + model.gamma * norm[model.regularizer])


def least_pivot(S: np.ndarray) -> Long:
    """Smallest pivot of elimination with diagonal pivoting, on a unit diagonal: negative where S is not psd."""
    scale = np.sqrt(np.maximum(np.diag(S), np.finfo(np.float64).tiny))
    S = S / np.outer(scale, scale)
    least = Long(np.inf)
    while len(S):
        k = int(np.argmax(np.diag(S)))
        least = min(least, S[k, k])
        if S[k, k] <= 0:
            break
        S = np.delete(np.delete(S - np.outer(S[:, k], S[k]) / S[k, k], k, 0), k, 1)
    return least


def check_certificate(model: MDML, X: np.ndarray, y: np.ndarray) -> None:
    """The objective is F(M), and weights and matrix prove the bound: in extended precision, from the data alone."""
    similar, dissimilar = pairs_of(y)
    weights = model.dual_weights_
    assert weights is not None
    assert weights.min() >= 0
    assert weights.max() <= 1
    W = {"none": np.zeros((X.shape[1],) * 2), "tr": np.eye(X.shape[1])}.get(model.regularizer, model.dual_matrix_)
    assert W is not None
    if model.regularizer == "l1":
        assert np.abs(W).max() <= 1 + 1e-15
    if model.regularizer == "l21":
        assert np.linalg.norm(W, axis=1).max() <= 1 + 1e-14
    S = scatter(X, similar, np.ones(len(similar))) - scatter(X, dissimilar, weights)
    S = S + Long(model.gamma) * (W + W.T).astype(Long) / 2
    alive = np.diag(S) != 0  # features that never differ
    assert least_pivot(S[np.ix_(alive, alive)]) >= -1e-17
    assert model.dual_objective_ <= model.margin * weights.astype(Long).mean()
    assert model.dual_objective_ == pytest.approx(float(model.margin * weights.mean()), rel=1e-9, abs=1e-300)
    F = objective(model, X, similar, dissimilar)
    assert model.objective_ == pytest.approx(float(F), rel=1e-9, abs=1e-12 * model.margin)
    assert model.dual_objective_ <= F + 1e-15 * model.margin


def fit(regularizer: str, X: np.ndarray, y: np.ndarray, **options: Any) -> MDML:
    model = MDML(regularizer, **({"gamma": 1e-2, "tol": 1e-5, "random_state": 0} | options))
    return model.fit_pairs(X, *pairs_of(y))


@pytest.mark.parametrize("regularizer", LINEAR)
@pytest.mark.parametrize("raw", [True, False])
def test_a_gap_of_1e_5_is_proved_on_wine(regularizer: str, raw: bool) -> None:
    X, y = load_wine(return_X_y=True)
    X, y = (X if raw else MinMaxScaler().fit_transform(X))[::3], y[::3]
    for gamma in (1e-4, 1e-2, 1.0):
        model = fit(regularizer, X, y, gamma=gamma)
        assert model.converged_
        assert model.relative_gap_ <= 1e-5
        check_certificate(model, X, y)


@pytest.mark.parametrize("regularizer", LINEAR)
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    mixed=st.booleans(),
    offset=st.sampled_from([0.0, 100.0, 1e4, 1e8]),
    outlier=st.booleans(),
    duplicates=st.booleans(),
    single=st.booleans(),
)
def test_no_data_make_the_bound_false(
    regularizer: str,
    seed: int,
    scale: float,
    mixed: bool,
    offset: float,
    outlier: bool,
    duplicates: bool,
    single: bool,
) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(18, 3)), np.arange(18) % 3
    X[:, 0] += 0.7 * y
    X = X * (np.asarray([1e-3, 1.0, 1e3]) if mixed else 1.0) + offset
    if outlier:
        X[0, 1] += 1e4
    if duplicates:
        X[6:9] = X[3:6]
    X = (scale * X).astype(np.float32 if single else np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = fit(regularizer, X, y, tol=1e-3, max_iter=1500)
    check_certificate(model, X.astype(np.float64), y)
    assert model.converged_ == (model.relative_gap_ <= 1e-3)


def known() -> dict[str, tuple[np.ndarray, np.ndarray, dict[str, float]]]:
    """Data with the least F that is known for each regularizer, gamma = 0.01."""
    apart = np.repeat([0, 1], 5)
    two = np.outer(apart, [1.0, 1.0])
    one = dict.fromkeys(LINEAR, 1.0)
    return {
        "coincident": (np.ones((8, 3)), np.arange(8) % 2, one),
        "collinear": (np.outer(np.arange(20.0), [1, 2, 3]), np.arange(20) % 2, one),
        "mixed twins": (two, np.arange(10) % 2, one),
        # M = v v' t with t (v'z)^2 = 1: trace t, sum of entries t |v|_1^2, sum of row norms t |v|_1 |v|_2.
        "two points": (two, apart, {"none": 0.0, "tr": 0.005, "l1": 0.01, "l21": 0.01 / np.sqrt(2)}),
        "three points": (np.eye(3)[:, 1:], np.asarray([0, 0, 1]), {"none": 0.0, "tr": 0.01, "l1": 0.01, "l21": 0.01}),
        "tiny": (1e-5 * np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3, one | {"none": np.nan}),
    }


@pytest.mark.parametrize("regularizer", LINEAR)
@pytest.mark.parametrize("name", list(known()))
def test_degenerate_data_have_quick_and_exact_answers(name: str, regularizer: str) -> None:
    X, y, optimum = known()[name]
    began = time.perf_counter()
    model = fit(regularizer, X, y)
    assert model.converged_
    assert model.n_iter_ <= 300
    assert time.perf_counter() - began < 5
    if np.isfinite(optimum[regularizer]):
        assert model.objective_ == pytest.approx(optimum[regularizer], abs=1e-6)
    assert model.dual_objective_ <= model.objective_ + 1e-12


@pytest.mark.parametrize("regularizer", LINEAR)
def test_one_feature_has_the_answer_of_a_search_over_one_number(regularizer: str) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = rng.normal(size=(40, 1)) + y[:, None]
    similar, dissimilar = pairs_of(y)
    near, far = (np.square(X[each[:, 0]] - X[each[:, 1]])[:, 0] for each in (similar, dissimilar))
    gamma = 0.0 if regularizer == "none" else 0.01
    # Piecewise linear: the least value is at a kink.
    best = min(near.mean() * t + np.maximum(0, 1 - far * t).mean() + gamma * t for t in [0.0, *(1 / far)])
    assert fit(regularizer, X, y, tol=1e-7).objective_ == pytest.approx(best, rel=1e-6)


def test_all_pairs_beyond_the_margin_and_integers_are_no_special_case() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 12)
    far = rng.normal(size=(24, 3)) + 1000.0 * y[:, None]
    whole = rng.integers(0, 10, size=(24, 3))
    for regularizer in LINEAR:
        for X in (far, whole):
            model = fit(regularizer, X, y)
            assert model.converged_
            check_certificate(model, X.astype(np.float64), y)


def test_without_a_regularizer_any_invertible_map_gives_the_same_optimum() -> None:
    X, y = load_wine(return_X_y=True)
    X, y = X[::4], y[::4]
    A = np.random.default_rng(0).normal(size=(13, 13))
    # Mixing raw columns, the largest of them leaves the others few digits: what can be proved is limited by that.
    first, second = fit("none", X, y, tol=1e-4), fit("none", X @ A, y, tol=1e-4)
    assert first.converged_
    assert second.converged_
    assert second.n_iter_ <= 2 * first.n_iter_
    assert second.objective_ == pytest.approx(first.objective_, rel=2e-4)


def test_single_precision_ends_and_gives_what_double_gives() -> None:
    X, y = load_iris(return_X_y=True)
    X = MinMaxScaler().fit_transform(X)[::3]
    for regularizer in LINEAR:
        double, single = (fit(regularizer, X.astype(kind), y[::3]) for kind in (np.float64, np.float32))
        assert single.components_.dtype == np.float32
        assert single.converged_
        assert single.objective_ == pytest.approx(double.objective_, rel=3e-5)


def test_the_rank_is_that_of_the_metric_returned() -> None:
    X, y = load_wine(return_X_y=True)
    X, y = MinMaxScaler().fit_transform(X)[::3], y[::3]
    for regularizer in LINEAR:
        model = fit(regularizer, X, y)
        assert model.exact_rank_ == np.linalg.matrix_rank(model.get_mahalanobis_matrix(), hermitian=True)


@pytest.mark.parametrize("regularizer", ["none", "l21"])
def test_every_array_backend_finds_the_optimum(regularizer: str, arrays: ArrayBackend) -> None:
    X, y = load_iris(return_X_y=True)
    X, y = X[::6], y[::6]
    expected = fit(regularizer, X, y, tol=1e-3)
    model = MDML(regularizer, gamma=1e-2, tol=1e-3, random_state=0).fit_pairs(arrays.asarray(X), *pairs_of(y))
    assert model.converged_
    assert model.objective_ == pytest.approx(expected.objective_, rel=2e-3)
    assert type(model.get_mahalanobis_matrix()) is type(arrays.asarray(X))


def test_a_start_from_another_fit_ends_at_the_same_optimum() -> None:
    X, y = load_wine(return_X_y=True)
    X, y = MinMaxScaler().fit_transform(X)[::2], y[::2]
    for regularizer in LINEAR:
        cold = MDML(regularizer, 1e-2, tol=1e-4, n_pairs=2000, random_state=0).fit(X, y)
        warm = MDML(regularizer, 1e-2, tol=1e-4, n_pairs=2000, random_state=0).fit(X, y, init=cold)
        assert warm.converged_
        assert warm.objective_ == pytest.approx(cold.objective_, rel=2e-4)


# Norms on the entries -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(ENTRIES))
@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
def test_projections_are_nearest_points_of_the_dual_ball(name: str, spread: float, arrays: ArrayBackend) -> None:
    rng = np.random.default_rng(0)
    norm = ENTRIES[name]()
    units = 10 ** rng.uniform(-spread, spread, 6)
    axes = np.outer(units, units)
    V = rng.normal(size=(6, 6)) * axes * 10 ** rng.uniform(-1, 2, (6, 1))
    P = to_numpy(norm.project(arrays.asarray(V), arrays.asarray(units), xp=arrays.xp))
    for _ in range(50):  # <V - P, Q - P> <= 0 for all Q of the ball
        Q = axes * norm.project(rng.normal(size=(6, 6)) * 10 ** rng.uniform(-1, 1), xp=xp)
        rows = np.sum((V - P) * (Q - P), axis=1)
        assert rows.max() <= 1e-9 * np.abs(V).max() ** 2
    inside = P / axes
    np.testing.assert_allclose(norm.project(inside, xp=xp), inside, rtol=1e-12)


def test_each_norm_is_the_support_function_of_its_ball() -> None:
    rng = np.random.default_rng(0)
    M = rng.normal(size=(5, 5))
    assert np.sum(M * L1().project(1e9 * M, xp=xp)) == pytest.approx(np.abs(M).sum())
    assert np.sum(M * L21().project(1e9 * M, xp=xp)) == pytest.approx(np.linalg.norm(M, axis=1).sum())
