"""Convex fits: certificates, eigendecompositions, time. Each figure is a ratio measured in one run."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_blobs
from sklearn.preprocessing import MinMaxScaler

from solvers.backend import eigh
from solvers.convex import dual
from solvers.convex.mdml import MDML
from tests.benchmarks.conftest import Data, print_table
from tests.benchmarks.families import HELD_OUT, TUNED, family

pytestmark = [
    pytest.mark.bench,
    pytest.mark.timeout(3600),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
GAMMAS = (1e-3, 1e-2, 1e-1, 1.0)
RELAXED = ("csfn", "cvnd", "cldd")


def fit(data: Data, regularizer: str, gamma: float, **settings: Any) -> MDML:
    return MDML(regularizer, gamma=gamma, **({"random_state": 0, "device": "cpu"} | settings)).fit(*data)


def small(name: str) -> Data:
    X, y = {"digits": load_digits, "wine": load_wine, "cancer": load_breast_cancer}[name](return_X_y=True)
    return MinMaxScaler().fit_transform(X), y


@pytest.mark.parametrize("name", ["digits", "wine", "cancer"])
def test_certificate_of_1e_5_over_the_grid(name: str) -> None:
    data, rows = small(name), []
    for regularizer in (*RELAXED, "l2", "it"):
        for gamma in GAMMAS:
            model = fit(data, regularizer, gamma, tol=1e-5, n_pairs=3000)
            reference = fit(data, regularizer, gamma, tol=1e-6, n_pairs=3000)
            above = (model.objective_ - reference.objective_) / max(1.0, abs(reference.objective_))
            rows.append((regularizer, gamma, f"{model.relative_gap_:.1e}", f"{above:.1e}", model.n_eigh_))
            assert model.relative_gap_ <= 1e-5
            assert above <= 1e-5
    print_table(f"{name}, 3,000 pairs, tol 1e-5", ("regularizer", "gamma", "gap", "above reference", "eigh"), rows)


@pytest.mark.parametrize(("name", "most"), [("reuters", 40), ("act_train", 60)])
def test_eigendecompositions_to_a_gap_of_1e_3(name: str, most: int, request: pytest.FixtureRequest) -> None:
    data, rows = request.getfixturevalue(name), []
    for regularizer in RELAXED:
        for gamma in GAMMAS:
            began = time.perf_counter()
            model = fit(data, regularizer, gamma, tol=1e-3, n_pairs=100_000)
            seconds = time.perf_counter() - began
            rows.append(
                (
                    regularizer,
                    gamma,
                    model.n_eigh_,
                    f"{model.relative_gap_:.1e}",
                    f"{seconds:.1f}",
                    model.rank_,
                )
            )
    shape = f"{data[0].shape[0]} x {data[0].shape[1]}"
    print_table(f"{name} {shape}, 100,000 pairs", ("regularizer", "gamma", "eigh", "gap", "seconds", "rank"), rows)
    assert all(row[2] <= most for row in rows)
    assert all(float(row[3]) <= 1e-3 for row in rows)


@pytest.mark.parametrize("names", [TUNED, HELD_OUT], ids=["tuned-on", "held-out"])
def test_eigendecompositions_on_families(names: tuple[str, ...]) -> None:
    """A median of 12 and at most 40, on data that set no constant, too."""
    rows, open_gaps = [], []
    for name in names:
        data = family(name)
        for regularizer in (*RELAXED, "l2", "it"):
            models = [fit(data, regularizer, gamma, tol=1e-3) for gamma in (1e-4, 1e-3, 1e-2, 1e-1)]
            rows.append((name, regularizer, *(model.n_eigh_ for model in models)))
            open_gaps += [f"{name} {regularizer} {model.gamma:g}" for model in models if not model.converged_]
    print_table("eigendecompositions to 1e-3", ("family", "regularizer", "1e-4", "1e-3", "1e-2", "1e-1"), rows)
    counts = [count for row in rows for count in row[2:]]
    print(f"  median {np.median(counts):g}, most {max(counts)}, unconverged (each with a warning): {open_gaps}")
    assert np.median(counts) <= 12
    assert max(counts) <= 40
    assert not open_gaps


@pytest.mark.parametrize("tol", [1e-3, 1e-5])
@pytest.mark.parametrize("name", ["blobs", "raw wine", *HELD_OUT])
def test_every_fit_converges_or_says_why(name: str, tol: float) -> None:
    """gamma from 1e-6 to 10. What is not reached must be rounding's fault, and say so."""
    data, rows, missed = _unscaled(name), [], []
    for regularizer in (*RELAXED, "l2", "it"):
        cells = []
        for gamma in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = fit(data, regularizer, gamma, tol=tol)
            cells.append(f"{model.n_eigh_}" if model.converged_ else f"{model.n_eigh_} to {model.relative_gap_:.0e}")
            if not model.converged_:
                missed.append((regularizer, gamma, str(caught[-1].message)))
        rows.append((regularizer, *cells))
    gammas = ("1e-6", "1e-5", "1e-4", "1e-3", "1e-2", "1e-1", "1", "10")
    print_table(f"{name}, eigendecompositions to {tol:g}", ("regularizer", *gammas), rows)
    for each in missed:
        print("  missed:", *each)
    assert all("rounding alone" in message for *_, message in missed)


def _unscaled(name: str) -> Data:
    if name == "blobs":
        return make_blobs(300, 20, centers=5, random_state=0)
    return load_wine(return_X_y=True) if name == "raw wine" else family(name)


@pytest.mark.parametrize(("name", "steps"), [("act_train", 2000), ("reuters", 500)])
def test_against_the_published_algorithm(name: str, steps: int, request: pytest.FixtureRequest) -> None:
    """Eigendecompositions and seconds to come within 1 % of the optimum, same pairs."""
    data, rows = request.getfixturevalue(name), []
    for regularizer in RELAXED:
        settings: dict[str, Any] = {"n_pairs": 20_000}
        optimum = fit(data, regularizer, 1e-2, tol=1e-4, **settings).objective_
        goal = optimum + 0.01 * abs(optimum)
        ours = fit(data, regularizer, 1e-2, tol=3e-3, **settings)
        reached = next(row for row in ours.history_ if row["objective"] <= goal)
        published = fit(data, regularizer, 1e-2, algorithm="paper", max_iter=steps, **settings)
        there = next((row for row in published.history_ if row["objective"] <= goal), None)
        last = there or published.history_[-1]
        off = (published.objective_ - optimum) / abs(optimum)
        rows.append(
            (
                regularizer,
                int(reached["n_eigh"]),
                f"{reached['seconds']:.2f}",
                f"{'' if there else '> '}{int(last['n_eigh'])}",
                f"{'' if there else '> '}{last['seconds']:.1f}",
                f"{100 * off:.0f} %",
                f"{last['n_eigh'] / reached['n_eigh']:.0f}",
                f"{last['seconds'] / reached['seconds']:.0f}",
            )
        )
    columns = ("regularizer", "our eigh", "our s", "published eigh", "published s", "off", "eigh ratio", "time ratio")
    print_table(f"{name} {data[0].shape[0]} x {data[0].shape[1]}, gamma 0.01, to 1 % of the optimum", columns, rows)
    assert all(float(row[6]) >= 100 for row in rows)
    assert all(float(row[7]) >= 30 for row in rows)


@pytest.mark.parametrize("n_pairs", [20_000, 100_000])
def test_wall_time_near_the_time_of_the_eigendecompositions(
    n_pairs: int, reuters: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The goal is 2.5. It is not reached: X U and X' Lap X alone cost nearly as much as a decomposition of this size.

    Passes over pairs, several answers of the pair model and polished eigenvalues save decompositions and raise this.
    """
    rows, spent = [], [0.0]

    def timed(M: Any, *, xp: Any) -> Any:
        began = time.perf_counter()
        found = eigh(M, xp=xp)
        spent[0] += time.perf_counter() - began
        return found

    monkeypatch.setattr(dual, "eigh", timed)
    for regularizer in RELAXED:
        for gamma in (1e-3, 1e-2):
            spent[0] = 0.0
            began = time.perf_counter()
            model = fit(reuters, regularizer, gamma, tol=1e-3, n_pairs=n_pairs)
            seconds = time.perf_counter() - began
            row = (regularizer, gamma, model.n_eigh_, f"{seconds:.2f}", f"{spent[0]:.2f}", f"{seconds / spent[0]:.2f}")
            rows.append(row)
    columns = ("regularizer", "gamma", "eigh", "fit s", "of it eigh s", "ratio")
    print_table(f"Reuters 4,152 x 1000, {n_pairs:,} pairs, goal 2.5", columns, rows)
    total = sum(float(row[3]) for row in rows) / sum(float(row[4]) for row in rows)
    print(f"  all together {total:.2f}")
    assert total <= (8.0 if n_pairs == 20_000 else 11.0)


GROWTH = """
import resource, sys, time
import numpy as np
from solvers.convex.mdml import MDML
rng = np.random.default_rng(0)
y = rng.integers(20, size=11_307)
X = rng.normal(size=(11_307, 1000)) / 30 + rng.normal(size=(20, 1000))[y] / 60
began = time.perf_counter()
model = MDML("cvnd", gamma=1e-2, tol=1e-3, n_pairs=int(sys.argv[1]), random_state=0, device="cpu").fit(X, y)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(time.perf_counter() - began, model.n_eigh_, model.relative_gap_, peak)
"""


def test_growth_over_pairs_and_memory() -> None:
    rows = []
    for n_pairs in (100_000, 300_000, 1_000_000):
        shown = subprocess.run([sys.executable, "-c", GROWTH, str(n_pairs)], capture_output=True, text=True, check=True)
        seconds, n_eigh, gap, peak = map(float, shown.stdout.split())
        rows.append((n_pairs, f"{seconds:.1f}", int(n_eigh), f"{gap:.1e}", f"{peak:.2f}"))
    print_table("11,307 x 1000, cvnd, gamma 0.01", ("pairs", "seconds", "eigh", "gap", "peak GB"), rows)
    assert float(rows[-1][4]) < 2.0
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6 < 2.0


@pytest.mark.parametrize("name", ["act_train", "digits", "reuters"])
def test_a_warm_path_saves_eigendecompositions(name: str, request: pytest.FixtureRequest) -> None:
    """The goal is 0.5. A cold fit follows the path of optima as well, only without stopping at every gamma.

    Cold fits take few decompositions: 32 for all twelve on Act, half of which take one; little can be saved there.
    """
    data = small(name) if name == "digits" else request.getfixturevalue(name)
    settings: dict[str, Any] = {"tol": 1e-3, "n_pairs": 20_000, "random_state": 0, "device": "cpu"}
    rows, totals = [], np.zeros(2)
    for regularizer in RELAXED:
        cold, warm, previous = [], [], None
        for gamma in sorted(GAMMAS, reverse=True):
            cold.append(MDML(regularizer, gamma=gamma, **settings).fit(*data).n_eigh_)
            previous = MDML(regularizer, gamma=gamma, **settings).fit(*data, init=previous)
            warm.append(previous.n_eigh_)
            assert previous.relative_gap_ <= 1e-3
        totals += sum(cold), sum(warm)
        rows.append((regularizer, cold, warm, f"{sum(warm) / sum(cold):.2f}"))
    rows.append(("together", int(totals[0]), int(totals[1]), f"{totals[1] / totals[0]:.2f}"))
    print_table(f"{name}, gammas 1 to 0.001, goal 0.5", ("regularizer", "cold eigh", "warm eigh", "ratio"), rows)
    assert totals[1] < totals[0]
