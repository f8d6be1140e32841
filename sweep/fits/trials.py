"""A setting of the hyperparameters, and how the best of several is chosen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Value = float | int | str | bool | None
Select = Literal["best", "one-se"]


@dataclass(frozen=True)
class Trial:
    """One setting of the hyperparameters by name, all folds: gamma and rank are two names among others."""

    values: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Trial:
        """From a mapping; a value of None says that there is nothing to set."""
        return cls(tuple(sorted((name, value) for name, value in values.items() if value is not None)))

    def get(self, name: str) -> Any:
        return dict(self.values).get(name)

    def with_values(self, **values: Value) -> Trial:
        return Trial.of({**dict(self.values), **values})

    @property
    def label(self) -> str:
        """For people: `gamma=0.01 rank=50`."""
        return " ".join(f"{name}={shown(value)}" for name, value in self.values)

    @property
    def simplicity(self) -> tuple[Any, ...]:
        """Larger is simpler: fewer projection vectors, then stronger regularization, then by name."""
        return (-(self.get("rank") or 0), self.get("gamma") or 0.0, self.label)


def shown(value: Any) -> str:
    """A hyperparameter's value as people write it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


FoldScores = Mapping[int, float | None]


def choose(
    scores: Mapping[Trial, FoldScores], folds: int, *, maximize: bool = True, select: Select = "best"
) -> Trial | None:
    """The trial that tuning settles on, among those that finished all folds; None if there is none.

    `best` takes the best mean, `one-se` the simplest within one standard error of the best mean. Equal means go to
    the simpler trial, whatever the order of arrival.
    """
    sign = 1.0 if maximize else -1.0
    finished: dict[Trial, list[float]] = {}
    for trial, by_fold in scores.items():
        values = [sign * value for value in by_fold.values() if value is not None]
        if len(values) == folds:
            finished[trial] = values
    if not finished:
        return None
    means = {trial: mean(values) for trial, values in finished.items()}
    best = max(means, key=lambda trial: (means[trial], trial.simplicity))
    if select == "best":
        return best
    within = means[best] - (standard_error(finished[best]) or 0.0)
    return max((t for t in means if means[t] >= within), key=lambda trial: trial.simplicity)


def mean(values: Iterable[float]) -> float:
    """Arithmetic mean, summed exactly: folds may arrive in any order."""
    listed = list(values)
    return math.fsum(listed) / len(listed)


def standard_error(values: Sequence[float]) -> float | None:
    """Standard error of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1) / len(values))
