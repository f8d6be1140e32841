"""No fit takes more memory than `solvers.memory` says, whichever of its arrays is the largest; and not far less."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
import warnings
from functools import cache

import numpy as np
import pytest

from solvers.backend import block_bytes, choose_backend
from solvers.convex.path import MDMLPath
from solvers.memory import ProblemSize, fit_bytes, score_bytes
from solvers.methods import METHODS, make_method
from solvers.scores.retrieval import retrieval_scores
from tests.conftest import ROOT

BLOCK = block_bytes(choose_backend(np.zeros((1, 1)), "cpu").xp)
# In turn points, pairs, and features with the rank of a projection make the largest arrays.
SIZES = [
    ProblemSize(3000, 15, 1000, rank=10, restarts=2),
    ProblemSize(250, 15, 30_000, rank=5, restarts=2),
    ProblemSize(200, 120, 200, rank=120, restarts=3),
]
# The published algorithms are one program for all regularizers on M, and one for all on A.
PUBLISHED = ("mdml", "mdml-cvnd", "pdml-vnd", "pdml-ma")
FITS = [
    (name, algorithm)
    for name, method in METHODS.items()
    if method.device == "array"
    for algorithm in ("certified", "paper")
    if algorithm == "certified" or name in PUBLISHED
]


@cache
def data(n: int, D: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(n) % 4
    return np.random.default_rng(0).standard_normal((n, D)) + 1.5 * np.eye(D)[y], y


def peak(name: str, algorithm: str, size: ProblemSize) -> int:
    """Most traced bytes during a fit, its data included; LAPACK's own are not among them."""
    X, y = data(size.n, size.D)
    settings = {"gamma": 0.05, "rank": size.rank, "n_pairs": size.pairs, "restarts": size.restarts, "max_iter": 15}
    if METHODS[name].algorithms:
        settings["algorithm"] = METHODS[name].algorithms[algorithm]
    model = make_method(name, settings=settings | {"random_state": 0, "device": "cpu"})
    return X.nbytes + traced(lambda: model.fit(X, y))


def traced(function: object) -> int:
    assert callable(function)
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few converge in so few steps
        function()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def own(name: str, size: ProblemSize) -> ProblemSize:
    """The size as a plan would give it: without a rank where the method has none."""
    return size if name.startswith("pdml") else ProblemSize(size.n, size.D, size.pairs)


@pytest.mark.parametrize(("name", "algorithm"), FITS)
def test_no_fit_takes_more_than_its_bound(name: str, algorithm: str) -> None:
    ratios = []
    for size in SIZES:
        bound = fit_bytes(name, own(name, size), algorithm=algorithm, block=BLOCK)
        taken = peak(name, algorithm, size)
        assert taken <= bound, size
        ratios.append(bound / taken)
    # A bound that is far too large would refuse what fits. How many impostors LMNN meets depends on the data.
    assert min(ratios) < (80 if name == "lmnn" else 5) or name == "euc"


def test_lmnn_that_meets_impostors_everywhere_stays_below_its_bound() -> None:
    X, y = np.random.default_rng(0).standard_normal((400, 10)), np.random.default_rng(1).integers(3, size=400)
    taken = traced(lambda: make_method("lmnn", settings={"max_iter": 15, "device": "cpu"}).fit(X, y))
    bound = fit_bytes("lmnn", ProblemSize(400, 10, 1), block=BLOCK)
    assert taken < bound


@pytest.mark.parametrize("size", SIZES)
def test_a_path_takes_no_more_than_its_bound(size: ProblemSize) -> None:
    X, y = data(size.n, size.D)
    path = MDMLPath(n_pairs=size.pairs, gamma_min=0.01, random_state=0, device="cpu")
    taken = X.nbytes + traced(lambda: path.fit(X, y))
    assert taken <= fit_bytes("mdml-csfn", own("mdml-csfn", size), path=True, block=BLOCK)


@pytest.mark.parametrize(("n", "rank"), [(3000, 5), (300, 300)])
def test_scores_take_no_more_than_their_bound(n: int, rank: int) -> None:
    Z, y = data(n, rank)
    assert traced(lambda: retrieval_scores(Z, y)) <= score_bytes(n, rank)


@pytest.mark.parametrize("name", ["mdml-csfn", "pdml-vnd", "gmml"])
def test_the_process_itself_grows_by_no_more_than_the_bound(name: str) -> None:
    """LAPACK's workspaces included, which no tracer of Python's sees."""
    program = f"""
import re, warnings
import numpy as np
from solvers.methods import make_method
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
def most():  # of this program alone: getrusage begins with what the parent had
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
def fit(n, D):
    y = np.arange(n) % 3
    model = make_method({name!r}, settings=dict(gamma=.05, rank=D, restarts=2, n_pairs=n, max_iter=3, device="cpu"))
    model.fit(rng.standard_normal((n, D)) + np.eye(D)[y], y)
fit(30, 8)  # imports, threads
before = most()
fit(300, 500)
print(most() - before)
"""
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    size = ProblemSize(300, 500, 300, rank=500, restarts=2)
    assert 0 < int(told.stdout) <= fit_bytes(name, own(name, size), block=BLOCK)
