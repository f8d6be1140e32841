"""What is said about all gammas at once holds at each of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from solvers.convex.envelope import Envelope, Knot, Line, Proof, Ray

LOW, HIGH = 1e-3, 1.0


def line(loss: float, omega: float) -> Line:
    return Line(loss, omega, np.ones(1), np.ones((1, 1)))


def envelope(seed: int) -> Envelope:
    """Lines whose lowest is concave, crosses zero, and has any data part; proofs some way below."""
    rng = np.random.default_rng(seed)
    found = Envelope(margin=1.0)
    losses = rng.uniform(0, 0.3, size=12)
    found.lines = [
        line(loss, omega) for loss, omega in zip(losses, 1 - 30 * losses * rng.uniform(0.8, 1, 12), strict=True)
    ]
    knot: Any = Knot(1.0, np.ones(1), None, Ray(1.0, 0.0))
    for gamma in (LOW, *10 ** rng.uniform(-3, 0, size=5), HIGH):
        found.add(Proof(gamma, found.line(gamma).at(gamma) - 0.01 * rng.random(), ((1.0, knot),)))
    return found


@pytest.mark.parametrize("seed", range(30))
def test_no_gap_is_larger_than_the_largest_and_one_is_about_as_large(seed: int) -> None:
    found = envelope(seed)
    worst, gamma = found.worst(LOW, HIGH)
    edges = [edge for start, end, _ in found.pieces(LOW, HIGH) for edge in (start, end)]
    near = [edge * (1 + shift) for edge in edges for shift in (-1e-9, 1e-9)]
    gaps = [found.gap(each) for each in (*np.geomspace(LOW, HIGH, 2000), *near) if LOW <= each <= HIGH]
    assert max(gaps) <= worst + 1e-9
    around = [found.gap(gamma * (1 + shift)) for shift in (-1e-6, 0, 1e-6) if LOW <= gamma * (1 + shift) <= HIGH]
    assert max(around) == pytest.approx(worst, rel=1e-3)


@pytest.mark.parametrize("seed", range(30))
def test_pieces_cover_the_range_with_the_lowest_lines(seed: int) -> None:
    found = envelope(seed)
    pieces = list(found.pieces(LOW, HIGH))
    assert pieces[0][0] == LOW
    assert pieces[-1][1] == HIGH
    assert all(a[1] == b[0] for a, b in itertools.pairwise(pieces))
    assert len({id(each) for *_, each in pieces}) == len(pieces)
    for start, end, lowest in pieces:
        middle = (start + end) / 2
        assert lowest.at(middle) == found.line(middle).at(middle)
