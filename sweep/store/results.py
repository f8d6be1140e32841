"""From the ledger's records to result rows. Pure functions of records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from solvers.methods import METHODS
from sweep.fits import Curve, FitRecord, FitSpec, Select, Trial, choose, mean, standard_error
from sweep.fits.trials import shown
from sweep.methods import known_method
from sweep.store.rows import Failure
from sweep.studies.base import n_fits
from sweep.studies.path import choose_gamma, mean_curve

# Between the GPU models of one row.
GPUS = ", "

Fit = tuple[FitSpec, FitRecord]


@dataclass(frozen=True)
class ResultRow:
    """One (dataset, split, method) whose refit is there.

    Scores are of the refit on the test part. `n_fits` counts tuning fits, or the only fit of a method that tunes
    nothing; `fit_seconds` is time in the solver over all fits, `wall_seconds` that for which they kept a worker busy.
    `relative_gap` is the worst of all fits; `missed` counts fits whose tolerance was not reached. `edge` names
    chosen values at the end of what was searched.
    """

    dataset: str
    split: int
    method: str
    family: str
    convex: bool | None
    gamma: float | None
    rank: int | None
    params: Mapping[str, Any]
    score: str
    larger_is_better: bool
    cv_score: float | None
    cv_score_se: float | None
    cv_auc: float | None
    cv_auc_se: float | None
    test_score: float | None
    auc_all: float | None
    auc_frequent: float | None
    auc_infrequent: float | None
    balance_score: float | None
    ap_all: float | None
    recall_at_1: float | None
    recall_at_5: float | None
    recall_at_10: float | None
    map_at_r: float | None
    knn_accuracy: float | None
    npv: int | None
    compactness: float | None
    train_test_gap: float | None
    edge: str | None
    search: str
    n_fits: int
    n_refits: int
    n_restarts: int
    restarts_needed: float | None
    restarts_saved: int
    fit_seconds: float
    tuning_seconds: float
    wall_seconds: float
    wasted_seconds: float
    n_eigh: int
    relative_gap: float | None
    converged: bool | None
    missed: int
    objective: float | None
    n_queries: int
    n_skipped: int
    algorithm: str
    mode: str
    gpu: str | None
    key: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


RESULT_COLUMNS = tuple(each.name for each in fields(ResultRow))


@dataclass
class StudyRecords:
    """The finished fits of one (dataset, split, method)."""

    dataset: str
    split: int
    method: str
    fits: list[Fit] = field(default_factory=list)
    select: Select = "best"

    @cached_property
    def folds(self) -> int:
        return max((spec.folds for spec, _ in self.fits if spec.fold is not None), default=0)

    @cached_property
    def maximize(self) -> bool:
        return all(spec.maximize for spec, _ in self.fits)

    @cached_property
    def score(self) -> str:
        return self.fits[0][0].score

    @cached_property
    def tuning(self) -> dict[Trial, dict[int, Fit]]:
        """Tuning fits with all restarts, by trial and fold; paths are in `curves`."""
        restarts = max((spec.restarts for spec, _ in self.fits), default=1)
        found: dict[Trial, dict[int, Fit]] = defaultdict(dict)
        for spec, record in self.fits:
            if spec.fold is not None and spec.restarts == restarts and spec.gammas is None:
                found[spec.trial][spec.fold] = (spec, record)
        return dict(found)

    @cached_property
    def curves(self) -> dict[int, dict[tuple[float, float], Curve]]:
        """Curves of a path by fold and range, of the folds that have all ranges."""
        found: dict[int, dict[tuple[float, float], Curve]] = defaultdict(dict)
        for spec, record in self.fits:
            if spec.fold is not None and spec.gammas is not None and record.curve is not None:
                found[spec.fold][spec.gammas] = record.curve
        return dict(found)

    @cached_property
    def chosen(self) -> Trial | None:
        """The trial that tuning settled on; the only one of a method that tunes nothing. Ask when all fits are in."""
        if self.curves:
            if len({frozenset(c) for c in self.curves.values()}) > 1 or len(self.curves) < self.folds:
                return None
            gamma = choose_gamma(self.curves, maximize=self.maximize, select=self.select)
            return Trial.of({"gamma": gamma})
        if not self.tuning:
            return next(iter(self._refits), None)
        return choose(self.fold_scores, self.folds, maximize=self.maximize, select=self.select)

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
        return {spec.trial: (spec, record) for spec, record in self.fits if spec.fold is None}

    @cached_property
    def fold_scores(self) -> dict[Trial, dict[int, float]]:
        return {t: {fold: value_of(fit) for fold, fit in folds.items()} for t, folds in self.tuning.items()}

    def chosen_scores(self, column: str | None = None) -> list[float]:
        """Scores of the chosen trial over the folds: what tuning compared, or another score by name."""
        chosen = self.chosen
        if chosen is None:
            return []
        if self.curves:
            if column not in (None, self.score):
                return []
            gammas, rows = mean_curve(self.curves)
            return [float(row[gammas.index(chosen.get("gamma"))]) for row in rows]
        fits = self.tuning.get(chosen, {}).values()
        values = [value_of(fit) if column is None else fit[1].scores.get(column) for fit in fits]
        return [value for value in values if value is not None]

    @property
    def edge(self) -> str | None:
        """Chosen values at the end of what was searched, where more than one was: gamma=0.001 is the lowest."""
        chosen = self.chosen
        if chosen is None:
            return None
        searched: dict[str, set[Any]] = defaultdict(set)
        for trial in self.tuning:
            for name, value in trial.values:
                searched[name].add(value)
        if self.curves:
            searched["gamma"] |= {g for by_span in self.curves.values() for c in by_span.values() for g in c.gammas}
        ends = []
        for name, value in chosen.values:
            values = searched[name]
            if len(values) > 1 and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
                ends += [f"{name}={shown(value)} lowest"] if value == min(values) else []
                ends += [f"{name}={shown(value)} highest"] if value == max(values) else []
        return "; ".join(ends) or None

    def fits_until(self, target: float) -> int | None:
        """Fits started until a trial first reached a mean score of `target`; None if none did."""
        count, seen = 0, defaultdict[Trial, dict[int, float]](dict)
        sign = 1.0 if self.maximize else -1.0
        restarts = max(spec.restarts for spec, _ in self.fits)
        for spec, record in sorted(self.tuning_fits, key=lambda fit: fit[1].started):
            count += n_fits(spec)
            if spec.restarts == restarts and record.value is not None:
                folds = seen[spec.trial]
                folds[spec.fold or 0] = record.value
                if len(folds) == self.folds and sign * mean(folds.values()) >= sign * target - 1e-12:
                    return count
        return None


def value_of(fit: Fit) -> float:
    """The score that tuning compared."""
    spec, record = fit
    value = record.scores.get(spec.score)
    return float(value if value is not None else record.value or 0.0)


def group_records(records: Iterable[Fit], select: Select = "best") -> list[StudyRecords]:
    """Records by study: datasets and splits in order, ours in the order of the method table, then the others."""
    studies: dict[tuple[str, int, str], StudyRecords] = {}
    for spec, record in records:
        study = studies.setdefault(spec.study, StudyRecords(*spec.study, select=select))
        study.fits.append((spec, record))
    order = {name: index for index, name in enumerate(METHODS)}
    return sorted(studies.values(), key=lambda s: (s.dataset, s.split, order.get(s.method, len(order)), s.method))


def result_rows(
    records: Iterable[Fit], failures: Sequence[Failure] = (), *, select: Select = "best"
) -> list[ResultRow]:
    """One row per (dataset, split, method) whose refit is there."""
    return [row for study in group_records(records, select) if (row := result_row(study, failures)) is not None]


def result_row(study: StudyRecords, failures: Sequence[Failure] = ()) -> ResultRow | None:
    """The row of one study; None while its refit is missing. `failures` are the sweep's."""
    if study.refit is None:
        return None
    spec, refit = study.refit
    tuning, scores = study.tuning_fits, refit.scores
    fits = [*tuning, study.refit]
    records = [record for _, record in fits]
    compared, auc = study.chosen_scores(), study.chosen_scores("auc_all")
    known = known_method(study.method)
    gaps = [r.fit.relative_gap for r in records if r.fit.relative_gap is not None]
    gpus = sorted({r.place.gpu for r in records if r.place.gpu})
    return ResultRow(
        dataset=study.dataset,
        split=study.split,
        method=study.method,
        family=known.family,
        convex=known.convex,
        gamma=spec.trial.get("gamma"),
        rank=spec.trial.get("rank"),
        params=dict(spec.trial.values),
        score=spec.score,
        larger_is_better=spec.maximize,
        cv_score=mean(compared) if compared else None,
        cv_score_se=standard_error(compared),
        cv_auc=mean(auc) if auc else None,
        cv_auc_se=standard_error(auc),
        test_score=scores.get(spec.score),
        auc_all=scores.auc_all,
        auc_frequent=scores.auc_frequent,
        auc_infrequent=scores.auc_infrequent,
        balance_score=scores.balance_score,
        ap_all=scores.ap_all,
        recall_at_1=scores.recall_at_1,
        recall_at_5=scores.recall_at_5,
        recall_at_10=scores.recall_at_10,
        map_at_r=scores.map_at_r,
        knn_accuracy=scores.knn_accuracy,
        npv=scores.npv,
        compactness=scores.auc_all / scores.npv if scores.auc_all is not None and scores.npv else None,
        train_test_gap=_difference(scores.train_auc_all, scores.auc_all),
        edge=study.edge,
        search=_search(study),
        n_fits=sum(n_fits(s) for s, _ in (tuning or fits)),
        n_refits=n_fits(spec) if tuning else 0,
        n_restarts=spec.restarts,
        restarts_needed=restarts_needed(records),
        restarts_saved=sum(r.fit.n_restarts_saved or 0 for r in records),
        fit_seconds=sum(r.seconds.solve for r in records),
        tuning_seconds=sum(r.seconds.solve for _, r in tuning) if tuning else refit.seconds.solve,
        wall_seconds=sum(r.seconds.busy for r in records),
        wasted_seconds=wasted_seconds(study, failures),
        n_eigh=sum(r.fit.n_eigh or 0 for r in records),
        relative_gap=max(gaps) if gaps else None,
        converged=refit.fit.converged,
        missed=sum(1 for r in records if r.fit.converged is False and spec.algorithm == "certified"),
        objective=refit.fit.objective,
        n_queries=scores.n_queries,
        n_skipped=scores.n_skipped,
        algorithm=spec.algorithm,
        mode="benchmark" if spec.salt else "production",
        gpu=GPUS.join(gpus) or None,
        key=spec.key,
    )


def wasted_seconds(study: StudyRecords, failures: Sequence[Failure]) -> float:
    """Seconds that went into failed attempts at a study's fits."""
    place = (study.dataset, study.split, study.method)
    return sum(failure.seconds for failure in failures if (failure.dataset, failure.split, failure.method) == place)


def restarts_needed(records: Iterable[FitRecord], tolerance: float = 1e-3) -> float | None:
    """Mean over fits of how many restarts it took until one came within `tolerance` of the best of them all."""
    needed = []
    for record in records:
        objectives = record.fit.restart_objectives
        if objectives and len(objectives) > 1:
            best = min(objectives)
            within = best + tolerance * max(1.0, abs(best))
            needed.append(1 + next(i for i, value in enumerate(objectives) if value <= within))
    return mean(needed) if needed else None


def _search(study: StudyRecords) -> str:
    return "path" if study.curves else "grid" if len(study.tuning) > 1 else "none"


def _difference(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left - right
