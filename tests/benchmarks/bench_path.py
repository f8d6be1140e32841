"""The whole path of gamma: eigendecompositions, seconds, and every certificate recomputed from scratch."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from solvers import MDML, MDMLPath
from solvers.backend import choose_backend
from solvers.convex.dual import relative_gap
from solvers.pairs import draw_dissimilar, within_class_scatter
from solvers.regularizers.table import make_regularizer
from tests.benchmarks.conftest import Data, print_table

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

MOST = {1e-2: {"csfn": 20, "cvnd": 25, "cldd": 25}, 1e-3: {"csfn": 60, "cvnd": 60, "cldd": 60}}
SETTINGS: dict[str, Any] = {"n_pairs": 20_000, "random_state": 0, "device": "cpu"}


def largest_gap(path: MDMLPath, data: Data, count: int) -> float:
    """The largest gap at random gammas, from F and D by their definitions; and no reported bound above its D."""
    X, y = data
    codes = np.unique(y, return_inverse=True)[1]
    centred = X - X.mean(axis=0)
    C_S = within_class_scatter(centred, codes, oversample=False, backend=choose_backend(centred, "cpu"))
    first, second = draw_dissimilar(codes, path.n_pairs, rng=np.random.default_rng(0))
    difference = incidence(first, len(X)) - incidence(second, len(X))
    penalty, worst = make_regularizer(path.regularizer), 0.0
    for gamma in 10 ** np.random.default_rng(1).uniform(np.log10(path.gamma_min), np.log10(path.gamma_max), count):
        model = path.at(gamma)
        values, vectors = np.linalg.eigh(model.get_mahalanobis_matrix())
        values, vectors = np.clip(values[values > 0], 0, None), vectors[:, values > 0]
        projected = centred @ (vectors * np.sqrt(values))
        d = np.sum((projected[first] - projected[second]) ** 2, axis=1)
        loss = np.sum(C_S * model.get_mahalanobis_matrix()) + np.maximum(0, 1 - d).mean()
        F = loss + gamma * np.sum(penalty.value(np.pad(values, (len(C_S) - len(values), 0)), xp=np))
        alpha = model.dual_weights_
        laplacian = difference.T @ scipy.sparse.diags(alpha / len(first)) @ difference
        g = np.linalg.eigvalsh(C_S - centred.T @ (laplacian @ centred))
        x = penalty.maximizer(-g / gamma, xp=np)
        D = alpha.mean() - gamma * np.sum(-x * g / gamma - penalty.value(x, xp=np))
        assert model.objective_ == pytest.approx(F, rel=1e-7, abs=1e-7)
        assert model.dual_objective_ <= D + 1e-10
        worst = max(worst, relative_gap(F, D, loss, 1.0))
    return worst


def incidence(ends: np.ndarray, n: int) -> scipy.sparse.csr_array:
    """Which row is this end of each pair."""
    return scipy.sparse.csr_array((np.ones(len(ends)), (np.arange(len(ends)), ends)), shape=(len(ends), n))


@pytest.mark.parametrize("tol", [1e-2, 1e-3])
@pytest.mark.parametrize("name", ["act_train", "reuters", "news"])
def test_four_decades(name: str, tol: float, request: pytest.FixtureRequest) -> None:
    """News set no constant: it is reported, whatever it is."""
    data, rows = request.getfixturevalue(name), []
    for regularizer in ("csfn", "cvnd", "cldd", *(() if tol < 1e-2 else ("l2", "it"))):
        began = time.perf_counter()
        path = MDMLPath(regularizer, tol=tol, **SETTINGS).fit(*data)
        seconds = time.perf_counter() - began
        began = time.perf_counter()
        cold = MDML(regularizer, gamma=1e-4, tol=tol, **SETTINGS).fit(*data)
        alone = time.perf_counter() - began
        most = MOST[tol].get(regularizer, "-")
        found = largest_gap(path, data, 200 if tol == 1e-2 and most != "-" else 20)
        counts = path.n_eigh_, most, len(path.knots_), path.n_metrics_, cold.n_eigh_
        rows.append((regularizer, *counts, f"{found:.1e}", f"{seconds:.1f}", f"{seconds / alone:.2f}"))
        assert path.converged_
        assert found <= tol
    columns = ("regularizer", "eigh", "goal", "knots", "metrics", "cold eigh", "largest gap", "s", "over one cold fit")
    print_table(f"{name}, gamma 1 to 1e-4 within {tol:g}", columns, rows)
