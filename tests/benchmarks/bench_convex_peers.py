"""Convex fits by us, by CVXPY with SCS and Clarabel, and by qics: seconds to a gap that one certificate measures.

Each solver is asked for more and more accuracy, every time in a fresh process on one thread and from the start; the
first answer whose gap is small enough counts, with the seconds of that solve (CVXPY's own translation included,
imports not). BENCH_LIMIT seconds is where a solver gives up, BENCH_REFERENCE where the reference gives what it has;
BENCH_SIZES="10:500" makes it small enough to try it out.

A gap is F(M) minus the largest lower bound that anybody but us has found, relative to F. So no bound of ours is taken
on trust, and ours is not the reference of itself.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.conftest import print_table
from tests.benchmarks.convex_peer import lower, problem, upper
from tests.conftest import ROOT

pytestmark = [pytest.mark.bench, pytest.mark.timeout(7200)]
LIMIT = float(os.environ.get("BENCH_LIMIT", "120"))
SIZES = [
    tuple(map(int, size.split(":")))  # D, pairs
    for size in os.environ.get("BENCH_SIZES", "10:500 30:1000 60:2000 100:2000").split()
]
RUNS = int(os.environ.get("BENCH_RUNS", "5"))
TARGETS = (1e-3, 1e-5)
ACCURACIES = (1e-3, 1e-5, 1e-7)
PEERS = {"csfn": ("SCS", "Clarabel"), "cldd": ("SCS", "Clarabel"), "cvnd": ("qics",)}


@dataclass(frozen=True)
class Answer:
    """What a solve gave; `why` it did not, if it did not."""

    upper: float = math.inf
    lower: float = -math.inf
    seconds: float = math.inf
    why: str = ""


def solve(
    solver: str, regularizer: str, size: tuple[int, ...], accuracy: float, folder: Path, limit: float | None = LIMIT
) -> Answer:
    out = folder / "answer.npz"
    out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.benchmarks.convex_peer", solver, regularizer, *map(str, size)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            [*command, str(accuracy), str(out)], capture_output=True, text=True, env=environment, timeout=limit
        )
    except subprocess.TimeoutExpired as gave_up:
        return Answer(why=f"gave up after {gave_up.timeout:.0f} s")
    if done.returncode:
        return Answer(why=f"failed: {(done.stderr.strip().splitlines() or ['no word'])[-1][:60]}")
    given = problem(*size)
    with np.load(out) as found:
        return Answer(
            upper(given, regularizer, found["M"]),
            lower(given, regularizer, found["weights"]),
            float(found["seconds"]),
        )


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("regularizer", PEERS)
def test_seconds_to_a_gap(regularizer: str, size: tuple[int, ...], tmp_path: Path) -> None:
    pytest.importorskip("cvxpy")
    pytest.importorskip("qics")
    answers: dict[str, list[tuple[float, Answer]]] = {}
    for solver in (*PEERS[regularizer], "ours"):
        answers[solver] = []
        for accuracy in ACCURACIES:
            answers[solver].append((accuracy, solve(solver, regularizer, size, accuracy, tmp_path)))
            if answers[solver][-1][1].why:
                break
    reference = max(
        solve("plain", regularizer, size, 2e-6, tmp_path, limit=None).lower,  # a reference there must be
        *(answer.lower for solver in PEERS[regularizer] for _, answer in answers[solver]),
    )
    assert math.isfinite(reference), "nobody but us has a bound"
    # How good the reference is, by the best answer of anybody: a gap below it cannot be told.
    floor = min((a.upper - reference) / abs(a.upper) for found in answers.values() for _, a in found if not a.why)
    rows = []
    for solver, found in answers.items():
        timed: dict[float, str] = {}
        row = [solver]
        for target in TARGETS:
            accuracy = _loosest(found, reference, target)
            if accuracy is not None and accuracy not in timed:
                timed[accuracy] = _again(solver, regularizer, size, accuracy, tmp_path)
            row.append("-" if accuracy is None else timed[accuracy])
        best = min(((a.upper - reference) / abs(a.upper) for _, a in found if not a.why), default=math.inf)
        rows.append((*row, f"{best:.1e}", found[-1][1].why))
    D, pairs = size
    title = f"{regularizer}, D = {D}, {pairs} pairs, gamma 0.01; the reference is good to {floor:.0e}"
    print_table(title, ("solver", "s to 1e-3", "s to 1e-5", "best gap", "then"), rows)
    ours = [(a.upper - reference) / abs(a.upper) for _, a in answers["ours"] if not a.why]
    assert ours, "no answer of ours"
    assert min(ours) <= max(1e-5, 2 * floor)
    # No bound of ours may lie above what anybody has reached.
    least = min(a.upper for found in answers.values() for _, a in found if not a.why)
    assert all(a.lower <= least + 1e-9 * abs(least) for _, a in answers["ours"] if not a.why)


def _loosest(found: list[tuple[float, Answer]], reference: float, target: float) -> float | None:
    """The first accuracy that was asked for and gave the target."""
    for accuracy, answer in found:
        if not answer.why and answer.upper - reference <= target * abs(answer.upper):
            return accuracy
    return None


def _again(solver: str, regularizer: str, size: tuple[int, ...], accuracy: float, folder: Path) -> str:
    """Seconds of repeated solves: median and range."""
    answers = [solve(solver, regularizer, size, accuracy, folder) for _ in range(RUNS)]
    seconds = [each.seconds for each in answers if not each.why]
    return f"{np.median(seconds):.3g} ({min(seconds):.3g} to {max(seconds):.3g})" if seconds else "-"
