"""What every strategy for tuning one method on one split has in common.

The driver calls `start` once and `tell` for every finished fit, and runs whatever they return. Finished fits of an
earlier run are told the same way, so going on after a crash is nothing special.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from sweep.fits import Curve, FitRecord, FitSpec


@dataclass(frozen=True)
class Told:
    """What a study hears of a finished fit: the score, and of a path the whole curve."""

    value: float
    curve: Curve | None = None

    @classmethod
    def of(cls, record: FitRecord) -> Told:
        assert record.value is not None
        return cls(record.value, record.curve)


@dataclass(frozen=True)
class Size:
    """How much work a study is, known before anything runs: exactly, or at most.

    `tasks` are units of work; `fits` count each restart, as the paper counts its runs.
    """

    tasks: int
    fits: int
    exact: bool = True

    @staticmethod
    def total(sizes: Iterable[Size]) -> Size:
        listed = list(sizes)
        return Size(sum(s.tasks for s in listed), sum(s.fits for s in listed), all(s.exact for s in listed))


class Study(Protocol):
    """A strategy for tuning one method on one split."""

    template: FitSpec

    @property
    def size(self) -> Size:
        """All that it will take, the refit included."""

    def start(self) -> list[FitSpec]:
        """Fits that can run right away; starts the study afresh."""

    def tell(self, spec: FitSpec, told: Told | None) -> list[FitSpec]:
        """Take a finished fit (None: it failed); returns fits that can run now."""

    def withdrawn(self) -> list[str]:
        """Keys of fits that were asked for and are not needed any more; each is named once."""


def n_fits(spec: FitSpec) -> int:
    """Fits as the paper counts its runs: each restart is one."""
    return spec.restarts


def expected_cost(spec: FitSpec, dimension: int) -> float:
    """Relative cost of a fit, for ordering only: the longest start first."""
    rank = spec.trial.get("rank")
    if rank is None:
        return float(dimension) ** 2 * (4.0 if spec.gammas else 1.0)
    return float(rank * spec.restarts * dimension)
