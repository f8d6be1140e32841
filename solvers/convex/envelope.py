"""What is known of the optimal value v(gamma) between knots: lines above it, chords below it.

v is a minimum of functions that are affine in gamma, so it is concave. Every metric gives a line f + gamma Omega above
it, everywhere; between two gammas with proven bounds the chord through these is a bound as well, and it is proved by
the blend of their weights (`docs/certified.md`).

Both sides are blended, and no blend is decomposed for it: eigenvalues of a sum of symmetric matrices are majorised by
the sums of their eigenvalues in order (Ky Fan), so a sum of convex functions of them is at most that of these sums.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from solvers.convex.dual import DualCurve, gap_floor, relative_gap


@dataclass(frozen=True)
class Line:
    """A metric: F(M; gamma) = loss + gamma omega; M = vectors diag(values) vectors', on the host."""

    loss: float
    omega: float
    values: np.ndarray
    vectors: np.ndarray

    def at(self, gamma: float) -> float:
        return self.loss + gamma * self.omega


@dataclass(frozen=True)
class Mixture:
    """(1 - share) of one metric and share of another: F(M; gamma) <= loss + gamma omega."""

    loss: float
    omega: float
    first: Line
    second: Line
    share: float

    def at(self, gamma: float) -> float:
        return self.loss + gamma * self.omega


@dataclass(frozen=True)
class Ray:
    """What weights prove at other gammas where Omega is positively homogeneous (tr, l1, l21).

    C_S is psd, so G(s alpha) + s gamma W >= s (G(alpha) + gamma W): at s gamma, s alpha is feasible. Above gamma
    nothing has to change.
    """

    gamma: float
    value: float

    def at(self, gamma: float) -> tuple[float, float]:
        """The bound for a gamma, and the part of the weights that proves it."""
        part = min(1.0, gamma / self.gamma)
        return part * self.value, part


@dataclass(frozen=True)
class Knot:
    """Where the path was solved: weights (and the norm's dual, where the bound needs one), and what they prove."""

    gamma: float
    weights: np.ndarray
    matrix: np.ndarray | None
    curve: DualCurve | Ray


@dataclass(frozen=True)
class Proof:
    """A proven bound at a gamma: that of a sum of parts of knots' weights."""

    gamma: float
    value: float
    parts: tuple[tuple[float, Knot], ...]


@dataclass
class Envelope:
    """Lines and proofs, and the gap between them."""

    margin: float
    lines: list[Line | Mixture] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)  # by rising gamma

    def add(self, proof: Proof) -> None:
        """Keep a proof where it proves more than is known, and no other that the chord over it makes needless."""
        kept: list[Proof] = []
        for each in sorted([*self.proofs, proof], key=lambda each: (each.gamma, -each.value)):
            if kept and each.gamma == kept[-1].gamma:
                continue
            while len(kept) > 1 and _below(kept[-1], kept[-2], each):
                kept.pop()
            kept.append(each)
        self.proofs = kept

    def line(self, gamma: float) -> Line | Mixture:
        """The metric with the least F."""
        return min(self.lines, key=lambda line: line.at(gamma))

    def blend(self, gamma: float) -> list[tuple[float, Proof]]:
        """Proofs, with their shares, whose blend proves most at a gamma: one, or two around it."""
        inside = [proof for proof in self.proofs if proof.gamma == gamma]
        place = bisect_right([each.gamma for each in self.proofs], gamma)
        if inside:
            return [(1.0, inside[0])]
        low, high = self.proofs[place - 1], self.proofs[place]
        share = (gamma - low.gamma) / (high.gamma - low.gamma)
        return [(1 - share, low), (share, high)]

    def lower(self, gamma: float) -> float:
        return sum(share * proof.value for share, proof in self.blend(gamma))

    def gap(self, gamma: float) -> float:
        """Relative, as that of a fit."""
        return self._gap_of(self.line(gamma), gamma)

    def _gap_of(self, line: Line | Mixture, gamma: float) -> float:
        return relative_gap(line.at(gamma), self.lower(gamma), line.loss, self.margin)

    def worst(self, low: float, high: float) -> tuple[float, float]:
        """The largest gap between two proofs' gammas, and where.

        Along one line, between proofs and gammas where |F| meets its floor, the gap is a quotient of two affine
        functions, so it is largest at one of these. Where the lowest line changes, the floor jumps: both lines count.
        """
        proven = [proof.gamma for proof in self.proofs]
        found = []
        for start, end, line in self.pieces(low, high):
            floor = gap_floor(line.loss, self.margin)
            meets = [(level - line.loss) / line.omega for level in (-floor, floor) if line.omega != 0]
            inner = [gamma for gamma in (*proven, *meets) if start < gamma < end]
            found += [(self._gap_of(line, gamma), gamma) for gamma in (start, *inner, end)]
        return max(found)

    def pieces(self, low: float, high: float) -> Iterator[tuple[float, float, Line | Mixture]]:
        """The lowest line on each part of a range, from low to high."""
        start = low
        line = min(self.lines, key=lambda each: (each.at(low), each.omega))
        while True:
            end, following = high, None
            for other in self.lines:
                if other.omega < line.omega:  # it takes over further up
                    crossing = (other.loss - line.loss) / (line.omega - other.omega)
                    steeper = following is not None and crossing == end and other.omega < following.omega
                    if start < crossing and (crossing < end or steeper):
                        end, following = crossing, other
            yield start, end, line
            if following is None:
                return
            start, line = end, following


def _below(proof: Proof, left: Proof, right: Proof) -> bool:
    """Whether the chord between two others proves at least as much."""
    share = (proof.gamma - left.gamma) / (right.gamma - left.gamma)
    return proof.value <= (1 - share) * left.value + share * right.value
