"""PDML: one contract for every regularizer, both algorithms and all backends."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

from solvers.backend import Backend, to_numpy
from solvers.convex.mdml import MDML
from solvers.pairs import problem_from_labels
from solvers.projection.objective import ProjectionObjective
from solvers.projection.pdml import PDML, best_of_restarts
from solvers.regularizers.rows import ROWS, SquaredFrobenius
from tests.conftest import ArrayBackend

REGULARIZERS = (*ROWS, "oc")
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module", name="data")
def _data() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_wine(return_X_y=True)
    return (X - X.min(axis=0)) / np.ptp(X, axis=0), y


def fit(data: tuple[Any, Any], regularizer: str = "none", **settings: Any) -> PDML:
    settings = {"n_components": 4, "n_pairs": 800, "n_restarts": 3, "random_state": 0} | settings
    return PDML(regularizer, **settings).fit(*data)


def objective_by_hand(model: PDML, X: np.ndarray, similar: np.ndarray, dissimilar: np.ndarray) -> float:
    """The data terms, pair by pair."""
    Z = X @ model.components_.T
    near = np.sum((Z[similar[:, 0]] - Z[similar[:, 1]]) ** 2, axis=1)
    far = np.sum((Z[dissimilar[:, 0]] - Z[dissimilar[:, 1]]) ** 2, axis=1)
    return float(near.mean() + np.maximum(0, model.margin - far).mean())


def some_pairs(y: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.random.default_rng(3).integers(len(y), size=(20 * count, 2))
    same = (y[pairs[:, 0]] == y[pairs[:, 1]]) & (pairs[:, 0] != pairs[:, 1])
    return pairs[same][:count], pairs[y[pairs[:, 0]] != y[pairs[:, 1]]][:count]


def test_scikit_learns_own_checks() -> None:
    check_estimator(PDML())


@pytest.mark.parametrize("regularizer", REGULARIZERS)
@pytest.mark.parametrize("algorithm", ["lbfgs", "paper"])
def test_every_fit_improves_on_its_start_and_keeps_its_promises(
    data: tuple[np.ndarray, np.ndarray], regularizer: str, algorithm: str
) -> None:
    start = fit(data, regularizer, algorithm="lbfgs", max_iter=1)
    model = fit(data, regularizer, algorithm=algorithm)
    assert np.all(model.restart_objectives_ < start.restart_objectives_)
    assert model.objective_ == model.restart_objectives_.min()
    assert model.best_restart_ == model.restart_objectives_.argmin()
    np.testing.assert_array_equal(model.components_, model.restart_components_[model.best_restart_])
    assert model.components_.shape == (4, 13)
    assert model.rank_ == 4
    assert model.n_iter_ == model.restart_n_iter_.sum()
    # Restarts are asked every four rounds whether they ended.
    assert model.history_[-1]["n_iter"] <= model.restart_n_iter_.max() + 3
    assert len(model.history_) < 300
    assert isinstance(model.converged_, bool)
    small_eigh = regularizer in {"vnd", "ldd", "dc", "dpp"}
    assert (model.n_eigh_ > 0) == small_eigh


@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_every_backend_gives_the_same(
    data: tuple[np.ndarray, np.ndarray], regularizer: str, arrays: ArrayBackend
) -> None:
    X, y = data
    settings = {"n_pairs": 200, "n_restarts": 2, "max_iter": 12}
    here = fit(data, regularizer, **settings)
    there = fit((arrays.asarray(X), y), regularizer, **settings)
    assert array_api_compat.device(there.components_) == arrays.device
    # The descent is in single precision, whose rounding differs between backends.
    np.testing.assert_allclose(to_numpy(there.components_), here.components_, rtol=0, atol=1e-4)
    np.testing.assert_allclose(there.restart_objectives_, here.restart_objectives_, rtol=1e-5)


@pytest.mark.parametrize("regularizer", ["none", "dec"])
def test_published_steps_are_the_same_on_every_backend(
    data: tuple[np.ndarray, np.ndarray], regularizer: str, arrays: ArrayBackend
) -> None:
    X, y = data
    settings = {"algorithm": "paper", "max_iter": 20, "n_pairs": 100}
    here = fit(data, regularizer, **settings)
    there = fit((arrays.asarray(X), y), regularizer, **settings)
    np.testing.assert_allclose(there.restart_objectives_, here.restart_objectives_, rtol=1e-8)


@pytest.mark.parametrize("algorithm", ["lbfgs", "paper"])
@pytest.mark.parametrize("regularizer", ["vnd", "dec", "oc"])
def test_a_stack_of_restarts_gives_what_single_fits_give(
    data: tuple[np.ndarray, np.ndarray], regularizer: str, algorithm: str
) -> None:
    # L-BFGS is in single precision, and products of a stack round in another order than those of one.
    few = algorithm == "lbfgs" and regularizer != "oc"
    settings = {"algorithm": algorithm, "max_iter": 12 if few else 40}
    three = fit(data, regularizer, **settings)
    one = fit(data, regularizer, n_restarts=1, **settings)
    tolerance = {"rtol": 0, "atol": 1e-4} if few else {"rtol": 1e-6, "atol": 1e-8}
    np.testing.assert_allclose(three.restart_components_[0], one.components_, **tolerance)
    assert three.restart_n_iter_[0] == one.n_iter_


def test_equal_seeds_give_equal_fits_and_others_differ(data: tuple[np.ndarray, np.ndarray]) -> None:
    for algorithm in ("lbfgs", "paper"):
        a, b, c = (fit(data, algorithm=algorithm, max_iter=30, random_state=seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(a.components_, b.components_)
        assert not np.array_equal(a.components_, c.components_)


def test_all_regularizers_gammas_and_algorithms_face_the_same_pairs_and_starts(
    data: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    original = PDML._starts

    def watch(self: PDML, *args: Any) -> Any:
        starts = original(self, *args)
        seen.append(starts)
        return starts

    monkeypatch.setattr(PDML, "_starts", watch)
    for settings in ({}, {"gamma": 1.0}, {"algorithm": "paper"}, {"margin": 2.0}):
        for regularizer in ("none", "vnd", "oc"):
            fit(data, regularizer, max_iter=1, **settings)
    assert all(np.array_equal(starts, seen[0]) for starts in seen)


def test_pairs_are_those_of_the_convex_fit(data: tuple[np.ndarray, np.ndarray]) -> None:
    """So its certified bound lies below, and close: k exceeds the rank of the convex optimum."""
    convex = MDML(regularizer="none", n_pairs=800, random_state=0).fit(*data)
    model = fit(data, n_components=13, lower_bound=convex.dual_objective_, tol=1e-4, max_iter=2000)
    assert model.bound_gap_ == model.objective_ - convex.dual_objective_
    assert 0 <= model.bound_gap_ < 0.01 * abs(model.objective_)


@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_a_bound_is_only_used_where_it_holds(data: tuple[np.ndarray, np.ndarray], regularizer: str) -> None:
    model = fit(data, regularizer, lower_bound=0.1, max_iter=5)
    holds = regularizer in {"none", "sfn", "vnd", "ldd", "dec", "vgf", "oc"}
    assert (model.bound_gap_ is not None) == holds
    assert fit(data, regularizer, max_iter=5).bound_gap_ is None


@pytest.mark.parametrize("n_pairs", [1, 300])
def test_the_objective_is_the_one_of_the_contract(data: tuple[np.ndarray, np.ndarray], n_pairs: int) -> None:
    X, y = data
    similar, dissimilar = some_pairs(y, n_pairs)
    model = PDML("sfn", n_components=3, gamma=0.1, random_state=0).fit_pairs(X, similar, dissimilar)
    G = model.components_ @ model.components_.T
    penalty = 0.1 * np.sum((G - np.eye(3)) ** 2)
    assert model.objective_ == pytest.approx(objective_by_hand(model, X, similar, dissimilar) + penalty)


def test_published_steps_use_the_given_pairs_too(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    similar, dissimilar = some_pairs(y, 200)
    model = PDML(algorithm="paper", n_components=3, random_state=0).fit_pairs(X, similar, dissimilar)
    assert model.objective_ == pytest.approx(objective_by_hand(model, X, similar, dissimilar))
    assert model.restart_n_iter_.tolist() == [2000] * 5


def test_the_gradient_of_the_smoothed_objective(data: tuple[np.ndarray, np.ndarray], arrays: ArrayBackend) -> None:
    X, y = data
    backend = Backend(arrays.xp, arrays.device, arrays.xp.float64)
    problem = problem_from_labels(
        backend.asarray(X),
        y,
        n_pairs=300,
        margin=1.0,
        oversample=False,
        rng=np.random.default_rng(0),
        backend=backend,
    )
    objective = ProjectionObjective(problem, SquaredFrobenius(), 0.3, backend.xp)
    A = np.random.default_rng(1).standard_normal((1, 3, 13)) / 2
    gradient = to_numpy(objective.smoothed(backend.asarray(A), backend.asarray([0.5]))[1])
    shifts = 1e-6 * np.eye(A.size).reshape(-1, 3, 13)
    smoothing = backend.asarray(np.full(A.size, 0.5))
    up, down = (to_numpy(objective.smoothed(backend.asarray(A + sign * shifts), smoothing)[0]) for sign in (1, -1))
    numeric = ((up - down) / 2e-6).reshape(A.shape)
    assert np.linalg.norm(gradient - numeric) <= 1e-6 * np.linalg.norm(numeric)
    smoothed = to_numpy(objective.smoothed(backend.asarray(A), backend.asarray([0.5]))[0])
    exact = to_numpy(objective.exact(backend.asarray(A)))
    assert exact - 0.25 <= smoothed <= exact


def test_plain_pdml_of_full_rank_reaches_what_the_convex_fit_reaches() -> None:
    data = load_iris(return_X_y=True)
    convex = MDML(regularizer="none", n_pairs=2000, random_state=0).fit(*data)
    model = PDML(n_pairs=2000, random_state=0, tol=1e-4, max_iter=1000).fit(*data)
    assert model.objective_ <= convex.objective_ * 1.01


@pytest.mark.parametrize("rank", [1, 3, 8, 13])
def test_orthonormal_rows_are_kept_and_never_worse_than_projecting_an_unconstrained_fit(
    data: tuple[np.ndarray, np.ndarray], rank: int
) -> None:
    X, y = data
    similar, dissimilar = some_pairs(y, 500)
    constrained, free = (
        PDML(name, n_components=rank, random_state=0).fit_pairs(X, similar, dissimilar) for name in ("oc", "none")
    )
    for A in constrained.restart_components_:
        assert np.abs(A @ A.T - np.eye(rank)).max() < 1e-10
    U, _, Vt = np.linalg.svd(free.components_, full_matrices=False)
    free.components_ = U @ Vt
    # Both by the exact objective; the solver works on one smoothed by at most 0.005.
    assert constrained.objective_ <= objective_by_hand(free, X, similar, dissimilar) + 1e-3


def test_oversampling_changes_the_weight_of_classes(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    keep = np.flatnonzero((y != 2) | (np.arange(len(y)) % 8 == 0))
    plain, equal = (fit((X[keep], y[keep]), oversample=flag, max_iter=30) for flag in (False, True))
    assert not np.allclose(plain.components_, equal.components_)


def test_what_fewer_restarts_would_have_given() -> None:
    curve = best_of_restarts(np.array([3.0, 1.0, 2.0]), np.array([0.7, 0.8, 0.9]))
    assert curve == [
        {"n_restarts": 1, "objective": 3.0, "score": 0.7},
        {"n_restarts": 2, "objective": 1.0, "score": 0.8},
        {"n_restarts": 3, "objective": 1.0, "score": 0.8},
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 14}, "n_components: expected at most the 13 features of X, got 14"),
        ({"n_components": 0}, "n_components: expected at least 1, got 0"),
        ({"n_restarts": 0}, "n_restarts: expected at least 1, got 0"),
        ({"max_iter": 0}, "max_iter: expected at least 1, got 0"),
        ({"gamma": -1.0}, "gamma: expected at least 0, got -1"),
        ({"gamma": float("nan")}, "gamma: expected at least 0, got nan"),
        ({"margin": 0.0}, "margin: expected a positive number"),
        ({"regularizer": "cvnd"}, "regularizer: expected one of none, sfn"),
        ({"algorithm": "sgd"}, "algorithm: expected one of lbfgs, paper, got 'sgd'"),
        ({"init": "zero"}, "init: expected one of orthonormal, gaussian"),
        ({"dpp_kernel": "poly"}, "dpp_kernel: expected one of linear, cosine, rbf"),
        ({"ic_form": "max"}, "ic_form: expected one of lse, pow"),
    ],
)
def test_mistakes_are_answered_in_one_line(
    data: tuple[np.ndarray, np.ndarray], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        fit(data, **settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("regularizer", ["vnd", "ldd", "dc", "dpp"])
def test_a_rank_deficient_start_is_driven_apart(
    data: tuple[np.ndarray, np.ndarray], regularizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twins(self: PDML, restarts: range, rank: int, D: int, seed: int, backend: Backend) -> np.ndarray:
        A = np.random.default_rng(0).standard_normal((2, rank, D)) / D**0.5
        A[:, 1] = A[:, 0]
        A[:, 1, 0] += 1e-9
        return A

    monkeypatch.setattr(PDML, "_starts", twins)
    model = fit(data, regularizer, gamma=0.1, n_restarts=2)
    assert np.isfinite(model.restart_objectives_).all()
    assert np.linalg.svd(model.components_, compute_uv=False).min() > 1e-3


def test_options_left_open_reach_the_regularizer(data: tuple[np.ndarray, np.ndarray]) -> None:
    changes = {
        "dpp": [{"dpp_kernel": "cosine"}, {"dpp_kernel": "rbf"}],
        "ic": [{"ic_form": "pow", "ic_beta": 4.0}, {"ic_beta": 5.0}],
        "cs": [{"cs_abs": True}],
        "vgf": [{"vgf_diagonal": 0.5}],
    }
    for regularizer, options in changes.items():
        objectives = {
            fit(data, regularizer, max_iter=3, gamma=1.0, init="gaussian", **option).objective_
            for option in ({}, *options)
        }
        assert len(objectives) == 1 + len(options), regularizer
    assert fit(data, "vgf", max_iter=3).resolved_params_["vgf_diagonal"] == 3.0


def test_an_end_without_convergence_is_said(data: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.warns(ConvergenceWarning, match="not converged in 3 evaluations"):
        model = fit(data, max_iter=3)
    assert not model.converged_
    assert model.stationarity_ > model.tol


@pytest.mark.parametrize("regularizer", sorted(ROWS))
def test_default_settings_converge_whatever_the_regularizer(
    data: tuple[np.ndarray, np.ndarray], regularizer: str
) -> None:
    """Penalties on cosines too, which grow ever steeper at rows that shrink."""
    model = fit(data, regularizer)
    assert model.converged_
    assert model.restart_n_iter_.max() < 600
    further = fit(data, regularizer, tol=1e-4, max_iter=5000)
    allowed = 3e-2 if regularizer in {"cs", "ic", "ma"} else 3e-3
    assert model.objective_ - further.objective_ < allowed * abs(further.objective_)


def test_restarts_of_full_rank_start_apart(data: tuple[np.ndarray, np.ndarray]) -> None:
    model = fit(data, n_components=13, max_iter=1)
    assert len(set(np.round(model.restart_objectives_, 9))) == 3
    one = fit(data, n_components=13, max_iter=1, n_restarts=1)
    assert one.objective_ == pytest.approx(model.restart_objectives_[0])


def test_restarts_that_agree_make_the_others_unnecessary(data: tuple[np.ndarray, np.ndarray]) -> None:
    every = fit(data, "vnd", n_restarts=5)
    assert (every.restarts_run_, every.n_restarts_saved_) == (5, 0)
    saved = fit(data, "vnd", n_restarts=5, agree_tol=1.0)
    assert (saved.restarts_run_, saved.n_restarts_saved_) == (2, 3)
    np.testing.assert_allclose(saved.restart_objectives_, every.restart_objectives_[:2], rtol=1e-5)
    assert saved.n_iter_ == saved.restart_n_iter_.sum()
    strict = fit(data, "vnd", n_restarts=5, agree_tol=0.0)
    assert (strict.restarts_run_, strict.n_restarts_saved_) == (5, 0)
    np.testing.assert_allclose(strict.restart_objectives_, every.restart_objectives_, rtol=1e-5)
    for settings in ({"algorithm": "paper", "max_iter": 30}, {"regularizer": "oc"}):
        assert fit(data, n_restarts=3, agree_tol=0.0, **settings).restart_components_.shape == (3, 4, 13)
    assert fit(data, n_restarts=1, agree_tol=1.0).restarts_run_ == 1


@pytest.mark.parametrize("seed", range(12))
def test_plain_pdml_never_falls_below_the_certified_bound(seed: int) -> None:
    """Whatever the data, at a rank that suffices; measured in double, it comes near."""
    rng = np.random.default_rng(seed)
    D, n_classes = int(rng.integers(2, 12)), int(rng.integers(2, 5))
    y = rng.integers(0, n_classes, size=80)
    y[: 2 * n_classes] = np.repeat(np.arange(n_classes), 2)
    X = rng.standard_normal((80, D)) + rng.standard_normal((n_classes, D))[y]
    X = X * rng.lognormal(sigma=1.0, size=D)
    bound = MDML(regularizer="none", n_pairs=400, random_state=seed).fit(X, y).dual_objective_
    for dtype, slack in ((np.float64, 0.0), (np.float32, 1e-5)):
        model = PDML(n_components=D, n_pairs=400, random_state=seed).fit(X.astype(dtype), y)
        assert model.restart_objectives_.min() >= bound - slack
        assert model.objective_ <= bound + 0.02 * max(1.0, abs(bound))


def test_frames_float32_and_clones_are_as_good(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    plain = fit(data, "vnd")
    framed = clone(plain).fit(pd.DataFrame(X), pd.Series(y))
    np.testing.assert_array_equal(framed.components_, plain.components_)
    single = fit((X.astype(np.float32), y), "vnd")
    assert single.components_.dtype == np.float32
    assert single.objective_ == pytest.approx(plain.objective_, rel=1e-3)


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(0), np.int64(3)])
def test_every_random_state_of_scikit_learn_is_taken(data: tuple[np.ndarray, np.ndarray], random_state: Any) -> None:
    assert fit(data, random_state=random_state, max_iter=2).n_iter_ == 6


@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_constant_features_and_duplicates_do_no_harm(regularizer: str) -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((12, 5)), np.ones((12, 3))], axis=1)
    X = np.concatenate([X, X])
    y = np.tile([0, 1, 2], 8)
    model = fit((X, y), regularizer, max_iter=20)
    assert np.isfinite(model.components_).all()
    assert np.isfinite(model.transform(X)).all()
