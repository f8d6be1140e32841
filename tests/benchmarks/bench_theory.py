"""What a theory report adds to a refit."""

from __future__ import annotations

import time

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from solvers.theory import theory_report

pytestmark = pytest.mark.bench

FIT = {
    "regularizer": "cvnd",
    "gamma": 0.01,
    "margin": 1.0,
    "epsilon": 1e-5,
    "n_similar": 1000,
    "n_dissimilar": 1000,
}


@pytest.mark.parametrize(("n", "D", "K", "limit"), [(1500, 64, 10, 0.05), (4000, 1000, 50, 10.0)])
def test_a_report_is_cheap_beside_a_fit(n, D, K, limit):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, D)), rng.integers(0, K, size=n)
    L = rng.normal(size=(D, D)) / np.sqrt(D)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        with threadpool_limits(1):  # as in a sweep's worker
            theory_report(L, X, y, M=L.T @ L, **FIT)
        seconds.append(time.perf_counter() - start)
    print(f"\nn={n}, D={D}, K={K}: {1e3 * min(seconds):.1f} ms")
    assert min(seconds) < limit
