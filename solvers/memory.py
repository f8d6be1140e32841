"""The most memory that a fit takes, from the size of its problem: what cannot run is refused before it starts.

A solver holds so many arrays of each shape at the same time. The numbers below are counted on the CPU, by the peak of
traced memory over problems in which one shape after the other is the largest, and rounded up; on a device pools and
kernels come on top. `tests/solvers/test_memory.py` holds every method to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from solvers.methods import METHODS, Method

_NUMBER = 8  # bytes; single precision needs less
# Temporary arrays of a block in a pass over the pairs: both ends of a difference, and the difference.
_BLOCKS = 3
# As in solvers.backend, solvers.other.lmnn and solvers.scores.ranking.
BLOCK_BYTES = 1 << 28
_LMNN_BLOCK, _LMNN_WATCHED = 1 << 25, 1 << 22
_SCORE_BLOCK, _SCORE_ARRAYS = 1 << 23, 12
# Libraries' handles and workspaces, and whatever is small.
_FIXED_BYTES = 4 << 20


@dataclass(frozen=True)
class ProblemSize:
    """n points with D features, pairs of them; rank and restarts of a projection, 0 and 1 without one."""

    n: int
    D: int
    pairs: int
    rank: int = 0
    restarts: int = 1


@dataclass(frozen=True)
class _Held:
    """Arrays that a solver holds at the same time, at most, by shape."""

    points: int  # (n, D)
    squares: int  # (D, D)
    pairs: int  # (m,)
    projected: int = 0  # (restarts, n, rank)
    stacks: int = 0  # (restarts, rank, D)
    grams: int = 0  # (restarts, rank, rank)
    weights: int = 0  # (restarts, m)

    def numbers(self, size: ProblemSize) -> int:
        n, D, m, k, r = size.n, size.D, size.pairs, size.rank, size.restarts
        single = self.points * n * D + self.squares * D * D + self.pairs * m
        return single + r * (self.projected * n * k + self.stacks * k * D + self.grams * k * k + self.weights * m)


_CLOSED_FORM = _Held(3, 12, 12)
_ACCELERATED = _Held(4, 20, 48)
_MULTIPLIERS = _Held(5, 32, 22)
_NEWTON = _Held(8, 32, 36)
_PATH = _Held(16, 32, 40)
_PUBLISHED = _Held(5, 20, 18)
_LBFGS = _Held(4, 16, 16, projected=5, stacks=18, grams=14, weights=12)
_STIEFEL = _Held(3, 10, 16, projected=4, stacks=8, grams=14, weights=8)
_PUBLISHED_PROJECTION = _Held(4, 12, 8, projected=4, stacks=8, grams=20, weights=8)


def fit_bytes(
    name: str, size: ProblemSize, *, algorithm: str = "certified", path: bool = False, block: int = BLOCK_BYTES
) -> int:
    """Bytes that a fit of a method takes at most on a device, its data included.

    Parameters
    ----------
    algorithm : a sweep file's word, "certified" or "paper".
    path : whether it covers a range of gamma.
    block : `solvers.backend.block_bytes` there.
    """
    method = METHODS[name]
    held = _PATH if path else _held(method, algorithm)
    if name == "lmnn":
        # Every pair of an example and an impostor that is watched has weights for its three targets.
        watched = min(_LMNN_WATCHED, size.n * size.n)
        extra = 5 * min(_LMNN_BLOCK, _NUMBER * size.n * size.n) + 80 * _NUMBER * watched
    else:
        width = size.restarts * size.rank if method.family == "pdml" else size.D
        extra = _BLOCKS * min(block, _NUMBER * size.pairs * width)
    return _FIXED_BYTES + _NUMBER * held.numbers(size) + extra


def score_bytes(n: int, rank: int) -> int:
    """Bytes that scoring an embedding (n, rank) takes at most."""
    return _FIXED_BYTES + _NUMBER * (6 * n * rank + _SCORE_ARRAYS * min(max(_SCORE_BLOCK, n), n * n))


def _held(method: Method, algorithm: str) -> _Held:
    if method.family == "pdml":
        if method.params["regularizer"] == "oc":
            return _STIEFEL
        return _LBFGS if algorithm == "certified" else _PUBLISHED_PROJECTION
    if method.family == "mdml":
        if algorithm == "paper" or not method.certificate:
            return _PUBLISHED
        return _NEWTON if method.path else _MULTIPLIERS
    return _ACCELERATED if method.name in ("itml", "ldml", "lmnn") else _CLOSED_FORM
