"""A method that gives another result has another version: older fits would be reused as if nothing had changed."""

from __future__ import annotations

import pytest

from solvers import METHODS
from tests.solvers.golden import differs, result, stored


def test_every_method_has_its_results_kept() -> None:
    assert set(stored()) == set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_a_change_of_results_comes_with_a_new_version(name: str) -> None:
    kept, found = stored()[name], result(name)
    if kept["version"] != found["version"]:
        pytest.fail(f"{name} has a new version: keep its results with `python -m tests.solvers.golden`")
    assert not differs(kept, found), (
        f"{name} gives another result than version {kept['version']} did: raise its version in solvers/methods.py, "
        "then run `python -m tests.solvers.golden`"
    )


def test_a_change_is_noticed() -> None:
    kept = stored()["mdml-csfn"]
    assert not differs(kept, kept)
    assert differs(kept, kept | {"objective": kept["objective"] * 1.001})
    assert differs(kept, kept | {"distances": [1.05 * d for d in kept["distances"]]})
