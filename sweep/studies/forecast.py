"""How long a sweep will take: from a few pilot fits, by simulating the schedule.

Seconds of a fit are interpolated, per dataset and method, between the pilot fits at the corners of
the grid, linearly in the logarithms of gamma, rank and seconds.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sweep.fits import FitRecord, FitSpec
from sweep.studies.grid import GridStudy, Study, Trial

# Between pilot fits seconds vary by about this factor (standard deviation of the logarithm).
_SPREAD = 0.25
_DRAWS = 200


@dataclass
class PilotStudy:
    """A few fits of a study: the corners of its grid and the middle of gamma, on the first fold."""

    template: FitSpec
    trials: Sequence[Trial]
    planned: int = field(init=False)

    def __post_init__(self) -> None:
        self.planned = len(self.start())

    def start(self) -> list[FitSpec]:
        if len(self.trials) == 1:
            return [replace(self.template, gamma=self.trials[0].gamma, rank=self.trials[0].rank)]
        gammas = sorted({t.gamma for t in self.trials if t.gamma is not None})
        ranks = sorted({t.rank for t in self.trials if t.rank is not None})
        chosen_gammas = {gammas[0], gammas[len(gammas) // 2], gammas[-1]} if gammas else {None}
        chosen_ranks = {ranks[0], ranks[-1]} if ranks else {None}
        return [
            replace(self.template, gamma=t.gamma, rank=t.rank, fold=0)
            for t in self.trials
            if t.gamma in chosen_gammas and t.rank in chosen_ranks
        ]

    def tell(self, spec: FitSpec, score: float | None) -> list[FitSpec]:
        return []


@dataclass(frozen=True)
class Forecast:
    """Hours of busy workers, and seconds from start to end for each number of workers."""

    busy_hours: tuple[float, float, float]  # low, expected, high
    wall_seconds: dict[int, tuple[float, float, float]]
    n_tasks: int


def pilot_studies(studies: Iterable[Study]) -> list[Study]:
    """Pilot fits of the first split of every grid study."""
    return [PilotStudy(s.template, s.trials) for s in studies if isinstance(s, GridStudy) and s.template.split == 0]


def forecast(
    studies: Iterable[Study], known: Iterable[tuple[FitSpec, FitRecord]], finished: set[str], workers: Sequence[int]
) -> Forecast:
    """Predict what is left of a plan, from finished fits of the same datasets and methods."""
    seconds = _Interpolation(known)
    groups: list[tuple[list[float], float]] = []  # per study: its tuning fits, then its refit
    for study in studies:
        fits = study.start()
        template = study.template
        tuned = [seconds(fit) for fit in fits if fit.key not in finished and fit.fold is not None]
        refit = max((seconds(fit) for fit in fits), default=0.0)
        if len(fits) > 1:
            refit *= template.folds / (template.folds - 1)  # it sees the held-out fold, too
        alone = len(fits) == 1 and fits[0].key in finished
        groups.append((tuned, 0.0 if alone else refit))
    rng = np.random.default_rng(0)
    n_tasks = sum(len(tuned) + 1 for tuned, _ in groups)
    noise = [np.exp(rng.normal(0, _SPREAD, size=len(groups))) for _ in range(_DRAWS)]
    totals = [sum(f * (sum(tuned) + refit) for f, (tuned, refit) in zip(n, groups, strict=True)) for n in noise]
    busy = sum(sum(tuned) + refit for tuned, refit in groups)
    walls = {n: simulate(groups, n, seconds.startup) for n in workers}
    low, high = (float(np.quantile(totals, q)) / busy if busy else 1.0 for q in (0.05, 0.95))
    return Forecast(
        (busy * low / 3600, busy / 3600, busy * high / 3600),
        {n: (wall * low, wall, wall * high) for n, wall in walls.items()},
        n_tasks,
    )


def simulate(groups: Sequence[tuple[list[float], float]], workers: int, startup: float) -> float:
    """Seconds until all is done: longest fit first on whichever worker is free; refits follow their study."""
    free = [startup] * workers
    heapq.heapify(free)
    ends: dict[int, float] = defaultdict(float)
    waiting = sorted(((s, g) for g, (tuned, _) in enumerate(groups) for s in tuned), reverse=True)
    for length, group in waiting:
        end = heapq.heappop(free) + length
        heapq.heappush(free, end)
        ends[group] = max(ends[group], end)
    for group in sorted(range(len(groups)), key=lambda g: ends[g]):
        begin = max(heapq.heappop(free), ends[group])
        heapq.heappush(free, begin + groups[group][1])
    return max(free)


class _Interpolation:
    """Seconds of a fit from those of others on the same dataset with the same method."""

    def __init__(self, known: Iterable[tuple[FitSpec, FitRecord]]) -> None:
        cells: dict[tuple[str, str], dict[tuple[float, int], list[float]]] = defaultdict(lambda: defaultdict(list))
        startups = []
        for spec, record in known:
            busy = sum(record.seconds.get(phase, 0.0) for phase in ("transfer", "solve", "score"))
            if spec.fold is not None or (spec.gamma is None and spec.rank is None):
                cells[spec.dataset, spec.method][spec.gamma or 1.0, spec.rank or 1].append(busy)
            startups.append(record.seconds.get("startup", 0.0))
        self._cells = cells
        self.startup = max(startups, default=0.0)

    def __call__(self, spec: FitSpec) -> float:
        cells = self._cells.get((spec.dataset, spec.method))
        if not cells:
            return 0.0
        by_gamma: dict[float, list[tuple[float, float]]] = defaultdict(list)
        for (gamma, rank), values in cells.items():
            by_gamma[gamma].append((math.log(rank), math.log(max(1e-6, sum(values) / len(values)))))
        gammas = sorted(by_gamma)
        at_rank = [_interpolate(math.log(spec.rank or 1), sorted(by_gamma[gamma])) for gamma in gammas]
        curve = list(zip(map(math.log, gammas), at_rank, strict=True))
        return math.exp(_interpolate(math.log(spec.gamma or 1.0), curve))


def _interpolate(x: float, points: Sequence[tuple[float, float]]) -> float:
    return float(np.interp(x, [p[0] for p in points], [p[1] for p in points]))
