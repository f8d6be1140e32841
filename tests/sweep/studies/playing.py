"""Plays a study without running a fit: scores come from a function, in an order that a seed decides."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from sweep.fits import FitSpec, Trial
from sweep.studies.base import Study, Told

Score = Callable[[FitSpec], Told | float | None]


def template(**changes: Any) -> FitSpec:
    """A refit with the trial still open."""
    made = FitSpec(
        dataset="d", data="f", scaling="minmax", pca=None, frequent_above=5, split=0, folds=3, fold=None,
        method="mdml-csfn", version="4", trial=Trial(), restarts=1, algorithm="certified", settings=(("tol", 0.1),),
        seed=0,
    )  # fmt: skip
    return replace(made, **changes)


@dataclass
class Play:
    """What a study asked for, in this order, and how it went."""

    ran: list[FitSpec] = field(default_factory=list)
    asked: list[FitSpec] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)
    in_flight: list[int] = field(default_factory=list)  # before each end

    @property
    def refit(self) -> FitSpec | None:
        return next((spec for spec in self.ran if spec.fold is None), None)


def play(study: Study, score: Score, seed: int | None = None, known: Collection[str] = ()) -> Play:
    """Run a study to its end; without a seed fits end in the order in which they were asked for.

    Fits whose key is `known` are told as soon as they are asked for, as those in a ledger are.
    """
    rng = random.Random(seed)
    found = Play()
    waiting: list[FitSpec] = []

    def ask(fits: list[FitSpec]) -> None:
        found.asked.extend(fits)
        waiting.extend(fits)
        for fit in fits:
            if fit.key in known and fit in waiting:
                end(fit)

    def end(fit: FitSpec) -> None:
        waiting.remove(fit)
        found.ran.append(fit)
        value = score(fit)
        following = study.tell(fit, Told(value) if isinstance(value, float) else value)
        for key in study.withdrawn():
            gone = [each for each in waiting if each.key == key]
            found.dropped |= {each.key for each in gone}
            for each in gone:
                waiting.remove(each)
        ask(following)

    ask(study.start())
    while waiting:
        found.in_flight.append(len(waiting))
        end(waiting[0] if seed is None else rng.choice(waiting))
    return found
