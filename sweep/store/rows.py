"""From fits and failures to the ledger's rows and back: cleaned, capped, sealed with a checksum."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from sqlalchemy import RowMapping

from solvers.scores import SCORES
from sweep.fits import Curve, FitRecord, FitSpec, Scores
from sweep.store.faults import UnsoundRecord
from sweep.store.tables import SEALED

MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 20_000
_NO_TEXT = re.compile(r"[\x00\ud800-\udfff]")  # what PostgreSQL or UTF-8 cannot hold
_INT_LIMIT = 2**31
_SEAL = json.JSONEncoder(default=repr)

Row = Mapping[str, Any] | RowMapping


@dataclass(frozen=True)
class Failure:
    """One attempt at a fit that did not give a record."""

    key: str
    dataset: str
    split: int
    method: str
    label: str
    attempt: int
    kind: str  # lost worker, out of memory, timeout, numerical, bug
    message: str
    traceback: str
    seconds: float
    final: bool  # no attempt follows in this run
    happened: float  # seconds since the epoch

    @classmethod
    def of(
        cls,
        spec: FitSpec,
        *,
        attempt: int,
        kind: str,
        message: str,
        traceback: str,
        seconds: float,
        final: bool,
        happened: float | None = None,
    ) -> Failure:
        """A failed attempt at `spec`, now unless `happened` says otherwise."""
        dataset, split, method = spec.study
        return cls(
            spec.key, dataset, split, method, spec.label, attempt, kind, message, traceback, seconds, final,
            time.time() if happened is None else happened,
        ).cleaned()  # fmt: skip

    @property
    def study(self) -> tuple[str, int, str]:
        """The study that this attempt is charged to."""
        return self.dataset, self.split, self.method

    def cleaned(self) -> Failure:
        """The same with texts that every database can hold, and not too long."""
        limits = {"message": MESSAGE_LIMIT, "traceback": TRACEBACK_LIMIT}
        texts: dict[str, Any] = {
            each.name: clean(getattr(self, each.name), limits.get(each.name, MESSAGE_LIMIT))
            for each in fields(self)
            if isinstance(getattr(self, each.name), str)
        }
        return replace(self, **texts, seconds=self.seconds if math.isfinite(self.seconds) else 0.0)


def clean(text: str, limit: int) -> str:
    """Text without NUL and lone surrogates, cut in the middle if it is longer than `limit`."""
    if len(text) > limit:
        kept = limit - 50
        head = kept // 4  # the end of a traceback says most
        text = f"{text[:head]}\n[... {len(text) - kept} characters left out ...]\n{text[head - kept :]}"
    return without_bad_characters(text)


def without_bad_characters(text: str) -> str:
    return _NO_TEXT.sub("\ufffd", text)


def failure_row(sweep: str, failure: Failure) -> dict[str, Any]:
    return asdict(failure.cleaned()) | {"sweep": sweep}


@dataclass(frozen=True)
class Glance:
    """What a driver asks of a finished fit; the whole record takes three times as long to read."""

    key: str
    artifact: str | None
    busy_seconds: float
    value: float | None  # the score that the sweep compares
    curve: Curve | None


def glance_of(row: Row, score: str) -> Glance:
    record = json.loads(row["record"])
    value, curve = Scores.from_dict(record["scores"]).get(score), record.get("curve")
    return Glance(row["key"], row["artifact"], row["busy_seconds"], value, Curve.from_dict(curve) if curve else None)


def fit_row(spec: FitSpec, record: FitRecord, *, home: str = "", committed: float | None = None) -> dict[str, Any]:
    """The row of a finished fit, whose artifact lies in `home`."""
    if record.key != spec.key:
        raise UnsoundRecord(f"the record of {record.key} came back for {spec.key}")
    try:
        texts = {"spec": _json(spec.to_dict()), "record": _json(record.to_dict())}
    except (ValueError, TypeError) as error:  # JSON has no word for a number that is none
        raise UnsoundRecord(record.defect() or str(error)) from None
    return fit_row_of_texts(spec, record, **texts, home=home, committed=committed)


def fit_row_of_texts(
    fit: FitSpec, outcome: FitRecord, *, spec: str, record: str, home: str, committed: float | None
) -> dict[str, Any]:
    """`fit_row` for JSON that is there already."""
    trial = dict(fit.trial.values)
    row: dict[str, Any] = {
        "key": fit.key,
        "spec": spec,
        "record": record,
        "dataset": clean(fit.dataset, MESSAGE_LIMIT),
        "data": fit.data,
        "split": int(fit.split),
        "fold": None if fit.fold is None else int(fit.fold),
        "method": clean(fit.method, MESSAGE_LIMIT),
        "gamma": _float(trial.get("gamma")),
        "rank": _int(trial.get("rank")),
        "params": _json(trial),
        "restarts": int(fit.restarts),
        "value": _float(outcome.value),
        "solve_seconds": float(outcome.seconds.solve),
        "busy_seconds": float(outcome.seconds.busy),
        "relative_gap": _float(outcome.fit.relative_gap),
        "converged": None if outcome.fit.converged is None else bool(outcome.fit.converged),
        "artifact": outcome.artifact,
    }
    return row | {
        "checksum": checksum(row),
        "artifact_home": home if outcome.artifact else "",
        "committed": time.time() if committed is None else committed,
    }


def checksum(row: Row) -> str:
    """Over all that a fit's row says; where its artifact lies may change."""
    return hashlib.sha256(_SEAL.encode([row[name] for name in SEALED]).encode()).hexdigest()


def is_intact(row: Row) -> bool:
    return checksum(row) == row["checksum"]


def spec_of(row: Row) -> FitSpec:
    return FitSpec.from_dict(json.loads(row["spec"]), row["key"])


def record_of(row: Row) -> FitRecord:
    return FitRecord.from_dict(json.loads(row["record"]))


def _json(value: Any) -> str:
    return json.dumps(_plain(value), sort_keys=True, allow_nan=False)


def _plain(value: Any) -> Any:
    """Python's own types for NumPy's, at any depth."""
    if value is None or type(value) in (str, float, int, bool):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _float(value: Any) -> float | None:
    """A number for a typed column; a user's hyperparameter of the same name may be anything."""
    value = _plain(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _int(value: Any) -> int | None:
    value = _plain(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _INT_LIMIT else None


def scored_by(score: str | None, spec: FitSpec, record: FitRecord) -> tuple[FitSpec, FitRecord]:
    """A fit as a sweep sees that compares `score`: another sweep, with another score, may have computed it."""
    if score is None or score == spec.score or score not in SCORES:  # an own score is part of the key
        return spec, record
    seen = replace(spec, score=score, maximize=SCORES[score].larger_is_better)
    return seen, replace(record, value=record.scores.get(score))
