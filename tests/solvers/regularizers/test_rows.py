"""Every regularizer on rows: gradient, stack, value at orthonormal rows, invariances."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest
from scipy.stats import ortho_group

from solvers.backend import Backend, to_numpy
from solvers.regularizers.rows import ROWS
from tests.conftest import ArrayBackend

RANK, FEATURES = 4, 9

HOST = Backend(numpy_namespace, "cpu", np.float64)
RBF_OVERLAP = math.exp(-1.0)


@dataclass(frozen=True)
class Case:
    """A regularizer with its options and what is promised of it."""

    name: str
    options: dict[str, Any]
    at_orthonormal: float | None  # None: depends on more than orthonormality
    invariant: frozenset[str]  # of: scale, row_scale, left (U A), right (A V)


CASES = {
    "none": Case("none", {}, 0.0, frozenset({"scale", "row_scale", "left", "right"})),
    "sfn": Case("sfn", {}, 0.0, frozenset({"left", "right"})),
    "vnd": Case("vnd", {}, 0.0, frozenset({"left", "right"})),
    "ldd": Case("ldd", {}, 0.0, frozenset({"left", "right"})),
    "dc": Case("dc", {}, None, frozenset({"left"})),
    "cs": Case("cs", {}, 0.0, frozenset({"scale", "row_scale", "right"})),
    "cs-abs": Case("cs", {"absolute": True}, 0.0, frozenset({"scale", "row_scale", "right"})),
    "dpp": Case("dpp", {}, -RANK * math.log1p(1e-6), frozenset({"left", "right"})),
    "dpp-cosine": Case(
        "dpp", {"kernel": "cosine"}, -RANK * math.log1p(1e-6), frozenset({"scale", "row_scale", "right"})
    ),
    "dpp-rbf": Case(
        "dpp",
        {"kernel": "rbf"},
        -(RANK - 1) * math.log(1 - RBF_OVERLAP) - math.log(1 + (RANK - 1) * RBF_OVERLAP),
        frozenset({"right"}),
    ),
    "ic": Case("ic", {}, 0.0, frozenset({"scale", "row_scale", "right"})),
    "ic-pow": Case("ic", {"form": "pow", "beta": 4.0}, math.log(1e-6) / 4, frozenset({"scale", "row_scale", "right"})),
    "dec": Case("dec", {"root": "data"}, None, frozenset()),
    "vgf": Case("vgf", {}, float(RANK * (RANK - 1)), frozenset({"right"})),
    "vgf-diagonal": Case("vgf", {"diagonal": 0.5}, 0.5 * RANK, frozenset({"right"})),
    "ma": Case("ma", {}, -math.pi / 2, frozenset({"scale", "row_scale", "right"})),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(name="backend")
def _backend(arrays: ArrayBackend) -> Backend:
    return Backend(arrays.xp, arrays.device, arrays.xp.float64)


def make(case: Case, backend: Backend = HOST) -> Any:
    options = dict(case.options)
    if "root" in options:
        options["root"] = backend.asarray(np.random.default_rng(7).standard_normal((20, FEATURES)) / 5)
    return ROWS[case.name](**options)


def rows(seed: int, *, stack: int | None = None) -> np.ndarray:
    shape = (RANK, FEATURES) if stack is None else (stack, RANK, FEATURES)
    return np.random.default_rng(seed).standard_normal(shape) / 3


def value(case: Case, A: np.ndarray) -> float:
    return float(make(case).value(A, xp=numpy_namespace))


def test_every_regularizer_of_the_table_has_a_case() -> None:
    assert {case.name for case in CASES.values()} == set(ROWS)


@pytest.mark.parametrize("rounding", [None, 0.05])
def test_gradient_agrees_with_central_differences(case: Case, backend: Backend, rounding: float | None) -> None:
    xp, A, step = backend.xp, rows(1), 1e-5
    regularizer = make(case, backend)
    delta = None if rounding is None else backend.asarray(rounding)
    gradient = to_numpy(regularizer.value_and_gradient(backend.asarray(A), delta, xp=xp)[1])
    shifts = step * np.eye(A.size).reshape(-1, *A.shape)
    deltas = None if rounding is None else backend.asarray(np.full(A.size, rounding))
    up, down = (
        to_numpy(regularizer.value_and_gradient(backend.asarray(A + sign * shifts), deltas, xp=xp)[0])
        for sign in (1, -1)
    )
    numeric = ((up - down) / (2 * step)).reshape(A.shape)
    assert np.linalg.norm(gradient - numeric) <= 1e-6 * max(np.linalg.norm(numeric), 1e-3)


def test_a_stack_gives_what_a_loop_gives(case: Case, backend: Backend) -> None:
    xp, A = backend.xp, rows(2, stack=3)
    regularizer = make(case, backend)
    values = to_numpy(regularizer.value(backend.asarray(A), xp=xp))
    gradients = to_numpy(regularizer.gradient(backend.asarray(A), xp=xp))
    for i in range(3):
        single = backend.asarray(A[i])
        np.testing.assert_allclose(values[i], float(regularizer.value(single, xp=xp)), rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(gradients[i], to_numpy(regularizer.gradient(single, xp=xp)), rtol=1e-10, atol=1e-12)


def test_value_at_orthonormal_rows(case: Case) -> None:
    Q = ortho_group.rvs(FEATURES, random_state=0)[:RANK]
    if case.at_orthonormal is not None:
        assert value(case, Q) == pytest.approx(case.at_orthonormal, abs=1e-9)
    elif case.name == "dc":
        centred = Q - Q.mean(axis=1, keepdims=True)
        inner = centred @ centred.T / FEATURES + 1e-6 * np.eye(RANK)
        assert value(case, Q) == pytest.approx(-np.linalg.slogdet(inner)[1], abs=1e-9)
    else:  # dec: zero where rows are conjugate with respect to the covariance
        root = make(case).root
        _, vectors = np.linalg.eigh(root.T @ root)
        assert value(case, vectors[:, :RANK].T) == pytest.approx(0.0, abs=1e-20)


@pytest.mark.parametrize("change", ["scale", "row_scale", "left", "right"])
def test_invariances(case: Case, change: str) -> None:
    A = rows(3)
    changed = {
        "scale": 1.7 * A,
        "row_scale": np.array([[0.5], [1.0], [2.0], [3.0]]) * A,
        "left": ortho_group.rvs(RANK, random_state=1) @ A,
        "right": A @ ortho_group.rvs(FEATURES, random_state=2),
    }[change]
    difference = abs(value(case, changed) - value(case, A))
    if change in case.invariant:
        # The small delta in logarithms is not invariant under scaling itself.
        assert difference < 1e-9
    else:
        assert difference > 1e-4


def test_values_that_are_promised_nonnegative_are(case: Case) -> None:
    regularizer = make(case)
    values = regularizer.value(np.random.default_rng(4).standard_normal((200, RANK, FEATURES)), xp=numpy_namespace)
    if regularizer.nonnegative:
        assert values.min() >= 0


def test_dependent_and_zero_rows_stay_finite(case: Case) -> None:
    A = rows(5)
    A[1], A[2] = A[0], 0.0
    regularizer = make(case)
    assert np.isfinite(regularizer.value(A, xp=numpy_namespace))
    assert np.isfinite(regularizer.gradient(A, xp=numpy_namespace)).all()


def test_one_row_alone_is_no_special_case(case: Case) -> None:
    regularizer = make(case)
    A = rows(6)[:1]
    assert np.isfinite(regularizer.value(A, xp=numpy_namespace))
    assert regularizer.gradient(A, xp=numpy_namespace).shape == A.shape


def test_sfn_differs_from_the_full_matrix_by_the_missing_rank() -> None:
    A = rows(8)
    full = np.sum((A.T @ A - np.eye(FEATURES)) ** 2)
    assert full == pytest.approx(value(CASES["sfn"], A) + FEATURES - RANK, rel=1e-12)


def test_signed_cosine_is_smallest_at_a_simplex_not_at_orthogonal_rows() -> None:
    simplex = np.eye(RANK) - 1 / RANK
    assert value(CASES["cs"], simplex) == pytest.approx(-RANK / 2)


def test_vgf_is_convex_with_its_default_diagonal() -> None:
    regularizer = make(CASES["vgf"])
    A, B = np.random.default_rng(9).standard_normal((2, 500, RANK, 3))
    middle, ends = (regularizer.value(M, xp=numpy_namespace) for M in ((A + B) / 2, np.stack([A, B])))
    assert np.all(middle <= ends.mean(axis=0) + 1e-12)
