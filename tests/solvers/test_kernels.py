"""The kernels that a device is chosen by are those of the fits, and take longer where there is more to do."""

from __future__ import annotations

import pytest

from solvers.kernels import kernels_of, time_kernels
from solvers.memory import ProblemSize
from solvers.methods import METHODS
from tests.solvers import standin


def test_methods_fall_into_a_few_kinds_of_kernels() -> None:
    found = {name: kernels_of(name) for name, method in METHODS.items() if method.device == "array"}
    assert set(found.values()) == {"newton", "single", "stack", "stack, eigh"}
    assert {found[name] for name in ("pdml-vnd", "pdml-ldd", "pdml-dpp")} == {"stack, eigh"}
    assert found["pdml-oc"] == found["pdml"] == "stack"
    assert found["mdml-cvnd"] == "newton" != found["mdml"]


def test_a_larger_problem_takes_longer() -> None:
    small = time_kernels("newton", ProblemSize(200, 10, 200), "cpu")
    large = time_kernels("newton", ProblemSize(2000, 200, 20_000), "cpu")
    for part in ("eigh", "pairs", "products"):
        assert 0 < getattr(small, part) < getattr(large, part)
    assert large.total > large.eigh > 0


@pytest.mark.parametrize("kernels", ["newton", "single", "stack", "stack, eigh"])
def test_a_device_is_timed_with_its_own_arrays(kernels: str) -> None:
    with standin.installed():
        found = time_kernels(kernels, ProblemSize(60, 12, 80, 4, 3), "cuda")
        shapes = set(standin.DECOMPOSED)
        assert standin.CALLS["synchronize"] >= 8
        assert standin.CALLS["device pool freed"] == 1
    assert shapes == {"stack": set(), "stack, eigh": {(3, 4, 4)}}.get(kernels, {(12, 12)})
    assert found.waits > 0
