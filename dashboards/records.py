"""From the ledger to pandas frames: one row per fit, per result, per failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sweep.fits import FitRecord, FitSpec
from sweep.store.ledger import Ledger
from sweep.store.results import StudyRecords, group_records, result_row

Arrays = Mapping[tuple[str, str], Mapping[str, np.ndarray]]  # (dataset, method) -> arrays of a refit
PHASES = ("solve", "score", "transfer", "startup", "queue")
# The non-convex regularizers that the paper's figure shows at the convex solution.
NONCONVEX_VALUES = ("sfn", "vnd", "ldd")


@dataclass(frozen=True)
class SweepRecords:
    """All that a report is made of.

    Attributes
    ----------
    spec, about : the sweep file; versions, machine and data of the latest run.
    studies : finished fits by (dataset, split, method).
    rows, results : one row per study whose refit is there; the columns of `sweep results`.
    fits : one row per finished fit.
    failures : one row per failed attempt.
    asked : fits that the sweep asks for so far.
    """

    name: str
    spec: Mapping[str, Any]
    about: Mapping[str, Any]
    studies: list[StudyRecords]
    rows: list[dict[str, Any]]
    results: pd.DataFrame
    fits: pd.DataFrame
    failures: pd.DataFrame
    asked: int

    @property
    def datasets(self) -> list[str]:
        """Datasets with at least one finished fit, in the order of their names."""
        return sorted(self.fits["dataset"].unique())

    @property
    def methods(self) -> list[str]:
        """Methods with a result, in the order of the method table."""
        from solvers.methods import METHODS

        finished = set(self.results["method"])
        return [name for name in METHODS if name in finished]

    @property
    def has_gpu(self) -> bool:
        return bool(self.fits["gpu"].any())

    @property
    def hours_unit(self) -> str:
        """What an hour of this sweep is an hour of."""
        return "GPU-hours" if self.has_gpu else "CPU-hours"

    def test_share(self, dataset: str) -> float:
        """Test examples per training example, as the corrected t-test needs it; 0.43 for 70/30 if unknown."""
        sizes = self.about.get("datasets", {}).get(dataset, {})
        return sizes["n_test"] / sizes["n_train"] if sizes else 3 / 7


def read_sweep(ledger: Ledger, name: str) -> SweepRecords:
    """Everything the ledger knows of a sweep."""
    spec = ledger.sweeps()[name]
    records = list(ledger.records(name))
    studies = group_records(records)
    failed = ledger.failures(name)
    rows = [row for study in studies if (row := result_row(study, failed)) is not None]
    failures = pd.DataFrame([vars(f) for f in failed], columns=list(_FAILURE))
    return SweepRecords(
        name=name,
        spec=spec,
        about=ledger.about(name),
        studies=studies,
        rows=rows,
        results=pd.DataFrame(rows, columns=None if rows else list(_RESULT)),
        fits=pd.DataFrame([_fit_row(s, r) for s, r in records], columns=None if records else list(_FIT)),
        failures=failures,
        asked=ledger.count(name)[1],
    )


_FAILURE = (
    "key",
    "label",
    "method",
    "attempt",
    "kind",
    "message",
    "traceback",
    "seconds",
    "final",
    "happened",
)
_RESULT = (
    "dataset",
    "split",
    "method",
    "family",
    "convex",
    "gamma",
    "rank",
    "cv_auc",
    "cv_auc_se",
    "auc_all",
    "auc_frequent",
    "auc_infrequent",
    "balance_score",
    "npv",
    "compactness",
    "train_test_gap",
    "n_fits",
    "n_refits",
    "n_restarts",
    "fit_seconds",
    "tuning_seconds",
    "wall_seconds",
    "wasted_seconds",
    "n_eigh",
    "relative_gap",
    "key",
)
_FIT = (
    "key",
    "dataset",
    "split",
    "fold",
    "method",
    "gamma",
    "rank",
    "restarts",
    "algorithm",
    "warm",
    "auc_all",
    "balance_score",
    "relative_gap",
    "converged",
    "vectors",
    *PHASES,
    "lane",
    "gpu",
    "started",
    "ended",
    "attempts",
    "sfn",
    "vnd",
    "ldd",
)


def _fit_row(spec: FitSpec, record: FitRecord) -> dict[str, Any]:
    busy = sum(record.seconds.get(phase, 0.0) for phase in ("transfer", "solve", "score"))
    return {
        "key": record.key,
        "dataset": spec.dataset,
        "split": spec.split,
        "fold": spec.fold,
        "method": spec.method,
        "gamma": spec.gamma,
        "rank": spec.rank,
        "restarts": spec.restarts,
        "algorithm": spec.algorithm,
        "warm": spec.start != "cold",
        "auc_all": record.score,
        "balance_score": record.scores.get("balance_score"),
        "relative_gap": record.fit.get("relative_gap"),
        "converged": record.fit.get("converged"),
        "vectors": record.fit.get("rank"),
        **{phase: record.seconds.get(phase, 0.0) for phase in PHASES},
        "lane": lane(record.place),
        "gpu": record.place.get("gpu") is not None,
        "started": record.started,
        "ended": record.started + busy,
        "attempts": record.attempts,
        **{name: record.theory.get(f"theory.{name}") for name in NONCONVEX_VALUES},
    }


def lane(place: Mapping[str, Any]) -> str:
    """The device that a fit ran on, as people tell devices apart: host and GPU, or host and process."""
    if place.get("gpu") is not None:
        return f"{place['host']} GPU {place.get('visible_devices') or 0}"
    return f"{place['host']} process {place['pid']}"
