"""Grids: every trial on every fold, then the refit of the best; cold, in chains, or with early elimination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from sweep.fits import CHAIN, FitSpec, Select, Trial, choose, mean
from sweep.studies.base import Size, Told


@dataclass
class GridStudy:
    """Every trial of the grid on every fold; the refit when all are in."""

    template: FitSpec  # the refit, with the trial still open
    trials: Sequence[Trial]
    select: Select = "best"
    scores: dict[Trial, dict[int, float | None]] = field(default_factory=dict)
    _told: int = 0  # counted, since looking through all scores at every fit is quadratic

    @property
    def size(self) -> Size:
        tasks = 1 + (len(self.trials) * self.template.folds if len(self.trials) > 1 else 0)
        return Size(tasks, tasks * self.template.restarts)

    def start(self) -> list[FitSpec]:
        if len(self.trials) == 1:  # nothing to choose, nothing to tune
            return [self._fit(self.trials[0], None)]
        self.scores, self._told = {trial: {} for trial in self.trials}, 0
        return self._first_fits()

    def tell(self, spec: FitSpec, told: Told | None) -> list[FitSpec]:
        if spec.fold is None:
            return []
        self._take(spec.trial, spec.fold, None if told is None else told.value)
        return self._refit()

    def withdrawn(self) -> list[str]:
        return []

    def _first_fits(self) -> list[FitSpec]:
        return [self._fit(trial, fold) for trial in self.trials for fold in range(self.template.folds)]

    def _take(self, trial: Trial, fold: int, value: float | None) -> None:
        folds = self.scores[trial]
        self._told += fold not in folds
        folds[fold] = value

    def _refit(self) -> list[FitSpec]:
        """The refit of the best trial, once all that count are in."""
        if self._told < len(self.scores) * self.template.folds:
            return []
        best = choose(self.scores, self.template.folds, maximize=self.template.maximize, select=self.select)
        return [] if best is None else [self._fit(best, None)]

    def _fit(self, trial: Trial, fold: int | None) -> FitSpec:
        return replace(self.template, trial=trial, fold=fold)


@dataclass
class WarmGridStudy(GridStudy):
    """The grid of a certified method, each fold as a chain from strong to weak regularization.

    A fit starts from the solution of its stronger neighbour, which costs less than a cold start; the
    certificate makes the result the same within the tolerance.
    """

    def _first_fits(self) -> list[FitSpec]:
        return [replace(self._fit(self._chain[0], fold), start=CHAIN) for fold in range(self.template.folds)]

    def tell(self, spec: FitSpec, told: Told | None) -> list[FitSpec]:
        following = super().tell(spec, told)
        if spec.fold is None or following:
            return following
        place = self._chain.index(spec.trial) + 1
        if place == len(self._chain):
            return []
        # A neighbour that failed has no solution to start from.
        return [replace(self._fit(self._chain[place], spec.fold), start=CHAIN if told is None else spec.key)]

    @cached_property
    def _chain(self) -> list[Trial]:
        return sorted(self.trials, key=lambda trial: trial.simplicity, reverse=True)


@dataclass
class EliminatingGridStudy(GridStudy):
    """A grid that leaves out folds of trials that cannot win, even with the best possible score on all of them.

    The trial that is chosen is the one that the whole grid would choose: only what is strictly behind a finished
    trial is dropped.
    """

    best_possible: float = 1.0
    eliminated: set[Trial] = field(default_factory=set)
    _withdrawn: list[str] = field(default_factory=list)

    @property
    def size(self) -> Size:
        return replace(super().size, exact=len(self.trials) == 1)

    def start(self) -> list[FitSpec]:
        self.eliminated = set()
        return super().start()

    def tell(self, spec: FitSpec, told: Told | None) -> list[FitSpec]:
        if spec.fold is None or spec.trial in self.eliminated:
            return []
        self._take(spec.trial, spec.fold, None if told is None else told.value)
        self._eliminate()
        return self._refit()

    def withdrawn(self) -> list[str]:
        keys, self._withdrawn = self._withdrawn, []
        return keys

    def _eliminate(self) -> None:
        folds, sign = self.template.folds, 1.0 if self.template.maximize else -1.0
        finished = [
            mean(sign * v for v in f.values() if v is not None) for f in self.scores.values() if _whole(f, folds)
        ]
        leader = max(finished, default=None)
        if leader is None:
            return
        for trial, by_fold in self.scores.items():
            if trial in self.eliminated or len(by_fold) == folds:
                continue
            known = [sign * value for value in by_fold.values() if value is not None]
            # A fold that failed has ruled the trial out already.
            hopeless = len(known) < len(by_fold)
            if hopeless or mean([*known, *[sign * self.best_possible] * (folds - len(known))]) < leader:
                self.eliminated.add(trial)
                missing = [fold for fold in range(folds) if fold not in by_fold]
                self._told += len(missing)
                self._withdrawn += [self._fit(trial, fold).key for fold in missing]


def _whole(by_fold: dict[int, float | None], folds: int) -> bool:
    return len(by_fold) == folds and None not in by_fold.values()
