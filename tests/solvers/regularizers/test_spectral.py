"""Regularizers on eigenvalues: the prox solves its problem, the conjugate is the conjugate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.backend import to_numpy, wright_omega
from solvers.regularizers.spectral import SPECTRAL, ConvexLDD, ConvexSFN, ConvexVND, InformationTheoretic
from tests.conftest import ArrayBackend

NAMES = sorted(SPECTRAL)
STRICTLY_CONVEX = ("csfn", "cvnd", "cldd", "l2", "it")


def h(name: str, x: np.ndarray, xp: object = None) -> np.ndarray:
    import array_api_compat.numpy as numpy_namespace

    return SPECTRAL[name]().value(np.asarray(x, dtype=float), xp=numpy_namespace)


def prox(name: str, l: np.ndarray, step: float) -> np.ndarray:
    import array_api_compat.numpy as numpy_namespace

    return SPECTRAL[name]().prox(np.asarray(l, dtype=float), step, xp=numpy_namespace)


def bisected_prox(name: str, l: float, step: float) -> float:
    """argmin over x >= 0 from the sign of the derivative alone."""
    import array_api_compat.numpy as numpy_namespace

    penalty = SPECTRAL[name]()

    def derivative(x: float) -> float:
        return step * float(penalty.slope(np.asarray(x), xp=numpy_namespace)) + x - l

    if name != "it" and derivative(0.0) >= 0:
        return 0.0
    low, high = 0.0, max(1.0, abs(l)) + 20 * step + 1
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if derivative(middle) < 0 else (low, middle)
    return (low + high) / 2


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(l=st.floats(-1e3, 1e3), log_step=st.floats(-7, 1))
def test_prox_is_the_minimiser(name: str, l: float, log_step: float) -> None:
    step = 10.0**log_step
    x = float(prox(name, np.array([l]), step)[0])
    assert x >= 0
    assert x == pytest.approx(bisected_prox(name, l, step), rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_no_nearby_point_is_better_than_the_prox(name: str) -> None:
    rng = np.random.default_rng(0)
    for step in (1e-4, 1e-2, 1.0):
        for l in rng.normal(scale=2, size=20):
            x = float(prox(name, np.array([l]), step)[0])
            nearby = np.abs(x + rng.normal(scale=0.1, size=50)) + (1e-12 if name == "it" else 0)
            cost = step * h(name, nearby) + (nearby - l) ** 2 / 2
            own = step * float(h(name, np.array([x]))[0]) + (x - l) ** 2 / 2
            assert cost.min() >= own - 1e-12


@pytest.mark.parametrize("name", NAMES)
@given(a=st.floats(-100, 100), b=st.floats(-100, 100), log_step=st.floats(-5, 1))
@settings(max_examples=60, deadline=None)
def test_prox_is_firmly_nonexpansive(name: str, a: float, b: float, log_step: float) -> None:
    x, z = prox(name, np.array([a, b]), 10.0**log_step)
    assert (x - z) ** 2 <= (x - z) * (a - b) + 1e-9


@pytest.mark.parametrize("name", STRICTLY_CONVEX)
def test_maximizer_and_the_curvature_belong_to_the_conjugate(name: str) -> None:
    import array_api_compat.numpy as xp

    penalty = SPECTRAL[name]()
    y = np.linspace(-8, min(penalty.dual_limit, 4.0) - 0.1, 40)
    x = penalty.maximizer(y, xp=xp)
    grid = np.concatenate([[0.0] if name != "it" else [], np.geomspace(1e-8, 1e3, 20_000)])
    best = (grid[None, :] * y[:, None] - h(name, grid)[None, :]).max(axis=1)
    np.testing.assert_allclose(x * y - h(name, x), best, rtol=1e-6, atol=1e-6)
    step = 1e-6
    numeric = (penalty.maximizer(y + step, xp=xp) - penalty.maximizer(y - step, xp=xp)) / (2 * step)
    inside = x > 1e-5
    np.testing.assert_allclose(numeric[inside], 1 / penalty.curvature(x[inside], xp=xp), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_backends_agree(name: str, arrays: ArrayBackend) -> None:
    penalty = SPECTRAL[name]()
    l = np.linspace(-3, 3, 31)
    expected = prox(name, l, 0.3)
    got = penalty.prox(arrays.asarray(l), 0.3, xp=arrays.xp)
    np.testing.assert_allclose(to_numpy(got), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        to_numpy(penalty.value(arrays.asarray(expected + 0.1), xp=arrays.xp)),
        h(name, expected + 0.1),
        rtol=1e-12,
    )


def test_wright_omega_without_scipy_equals_scipys(arrays: ArrayBackend) -> None:
    import scipy.special

    x = np.concatenate([np.linspace(-50, 50, 101), [-700.0, 1e3, 1e6]])
    np.testing.assert_allclose(
        to_numpy(wright_omega(arrays.asarray(x), xp=arrays.xp)), scipy.special.wrightomega(x), rtol=1e-13
    )


def test_values_at_the_papers_special_points() -> None:
    D, eps = 7, 1e-5
    L = math.log(1 / eps)

    def total(penalty: object, x: float) -> float:
        import array_api_compat.numpy as xp

        return float(np.sum(penalty.value(np.full(D, x), xp=xp)))  # type: ignore[attr-defined]

    assert total(ConvexSFN(), 0.0) == pytest.approx(D)
    assert total(ConvexSFN(), 1.0) == pytest.approx(D)
    assert total(ConvexSFN(), 0.5) == pytest.approx(0.75 * D)
    constant = D * (1 - eps)
    assert total(ConvexVND(), 0.0) + constant == pytest.approx(D * eps * math.log(eps) + constant)
    assert total(ConvexVND(), 1 / math.e - eps) + constant == pytest.approx(D * (1 - 1 / math.e - eps))
    assert total(ConvexLDD(), 0.0) - constant == pytest.approx(D * L - constant)
    assert total(ConvexLDD(), 1 - eps) - constant == pytest.approx(D * (1 - eps) * (L - 1))
    assert total(ConvexLDD(), 1 / L - eps) - constant == pytest.approx(D * (math.log(L) - eps * (L - 1)))
    assert total(InformationTheoretic(), 1.0) == pytest.approx(D)


def test_the_printed_cldd_prox_is_not_the_minimiser() -> None:
    import array_api_compat.numpy as xp

    l = np.linspace(-2, 2, 101)
    printed = ConvexLDD(printed=True).prox(l, 0.01, xp=xp)
    corrected = ConvexLDD().prox(l, 0.01, xp=xp)
    cost = [0.01 * h("cldd", x) + (x - l) ** 2 / 2 for x in (printed, corrected)]
    assert np.all(cost[1] <= cost[0] + 1e-12)
    assert np.max(np.abs(printed - corrected)) > 1e-7
