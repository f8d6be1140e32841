"""From the ledger's records to result rows and the efficiency comparison. Pure functions of records."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from solvers.methods import METHODS
from sweep.errors import UserError
from sweep.fits import FitRecord, FitSpec, study_label
from sweep.store.ledger import Failure
from sweep.studies.grid import Trial, best_trial
from sweep.studies.plan import n_fits

# The paper's pairs: a convex relaxation and the non-convex method it stands for.
PAIRS = (("mdml-csfn", "pdml-sfn"), ("mdml-cvnd", "pdml-vnd"), ("mdml-cldd", "pdml-ldd"))

# Between the GPU models of one row.
_GPUS = ", "

Fit = tuple[FitSpec, FitRecord]


@dataclass
class StudyRecords:
    """The finished fits of one (dataset, split, method)."""

    dataset: str
    split: int
    method: str
    fits: list[Fit] = field(default_factory=list)

    @cached_property
    def folds(self) -> int:
        return max((spec.folds for spec, _ in self.fits if spec.fold is not None), default=0)

    @cached_property
    def tuning(self) -> dict[Trial, dict[int, Fit]]:
        """Tuning fits with all restarts, by trial and fold."""
        restarts = max((spec.restarts for spec, _ in self.fits), default=1)
        found: dict[Trial, dict[int, Fit]] = defaultdict(dict)
        for spec, record in self.fits:
            if spec.fold is not None and spec.restarts == restarts:
                found[Trial(spec.gamma, spec.rank)][spec.fold] = (spec, record)
        return dict(found)

    @cached_property
    def chosen(self) -> Trial | None:
        """Best trial by the folds; the only one of a method that tunes nothing. Ask when all fits are in."""
        if not self.tuning:
            return next(iter(self._refits), None)
        return best_trial(self._fold_scores(), self.folds)

    @property
    def refit(self) -> Fit | None:
        chosen = self.chosen
        return self._refits.get(chosen) if chosen is not None else None

    @property
    def tuning_fits(self) -> list[Fit]:
        """All fits but refits, those of a search's screening included."""
        return [fit for fit in self.fits if fit[0].fold is not None]

    @cached_property
    def _refits(self) -> dict[Trial, Fit]:
        return {Trial(s.gamma, s.rank): (s, r) for s, r in self.fits if s.fold is None}

    def _fold_scores(self) -> dict[Trial, dict[int, float]]:
        return {
            trial: {fold: record.score for fold, (_, record) in folds.items()} for trial, folds in self.tuning.items()
        }

    def best_score(self) -> float | None:
        """Mean score over the folds of the chosen trial."""
        chosen = self.chosen
        folds = self._fold_scores().get(chosen) if chosen is not None else None
        return sum(folds.values()) / len(folds) if folds else None

    def fits_until(self, target: float) -> int | None:
        """Fits started until a trial first reached a mean score of `target`; None if none did."""
        count, seen = 0, defaultdict[Trial, dict[int, float]](dict)
        restarts = max(spec.restarts for spec, _ in self.fits)
        for spec, record in sorted(self.tuning_fits, key=lambda fit: fit[1].started):
            count += n_fits(spec)
            if spec.restarts == restarts:
                folds = seen[Trial(spec.gamma, spec.rank)]
                folds[spec.fold or 0] = record.score
                if len(folds) == self.folds and sum(folds.values()) / len(folds) >= target - 1e-12:
                    return count
        return None


def group_records(records: Iterable[Fit]) -> list[StudyRecords]:
    """Records by study, in the order of the method table."""
    studies: dict[tuple[str, int, str], StudyRecords] = {}
    for spec, record in records:
        place = (spec.dataset, spec.split, spec.method)
        studies.setdefault(place, StudyRecords(*place)).fits.append((spec, record))
    order = {name: index for index, name in enumerate(METHODS)}
    return sorted(studies.values(), key=lambda s: (s.dataset, s.split, order[s.method]))


def result_rows(records: Iterable[tuple[FitSpec, FitRecord]], failures: Sequence[Failure] = ()) -> list[dict[str, Any]]:
    """One row per (dataset, split, method) whose refit is there."""
    return [row for study in group_records(records) if (row := result_row(study, failures)) is not None]


def result_row(study: StudyRecords, failures: Sequence[Failure] = ()) -> dict[str, Any] | None:
    """The contract's row for one study; None while its refit is missing. `failures` are the sweep's."""
    if study.refit is None:
        return None
    spec, refit = study.refit
    tuning = study.tuning_fits
    fits = [*tuning, study.refit]
    fold_scores = [record.score for _, record in study.tuning.get(Trial(spec.gamma, spec.rank), {}).values()]
    counted = tuning or [study.refit]
    scores = refit.scores
    tuning_seconds = sum(record.seconds["solve"] for _, record in tuning)
    gaps = [record.fit["relative_gap"] for _, record in fits if record.fit.get("relative_gap") is not None]
    return {
        "dataset": study.dataset,
        "split": study.split,
        "method": study.method,
        "family": METHODS[study.method].family,
        "convex": METHODS[study.method].convex,
        "gamma": spec.gamma,
        "rank": spec.rank,
        "cv_auc": _mean(fold_scores),
        "cv_auc_se": standard_error(fold_scores),
        "auc_all": scores["auc_all"],
        "auc_frequent": scores["auc_frequent"],
        "auc_infrequent": scores["auc_infrequent"],
        "balance_score": scores["balance_score"],
        "ap_all": scores["ap_all"],
        "npv": scores["npv"],
        "compactness": scores["auc_all"] / scores["npv"],
        "train_test_gap": scores["train_auc_all"] - scores["auc_all"],
        "n_fits": sum(n_fits(s) for s, _ in counted),
        "n_refits": n_fits(spec) if tuning else 0,
        "n_restarts": spec.restarts,
        "fit_seconds": sum(record.seconds["solve"] for _, record in fits),
        "tuning_seconds": tuning_seconds if tuning else refit.seconds["solve"],
        "wall_seconds": sum(sum(record.seconds.values()) - record.seconds.get("queue", 0.0) for _, record in fits),
        "wasted_seconds": wasted_seconds(study, failures),
        "n_eigh": sum(int(record.fit.get("n_eigh") or 0) for _, record in fits),
        "relative_gap": max(gaps) if gaps else None,
        "objective": refit.fit.get("objective"),
        "n_skipped": scores["n_skipped"],
        "algorithm": spec.algorithm,
        "mode": "benchmark" if spec.salt else "production",
        "gpu": _GPUS.join(sorted({str(record.place.get("gpu")) for _, record in fits})),
        "key": spec.key,
    }


def wasted_seconds(study: StudyRecords, failures: Sequence[Failure]) -> float:
    """Seconds that went into failed attempts at a study's fits."""
    beginning = study_label(study.dataset, study.split, study.method) + " "
    return sum(failure.seconds for failure in failures if failure.label.startswith(beginning))


@dataclass(frozen=True)
class Efficiency:
    """Non-convex over convex: how many runs, how long each, both together."""

    convex: str
    nonconvex: str
    convex_fits: int
    nonconvex_fits: int
    convex_seconds: float
    nonconvex_seconds: float

    @property
    def runs_ratio(self) -> float:
        return self.nonconvex_fits / self.convex_fits

    @property
    def time_per_run_ratio(self) -> float:
        return (self.nonconvex_seconds / self.nonconvex_fits) / (self.convex_seconds / self.convex_fits)

    @property
    def total_ratio(self) -> float:
        return self.nonconvex_seconds / self.convex_seconds


def efficiency(rows: Sequence[dict[str, Any]]) -> list[Efficiency]:
    """Tuning cost of each pair that was run on the same datasets and splits, then of all together.

    Times of different solvers, modes or GPU models are not comparable: a mixture is refused.
    """
    # Only the pairs are compared: another method may well have run elsewhere, as ilhd does on the CPU.
    rows = [row for row in rows if any(row["method"] in pair for pair in PAIRS)]
    for column in ("algorithm", "mode", "gpu"):
        # A row may name several GPU models itself, all rows the same ones: that is a mixture, too.
        values = {part for row in rows for part in str(row[column]).split(_GPUS)}
        if len(values) > 1:
            raise UserError(
                f"compare: these fits differ in {column} ({', '.join(sorted(values))}), "
                "so their times cannot be compared; compare sweeps that agree in it"
            )
    found = []
    for convex, nonconvex in PAIRS:
        places = [{(r["dataset"], r["split"]) for r in rows if r["method"] == m} for m in (convex, nonconvex)]
        common = places[0] & places[1]
        if common:
            found.append(_efficiency(rows, convex, nonconvex, common))
    if len(found) > 1:
        found.append(
            Efficiency(
                "all convex",
                "all non-convex",
                sum(e.convex_fits for e in found),
                sum(e.nonconvex_fits for e in found),
                sum(e.convex_seconds for e in found),
                sum(e.nonconvex_seconds for e in found),
            )
        )
    return found


def _efficiency(rows: Sequence[dict[str, Any]], convex: str, nonconvex: str, places: set[Any]) -> Efficiency:
    def total(method: str, column: str) -> Any:
        return sum(r[column] for r in rows if r["method"] == method and (r["dataset"], r["split"]) in places)

    return Efficiency(
        convex, nonconvex,
        total(convex, "n_fits"), total(nonconvex, "n_fits"),
        total(convex, "tuning_seconds"), total(nonconvex, "tuning_seconds"),
    )  # fmt: skip


def verdict(comparisons: Sequence[Efficiency]) -> str:
    """The measured ratio in one sentence."""
    if not comparisons:
        return "No convex method and its non-convex counterpart have both finished, so there is nothing to compare."
    e = comparisons[-1]
    return (
        f"Tuning {e.nonconvex} took {e.total_ratio:.2f} x the time of {e.convex}: "
        f"{e.runs_ratio:.0f} x as many fits ({e.nonconvex_fits} against {e.convex_fits}) "
        f"x {e.time_per_run_ratio:.3g} of the time per fit."
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def standard_error(values: Sequence[float]) -> float | None:
    """Standard error of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))
