"""The order in which waiting fits start."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from sweep.fits import FitSpec


class FitQueue:
    """Split by split; there the longest expected fits first, among equals every trial's first fold, then the promising.

    One split's data at a time are in memory. The longest first keeps the last worker from starting a long fit when the
    others are done. A trial that looks good early is worth finishing early: it is what a stopped sweep would choose.
    Fits that wait for different devices stand in lanes of their own, so that none waits behind another device's.
    """

    def __init__(self, cost: Callable[[FitSpec], float], place: Callable[[FitSpec], int] = lambda spec: 0) -> None:
        self._cost, self._place = cost, place
        self._lane: Callable[[FitSpec], str] = lambda spec: ""
        self._lanes: dict[str, list[tuple[int, float, float, int, FitSpec]]] = defaultdict(list)
        self._counts: Counter[str] = Counter()
        self._order = itertools.count()
        self._waiting: dict[str, FitSpec] = {}
        self._of_trial: dict[Any, set[str]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self) -> list[FitSpec]:
        return list(self._waiting.values())

    def count(self, lane: str) -> int:
        """Fits that wait in a lane."""
        return self._counts[lane]

    def divide(self, lane: Callable[[FitSpec], str]) -> None:
        """From now on, and for all that wait, each fit in its lane."""
        entries = [entry for heap in self._lanes.values() for entry in heap]
        self._lanes.clear()
        self._lane = lane
        self._counts = Counter(map(lane, self._waiting.values()))
        for entry in entries:
            heapq.heappush(self._lanes[lane(entry[-1])], entry)

    def push(self, spec: FitSpec) -> None:
        self._counts[self._lane(spec)] += spec.key not in self._waiting
        self._waiting[spec.key] = spec
        self._of_trial[_trial(spec)].add(spec.key)
        self._add(spec, promise=1.0 if not spec.fold else 0.0)

    def pop(self, lane: str = "") -> FitSpec:
        while True:
            *_, spec = heapq.heappop(self._lanes[lane])
            if self.drop(spec.key):  # else an entry from before `learn`, or one that was dropped
                return spec

    def drop(self, key: str) -> FitSpec | None:
        """Take out a fit that is not needed any more; None if it was not waiting."""
        spec = self._waiting.pop(key, None)
        if spec is not None:
            self._counts[self._lane(spec)] -= 1
            mates = self._of_trial[_trial(spec)]
            mates.discard(key)
            if not mates:
                del self._of_trial[_trial(spec)]
        return spec

    def learn(self, spec: FitSpec, score: float) -> None:
        """A fold of a trial has scored: its other folds move up by how well."""
        promise = score if spec.maximize else -score
        for key in self._of_trial.get(_trial(spec), ()):
            self._add(self._waiting[key], promise=promise)

    def _add(self, spec: FitSpec, promise: float) -> None:
        entry = (self._place(spec), -self._cost(spec), -promise, next(self._order), spec)
        heapq.heappush(self._lanes[self._lane(spec)], entry)


def _trial(spec: FitSpec) -> Any:
    return (*spec.study, spec.trial, spec.restarts)
