"""Convex against non-convex, pair by pair: differences with their uncertainty, and words for them."""

from __future__ import annotations

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
from sweep.store.results import PAIRS

TEST, FOLDS = "test parts", "tuning folds"


def split_difference(sweep: SweepRecords, dataset: str, first: str, second: str, column: str) -> Difference:
    """First minus second on the test parts of the splits that both have finished."""
    of_dataset = sweep.results[sweep.results["dataset"] == dataset]
    both = of_dataset.pivot_table(index="split", columns="method", values=column, aggfunc="first")
    if first not in both or second not in both:
        return over_datasets([])
    return corrected_difference((both[first] - both[second]).dropna().to_numpy(), sweep.test_share(dataset))


def fold_difference(sweep: SweepRecords, dataset: str, first: str, second: str) -> Difference:
    """First minus second in AUC over the tuning folds, each method at its chosen setting.

    Optimistic for the method with more settings to choose from: these folds made the choice.
    """
    scores: dict[str, dict[tuple[int, int], float]] = {first: {}, second: {}}
    folds = 2
    for study in sweep.studies:
        if study.dataset == dataset and study.method in scores and study.chosen is not None and study.tuning:
            folds = study.folds
            chosen = study.tuning[study.chosen]
            scores[study.method] |= {(study.split, fold): record.score for fold, (_, record) in chosen.items()}
    common = sorted(scores[first].keys() & scores[second].keys())
    differences = [scores[first][place] - scores[second][place] for place in common]
    return corrected_difference(differences, 1 / (folds - 1))


def differences_frame(sweep: SweepRecords) -> pd.DataFrame:
    """AUC of each convex method minus its non-convex counterpart, per dataset and over all."""
    rows = []
    for convex, nonconvex in PAIRS:
        by_basis: dict[str, list[tuple[str, Difference]]] = {TEST: [], FOLDS: []}
        for dataset in sweep.datasets:
            for basis, difference in (
                (TEST, split_difference(sweep, dataset, convex, nonconvex, "auc_all")),
                (FOLDS, fold_difference(sweep, dataset, convex, nonconvex)),
            ):
                if difference.n:
                    by_basis[basis].append((dataset, difference))
        for basis, found in by_basis.items():
            if len(found) > 1:
                found.append((ALL_DATASETS, over_datasets([difference for _, difference in found])))
            rows += [_row(convex, nonconvex, dataset, basis, difference) for dataset, difference in found]
    columns = [
        "convex",
        "nonconvex",
        "dataset",
        "basis",
        "n",
        "difference",
        "standard_error",
        "half_width",
        "p",
        "p_holm",
        "words",
    ]
    frame = pd.DataFrame(rows, columns=columns)
    frame["p_holm"] = holm(list(frame["p"]))
    return frame


def _row(convex: str, nonconvex: str, dataset: str, basis: str, difference: Difference) -> dict[str, object]:
    words = difference_in_words(convex, nonconvex, difference, "AUC")
    return {
        "convex": convex,
        "nonconvex": nonconvex,
        "dataset": dataset,
        "basis": basis,
        "n": difference.n,
        "difference": difference.mean,
        "standard_error": difference.standard_error,
        "half_width": difference.half_width,
        "p": difference.p,
        "words": f"{words} [{dataset}, {basis}]",
    }


def verdicts(differences: pd.DataFrame) -> list[str]:
    """One sentence per pair: over all datasets, from test parts where those were repeated."""
    sentences = []
    for _, group in differences.groupby(["convex", "nonconvex"], sort=False):
        repeated = group[(group["basis"] == TEST) & group["p"].notna()]
        best = repeated if len(repeated) else group[group["p"].notna()]
        sentences.append(str((best if len(best) else group).iloc[-1]["words"]))
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
    return rank_methods(sweep.results.pivot_table(index="method", columns="dataset", values="auc_all", aggfunc="mean"))
