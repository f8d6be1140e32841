"""The order in which waiting fits start."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from sweep.fits import FitSpec


class FitQueue:
    """Longest expected fits first; among equals every trial's first fold, then the promising trials.

    The longest first keeps the last worker from starting a long fit when the others are done. A
    trial that looks good early is worth finishing early: it is what a stopped sweep would choose.
    """

    def __init__(self, cost: Callable[[FitSpec], float]) -> None:
        self._cost = cost
        self._heap: list[tuple[float, float, int, FitSpec]] = []
        self._order = itertools.count()
        self._waiting: dict[str, FitSpec] = {}
        self._of_trial: dict[Any, set[str]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, spec: FitSpec) -> None:
        self._waiting[spec.key] = spec
        self._of_trial[_trial(spec)].add(spec.key)
        self._add(spec, promise=1.0 if not spec.fold else 0.0)

    def pop(self) -> FitSpec:
        while True:
            *_, spec = heapq.heappop(self._heap)
            if self._waiting.pop(spec.key, None) is not None:  # else an entry from before `learn`
                mates = self._of_trial[_trial(spec)]
                mates.discard(spec.key)
                if not mates:
                    del self._of_trial[_trial(spec)]
                return spec

    def learn(self, spec: FitSpec, score: float) -> None:
        """A fold of a trial has scored: its other folds move up by how well."""
        for key in self._of_trial.get(_trial(spec), ()):
            self._add(self._waiting[key], promise=score)

    def _add(self, spec: FitSpec, promise: float) -> None:
        heapq.heappush(self._heap, (-self._cost(spec), -promise, next(self._order), spec))


def _trial(spec: FitSpec) -> Any:
    return (spec.dataset, spec.split, spec.method, spec.gamma, spec.rank, spec.restarts)
