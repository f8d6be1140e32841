"""What is kept of a finished fit: frozen dataclasses whose fields are the columns everywhere.

Ledger, results, report and MLflow read these fields by their names. `to_dict` and `from_dict` are the way
through JSON; fields that an older version did not write have their defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Self, cast

from solvers.scores import SCORES


@cache
def _names(kind: Any) -> frozenset[str]:
    """Of a dataclass's fields; asked for five times per record that is read."""
    return frozenset(each.name for each in fields(kind))


@cache
def _unnamed(kind: Any) -> frozenset[str]:
    """Scores of the table that have no field."""
    return frozenset(SCORES) - _names(kind)


@dataclass(frozen=True)
class _Part:
    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """From a mapping read from JSON, with its lists; what this version does not know is left out."""
        known = _names(cast(Any, cls))
        return cls(**{n: tuple(v) if type(v) is list else v for n, v in values.items() if n in known})


@dataclass(frozen=True)
class Seconds(_Part):
    """Where a fit's time went. `queue` is spent waiting; the rest keeps a worker busy."""

    transfer: float = 0.0
    solve: float = 0.0
    score: float = 0.0
    startup: float = 0.0
    queue: float = 0.0

    @property
    def busy(self) -> float:
        """For which a worker was occupied: what budgets, lanes and forecasts count."""
        return self.transfer + self.solve + self.score + self.startup


@dataclass(frozen=True)
class Place(_Part):
    """Where a fit ran."""

    host: str = ""
    pid: int = 0
    device: str = ""
    gpu: str | None = None  # model of the GPU
    visible_devices: str | None = None
    python: str = ""
    numpy: str = ""
    scipy: str = ""

    @property
    def lane(self) -> str:
        """The device as people tell devices apart: host and GPU, or host and process."""
        return f"{self.host} GPU {self.visible_devices or 0}" if self.gpu else f"{self.host} process {self.pid}"


@dataclass(frozen=True)
class Scores(_Part):
    """Scores on the held-out part; None for a mean over no query.

    `own` is a score function of the user's, `more` what the table of scores has beyond the fields here. `errors` holds
    standard errors of scores of which only a sample of the queries was taken; `train_*` and `npv` (projection
    vectors) are of refits only.
    """

    auc_all: float | None = None
    auc_frequent: float | None = None
    auc_infrequent: float | None = None
    balance_score: float | None = None
    ap_all: float | None = None
    ap_frequent: float | None = None
    ap_infrequent: float | None = None
    recall_at_1: float | None = None
    recall_at_5: float | None = None
    recall_at_10: float | None = None
    map_at_r: float | None = None
    knn_accuracy: float | None = None
    own: float | None = None
    more: Mapping[str, float] = field(default_factory=dict)
    n_queries: int = 0
    n_skipped: int = 0
    errors: Mapping[str, float] = field(default_factory=dict)
    restart_auc: tuple[float, ...] | None = None
    train_auc_all: float | None = None
    train_auc_frequent: float | None = None
    train_auc_infrequent: float | None = None
    npv: int | None = None

    def get(self, name: str) -> float | None:
        """A score by its name in a sweep file; `module:function` is the user's own."""
        value: float | None = self.own if ":" in name else getattr(self, name, self.more.get(name))
        return value

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """From a mapping; a score that has no field of its own stands in `more`."""
        more = {name: values[name] for name in _unnamed(cast(Any, cls)) if name in values}
        return super().from_dict({**values, "more": more} if more else values)


@dataclass(frozen=True)
class Solved(_Part):
    """What the solver says of itself; None where the method has no such thing."""

    objective: float | None = None
    dual_objective: float | None = None
    relative_gap: float | None = None
    n_iter: int | None = None
    n_eigh: int | None = None
    rank: int | None = None
    exact_rank: int | None = None
    converged: bool | None = None
    stationarity: float | None = None
    best_restart: int | None = None
    restart_objectives: tuple[float, ...] | None = None
    restart_n_iter: tuple[int, ...] | None = None
    restarts_run: int | None = None
    n_restarts_saved: int | None = None
    bound_gap: float | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def restart_spread(self) -> float | None:
        """Relative difference between the highest and the lowest objective of several restarts."""
        found = self.restart_objectives
        if not found or len(found) < 2:
            return None
        return (max(found) - min(found)) / max(1.0, abs(min(found)))


@dataclass(frozen=True)
class Curve(_Part):
    """A path of gamma: what one task found over a whole range. Lists run side by side, gammas ascending.

    Attributes
    ----------
    gammas : that were scored: `n_coarse` of them in every fold, the others around the best one of this fold.
    sfn, vnd, ldd : the non-convex regularizers at the convex solution; None where one is infinite.
    spectra : the eigenvalues of M whose numbers are in `places`, as far as the rank reaches.
    knots : gammas that were solved, from the strongest.
    n_scored : different metrics that were scored: neighbouring gammas may share one.
    kept : the gamma with the best score, whose metric is this task's own: the refit starts from it.
    """

    gammas: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()
    gaps: tuple[float, ...] = ()
    ranks: tuple[int, ...] = ()
    objectives: tuple[float, ...] = ()
    knots: tuple[float, ...] = ()
    sfn: tuple[float | None, ...] = ()
    vnd: tuple[float | None, ...] = ()
    ldd: tuple[float | None, ...] = ()
    places: tuple[int, ...] = ()
    spectra: tuple[tuple[float, ...], ...] = ()
    n_coarse: int = 0
    n_scored: int = 0
    kept: float | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return super().from_dict({**values, "spectra": [tuple(each) for each in values.get("spectra", ())]})


@dataclass(frozen=True)
class FitRecord(_Part):
    """What is kept of a finished fit."""

    key: str
    scores: Scores
    fit: Solved
    seconds: Seconds
    place: Place
    started: float  # seconds since the epoch
    value: float | None = None  # the score that tuning compares
    theory: Mapping[str, Any] = field(default_factory=dict)
    curve: Curve | None = None
    attempts: int = 1
    artifact: str | None = None  # SHA-256 of the file that holds the fit's arrays

    @property
    def ended(self) -> float:
        """Seconds since the epoch, without start-up and waiting, which come before `started`."""
        return self.started + self.seconds.transfer + self.seconds.solve + self.seconds.score

    def to_dict(self) -> dict[str, Any]:
        """What this record says; a field that is left out is None."""
        return _said(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict` after a round trip through JSON, of this version or an older one."""
        parts = {
            "scores": Scores.from_dict(values["scores"]),
            "fit": Solved.from_dict(values["fit"]),
            "seconds": Seconds.from_dict(values["seconds"]),
            "place": Place.from_dict(values["place"]),
            "curve": Curve.from_dict(values["curve"]) if values.get("curve") else None,
        }
        record = super().from_dict({**values, **parts})
        # Before there was a choice, tuning compared the AUC over all queries.
        return record if record.value is not None else replace(record, value=record.scores.auc_all)

    def defect(self) -> str | None:
        """Why this record must not be kept: a number that is none; None if it is sound."""
        return next((f"{name} is {number}" for name, number in _numbers(self.to_dict()) if not math.isfinite(number)),
                    None)  # fmt: skip


def _said(part: _Part) -> dict[str, Any]:
    # Most fields of most fits are None; `asdict` would copy all of them, at every commit.
    found = {name: value for name in _names(cast(Any, type(part))) if (value := getattr(part, name)) is not None}
    return {name: _said(value) if isinstance(value, _Part) else value for name, value in found.items()}


def _numbers(value: Any, name: str = "") -> Any:
    """All floats of a nested value, with the name of the field they stand in."""
    if isinstance(value, float):
        yield name, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _numbers(part, str(key))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _numbers(part, name)
