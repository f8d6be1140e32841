"""From the ledger to what a report is made of: one row per fit, per result, per failure, and the refits' arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from solvers.methods import METHODS
from solvers.scores import SCORES
from sweep.fits import FitRecord, FitSpec
from sweep.store.fit_rows import fit_row
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.store.results import RESULT_COLUMNS, ResultRow, StudyRecords, group_records, result_row
from sweep.store.rows import Failure

Arrays = Mapping[tuple[str, str], Mapping[str, np.ndarray]]  # (dataset, method) -> arrays of a refit
PHASES = ("solve", "score", "transfer", "startup", "queue")
# The non-convex regularizers that the paper's figure shows at the convex solution.
NONCONVEX_VALUES = ("sfn", "vnd", "ldd")


# Columns of `sweep.store.fit_rows` that figures draw, and one more: how a setting reads.
_FIT = (
    "key", "dataset", "split", "fold", "method", "setting", "gamma", "rank", "gamma_low", "restarts", "value",
    "auc_all", "relative_gap", "converged", "vectors", *(f"{phase}_seconds" for phase in PHASES), "busy_seconds",
    "lane", "gpu", "started", "ended", "attempts", "warm", *(f"theory_{name}" for name in NONCONVEX_VALUES),
)  # fmt: skip


def setting_of(spec: FitSpec) -> str:
    """The hyperparameters of a fit in words; the range of a path."""
    if spec.gammas is not None:
        return f"gamma={spec.gammas[0]:g}..{spec.gammas[1]:g}"
    return spec.trial.label


@dataclass(frozen=True)
class Beside:
    """What other sweeps of this home know of the same data: refits by the other algorithm, scores of their grids.

    `grid` has dataset, method, gamma and the mean score over the folds, tuned by the same score.
    """

    arrays: Arrays = field(default_factory=dict)
    algorithm: str = ""
    grid: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["dataset", "method", "gamma", "score"]))


@dataclass(frozen=True)
class SweepRecords:
    """All that a report is made of.

    Attributes
    ----------
    spec, about : the sweep file; versions, machine and data of the latest run.
    studies : finished fits by (dataset, split, method).
    rows : one per study whose refit is there, as in `sweep results`.
    failed : failed attempts.
    asked : fits that the sweep asks for so far.
    arrays : of each method's refit on the first split of each dataset that has one.
    """

    name: str
    spec: Mapping[str, Any]
    about: Mapping[str, Any]
    studies: Sequence[StudyRecords]
    rows: Sequence[ResultRow]
    failed: Sequence[Failure] = ()
    asked: int = 0
    arrays: Arrays = field(default_factory=dict)
    beside: Beside = field(default_factory=Beside)

    @cached_property
    def results(self) -> pd.DataFrame:
        """`rows` as a frame; a missing number is NaN."""
        frame = pd.DataFrame([row.to_dict() for row in self.rows], columns=list(RESULT_COLUMNS))
        wanted = {e.name for e in fields(ResultRow) if str(e.type) in ("float | None", "int | None")}
        return frame.astype(dict.fromkeys(wanted, float))

    @cached_property
    def fits(self) -> pd.DataFrame:
        """One row per finished fit."""
        found = [fit for study in self.studies for fit in study.fits]
        rows = [fit_row(spec, record) | {"setting": setting_of(spec)} for spec, record in found]
        return pd.DataFrame(rows, columns=list(_FIT))

    @cached_property
    def failures(self) -> pd.DataFrame:
        """One row per failed attempt."""
        return pd.DataFrame([vars(f) for f in self.failed], columns=[each.name for each in fields(Failure)])

    @cached_property
    def datasets(self) -> list[str]:
        """Datasets with at least one finished fit, in the order of their names."""
        return sorted({study.dataset for study in self.studies})

    @cached_property
    def methods(self) -> list[str]:
        """Methods with a result: ours in the order of the method table, then the others by name."""
        return in_order({row.method for row in self.rows})

    @property
    def score(self) -> str:
        """The score by which settings were chosen."""
        return str(self.spec.get("score", "auc_all"))

    @property
    def maximize(self) -> bool:
        if self.score in SCORES:
            return SCORES[self.score].larger_is_better
        return all(study.maximize for study in self.studies)

    @property
    def score_title(self) -> str:
        """The score's name for people: own ones by the function's name."""
        return {"auc_all": "AUC"}.get(self.score, self.score.rpartition(":")[2].replace("_", " "))

    def ranked(self, dataset: str | None = None) -> list[str]:
        """Methods with a result, the best test score first; over several datasets by the mean of their means."""
        frame = self.results if dataset is None else self.results[self.results["dataset"] == dataset]
        if dataset is None:
            table = frame.pivot_table(index="method", columns="dataset", values="test_score", dropna=False)
            means = table.rank(ascending=not self.maximize).mean(axis=1)
        else:
            means = frame.groupby("method")["test_score"].mean() * (-1 if self.maximize else 1)
        place = {str(method): float(value) for method, value in means.items()}
        found = in_order(set(frame["method"]))
        return sorted(found, key=lambda method: place[method] if place.get(method) == place.get(method) else np.inf)

    @property
    def has_gpu(self) -> bool:
        return bool(self.fits["gpu"].notna().any())

    @property
    def hours_unit(self) -> str:
        """What an hour of this sweep is an hour of."""
        return "GPU-hours" if self.has_gpu else "CPU-hours"

    def test_share(self, dataset: str) -> float:
        """Test examples per training example, as the corrected t-test needs it; 0.43 for 70/30 if unknown."""
        sizes = self.about.get("datasets", {}).get(dataset, {})
        return sizes["n_test"] / sizes["n_train"] if sizes else 3 / 7


def in_order(methods: Iterable[str]) -> list[str]:
    """Ours in the order of the method table, then the others by name."""
    found = set(methods)
    return [name for name in METHODS if name in found] + sorted(found - set(METHODS))


def collect(
    name: str,
    spec: Mapping[str, Any],
    about: Mapping[str, Any],
    fits: Iterable[tuple[FitSpec, FitRecord]],
    failed: Sequence[Failure] = (),
    asked: int | None = None,
) -> SweepRecords:
    """Records in memory as a sweep."""
    studies = group_records(fits, spec.get("select", "best"))
    rows = [row for study in studies if (row := result_row(study, failed)) is not None]
    done = sum(len(study.fits) for study in studies)
    return SweepRecords(name, spec, about, studies, rows, failed, done if asked is None else asked)


def read_sweep(ledger: Ledger, name: str, home: Home | None = None) -> SweepRecords:
    """Everything the ledger knows of a sweep; with a home also the arrays of its refits, and what other sweeps know."""
    spec, asked = ledger.sweeps()[name], ledger.count(name)[1]
    found = collect(name, spec, ledger.about(name), ledger.records(name), ledger.failures(name), asked)
    if home is None:
        return found
    parts = vars(found) | {"arrays": first_split_arrays(home, found.studies), "beside": _beside(home, ledger, found)}
    return SweepRecords(**{each.name: parts[each.name] for each in fields(SweepRecords)})


def first_split_arrays(home: Home, studies: Iterable[StudyRecords]) -> dict[tuple[str, str], dict[str, np.ndarray]]:
    """Arrays of each method's refit on the first split of each dataset that has one."""
    found: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for study in studies:
        place = (study.dataset, study.method)
        if place not in found and study.refit is not None and study.refit[1].artifact:
            arrays = home.read_artifact(study.refit[0].key, study.refit[1].artifact)
            if arrays is not None:
                found[place] = arrays
    return found


def _beside(home: Home, ledger: Ledger, sweep: SweepRecords) -> Beside:
    own, mine = str(sweep.spec.get("algorithm")), sweep.about.get("data", {})
    arrays: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    algorithm, points = "", []
    on_path = {(study.dataset, study.method) for study in sweep.studies if study.curves}
    for name, spec in ledger.sweeps().items():
        data = ledger.about(name).get("data", {})
        shared = {dataset for dataset, fingerprint in data.items() if mine.get(dataset) == fingerprint}
        if name == sweep.name or not shared:
            continue
        other = str(spec.get("algorithm"))
        if other != own and not arrays:
            arrays = first_split_arrays(home, group_records(ledger.records(name)))
            algorithm = f"{other}, sweep {name}"
        elif other == own and on_path and spec.get("score", "auc_all") == sweep.score:
            points += _grid_points(group_records(ledger.records(name)), on_path)
    frame = pd.DataFrame(points, columns=["dataset", "method", "gamma", "score"])
    return Beside(arrays, algorithm, frame.groupby(["dataset", "method", "gamma"], as_index=False).mean())


def _grid_points(studies: Iterable[StudyRecords], wanted: set[tuple[str, str]]) -> list[tuple[str, str, float, float]]:
    return [
        (study.dataset, study.method, float(trial.get("gamma")), float(np.mean(list(folds.values()))))
        for study in studies
        if (study.dataset, study.method) in wanted
        for trial, folds in study.fold_scores.items()
        if trial.get("gamma") is not None and len(folds) == study.folds
    ]
