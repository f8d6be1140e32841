"""Oracles of the seven methods outside the two families, on every array backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning

from solvers.backend import choose_backend, to_numpy
from solvers.convex.mdml import MDML
from solvers.other.euclidean import EUC
from solvers.other.gmml import GMML, geodesic_point
from solvers.other.ilhd import ILHD, affinity, flip_codes
from solvers.other.itml import ITML
from solvers.other.ldml import LDML, best_bias, logistic_loss
from solvers.other.lmnn import LMNN, _Triplets
from solvers.other.mlec import MLEC
from solvers.pairs import draw_dissimilar, draw_similar

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
ARRAY_METHODS = [
    EUC(),
    GMML(n_pairs=200, random_state=0),
    MLEC(n_pairs=200, random_state=0),
    ITML(n_pairs=200, max_iter=20, random_state=0),
    LDML(n_pairs=200, max_iter=20, random_state=0),
    LMNN(max_iter=20),
]


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    X, y = make_blobs(n_samples=60, centers=3, n_features=4, cluster_std=4.0, random_state=1)
    return X / 10, y


def spd(rng: np.random.Generator, size: int) -> np.ndarray:
    root = rng.normal(size=(size, size + 2))
    return root @ root.T


@pytest.mark.parametrize("model", ARRAY_METHODS, ids=lambda model: type(model).__name__)
def test_every_array_backend_learns_the_same_metric(model: Any, data: Any, arrays: Any) -> None:
    X, y = data
    expected = model.fit(X, y).get_mahalanobis_matrix()
    learned = model.fit(arrays.asarray(X), y)
    assert type(learned.components_) is type(arrays.asarray(X))
    M = to_numpy(learned.get_mahalanobis_matrix())
    np.testing.assert_allclose(M, expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())
    assert learned.transform(arrays.asarray(X)).shape == (60, learned.rank_)


def test_ilhd_takes_device_arrays_and_answers_in_kind(data: Any, arrays: Any) -> None:
    X, y = data
    model = ILHD(n_bits=5, random_state=0)
    expected = model.fit(X, y).transform(X)
    codes = model.fit(arrays.asarray(X), y).transform(arrays.asarray(X))
    assert type(codes) is type(arrays.asarray(X))
    np.testing.assert_array_equal(to_numpy(codes), expected)


@pytest.mark.parametrize("method", [GMML, MLEC, ITML, LDML])
def test_all_methods_face_the_same_dissimilar_pairs(method: Any, data: Any, monkeypatch: Any) -> None:
    X, y = data
    drawn = []

    def watch(*args: Any, **kwargs: Any) -> Any:
        drawn.append(draw_dissimilar(*args, **kwargs))
        return drawn[-1]

    for module in ("pairs", "other.itml", "other.ldml"):
        monkeypatch.setattr(f"solvers.{module}.draw_dissimilar", watch)
    MDML(regularizer="none", n_pairs=50, max_iter=1, random_state=3).fit(X, y)
    method(n_pairs=50, random_state=3).fit(X, y)
    np.testing.assert_array_equal(drawn[0], drawn[1])


# GMML ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [0.0, 0.5, 1.0])
def test_gmml_meets_its_three_known_points(t: float, arrays: Any) -> None:
    rng = np.random.default_rng(0)
    S, D = spd(rng, 5), spd(rng, 5)
    M = to_numpy(geodesic_point(arrays.asarray(S), arrays.asarray(D), t, xp=arrays.xp))
    if t == 0.0:
        np.testing.assert_allclose(M, np.linalg.inv(S), rtol=1e-9, atol=1e-9)
    elif t == 1.0:
        np.testing.assert_allclose(M, D, rtol=1e-9, atol=1e-9)
    else:
        np.testing.assert_allclose(M @ S @ M, D, rtol=1e-9, atol=1e-9)


def test_gmml_turns_with_the_data(data: Any) -> None:
    X, y = data
    V, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))
    M = GMML(random_state=0).fit(X, y).get_mahalanobis_matrix()
    turned = GMML(random_state=0).fit(X @ V.T, y).get_mahalanobis_matrix()
    np.testing.assert_allclose(turned, V @ M @ V.T, rtol=1e-8, atol=1e-10)


def test_gmml_without_ridge_refuses_singular_scatter(data: Any) -> None:
    X, y = data
    with pytest.raises(ValueError, match=r"gmml: .* singular; set ridge above 0"):
        GMML(ridge=0.0).fit(np.hstack([X, np.ones((60, 1))]), y)


# KISSME ----------------------------------------------------------------------------------------


def test_mlec_is_the_psd_part_of_the_difference_of_inverses(data: Any) -> None:
    X, y = data
    model = MLEC(ridge=0.0, n_pairs=10**6, rank_tol=0.0).fit(X, y)  # all pairs there are
    similar, dissimilar = (
        np.mean(
            [np.outer(z, z) for z in (X[i] - X[j] for i in range(60) for j in range(i) if (y[i] == y[j]) == same)],
            axis=0,
        )
        for same in (True, False)
    )
    values, vectors = np.linalg.eigh(np.linalg.inv(similar) - np.linalg.inv(dissimilar))
    expected = (vectors * np.maximum(values, 0)) @ vectors.T
    np.testing.assert_allclose(model.get_mahalanobis_matrix(), expected, rtol=1e-8, atol=1e-10)


def test_mlec_with_fewer_pairs_than_features_needs_a_ridge(data: Any) -> None:
    X, y = data
    with pytest.raises(ValueError, match="mlec: the scatter of dissimilar pairs is singular"):
        MLEC(ridge=0.0, n_pairs=2, random_state=0).fit(X, y)
    assert np.all(np.isfinite(MLEC(n_pairs=2, random_state=0).fit(X, y).components_))


# ITML ------------------------------------------------------------------------------------------


def bregman_projections(model: ITML, X: np.ndarray, sweeps: int) -> np.ndarray:
    """The published algorithm, one pair at a time, on the pairs and bounds that the model used."""
    Z = X[model.pairs_[:, 0]] - X[model.pairs_[:, 1]]
    similar = np.arange(len(Z)) < model.n_similar_
    bounds, multipliers, M = np.where(similar, *model.bounds_), np.zeros(len(Z)), np.eye(X.shape[1])
    for _ in range(sweeps):
        for k, z in enumerate(Z):
            p = z @ M @ z
            sign = 1 if similar[k] else -1
            alpha = min(multipliers[k], sign * 0.5 * (1 / p - 1 / bounds[k]))
            bounds[k] = 1 / (1 / bounds[k] + sign * alpha)
            multipliers[k] -= alpha
            Mz = M @ z
            M = M + sign * alpha / (1 - sign * alpha * p) * np.outer(Mz, Mz)
    return M


def test_itml_reaches_the_fixed_point_of_bregman_projections(data: Any) -> None:
    X, y = data
    model = ITML(n_pairs=60, tol=1e-8, max_iter=5000, random_state=0).fit(X, y)
    assert model.converged_
    expected = bregman_projections(model, X, 400)
    np.testing.assert_allclose(model.get_mahalanobis_matrix(), expected, rtol=1e-3, atol=1e-4 * expected.max())


@pytest.mark.parametrize(("tol", "n_pairs"), [(1e-1, 10), (1e-1, 500), (1e-6, 500)])
def test_itml_keeps_the_inverse_identity_at_any_tolerance(data: Any, tol: float, n_pairs: int) -> None:
    X, y = data
    model = ITML(n_pairs=n_pairs, tol=tol, random_state=0).fit(X, y)
    assert np.all(model.multipliers_ >= 0)
    Z = X[model.pairs_[:, 0]] - X[model.pairs_[:, 1]]
    sign = np.where(np.arange(len(Z)) < model.n_similar_, 1, -1)
    inverse = np.eye(4) + Z.T @ ((sign * model.multipliers_)[:, None] * Z)
    np.testing.assert_allclose(np.linalg.inv(model.get_mahalanobis_matrix()), inverse, rtol=1e-8, atol=1e-8)


def test_itml_certifies_its_objective(data: Any) -> None:
    X, y = data
    loose = ITML(n_pairs=200, tol=1e-1, random_state=0).fit(X, y)
    tight = ITML(n_pairs=200, tol=1e-6, max_iter=5000, random_state=0).fit(X, y)
    assert loose.dual_objective_ <= tight.objective_ * (1 + 1e-9)
    assert tight.dual_objective_ <= loose.objective_
    assert 0 <= tight.relative_gap_ <= 1e-6


def test_itml_skips_pairs_of_identical_points(data: Any) -> None:
    X, y = data
    X, y = np.vstack([X[:5], X[:5], X[:5]]), np.concatenate([y[:5]] * 3)
    model = ITML(n_pairs=100, random_state=0).fit(X, y)
    assert np.all(np.any(X[model.pairs_[:, 0]] != X[model.pairs_[:, 1]], axis=1))
    assert np.all(np.isfinite(model.components_))


# LDML ------------------------------------------------------------------------------------------


def test_the_ldml_gradient_agrees_with_differences(data: Any, arrays: Any) -> None:
    rng = np.random.default_rng(0)
    distances, similar = 3 * rng.random(20), (np.arange(20) < 8).astype(float)
    _, slope = logistic_loss(arrays.asarray(distances), arrays.asarray(similar), 1.2, xp=arrays.xp)
    for k in range(20):
        values = []
        for h in (-1e-6, 1e-6):
            moved = distances.copy()
            moved[k] += h
            values.append(logistic_loss(arrays.asarray(moved), arrays.asarray(similar), 1.2, xp=arrays.xp)[0])
        assert to_numpy(slope)[k] == pytest.approx((values[1] - values[0]) / 2e-6, abs=1e-8)


def test_the_ldml_bias_is_the_best_one(arrays: Any) -> None:
    rng = np.random.default_rng(0)
    distances, similar = 3 * rng.random(20), (np.arange(20) < 8).astype(float)
    on_device = arrays.asarray(distances), arrays.asarray(similar)
    bias = best_bias(*on_device, 0.0, xp=arrays.xp)
    value = logistic_loss(*on_device, bias, xp=arrays.xp)[0]
    assert all(value <= logistic_loss(*on_device, bias + h, xp=arrays.xp)[0] for h in (-1e-3, 1e-3, -1.0, 1.0))


def test_ldml_leaves_no_descent_direction(data: Any) -> None:
    """At the optimum over the cone: the gradient is psd and orthogonal to M."""
    X, y = data
    model = LDML(n_pairs=10**5, tol=1e-12, max_iter=3000, rank_tol=0.0, random_state=0).fit(X, y)
    M = model.get_mahalanobis_matrix()
    rng = np.random.default_rng(0)
    dissimilar = np.stack(draw_dissimilar(y, 10**5, rng=rng))
    similar = np.stack(draw_similar(y, 10**5, rng=rng))
    gradient = np.zeros((4, 4))
    total = similar.shape[1] + dissimilar.shape[1]
    for ends, label in ((similar, 1.0), (dissimilar, 0.0)):
        Z = X[ends[0]] - X[ends[1]]
        p = 1 / (1 + np.exp(np.sum((Z @ M) * Z, axis=1) - model.bias_))
        gradient += Z.T @ ((label - p)[:, None] * Z) / total
    assert np.linalg.eigvalsh(gradient)[0] >= -1e-5
    assert abs(np.sum(gradient * M)) <= 1e-5


# LMNN ------------------------------------------------------------------------------------------


def brute_force_lmnn(X: np.ndarray, y: np.ndarray, M: np.ndarray, k: int, push: float) -> float:
    """The objective by three loops."""
    n, value = len(X), 0.0
    for i in range(n):
        mates = [j for j in range(n) if j != i and y[j] == y[i]]
        mates.sort(key=lambda j: np.sum((X[i] - X[j]) ** 2))
        for j in mates[:k]:
            near = (X[i] - X[j]) @ M @ (X[i] - X[j])
            value += (1 - push) * near
            for other in range(n):
                if y[other] != y[i]:
                    value += push * max(0.0, 1 + near - (X[i] - X[other]) @ M @ (X[i] - X[other]))
    return value / n


@pytest.mark.parametrize("push", [0.5, 0.9])
def test_the_lmnn_objective_is_that_of_three_loops(data: Any, push: float) -> None:
    X, y = data
    model = LMNN(push=push).fit(X, y)
    expected = brute_force_lmnn(X, y, model.get_mahalanobis_matrix(), 3, push)
    assert model.objective_ == pytest.approx(expected, rel=1e-8)


def test_no_other_metric_has_a_lower_lmnn_objective(data: Any) -> None:
    """Convexity: where no random direction descends, nothing is lower."""
    X, y = data
    model = LMNN(tol=1e-5, smoothing=1e-2, max_iter=1000).fit(X, y)
    M = model.get_mahalanobis_matrix()
    rng = np.random.default_rng(0)
    for size in (1e-2, 1e-1):
        for _ in range(4):
            other = (1 - size) * M + size * spd(rng, 4) * np.trace(M) / 24
            assert brute_force_lmnn(X, y, other, 3, 0.5) >= model.objective_ * (1 - 1e-4)


def test_impostors_left_out_are_counted_and_said(data: Any) -> None:
    X, y = data
    every = LMNN().fit(X, y)
    assert (every.n_left_out_, every.converged_) == (0, True)
    assert LMNN(max_impostors=60).fit(X, y).objective_ == every.objective_
    with pytest.warns(ConvergenceWarning, match=r"lmnn: \d+ impostors .* raise max_impostors from 2"):
        few = LMNN(max_impostors=2).fit(X, y)
    assert few.n_left_out_ > 0
    assert not few.converged_


def test_lmnn_reaches_the_optimum_of_plain_subgradient_steps() -> None:
    """On overlapping classes, where most examples have many impostors."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 12)
    X = 0.8 * rng.normal(size=(6, 3))[y] + rng.normal(size=(72, 3))
    n, k = len(y), 3
    squared = np.sum((X[:, None] - X[None]) ** 2, axis=2)
    same = y[:, None] == y[None, :]
    order = np.argsort(np.where(same & ~np.eye(n, dtype=bool), squared, np.inf), axis=1)[:, :k]
    i, a, b = np.nonzero(np.ones((n, k), dtype=bool)[:, :, None] & ~same[:, None, :])
    near, far = X[i] - X[order[i, a]], X[i] - X[b]
    pull = np.stack([X[i] - X[j] for i in range(n) for j in order[i]])
    pull = pull.T @ pull
    M, best = 0.1 * np.eye(3), np.inf
    for step in range(400):
        slack = 1 + np.sum((near @ M) * near, axis=1) - np.sum((far @ M) * far, axis=1)
        active = slack > 0
        best = min(best, float(0.5 * np.sum(pull * M) + 0.5 * slack[active].sum()) / n)
        gradient = (pull + near[active].T @ near[active] - far[active].T @ far[active]) / (2 * n)
        values, vectors = np.linalg.eigh(M - 0.3 / (1 + step) ** 0.5 * gradient / np.linalg.norm(gradient))
        M = (vectors * np.maximum(values, 0)) @ vectors.T
    model = LMNN(tol=1e-3).fit(X, y)
    assert model.converged_
    assert model.objective_ == pytest.approx(best, rel=3e-3)


def test_lmnn_slopes_agree_with_differences(data: Any, arrays: Any) -> None:
    X, y = data
    points = arrays.asarray(X)
    triplets = _Triplets(points, y, 3, 0.5, choose_backend(points))
    found = triplets.search(points, 60)
    distances = to_numpy(found.pairs.projected_distances(points))
    value, slope = triplets.loss(arrays.asarray(distances), found, 0.1)
    direction = np.random.default_rng(0).normal(size=distances.size)
    ahead, _ = triplets.loss(arrays.asarray(distances + 1e-6 * direction), found, 0.1)
    behind, _ = triplets.loss(arrays.asarray(distances - 1e-6 * direction), found, 0.1)
    assert np.isfinite(value)
    assert float(to_numpy(slope) @ direction) == pytest.approx((ahead - behind) / 2e-6, rel=1e-5)


def test_lmnn_without_impostors_gives_a_metric() -> None:
    X = np.vstack([np.zeros((5, 2)), np.full((5, 2), 1e3)]) + np.random.default_rng(0).normal(size=(10, 2))
    model = LMNN().fit(X, np.repeat([0, 1], 5))
    assert np.all(np.isfinite(model.components_))
    assert model.objective_ < 1.0


def test_small_classes_have_fewer_targets() -> None:
    X = np.random.default_rng(0).normal(size=(9, 2))
    y = np.asarray([0, 0, 0, 0, 0, 0, 1, 1, 2])
    model = LMNN().fit(X, y)
    expected = brute_force_lmnn(X, y, model.get_mahalanobis_matrix(), 3, 0.5)
    assert model.objective_ == pytest.approx(expected, rel=1e-8)


# ILHD ------------------------------------------------------------------------------------------


def test_codes_at_rest_cannot_be_improved_by_a_flip() -> None:
    rng = np.random.default_rng(0)
    W = affinity(np.repeat([0, 1, 2], 20), 10, 20, rng)
    codes, _, at_rest = flip_codes(W, rng)
    np.testing.assert_array_equal(W, W.T)
    assert at_rest
    value = codes @ W @ codes
    for i in range(60):
        flipped = codes.copy()
        flipped[i] *= -1
        assert flipped @ W @ flipped <= value


def test_affinity_is_positive_within_and_negative_across_classes() -> None:
    labels = np.repeat([0, 1], 10)
    W = affinity(labels, 100, 100, np.random.default_rng(0))
    same = labels[:, None] == labels[None, :]
    assert np.all(W[~same] < 0)
    assert np.all(W[same & ~np.eye(20, dtype=bool)] > 0)
    assert np.all(np.diag(W) == 0)


def test_squared_distance_of_codes_is_hamming_distance(data: Any) -> None:
    X, y = data
    model = ILHD(n_bits=16, random_state=0).fit(X, y)
    codes = model.transform(X)
    assert np.sum((codes[0] - codes[1]) ** 2) == np.sum(codes[0] != codes[1])
    assert np.unique(codes, axis=1).shape[1] > 4  # diversity: bits are not copies of each other


def test_euclid_is_the_identity(data: Any) -> None:
    X, y = data
    np.testing.assert_array_equal(EUC().fit(X, y).transform(X), X)
