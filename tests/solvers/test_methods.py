"""One contract for all 31 methods: what every entry of the table must do."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from solvers import ILHD, PDML
from solvers.methods import METHODS, make_method
from tests.conftest import ROOT

NAMES = [
    "euc",
    "lmnn",
    "itml",
    "ldml",
    "mlec",
    "gmml",
    "ilhd",
    "mdml",
    "mdml-l2",
    "mdml-l1",
    "mdml-l21",
    "mdml-tr",
    "mdml-it",
    "mdml-drop",
    "mdml-os",
    "pdml",
    "pdml-dc",
    "pdml-cs",
    "pdml-dpp",
    "pdml-ic",
    "pdml-dec",
    "pdml-vgf",
    "pdml-ma",
    "pdml-oc",
    "pdml-os",
    "pdml-sfn",
    "pdml-vnd",
    "pdml-ldd",
    "mdml-csfn",
    "mdml-cvnd",
    "mdml-cldd",
]
# Enough to learn something, little enough that the whole suite takes seconds.
SETTINGS: dict[str, Any] = {
    "n_pairs": 300,
    "max_iter": 60,
    "n_restarts": 2,
    "random_state": 0,
    "device": "cpu",
}
# Rounding errors of the input grow with the steps, most of all for methods that are not convex.
FEW_STEPS = {"max_iter": 4}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def small(name: str, **settings: Any) -> Any:
    """The method with small settings, an unfitted estimator."""
    method = METHODS[name]
    pytest.importorskip(method.factory.partition(":")[0])
    common = {"gamma": 0.01, "rank": 4 if name == "ilhd" else 2} | SETTINGS | settings
    return make_method(name, settings=common)


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    X, y = make_blobs(n_samples=80, centers=4, n_features=5, cluster_std=3.0, random_state=0)
    return X / 10, y


def quiet_fit(model: Any, X: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def squared_distances(Z: np.ndarray) -> np.ndarray:
    return np.sum((Z[:, None, :] - Z[None, :, :]) ** 2, axis=-1)


def test_the_table_holds_the_names_of_the_papers_tables_in_their_order() -> None:
    assert list(METHODS) == NAMES
    assert all(method.name == name for name, method in METHODS.items())


@pytest.mark.parametrize(
    ("name", "tuned"),
    [
        ("euc", ()),
        ("gmml", ()),
        ("ilhd", ("rank",)),
        ("mdml", ()),
        ("mdml-os", ()),
        ("mdml-drop", ("gamma",)),
        ("mdml-cvnd", ("gamma",)),
        ("pdml", ("rank",)),
        ("pdml-os", ("rank",)),
        ("pdml-oc", ("rank",)),
        ("pdml-vnd", ("gamma", "rank")),
    ],
)
def test_what_is_tuned_follows_the_papers_counting(name: str, tuned: tuple[str, ...]) -> None:
    assert METHODS[name].tuned == tuned


def test_only_projections_restart_and_no_convex_method_does() -> None:
    for method in METHODS.values():
        assert method.restarts == (method.family == "pdml")
        assert not (method.restarts and method.convex)


def test_listing_the_methods_imports_no_numerics() -> None:
    code = "import sys, solvers.methods; print(sorted({'numpy', 'sklearn', 'scipy'} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_an_unknown_method_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match=r"unknown method 'mdml-cvdn'. Did you mean 'mdml-cvnd'\?"):
        make_method("mdml-cvdn")


def test_a_setting_that_another_method_knows_is_left_out() -> None:
    model = make_method("euc", settings={"gamma": 0.1, "rank": 3, "n_pairs": 5, "n_neighbors": 2})
    assert model.get_params() == {"device": "auto"}


@pytest.mark.parametrize(
    ("name", "params", "answer"),
    [
        ("euc", {"gamma": 0.1}, "euc: has no use for 'gamma'"),
        ("mdml", {"gamma": 0.1}, "mdml: has no use for 'gamma'"),
        ("lmnn", {"k": 5}, r"lmnn: has no use for 'k'. Did you mean 'n_neighbors'\?"),
        ("pdml", {"n_pair": 5}, r"pdml: has no use for 'n_pair'. Did you mean 'n_pairs'\?"),
    ],
)
def test_a_parameter_given_by_name_to_a_method_without_it_is_refused(name: str, params: Any, answer: str) -> None:
    with pytest.raises(ValueError, match=answer):
        make_method(name, **params)


def test_a_setting_that_no_method_knows_is_answered_with_the_nearest_name() -> None:
    pytest.importorskip("solvers.projection.pdml")
    with pytest.raises(ValueError, match=r"unknown setting 'n_pair'.*Did you mean 'n_pairs'\?"):
        make_method("euc", settings={"n_pair": 5})


def test_gamma_and_rank_reach_the_parameters_they_mean() -> None:
    assert make_method("ilhd", rank=7).n_bits == 7
    assert make_method("mdml-cvnd", gamma=0.5).gamma == 0.5
    pytest.importorskip("solvers.projection.pdml")
    model = make_method("pdml-vnd", gamma=0.5, rank=7)
    assert (model.gamma, model.n_components, model.regularizer) == (0.5, 7, "vnd")


def test_the_classes_know_the_sweep_files_word_for_the_rank(data: Any) -> None:
    X, y = data
    common = {"n_pairs": 50, "max_iter": 5, "random_state": 0}
    by_word, by_name = PDML(rank=2, **common), PDML(n_components=2, **common)
    np.testing.assert_array_equal(quiet_fit(by_word, X, y).components_, quiet_fit(by_name, X, y).components_)
    assert quiet_fit(ILHD(rank=3, random_state=0), X, y).rank_ == 3
    with pytest.raises(ValueError, match="rank: is n_components, got 2 and 3; give one of them"):
        PDML(rank=2, n_components=3).fit(X, y)


def test_a_drop_probability_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="mdml-drop: gamma must be below 1 here, got 1: gamma is the probability"):
        make_method("mdml-drop", gamma=1.0)


def test_a_setting_against_the_name_is_refused() -> None:
    with pytest.raises(ValueError, match="mdml-l2: regularizer is 'l2' by name"):
        make_method("mdml-l2", regularizer="tr")


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_says_what_it_learned_and_what_it_cost(name: str, data: Any) -> None:
    X, y = data
    model = quiet_fit(small(name), X, y)
    Z = model.transform(X)
    assert Z.shape == (80, model.rank_)
    assert np.all(np.isfinite(Z))
    assert model.n_iter_ >= 0
    assert isinstance(model.converged_, bool)
    if name == "ilhd":
        assert set(np.unique(Z)) <= {0.0, 1.0}
        with pytest.raises(ValueError, match="no Mahalanobis matrix"):
            model.get_mahalanobis_matrix()
        return
    assert model.n_eigh_ >= 0
    M = model.get_mahalanobis_matrix()
    np.testing.assert_allclose(M, M.T, atol=1e-12 * np.abs(M).max())
    eigenvalues = np.linalg.eigvalsh(M)
    assert eigenvalues[0] >= -1e-10 * max(1.0, eigenvalues[-1])
    np.testing.assert_allclose(Z, X @ model.components_.T, rtol=1e-10, atol=1e-12)
    tail = max(0.0, eigenvalues[-1]) * 1e-3 if METHODS[name].family != "pdml" else 0.0
    assert np.linalg.norm(M - model.components_.T @ model.components_, 2) <= tail + 1e-8


@pytest.mark.parametrize("name", NAMES)
def test_pair_distances_are_those_of_transformed_points(name: str, data: Any) -> None:
    X, y = data
    model = quiet_fit(small(name), X, y)
    Z = model.transform(X)
    expected = np.linalg.norm(Z[:10] - Z[10:20], axis=1)
    pairs = np.stack([X[:10], X[10:20]], axis=1)
    np.testing.assert_allclose(model.pair_distance(pairs), expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(model.pair_score(pairs), -expected, rtol=1e-8, atol=1e-10)
    assert model.get_metric()(X[0], X[10], squared=True) == pytest.approx(expected[0] ** 2, abs=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_moving_all_points_changes_no_distance(name: str, data: Any) -> None:
    X, y = data
    shift = np.asarray([3.0, -2.0, 1.0, 0.5, -4.0])
    # With l2 the first steps end at an M of almost zero, which is mostly rounding: to the end there.
    steps = {} if name == "mdml-l2" else FEW_STEPS
    here = quiet_fit(small(name, **steps), X, y).transform(X)
    there = quiet_fit(small(name, **steps), X + shift, y).transform(X + shift)
    expected = squared_distances(here)
    np.testing.assert_allclose(squared_distances(there), expected, rtol=1e-4, atol=1e-4 * expected.max())


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_fixes_the_result_and_a_pickle_keeps_it(name: str, data: Any) -> None:
    X, y = data
    model = quiet_fit(small(name), X, y)
    again = quiet_fit(clone(model), X, y)
    np.testing.assert_array_equal(model.transform(X), again.transform(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(X), model.transform(X))


@pytest.mark.parametrize("name", NAMES)
def test_a_data_frame_serves_like_an_array(name: str, data: Any) -> None:
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = quiet_fit(small(name, **FEW_STEPS), frame, pd.Series(y).map(lambda code: f"class {code}"))
    assert list(model.feature_names_in_) == list("abcde")
    expected = quiet_fit(small(name, **FEW_STEPS), X, y).transform(X)
    np.testing.assert_allclose(model.transform(frame), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_single_precision_stays_single_and_finite(name: str, data: Any) -> None:
    X, y = data
    Z = quiet_fit(small(name), X.astype(np.float32), y).transform(X.astype(np.float32))
    assert Z.dtype == np.float32
    assert np.all(np.isfinite(Z))


BAD_DATA = {
    "one class": lambda X, y: (X, np.zeros_like(y)),
    "classes of one": lambda X, y: (X[:20], np.arange(20)),
    "identical points": lambda X, y: (np.ones_like(X), y),
    "constant features": lambda X, y: (np.hstack([X, np.ones((80, 2))]), y),
    "more features than examples": lambda X, y: (np.random.default_rng(0).normal(size=(12, 30)), y[:12] % 2),
    "a class of one": lambda X, y: (X, np.where(np.arange(80) == 0, 9, y)),
    "duplicate points": lambda X, y: (np.repeat(X[:20], 4, axis=0), np.repeat(y[:20], 4)),
    "tiny values": lambda X, y: (1e-6 * X, y),
    "huge values": lambda X, y: (1e6 * X, y),
}


MAY_REFUSE = ("one class", "classes of one", "identical points", "more features than examples")


@pytest.mark.parametrize("case", BAD_DATA)
@pytest.mark.parametrize("name", NAMES)
def test_awkward_data_give_a_finite_metric_or_one_clear_line(name: str, case: str, data: Any) -> None:
    X, y = BAD_DATA[case](*data)
    model = small(name)
    try:
        quiet_fit(model, X, y)
    except ValueError as error:
        message: str | None = str(error)
    else:
        message = None
    if message is None:
        assert np.all(np.isfinite(model.transform(X)))
    else:
        assert case in MAY_REFUSE, message
        assert "\n" not in message


def _all_estimators() -> list[Any]:
    estimators = []
    for name, method in METHODS.items():
        try:
            method.load()
        except ModuleNotFoundError:
            continue
        settings = {"rank": 2, "max_iter": 30, "n_pairs": 200, "restarts": 2, "device": "cpu"}
        estimators.append(make_method(name, settings=settings))
    return estimators


def _one_per_class() -> list[Any]:
    return list({type(estimator): estimator for estimator in _all_estimators()}.values())


def own_checks(estimators: list[Any], *, array_api: bool = False) -> Any:
    """scikit-learn's checks as cases of a test; that of the array API needs a setting which SciPy reads but once."""
    made = parametrize_with_checks(estimators)
    names, cases = made.args
    chosen = [case for case in cases if ("array_api" in case[1].func.__name__) is array_api]
    return pytest.mark.parametrize(names, chosen, **made.kwargs)


@own_checks(_one_per_class())
def test_scikit_learns_own_checks_pass(estimator: Any, check: Any) -> None:
    run_check(estimator, check)


@pytest.mark.slow
@own_checks(_all_estimators())
def test_scikit_learns_own_checks_pass_for_every_method(estimator: Any, check: Any) -> None:
    run_check(estimator, check)


def test_scikit_learns_check_of_the_array_api_passes_for_every_method() -> None:
    code = (
        "from tests.solvers.test_methods import METHODS, _all_estimators, own_checks, run_check\n"
        "_, cases = own_checks(_all_estimators(), array_api=True).args\n"
        "assert len(cases) >= len(METHODS)\n"
        "for case in cases: run_check(*case)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"SCIPY_ARRAY_API": "1"}, cwd=ROOT)


def run_check(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)
