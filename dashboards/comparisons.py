"""Any two methods of a sweep compared: paired differences with their uncertainty, and words for them."""

from __future__ import annotations

import itertools
import math

import pandas as pd

from dashboards.efficiency import ALL_DATASETS
from dashboards.records import SweepRecords
from dashboards.statistics import (
    Difference,
    Ranking,
    corrected_difference,
    difference_in_words,
    holm,
    over_datasets,
    rank_methods,
)
from solvers.methods import PAIRS

TEST, FOLDS = "test parts", "tuning folds"
_COLUMNS = [
    "dataset", "first", "second", "basis", "n", "difference", "standard_error", "half_width", "p", "p_holm",
    "p_first_better", "p_equivalent", "p_second_better",
]  # fmt: skip


def split_difference(
    sweep: SweepRecords, dataset: str, first: str, second: str, column: str = "test_score"
) -> Difference:
    """First minus second on the test parts of the splits that both have finished."""
    scores = {
        method: {r.split: getattr(r, column) for r in sweep.rows if (r.dataset, r.method) == (dataset, method)}
        for method in (first, second)
    }
    common = sorted(scores[first].keys() & scores[second].keys())
    pairs = [(scores[first][split], scores[second][split]) for split in common]
    return corrected_difference([a - b for a, b in pairs if a is not None and b is not None], sweep.test_share(dataset))


def fold_difference(sweep: SweepRecords, dataset: str, first: str, second: str) -> Difference:
    """First minus second over the tuning folds, each method at its chosen setting.

    Optimistic for the method with more settings to choose from: these folds made the choice.
    """
    found: dict[str, dict[int, list[float]]] = {first: {}, second: {}}
    folds = 2
    for study in sweep.studies:
        if study.dataset == dataset and study.method in found and study.chosen is not None and study.folds:
            scores = study.chosen_scores()
            if len(scores) == study.folds:
                folds = study.folds
                found[study.method][study.split] = scores
    differences = [
        a - b
        for split in sorted(found[first].keys() & found[second].keys())
        for a, b in zip(found[first][split], found[second][split], strict=True)
    ]
    return corrected_difference(differences, 1 / (folds - 1))


def differences_frame(sweep: SweepRecords) -> pd.DataFrame:
    """Every two methods of a dataset, the better one first; Holm's correction counts all pairs of the dataset.

    Judged by the test parts where splits were repeated, else by the tuning folds.
    """
    frames = []
    for dataset in sweep.datasets:
        rows = []
        for first, second in itertools.combinations(sweep.ranked(dataset), 2):
            basis, difference = TEST, split_difference(sweep, dataset, first, second)
            if math.isnan(difference.standard_error):
                by_folds = fold_difference(sweep, dataset, first, second)
                if not math.isnan(by_folds.standard_error):
                    basis, difference = FOLDS, by_folds
            if difference.n:
                rows.append(_row(sweep, dataset, first, second, basis, difference))
        frame = pd.DataFrame(rows, columns=_COLUMNS)
        frame["p_holm"] = holm(list(frame["p"]))
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=_COLUMNS)


def _row(
    sweep: SweepRecords, dataset: str, first: str, second: str, basis: str, difference: Difference
) -> dict[str, object]:
    below, within, above = difference.chances()
    better, worse = (above, below) if sweep.maximize else (below, above)
    return {
        "dataset": dataset,
        "first": first,
        "second": second,
        "basis": basis,
        "n": difference.n,
        "difference": difference.mean,
        "standard_error": difference.standard_error,
        "half_width": difference.half_width,
        "p": difference.p,
        "p_first_better": better,
        "p_equivalent": within,
        "p_second_better": worse,
    }


def pair_verdicts(sweep: SweepRecords) -> list[str]:
    """One sentence per convex method and its non-convex counterpart: over all datasets, from test parts if repeated."""
    sentences = []
    for convex, nonconvex in PAIRS:
        by_basis: dict[str, list[tuple[str, Difference]]] = {TEST: [], FOLDS: []}
        for dataset in sweep.datasets:
            for basis, found in (
                (TEST, split_difference(sweep, dataset, convex, nonconvex)),
                (FOLDS, fold_difference(sweep, dataset, convex, nonconvex)),
            ):
                if found.n:
                    by_basis[basis].append((dataset, found))
        judged = [
            (basis, *(each[0] if len(each) == 1 else (ALL_DATASETS, over_datasets([d for _, d in each]))))
            for basis, each in by_basis.items()
            if each
        ]
        sure = [each for each in judged if not math.isnan(each[2].p)] or judged
        if sure:
            basis, dataset, difference = sure[0]
            words = difference_in_words(
                convex, nonconvex, difference, sweep.score_title, larger_is_better=sweep.maximize
            )
            sentences.append(f"{words} [{dataset}, {basis}]")
    return sentences


def pooled_difference(sweep: SweepRecords, column: str) -> Difference:
    """Convex minus non-convex in any column of the results: mean over pairs, then over datasets.

    The pairs of one split share their examples, so they are averaged first and count once.
    """
    per_dataset = []
    for dataset in sweep.datasets:
        of_dataset = sweep.results[sweep.results["dataset"] == dataset]
        table = of_dataset.pivot_table(index="split", columns="method", values=column, aggfunc="first")
        pairs = [table[c] - table[n] for c, n in PAIRS if c in table and n in table]
        values = pd.concat(pairs, axis=1).mean(axis=1).dropna() if pairs else pd.Series(dtype=float)
        if len(values):
            per_dataset.append(corrected_difference(values.to_numpy(), sweep.test_share(dataset)))
    return over_datasets(per_dataset)


def ranking(sweep: SweepRecords) -> Ranking | None:
    """Mean ranks of all methods over the datasets."""
    table = sweep.results.pivot_table(index="method", columns="dataset", values="test_score", aggfunc="mean")
    return rank_methods(table if sweep.maximize else -table)
