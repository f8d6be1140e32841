"""What determines a fit, what it is given, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from sweep.fits.record import FitRecord
from sweep.fits.trials import Trial, Value
from sweep.seeds import derive_seed, digest, source_of

# A fit's own start: on its own, or as the first of a chain of warm starts.
COLD, CHAIN = "cold", "chain"

Pairs = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class FitSpec:
    """Everything that determines a fit's result, and nothing else.

    Attributes
    ----------
    dataset, data : name in the sweep, fingerprint of the content.
    fold : the held-out fold of a tuning fit; None is the refit on the whole training part, scored on the test part.
    method, version : name and version of the method; `estimator` is the dotted path of one that is not ours.
    trial : the hyperparameters.
    settings, fixed : parameters for all methods, and for this one.
    start : "cold", "chain" (cold too, with its solution kept for what follows: the next of a chain, the refit after a
        path), or the key of the fit whose solution this one starts from.
    salt : empty except in benchmark mode, where it keeps results from being reused.
    score, score_version, maximize : what tuning compares; the version is that of a user's own function.
    gammas : the range that a path covers in place of one gamma.
    max_queries : queries at most that are scored; None for all of them.
    """

    dataset: str
    data: str
    scaling: str
    pca: int | None
    frequent_above: int
    split: int
    folds: int
    fold: int | None
    method: str
    version: str
    trial: Trial
    restarts: int
    algorithm: str
    settings: Pairs
    seed: int
    start: str = COLD
    salt: str = ""
    estimator: str = ""
    fixed: tuple[tuple[str, Value], ...] = ()
    score: str = "auc_all"
    score_version: str = ""
    maximize: bool = True
    gammas: tuple[float, float] | None = None
    max_queries: int | None = None

    @cached_property
    def key(self) -> str:
        """Content address: the same for equal fits, whatever the order or the place they run in.

        What the first version knew stands in it as it did then, the rest only where it says something: fits of
        that version keep their keys.
        """
        trial = dict(self.trial.values)
        content: dict[str, Any] = {
            "dataset": self.dataset,
            "data": self.data,
            "scaling": self.scaling,
            "pca": self.pca,
            "frequent_above": self.frequent_above,
            "split": self.split,
            "folds": None if self.fold is None else self.folds,  # a refit does not see the folds
            "fold": self.fold,
            "method": self.method,
            "gamma": trial.pop("gamma", None),
            "rank": trial.pop("rank", None),
            "restarts": self.restarts,
            "algorithm": self.algorithm,
            "settings": self.settings,
            "seed": self.seed,
            "start": self.start,
            "salt": self.salt,
            "solver_version": self.version if self.estimator else int(self.version),
        }
        added = {
            "trial": trial,
            "estimator": self.estimator,
            "fixed": self.fixed,
            "own_score": self.score_version and [self.score, self.score_version],
            "gammas": self.gammas and [*self.gammas, self.score],  # it scores where the score leads
            "max_queries": self.max_queries,
        }
        return digest(content | {name: value for name, value in added.items() if value})[:32]

    @property
    def label(self) -> str:
        """Short description for people; splits and folds are numbered from 0, as everywhere."""
        gammas = f"gamma={self.gammas[0]:g}..{self.gammas[1]:g}" if self.gammas else ""
        fold = "refit" if self.fold is None else f"fold {self.fold}"
        parts = (self.dataset, f"split {self.split}", self.method, self.trial.label, gammas, fold)
        return " ".join(part for part in parts if part)

    @property
    def study(self) -> tuple[str, int, str]:
        """The study that this fit belongs to."""
        return self.dataset, self.split, self.method

    @property
    def is_tuning(self) -> bool:
        return self.fold is not None

    def seed_for(self, purpose: str) -> int:
        """Seed of one purpose. The method is left out: all of them face the same pairs and the same starts."""
        fold = "refit" if self.fold is None else self.fold
        return derive_seed(self.seed, source_of(self.dataset), self.split, fold, purpose)

    def to_dict(self) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {"trial": dict(self.trial.values)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], key: str | None = None) -> FitSpec:
        """Inverse of `to_dict` after a round trip through JSON; `key` if it is known, to save computing it."""
        parts = {
            "trial": Trial.of(values["trial"]),
            "settings": _pairs(values["settings"]),
            "fixed": _pairs(values.get("fixed", ())),
            "gammas": tuple(values["gammas"]) if values.get("gammas") else None,
        }
        spec = cls(**{**values, **parts})
        if key is not None:
            vars(spec)["key"] = key  # where `cached_property` looks first
        return spec


def _pairs(values: Any) -> Pairs:
    return tuple((name, value) for name, value in values)


@dataclass(frozen=True)
class SplitData:
    """One train/test split after preprocessing, shared read-only by all of its fits."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    fold_of: np.ndarray  # (n_train,) fold number of each training row
    class_sizes: np.ndarray  # (K,) examples per class over the whole dataset


@dataclass(frozen=True)
class Help:
    """What a fit is given besides its spec and data; none of it changes the result beyond the tolerance.

    Attributes
    ----------
    device : "auto", "cpu", "cuda:0".
    warm : what the fit kept that `spec.start` names: dual weights (m,) on the same pairs, or components (k, D).
    lean : work in small blocks: less memory, the same result up to rounding.
    estimator : the object of a method that was handed over in memory.
    """

    device: str = "auto"
    warm: Any = None
    lean: bool = False
    estimator: Any = None


@dataclass(frozen=True)
class FitOutcome:
    """A record and the arrays that belong to it (refits, links of a chain)."""

    record: FitRecord
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def with_seconds(self, **seconds: float) -> FitOutcome:
        record = self.record
        return replace(self, record=replace(record, seconds=replace(record.seconds, **seconds)))
