"""How often an iteration makes the host wait for the device, counted on a stand-in for CuPy.

Each wait is a round trip. Their number may depend on the method, not on how many examples, features or pairs there are.
`docs/devices.md` gives these bounds in a table.
"""

from __future__ import annotations

import warnings
from unittest import mock

import numpy as np
import pytest

from solvers.methods import make_method
from solvers.projection import lbfgs
from tests.conftest import ROOT
from tests.solvers import standin

# Most waits for an iteration: of a certified fit a step of path or Newton phase, of the method of multipliers a
# gradient step, of L-BFGS a round of all restarts. The few before and after the loop are shared out among them.
BOUNDS = {
    "mdml-csfn": 450,
    "mdml-cvnd": 450,
    "mdml-cldd": 450,
    "mdml-l2": 450,
    "mdml-it": 450,
    "mdml": 12,
    "mdml-tr": 12,
    "mdml-l1": 15,
    "mdml-l21": 25,
    "pdml": 4,
    "pdml-sfn": 4,
    "pdml-ma": 4,
    "pdml-vnd": 5,
    "pdml-ldd": 5,
    "pdml-dpp": 5,
}


@pytest.mark.parametrize(("n", "D"), [(80, 10), (300, 30)])
@pytest.mark.parametrize("name", BOUNDS)
def test_waits_for_the_device_are_bounded_per_iteration(name: str, n: int, D: int) -> None:
    rng = np.random.default_rng(1)
    y = np.arange(n) % 4
    X = rng.standard_normal((n, D)) + 3 * np.eye(D)[y]
    given = {"gamma": 0.05, "rank": 8, "n_pairs": 4 * n, "restarts": 4, "max_iter": 300, "random_state": 0}
    model = make_method(name, settings=given | {"device": "cuda"})
    with (
        standin.installed(),
        mock.patch.object(lbfgs, "_round", wraps=lbfgs._round) as rounds,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # not all converge in so few steps
        model.fit(X, y)
        waits = standin.waits()
    iterations = rounds.call_count if name.startswith("pdml") else model.n_iter_
    assert iterations > 0
    assert 0 < waits <= BOUNDS[name] * iterations


def test_the_docs_give_these_bounds() -> None:
    page = (ROOT / "docs" / "devices.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith(("| `mdml", "| `pdml"))]
    told = {name.strip(" `"): int(row[3]) for row in rows for name in row[1].split(",")}
    assert told == BOUNDS
