"""The paper's tables for those of its datasets that this sweep ran on: our figures beside the published ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd

from dashboards.records import SweepRecords
from dashboards.tables import EMPTY, Table, best_of, plain_text, significant, three_digits, with_error
from solvers.methods import METHODS
from sweep.seeds import source_of

OURS, ERROR, PAPER = "this sweep", "s.e.", "published"
# The paper's datasets in the paper's order.
PAPER_DATASETS = ("mimic", "eicu", "reuters", "news", "cars", "birds", "act")


@dataclass(frozen=True)
class Quantity:
    """A column of results and its counterpart in the paper."""

    label: str
    column: str  # of the results frame
    paper: tuple[str, str]  # table and quantity of paper_tables.csv
    write: Callable[[float], str]
    better: str = "max"  # or "min", or "" where no value is best
    scale: float = 1.0  # this sweep's unit in the paper's


_AUC = Quantity("A-All", "auc_all", ("auc", "auc_all"), three_digits)
_AUC_INFREQUENT = Quantity("A-IF", "auc_infrequent", ("auc", "auc_infrequent"), three_digits)
_BALANCE = Quantity("BS", "balance_score", ("auc", "balance_score"), three_digits, "min")
_FREQUENT = Quantity("A-F", "auc_frequent", ("auc_frequent", "auc_frequent"), three_digits)
_HOURS = Quantity("hours", "fit_seconds", ("training_hours", "hours"), significant, "min", 1 / 3600)
_VECTORS = Quantity("NPV", "npv", ("compactness", "npv"), lambda v: f"{v:.0f}", "min")
_COMPACT = Quantity("CS", "compactness", ("compactness", "compactness_e-3"), lambda v: f"{v:.1f}", "max", 1000.0)
_GAP = Quantity("gap", "train_test_gap", ("gap", "train_minus_test_auc"), three_digits, "min")


def published() -> pd.DataFrame:
    """The figures printed in the paper: table, method, dataset, quantity, value, standard_error."""
    with (resources.files("dashboards") / "paper_tables.csv").open() as file:
        return pd.read_csv(file, keep_default_na=False, na_values=[""], dtype={"method": str})


def papers_datasets(sweep: SweepRecords) -> dict[str, str]:
    """Datasets of this sweep that are the paper's, with the paper's name of each.

    A demo or a sample under the same name is not: the number of examples must be the printed one up to a factor of 2.
    """
    paper = published()
    printed = paper[(paper["table"] == "statistics") & paper["quantity"].isin(["n_train", "n_test"])]
    expected = printed.groupby("dataset")["value"].sum()
    found = {}
    for dataset in sweep.datasets:
        name = source_of(dataset)
        size = sweep.about.get("datasets", {}).get(dataset, {}).get("n_examples")
        if name in PAPER_DATASETS and (size is None or 0.5 <= size / expected.get(name, size) <= 2):
            found[dataset] = name
    return found


def paper_tables(sweep: SweepRecords) -> list[Table]:
    """All eight, in the paper's order; none where no dataset is the paper's."""
    if not papers_datasets(sweep) or not sweep.rows:
        return []
    paper = published()
    return [
        statistics_table(sweep, paper),
        method_table(
            sweep,
            paper,
            "auc",
            "AUC on all and on infrequent classes, and the balance score",
            [_AUC, _AUC_INFREQUENT, _BALANCE],
            "A-All: area under the ROC curve, mean over all test queries. A-IF: over queries from infrequent classes. "
            "BS = |A-IF / A-F - 1|, smaller is more balanced.",
        ),
        method_table(
            sweep,
            paper,
            "auc-frequent",
            "AUC on frequent classes",
            [_FREQUENT],
            "A-F: mean over queries from frequent classes.",
        ),
        errors_table(sweep, paper, [_AUC, _AUC_INFREQUENT, _BALANCE]),
        method_table(
            sweep,
            paper,
            "training-time",
            "Training time",
            [_HOURS],
            "Hours in the solver over all fits of a method, tuning included; mean over splits. The paper's machines "
            "were others, so its hours compare with each other only.",
        ),
        method_table(
            sweep,
            paper,
            "compactness",
            "Projection vectors and compactness",
            [_VECTORS, _COMPACT],
            "NPV: projection vectors of the metric. CS = 1000 A-All / NPV, larger is more compact.",
        ),
        gamma_table(sweep, paper),
        method_table(sweep, paper, "gap", "Training AUC minus test AUC", [_GAP], "Smaller is less overfitting."),
    ]


def method_table(
    sweep: SweepRecords, paper: pd.DataFrame, name: str, title: str, quantities: Iterable[Quantity], note: str
) -> Table:
    """Mean and standard error over splits beside the published figure; best of each column marked."""
    values: dict[tuple[str, str, str], pd.Series] = {}
    text: dict[tuple[str, str, str], list[str]] = {}
    best: set[tuple[Any, Any]] = set()
    for dataset, source in papers_datasets(sweep).items():
        for quantity in quantities:
            ours, error = _means(sweep, dataset, quantity)
            printed = _printed(paper, source, *quantity.paper, rows=sweep.methods)
            if ours.empty and printed.empty:
                continue  # the paper leaves this quantity out for balanced datasets
            place = (dataset, quantity.label)
            values |= {(*place, OURS): ours, (*place, ERROR): error}
            text[(*place, OURS)] = [
                with_error(quantity.write, ours.get(m, np.nan), error.get(m, np.nan)) for m in sweep.methods
            ]
            if len(printed):
                values[(*place, PAPER)] = printed
                text[(*place, PAPER)] = [_written(quantity.write, printed.get(m, np.nan)) for m in sweep.methods]
            for origin, column in ((OURS, ours), (PAPER, printed)):
                best |= {(m, (*place, origin)) for m in best_of(column, quantity.write, quantity.better)}
    return Table(name, title, note, _frame(values, sweep.methods), _frame(text, sweep.methods), best)


def errors_table(sweep: SweepRecords, paper: pd.DataFrame, quantities: Iterable[Quantity]) -> Table:
    """Standard errors over splits alone, as the paper prints them."""
    values: dict[tuple[str, str, str], pd.Series] = {}
    for dataset, source in papers_datasets(sweep).items():
        for quantity in quantities:
            _, error = _means(sweep, dataset, quantity)
            printed = _printed(paper, source, "auc_se", quantity.paper[1], rows=sweep.methods)
            if error.notna().any():
                values[(dataset, quantity.label, OURS)] = error
            if len(printed):
                values[(dataset, quantity.label, PAPER)] = printed
    frame = _frame(values, sweep.methods)
    text = frame.map(lambda value: _written(three_digits, value))
    note = "Of the mean over splits; one split has none."
    return Table("standard-errors", "Standard errors", note, frame, text)


def gamma_table(sweep: SweepRecords, paper: pd.DataFrame) -> Table:
    """The gamma that tuning chose most often, and in how many of the splits."""
    tuned = [m for m in sweep.methods if m in METHODS and "gamma" in METHODS[m].tuned]
    values: dict[tuple[str, str, str], pd.Series] = {}
    text: dict[tuple[str, str, str], list[str]] = {}
    for dataset, source in papers_datasets(sweep).items():
        chosen = sweep.results[(sweep.results["dataset"] == dataset) & sweep.results["gamma"].notna()]
        counts = {m: g["gamma"].value_counts() for m, g in chosen.groupby("method")}
        printed = _printed(paper, source, "best_gamma", "gamma", rows=tuned)
        values[(dataset, "gamma", OURS)] = pd.Series({m: c.index[0] for m, c in counts.items()}, dtype=float)
        values[(dataset, "gamma", PAPER)] = printed
        text[(dataset, "gamma", OURS)] = [
            f"{counts[m].index[0]:g} ({counts[m].iloc[0]} of {counts[m].sum()})" if m in counts else EMPTY
            for m in tuned
        ]
        text[(dataset, "gamma", PAPER)] = [_written(lambda v: f"{v:g}", printed.get(m, np.nan)) for m in tuned]
    note = "Most frequent choice over the splits, and how often it was made."
    return Table("gamma", "Chosen regularization parameter", note, _frame(values, tuned), _frame(text, tuned))


_STATISTICS: Mapping[str, str] = {
    "n_train": "training examples",
    "n_test": "test examples",
    "dimension": "features",
    "n_classes": "classes",
    "n_frequent_classes": "frequent classes",
    "n_infrequent_classes": "infrequent classes",
    "n_examples": "examples",
    "n_frequent_examples": "examples of frequent classes",
    "n_infrequent_examples": "examples of infrequent classes",
}


def statistics_table(sweep: SweepRecords, paper: pd.DataFrame) -> Table:
    """Sizes of the datasets; this sweep's come from the data it ran on."""
    sizes: Mapping[str, Mapping[str, float]] = sweep.about.get("datasets", {})
    printed = paper[paper["table"] == "statistics"]
    values = {}
    for dataset, source in papers_datasets(sweep).items():
        of_dataset = printed[printed["dataset"] == source].set_index("quantity")["value"]
        values[(dataset, "", OURS)] = pd.Series(sizes.get(dataset, {}), dtype=float).reindex(list(_STATISTICS))
        values[(dataset, "", PAPER)] = of_dataset.reindex(list(_STATISTICS))
    frame = _frame(values, _STATISTICS).rename(index=_STATISTICS).rename_axis(index="count")
    text = frame.map(lambda value: _written(lambda v: f"{v:,.0f}", value))
    note = "A class is frequent if it has more examples, over the whole dataset, than its threshold."
    return Table("dataset-statistics", "Datasets", note, frame, text)


def _means(sweep: SweepRecords, dataset: str, quantity: Quantity) -> tuple[pd.Series, pd.Series]:
    """Mean over splits by method, and its standard error."""
    values = sweep.results[sweep.results["dataset"] == dataset]
    groups = (values.set_index("method")[quantity.column].astype(float) * quantity.scale).dropna().groupby(level=0)
    return groups.mean(), groups.sem()


def _printed(paper: pd.DataFrame, dataset: str, table: str, quantity: str, *, rows: Iterable[str]) -> pd.Series:
    found = paper[(paper["table"] == table) & (paper["dataset"] == dataset) & (paper["quantity"] == quantity)]
    return found[found["method"].isin(list(rows))].set_index("method")["value"].astype(float)


def _written(write: Callable[[float], str], value: float) -> str:
    return plain_text(float(value), write)


def _frame(columns: Mapping[tuple[str, str, str], Any], rows: Iterable[str]) -> pd.DataFrame:
    index = pd.Index(list(rows), name="method")
    names = ["dataset", "quantity", "source"]
    if not columns:
        return pd.DataFrame(index=index, columns=pd.MultiIndex.from_tuples([], names=names))
    frame = pd.DataFrame(
        {name: column.reindex(index) if isinstance(column, pd.Series) else column for name, column in columns.items()},
        index=index,
    )
    return frame.rename_axis(columns=names)
