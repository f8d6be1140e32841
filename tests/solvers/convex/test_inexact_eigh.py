"""A device whose eigendecompositions are less accurate than LAPACK's: what is proved stays true."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

from solvers.backend import eigh
from solvers.convex import dual
from solvers.methods import make_method

METHODS = ["mdml-csfn", "mdml-cvnd", "mdml-cldd", "mdml-l2", "mdml-it"]
Y = np.repeat(np.arange(4), [40, 40, 20, 20])
X = np.random.default_rng(0).standard_normal((120, 12)) + 3 * np.eye(12)[Y]


def fitted(name: str, **settings: Any) -> Any:
    given = {"gamma": 0.05, "n_pairs": 300, "random_state": 0, "device": "cpu"} | settings
    return make_method(name, settings=given).fit(X, Y)


def inexact(size: float) -> Callable[..., tuple[Any, Any]]:
    """eigh with errors of `size`: of the largest eigenvalue in the values, of 1 in the vectors' entries."""
    rng = np.random.default_rng(1)

    def decompose(M: Any, *, xp: Any) -> tuple[Any, Any]:
        values, vectors = eigh(M, xp=xp)
        values = values + size * np.max(np.abs(values)) * rng.standard_normal(values.shape)
        return np.sort(values), vectors + size * rng.standard_normal(vectors.shape)

    return decompose


@pytest.mark.parametrize("name", METHODS)
def test_errors_of_single_precision_leave_the_default_tolerance_within_reach(name: str) -> None:
    exact = fitted(name, tol=1e-8)
    with mock.patch.object(dual, "eigh", inexact(1e-6)):
        found = fitted(name)
    assert found.converged_
    assert found.n_eigh_ <= 2 * exact.n_eigh_
    assert found.dual_objective_ <= exact.objective_
    assert exact.dual_objective_ <= found.objective_ <= (1 + 1e-4) * exact.objective_


@pytest.mark.parametrize("size", [1e-5, 1e-3])
@pytest.mark.parametrize("name", METHODS)
def test_the_bound_is_true_however_large_the_errors(name: str, size: float) -> None:
    exact = fitted(name, tol=1e-8)
    with mock.patch.object(dual, "eigh", inexact(size)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it does not converge, and says so
        found = fitted(name, max_iter=60)
    assert found.dual_objective_ <= exact.objective_
    assert found.objective_ >= exact.dual_objective_
    assert found.converged_ == (found.relative_gap_ <= 1e-4)
