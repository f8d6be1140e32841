"""What scikit-learn and metric-learn users expect of every estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from solvers.convex.mdml import MDML
from solvers.methods import METHODS, make_method
from solvers.projection.pdml import PDML

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def frame() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    X = pd.DataFrame(rng.normal(size=(30, 3)) + y[:, None], columns=["height", "width", "weight"])
    return X, y


def quick(name: str) -> Any:
    """The method with so little to do that all of them fit in a test."""
    model = make_method(name)
    wanted = {"max_iter": 5, "n_pairs": 50, "n_restarts": 1, "n_components": 2, "n_bits": 3}
    return model.set_params(**{key: value for key, value in wanted.items() if key in model.get_params()})


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_names_what_goes_in_and_comes_out(name: str, frame: Any) -> None:
    X, y = frame
    model = quick(name).fit(X, y)
    assert list(model.feature_names_in_) == ["height", "width", "weight"]
    names = model.get_feature_names_out()
    assert list(names) == [f"{type(model).__name__.lower()}{k}" for k in range(model.rank_)]
    plain = model.transform(X)
    shown = model.set_output(transform="pandas").transform(X)
    assert list(shown.columns) == list(names)
    assert list(shown.index) == list(X.index)
    np.testing.assert_array_equal(shown.to_numpy(), plain)
    with pytest.raises(ValueError, match="feature names"):
        model.transform(X.rename(columns={"height": "length"}))


def test_names_go_through_a_pipeline(frame: Any) -> None:
    X, y = frame
    chain = make_pipeline(StandardScaler(), MDML("csfn", n_pairs=50)).set_output(transform="pandas").fit(X, y)
    assert list(chain.transform(X).columns) == list(chain.get_feature_names_out())


@pytest.mark.parametrize("model", [MDML("csfn", random_state=0), PDML("none", n_components=2, random_state=0)])
def test_pairs_may_come_as_metric_learn_has_them(model: Any, frame: Any) -> None:
    X, y = frame
    pairs = np.stack(np.triu_indices(30, 1), axis=1)
    kind = np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 1, -1)
    expected = model.fit_pairs(X, pairs[kind == 1], pairs[kind == -1]).get_mahalanobis_matrix()
    np.testing.assert_array_equal(model.fit_pairs(X, pairs, kind).get_mahalanobis_matrix(), expected)
    np.testing.assert_array_equal(model.fit_pairs(X, pairs.tolist(), kind.tolist()).get_mahalanobis_matrix(), expected)
    with pytest.raises(ValueError, match=r"^y: expected \+1 \(similar\) or -1 \(dissimilar\) for each pair, got 0$"):
        model.fit_pairs(X, pairs, np.where(kind == 1, 1, 0))
    with pytest.raises(ValueError, match=r"^pairs: expected shape \(434, 2\), one pair for each label in y"):
        model.fit_pairs(X, pairs, kind[:-1])
    with pytest.raises(ValueError, match=r"^dissimilar: expected at least one pair, got none$"):
        model.fit_pairs(X, pairs, np.ones_like(kind))
