"""What only CuPy makes the solvers do, run on a stand-in; and every line of the backend is run by these tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
import scipy.special

from solvers import backend
from solvers.backend import choose_backend, eigh, eigvalsh, to_numpy
from solvers.convex.mdml import MDML
from solvers.memory import BLOCK_BYTES
from solvers.methods import METHODS, make_method
from solvers.pairs import PairSet
from solvers.projection.pdml import PDML
from tests.conftest import ROOT
from tests.solvers import on_device, standin

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 6))
PAIRS = RNG.integers(40, size=(90, 2))


@pytest.fixture
def xp() -> Iterator[ModuleType]:
    with standin.installed() as namespace:
        yield namespace


# -- the stand-in keeps CuPy's rules -------------------------------------------------------------------


def test_the_stand_in_refuses_what_cupy_refuses(xp: Any) -> None:
    array = xp.asarray(X)
    for refused in (
        lambda: np.asarray(array),
        lambda: array + X,
        lambda: X + array,
        lambda: xp.sum(X),
        lambda: xp.concat([array, X]),
        lambda: np.sum(array),
    ):
        with pytest.raises(TypeError):
            refused()


# -- the choice of a device ----------------------------------------------------------------------------


@pytest.mark.parametrize(("device", "number"), [("auto", 0), ("cuda", 0), ("cuda:1", 1)])
def test_numpy_data_go_to_the_device_asked_for(device: str, number: int) -> None:
    with standin.installed(gpus=2) as xp:
        chosen = choose_backend(X.astype(np.float32), device)
        assert (chosen.xp, chosen.device, chosen.dtype) == (xp, standin.Device(number), np.float32)
        assert chosen.asarray(X).device == chosen.indices(PAIRS).device == standin.Device(number)
        assert standin.CALLS["seterr linalg=raise"] == 1  # else cuSOLVER fails in silence


@pytest.mark.parametrize(
    ("device", "told"), [("cuda:2", "CuPy sees 2 GPU"), ("gpu", "expected 'auto'"), ("cuda:x", "expected 'auto'")]
)
def test_a_device_that_is_not_there_is_refused(device: str, told: str) -> None:
    with standin.installed(gpus=2), pytest.raises(ValueError, match=told):
        choose_backend(X, device)


@pytest.mark.parametrize("gpus", [0, None])
def test_without_a_gpu_or_a_driver_auto_is_the_cpu(gpus: int | None) -> None:
    with standin.installed(gpus=gpus):
        assert choose_backend(X, "auto").device == choose_backend(X.tolist(), "cpu").device == "cpu"


def test_data_on_the_device_stay_there(xp: Any) -> None:
    data = xp.asarray(X, device=standin.Device(3))
    chosen = choose_backend(data)
    assert (chosen.xp, chosen.device) == (xp, standin.Device(3))
    assert standin.CALLS["seterr linalg=raise"] == 1
    with pytest.raises(ValueError, match=r"pass cupy\.asnumpy"):
        choose_backend(data, "cpu")


# -- what the backend does for CuPy alone --------------------------------------------------------------


def test_the_clock_waits_and_memory_goes_back(xp: Any) -> None:
    for namespace, times in ((choose_backend(X, "cpu").xp, 0), (xp, 1)):
        backend.synchronize(namespace)
        backend.free_device_memory(namespace)
        for name in ("synchronize", "device pool freed", "pinned pool freed"):
            assert standin.CALLS[name] == times


def test_the_memory_of_a_device_is_its_own(xp: Any) -> None:
    assert backend.device_bytes(choose_backend(X, "cuda")) == 2**34
    assert standin.CALLS["device 0 entered"] == 1
    assert 2**28 < backend.device_bytes(choose_backend(X, "cpu")) != 2**34


def test_blocks_are_large_on_a_device_and_shrink_where_memory_is_short(xp: Any) -> None:
    assert backend.block_bytes(xp) == BLOCK_BYTES == 256 * backend.block_bytes(choose_backend(X, "cpu").xp) == 2**28
    with backend.small_blocks():
        assert backend.block_bytes(xp) == 2**24
    assert backend.block_bytes(xp) == 2**28


@pytest.mark.parametrize("place", ["numpy", "strict", "stand-in"])
@pytest.mark.parametrize("threads", [1, 2])
def test_pair_operations_equal_their_definitions(place: str, threads: int) -> None:
    with standin.installed(), mock.patch.object(backend, "cpu_threads", return_value=threads):
        chosen = strict_backend() if place == "strict" else choose_backend(X, "cpu" if place == "numpy" else "cuda")
        pairs = PairSet(chosen.asarray(X), *(chosen.indices(ends) for ends in PAIRS.T.copy()), xp=chosen.xp)
        weights, Y = RNG.random((3, len(PAIRS))), RNG.standard_normal((3, 40, 200))
        incidence = np.eye(40)[PAIRS[:, 0]] - np.eye(40)[PAIRS[:, 1]]
        laplacians = [incidence.T @ (w[:, None] * incidence) for w in weights]
        product = pairs.laplacian(chosen.asarray(weights), chosen.asarray(Y))
        np.testing.assert_allclose(to_numpy(product), laplacians @ Y, atol=1e-12)
        np.testing.assert_allclose(
            to_numpy(pairs.scatter(chosen.asarray(weights[0]))), X.T @ laplacians[0] @ X, atol=1e-12
        )
        ends = np.eye(40)[PAIRS].sum(axis=1)
        np.testing.assert_allclose(to_numpy(pairs.sums(chosen.asarray(weights[0]))), weights[0] @ ends, atol=1e-12)
        distances = to_numpy(pairs.projected_distances(chosen.asarray(Y)))
        np.testing.assert_allclose(distances, np.sum((incidence @ Y) ** 2, axis=-1), rtol=1e-12)
        sums = backend.group_sum(chosen.indices(PAIRS[:40, 0] % 7), 8, chosen.asarray(X), xp=chosen.xp)
        np.testing.assert_allclose(to_numpy(sums), np.eye(8)[PAIRS[:40, 0] % 7].T @ X, atol=1e-12)
        assert (standin.CALLS["csr_matrix"] > 0) == (place == "stand-in")


def strict_backend() -> backend.Backend:
    strict = pytest.importorskip("array_api_strict")
    return choose_backend(strict.asarray(X, device=strict.Device("device1")))


def test_sums_without_a_sparse_library_take_bounded_memory() -> None:
    strict = strict_backend()
    codes, Y = RNG.integers(8_000, size=8_000), RNG.standard_normal((8_000, 1))
    tracemalloc.start()  # one-hot rows of all would take half a GB
    sums = backend.group_sum(strict.indices(codes), 8_000, strict.asarray(Y), xp=strict.xp)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(to_numpy(sums)[:, 0], np.bincount(codes, Y[:, 0], 8_000), atol=1e-12)
    assert most < 50e6


def test_a_copy_to_the_host_is_made_as_the_library_makes_it(xp: Any) -> None:
    class DpnpLike:
        def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
            raise TypeError("Implicit conversion to a NumPy array is not allowed")

        def asnumpy(self) -> np.ndarray:
            return X

    for array in (X, xp.asarray(X), strict_backend().asarray(X), DpnpLike()):
        np.testing.assert_array_equal(to_numpy(array), X)


def test_a_large_symmetric_product_has_both_triangles(xp: Any) -> None:
    A = RNG.standard_normal((20, 300))
    found = backend.symmetric_product(xp.asarray(A), xp.asarray(2 * A), xp=xp)
    np.testing.assert_allclose(to_numpy(found), 2 * A.T @ A, atol=1e-12)


def test_blocks_of_a_cpu_run_on_all_its_threads_in_order() -> None:
    host = choose_backend(X, "cpu").xp
    with mock.patch.object(backend, "cpu_threads", return_value=2):
        parts = backend.in_blocks(lambda part: X[part, 0], 40, 7, xp=host)
    np.testing.assert_array_equal(np.concatenate(parts), X[:, 0])
    with mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "1"}):
        assert backend.cpu_threads.__wrapped__() == 1


def test_wright_omega_without_scipy(xp: Any) -> None:
    x = np.linspace(-30, 1e3, 500)
    expected = scipy.special.wrightomega(x)
    np.testing.assert_allclose(to_numpy(backend.wright_omega(xp.asarray(x), xp=xp)), expected, rtol=1e-12)
    np.testing.assert_array_equal(backend.wright_omega(x, xp=choose_backend(x, "cpu").xp), expected)


# -- traps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "shapes"), [(32, [(2, 3, 32, 32)]), (33, [(33, 33)] * 6)])
def test_stacks_of_large_matrices_are_decomposed_one_by_one(xp: Any, size: int, shapes: list[tuple[int, ...]]) -> None:
    """CuPy gives stacks to the Jacobi solver, which is slow above about 32."""
    M = backend.symmetrize(RNG.standard_normal((2, 3, size, size)), xp=choose_backend(X, "cpu").xp)
    values, vectors = (to_numpy(each) for each in eigh(xp.asarray(M), xp=xp))
    assert shapes == standin.DECOMPOSED
    np.testing.assert_allclose(values, eigh(M, xp=choose_backend(M, "cpu").xp)[0], atol=1e-10)
    np.testing.assert_allclose(vectors * values[..., None, :] @ vectors.swapaxes(-1, -2), M, atol=1e-10)


@pytest.mark.parametrize("shape", [(4, 4), (3, 4, 4), (2, 40, 40)])
def test_a_decomposition_that_fails_in_silence_is_a_numerical_failure(xp: Any, shape: tuple[int, ...]) -> None:
    from sweep.engine.executors import classify

    def failing(A: Any) -> tuple[Any, Any]:
        return xp.zeros(A.shape[:-1]), xp.full(A.shape, np.nan)  # values look well, vectors do not

    linalg = xp.linalg
    linalg.eigh, linalg.eigvalsh = failing, lambda A: failing(A)[1][..., 0]
    with mock.patch.object(xp, "linalg", linalg, create=True):
        for decompose in (eigh, eigvalsh):
            with pytest.raises(FloatingPointError, match="no finite result") as failure:
                decompose(xp.zeros(shape), xp=xp)
            assert classify(failure.value) == "numerical"
            decompose(xp.full(shape, np.inf), xp=xp)  # a trial point that overflowed: its caller refuses it


def test_more_entries_than_32_bits_can_count_are_refused(xp: Any) -> None:
    """CuPy 14.2 would cut the indices."""
    with mock.patch.object(backend, "_MOST_SPARSE", 2 * len(PAIRS)):
        chosen = choose_backend(X, "cuda")
        pairs = PairSet(chosen.asarray(X), *(chosen.indices(ends) for ends in PAIRS.T.copy()), xp=xp)
        pairs.sums(xp.ones(len(PAIRS)))  # as many as it takes
        with pytest.raises(ValueError, match="at most 180 entries and rows, got 360; use fewer pairs"):
            pairs.laplacian(xp.ones((2, len(PAIRS))), xp.ones((2, 40, 3)))
        with pytest.raises(ValueError, match="got 181"):
            backend.group_sum(xp.zeros(181, dtype=xp.int64), 3, xp.ones((181, 2)), xp=xp)


@pytest.mark.parametrize("row", [40, -1])
@pytest.mark.parametrize("model", [MDML(device="cuda"), PDML(device="cuda")], ids=["mdml", "pdml"])
def test_pairs_out_of_range_are_refused_on_the_host(xp: Any, row: int, model: Any) -> None:
    """CuPy takes an index out of range for another one."""
    assert float(xp.take(xp.asarray(X[:, 0]), xp.asarray([40]))[0]) == X[0, 0]
    wrong = np.array([[0, 1], [2, row]])
    for pairs in ((wrong, PAIRS), (PAIRS, wrong)):
        with pytest.raises(ValueError, match="expected row indices from 0 to 39"):
            model.fit_pairs(X, *pairs)


# -- whole fits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.device == "array"])
@pytest.mark.parametrize("on_device", [False, True], ids=["numpy data", "device data"])
def test_every_method_finds_on_the_stand_in_what_it_finds_on_numpy(xp: Any, name: str, on_device: bool) -> None:
    """And so never mixes arrays of host and device, nor converts one without saying so."""
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(3), [30, 30, 20])
    data = rng.standard_normal((80, 10)) + 3 * np.eye(10)[y]
    settings = {"gamma": 0.05, "rank": 3, "n_pairs": 200, "max_iter": 60, "restarts": 2, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not all converge in so few steps
        expected = make_method(name, settings=settings | {"device": "cpu"}).fit(data, y).transform(data)
        model = make_method(name, settings=settings | {"device": "auto" if on_device else "cuda"})
        found = model.fit(xp.asarray(data) if on_device else data, y).transform(xp.asarray(data) if on_device else data)
    assert isinstance(found, standin.DeviceArray if on_device else np.ndarray)
    np.testing.assert_allclose(squared(to_numpy(found)), squared(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["path", "mdml-cvnd", "mdml-l1", "pdml-vnd", "lmnn"])
def test_what_runs_on_a_device_of_another_library_agrees_with_numpy(name: str) -> None:
    """The same program that `make test-device` runs, on the second device of array-api-strict."""
    pytest.importorskip("array_api_strict")
    assert on_device.main("array_api_strict", name) == 0


def squared(Z: np.ndarray) -> np.ndarray:
    """Distances, which do not depend on the signs of eigenvectors."""
    return np.sum((Z[:, None, :] - Z[None, :, :]) ** 2, axis=-1)


# -- coverage --------------------------------------------------------------------------------------------


def test_every_line_of_the_backend_is_run_by_this_file(tmp_path: Path) -> None:
    """Where a line is added that only CuPy reaches, a test here has to reach it on the stand-in."""
    pytest.importorskip("coverage", reason="coverage is not installed: pip install orthosweep[dev]")
    data, report = tmp_path / "lines", tmp_path / "report.json"
    run = [sys.executable, "-m", "coverage"]
    quick = "not every_line and not every_method and not agrees"
    own = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", quick, __file__]
    source = [f"--data-file={data}", "--include=solvers/backend.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([*run, "run", *source, *own], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    told = subprocess.run([*run, "json", *source[:1], "-o", str(report)], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout
    found = json.loads(report.read_text())["files"]["solvers/backend.py"]
    assert found["summary"]["num_statements"] > 150
    assert found["missing_lines"] == []
    assert found["excluded_lines"] == []
