"""How long a sweep will take: what its fits should cost, and the schedule simulated.

Seconds of a fit are predicted, per dataset and method, from those that are known: linear in the logarithms of gamma,
rank and seconds, corrected by the nearest known setting. A method that is known on other datasets only costs as much
more as the methods that are known on both; one of which nothing is known is taken for the (geometric) mean of the
others of its family. Both have a wider interval.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sweep.fits import FitRecord, FitSpec
from sweep.methods import known_method
from sweep.studies.base import Size, Study, Told
from sweep.studies.grid import GridStudy
from sweep.studies.plan import Standing

# Standard deviation of the logarithm of a fit's seconds around the prediction: between known settings of the same
# method, beyond the largest known one, from other datasets, and from other methods.
_SPREAD, _BEYOND, _ELSEWHERE, _FROM_OTHERS = 0.25, 0.5, 0.7, 0.9
_DRAWS = 200
_RIDGE = 1e-2


@dataclass
class _Group:
    """Known fits of one method on one dataset: sums by setting, and a line through them."""

    seconds: dict[tuple[float, float], tuple[float, int]] = field(default_factory=dict)
    _line: Any = None

    def learn(self, place: tuple[float, float], seconds: float) -> None:
        total, count = self.seconds.get(place, (0.0, 0))
        self.seconds[place] = (total + seconds, count + 1)
        self._line = None

    def predict(self, place: tuple[float, float]) -> float:
        places = np.array(list(self.seconds))
        logs = np.array([math.log(total / count) for total, count in self.seconds.values()])
        if self._line is None:
            centred = places - places.mean(axis=0)
            slope = np.linalg.solve(centred.T @ centred + _RIDGE * np.eye(2), centred.T @ (logs - logs.mean()))
            self._line = (places.mean(axis=0), logs.mean(), slope)
        middle, level, slope = self._line
        at = np.asarray(place)
        nearest = int(np.argmin(np.abs(places - at).sum(axis=1)))
        residual = logs[nearest] - (level + (places[nearest] - middle) @ slope)
        return float(math.exp(level + (at - middle) @ slope + residual))

    @property
    def level(self) -> float:
        """Mean logarithm of the seconds."""
        return float(np.mean([math.log(total / count) for total, count in self.seconds.values()]))

    def reaches(self, place: tuple[float, float]) -> bool:
        return any(place[1] <= known[1] + 1e-9 for known in self.seconds)


class Costs:
    """What fits should cost, from those that were seen."""

    def __init__(self, known: Iterable[tuple[FitSpec, FitRecord]] = ()) -> None:
        self._groups: dict[tuple[Any, ...], _Group] = defaultdict(_Group)
        self._memory: dict[tuple[Any, ...], float] = {}
        self.startup = 0.0
        for spec, record in known:
            self.learn(spec, record.seconds.busy - record.seconds.startup)
            self.startup = max(self.startup, record.seconds.startup)

    @property
    def known(self) -> bool:
        return bool(self._groups)

    def learn(self, spec: FitSpec, seconds: float) -> None:
        self._groups[_group(spec)].learn(_place(spec), max(1e-6, seconds))
        self._memory.clear()

    def predict(self, spec: FitSpec) -> float:
        """Seconds for which a fit should keep its worker busy; 0 if nothing at all is known."""
        key = (*_group(spec), *_place(spec), spec.fold is None)
        if key not in self._memory:
            # A refit sees the held-out fold, too.
            more = spec.folds / (spec.folds - 1) if spec.fold is None and spec.trial.values else 1.0
            self._memory[key] = more * self._predict(spec)
        return self._memory[key]

    def spread(self, spec: FitSpec) -> float:
        """How far off a prediction may be, as a standard deviation of the logarithm."""
        group = self._groups.get(_group(spec))
        if group is None:
            return _ELSEWHERE if self._elsewhere(spec) else _FROM_OTHERS
        return _SPREAD if group.reaches(_place(spec)) else _BEYOND

    def seconds_left(self, waiting: Iterable[FitSpec], fits_left: int, workers: int) -> float | None:
        """Seconds until all is done; fits that nobody has asked for yet cost the mean of those that wait."""
        costs = [(self.predict(spec), spec.restarts) for spec in waiting]
        total, count = sum(cost for cost, _ in costs), sum(n for _, n in costs)
        if not self.known or (not costs and fits_left):
            return None
        later = max(0, fits_left - count) * total / count if count else 0.0
        return max((total + later) / workers, max((cost for cost, _ in costs), default=0.0))

    def _predict(self, spec: FitSpec) -> float:
        group = self._groups.get(_group(spec))
        if group is not None:
            return group.predict(_place(spec))
        if known := self._elsewhere(spec):
            return _geometric_mean(
                g.predict(_place(spec)) * self._dearer(spec.dataset, dataset) for dataset, g in known.items()
            )
        family = known_method(spec.method).family
        dataset, _, *kind = _group(spec)
        near = [
            g
            for (d, m, *k), g in self._groups.items()
            if d == dataset and known_method(m).family == family and k == kind
        ]
        groups = near or [g for (d, *_), g in self._groups.items() if d == dataset] or list(self._groups.values())
        return _geometric_mean(g.predict(_place(spec)) for g in groups) if groups else 0.0

    def _elsewhere(self, spec: FitSpec) -> dict[str, _Group]:
        """The same method on other datasets."""
        _, *kind = _group(spec)
        return {d: g for (d, *k), g in self._groups.items() if k == kind}

    def _dearer(self, dataset: str, other: str) -> float:
        """Seconds on a dataset over those on another, by the methods that are known on both; 1 where none is."""
        levels: dict[str, dict[Any, float]] = {
            each: {tuple(kind): g.level for (d, *kind), g in self._groups.items() if d == each}
            for each in (dataset, other)
        }
        both = levels[dataset].keys() & levels[other].keys()
        return math.exp(sum(levels[dataset][m] - levels[other][m] for m in both) / len(both)) if both else 1.0


def _geometric_mean(values: Iterable[float]) -> float:
    return float(np.exp(np.mean([math.log(value) for value in values])))


def _group(spec: FitSpec) -> tuple[Any, ...]:
    return (spec.dataset, spec.method, spec.gammas is not None)


def _place(spec: FitSpec) -> tuple[float, float]:
    """Logarithms of gamma and of the size of the work: rank times restarts."""
    return math.log(spec.trial.get("gamma") or 1.0), math.log((spec.trial.get("rank") or 1) * spec.restarts)


@dataclass
class PilotStudy:
    """A few fits of a study on its first fold: the corners of its grid and the middle of gamma."""

    template: FitSpec
    fits: Sequence[FitSpec]

    @property
    def size(self) -> Size:
        return Size(len(self.fits), sum(fit.restarts for fit in self.fits))

    def start(self) -> list[FitSpec]:
        return list(self.fits)

    def tell(self, spec: FitSpec, told: Told | None) -> list[FitSpec]:
        return []

    def withdrawn(self) -> list[str]:
        return []


def pilot_studies(studies: Iterable[Study]) -> list[Study]:
    """Pilot fits of the first split of every study."""
    return [PilotStudy(s.template, _pilot_fits(s)) for s in studies if s.template.split == 0]


def _pilot_fits(study: Study) -> list[FitSpec]:
    first = [fit for fit in study.start() if not fit.fold]
    if not isinstance(study, GridStudy):
        return first[:1]
    gammas = sorted({g for fit in first if (g := fit.trial.get("gamma")) is not None})
    ranks = sorted({r for fit in first if (r := fit.trial.get("rank")) is not None})
    chosen_gammas = {gammas[0], gammas[len(gammas) // 2], gammas[-1]} if gammas else {None}
    chosen_ranks = {ranks[0], ranks[len(ranks) // 2], ranks[-1]} if ranks else {None}
    return [f for f in first if f.trial.get("gamma") in chosen_gammas and f.trial.get("rank") in chosen_ranks]


@dataclass(frozen=True)
class Forecast:
    """Hours of busy workers, and seconds from start to end for each number of workers: low, expected, high."""

    busy_hours: tuple[float, float, float]
    wall_seconds: dict[int, tuple[float, float, float]]
    n_tasks: int


def forecast(standings: Sequence[Standing], costs: Costs, workers: Sequence[int]) -> Forecast:
    """Predict what is left of a plan."""
    groups: list[tuple[list[float], list[float]]] = []  # per study: what can run now, what follows
    spreads = []
    for standing in standings:
        now = [costs.predict(fit) for fit in standing.waiting]
        later = 0 if standing.over else standing.size.tasks - len(standing.done) - len(standing.waiting)
        example = standing.waiting[0] if standing.waiting else replace(standing.study.template, fold=0)
        refit = max(now, default=costs.predict(example))
        groups.append((now, [refit] * max(0, later)))
        spreads.append(max((costs.spread(fit) for fit in standing.waiting), default=_SPREAD))
    busy = [sum(now) + sum(later) for now, later in groups]
    total = sum(busy)
    draws = [float(each @ busy) for each in _errors(np.array(spreads))] if total else [0.0]
    low, high = (float(np.quantile(draws, q)) / total if total else 1.0 for q in (0.05, 0.95))
    walls = {n: simulate(groups, n, costs.startup if total else 0.0) for n in workers}
    return Forecast(
        (total * low / 3600, total / 3600, total * high / 3600),
        {n: (wall * low, wall, wall * high) for n, wall in walls.items()},
        sum(len(now) + len(later) for now, later in groups),
    )


def _errors(spreads: np.ndarray) -> np.ndarray:
    """Draws of actual over predicted seconds, one row each, of mean 1; half of the variance is common to all."""
    rng = np.random.default_rng(0)
    own, common = rng.normal(size=(_DRAWS, len(spreads))), rng.normal(size=(_DRAWS, 1))
    errors: np.ndarray = np.exp(spreads * (own + common) / math.sqrt(2.0) - spreads**2 / 2)
    return errors


def simulate(groups: Sequence[tuple[list[float], list[float]]], workers: int, startup: float) -> float:
    """Seconds until all is done: longest fit first on whichever worker is free; what follows waits for its study."""
    free = [startup] * workers
    heapq.heapify(free)
    ends: dict[int, float] = defaultdict(float)
    waiting = sorted(((s, g) for g, (now, _) in enumerate(groups) for s in now), reverse=True)
    for length, group in waiting:
        end = heapq.heappop(free) + length
        heapq.heappush(free, end)
        ends[group] = max(ends[group], end)
    for group in sorted(range(len(groups)), key=lambda g: ends[g]):
        for length in groups[group][1]:
            begin = max(heapq.heappop(free), ends[group])
            heapq.heappush(free, begin + length)
    return max(free)
