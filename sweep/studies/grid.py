"""Which fits a method needs: tuning fits first, then the refit of the best setting.

A study covers one (dataset, split, method). The driver calls `start` once and `tell` for every
finished fit, and runs whatever they return. Finished fits of an earlier run are told the same
way, so going on after a crash is nothing special.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from sweep.fits import CHAIN, FitSpec


@dataclass(frozen=True, order=True)
class Trial:
    """One setting of the hyperparameters, all folds."""

    gamma: float | None = None
    rank: int | None = None


class Study(Protocol):
    """A strategy for tuning one method on one split."""

    template: FitSpec

    @property
    def planned(self) -> int:
        """Tasks that are known before any has run, the refit included; 0 for a search."""

    def start(self) -> list[FitSpec]:
        """Fits that can run right away."""

    def tell(self, spec: FitSpec, score: float | None) -> list[FitSpec]:
        """Take a finished fit's score (None: it failed); returns fits that can run now."""


@dataclass
class GridStudy:
    """Every trial of the grid on every fold; the refit when all are in."""

    template: FitSpec  # the refit, with gamma and rank still open
    trials: Sequence[Trial]
    scores: dict[Trial, dict[int, float | None]] = field(default_factory=dict)
    _told: int = 0  # counted, since looking through all scores at every fit is quadratic

    @property
    def planned(self) -> int:
        return 1 + (len(self.trials) * self.template.folds if len(self.trials) > 1 else 0)

    def start(self) -> list[FitSpec]:
        if len(self.trials) == 1:  # nothing to choose, nothing to tune
            return [self._fit(self.trials[0], None)]
        self.scores, self._told = {trial: {} for trial in self.trials}, 0
        return self._first_fits()

    def _first_fits(self) -> list[FitSpec]:
        return [self._fit(trial, fold) for trial in self.trials for fold in range(self.template.folds)]

    def tell(self, spec: FitSpec, score: float | None) -> list[FitSpec]:
        if spec.fold is None:
            return []
        folds = self.scores[Trial(spec.gamma, spec.rank)]
        self._told += spec.fold not in folds
        folds[spec.fold] = score
        if self._told < len(self.scores) * self.template.folds:
            return []
        best = best_trial(self.scores, self.template.folds)
        return [] if best is None else [self._fit(best, None)]

    def _fit(self, trial: Trial, fold: int | None) -> FitSpec:
        return replace(self.template, gamma=trial.gamma, rank=trial.rank, fold=fold)


@dataclass
class WarmGridStudy(GridStudy):
    """The grid of a certified method, each fold as a chain from strong to weak regularization.

    A fit starts from the solution of its stronger neighbour, which costs less than a cold start; the
    certificate makes the result the same within the tolerance.
    """

    def _first_fits(self) -> list[FitSpec]:
        return [replace(self._fit(self._chain[0], fold), start=CHAIN) for fold in range(self.template.folds)]

    def tell(self, spec: FitSpec, score: float | None) -> list[FitSpec]:
        following = super().tell(spec, score)
        if spec.fold is None or following:
            return following
        place = self._chain.index(Trial(spec.gamma, spec.rank)) + 1
        if place == len(self._chain):
            return []
        # A neighbour that failed has no solution to start from.
        return [replace(self._fit(self._chain[place], spec.fold), start=CHAIN if score is None else spec.key)]

    @cached_property
    def _chain(self) -> list[Trial]:
        return sorted(self.trials, reverse=True)


def best_trial(scores: Mapping[Trial, Mapping[int, float | None]], folds: int) -> Trial | None:
    """Trial with the best mean score among those that finished all folds.

    Ties go to the smaller rank, then to the stronger regularization, whatever the order of arrival.
    """
    means = {}
    for trial, by_fold in scores.items():
        finished = [by_fold[fold] for fold in sorted(by_fold) if by_fold[fold] is not None]
        if len(finished) == folds:
            means[trial] = sum(finished) / folds  # type: ignore[arg-type]
    return max(means, key=lambda t: (means[t], -(t.rank or 0), t.gamma or 0.0), default=None)
