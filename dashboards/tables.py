"""The paper's eight tables, this sweep's figures beside the published ones, and the tables around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd

from dashboards.records import SweepRecords
from solvers.methods import METHODS

OURS, ERROR, PAPER = "this sweep", "s.e.", "published"
# The paper's datasets in the paper's order.
PAPER_DATASETS = ("mimic", "eicu", "reuters", "news", "cars", "birds", "act")
EMPTY = ""


@dataclass(frozen=True)
class Table:
    """Values for programs, the same as text for people, and which cells stand out.

    `frame` and `text` share their rows. Columns of `text` are tuples: (dataset, quantity, source) or
    one name. An empty text is a figure that does not exist: not run, or not published.
    """

    name: str
    title: str
    note: str
    frame: pd.DataFrame
    text: pd.DataFrame
    best: set[tuple[Any, Any]] = field(default_factory=set)  # (row, column) of text


@dataclass(frozen=True)
class Quantity:
    """A column of results and its counterpart in the paper."""

    label: str
    column: str  # of the results frame
    paper: tuple[str, str]  # table and quantity of paper_tables.csv
    write: Callable[[float], str]
    better: str = "max"  # or "min", or "" where no value is best
    scale: float = 1.0  # this sweep's unit in the paper's


def three_digits(value: float) -> str:
    return f"{value:.3f}"


def significant(value: float) -> str:
    """Three significant digits without an exponent where people can read that."""
    return f"{value:.3g}" if value == 0 or 1e-4 <= abs(value) < 1e5 else f"{value:.1e}"


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


def paper_tables(sweep: SweepRecords) -> list[Table]:
    """All eight, in the paper's order."""
    paper = published()
    return [
        statistics_table(sweep, paper),
        method_table(
            sweep,
            paper,
            "auc",
            "AUC on all and on infrequent classes, and the balance score",
            [_AUC, _AUC_INFREQUENT, _BALANCE],
            "A-All: area under the ROC curve, mean over all test queries. A-IF: over queries from "
            "infrequent classes. "
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
            "Hours in the solver over all fits of a method, tuning included; mean over splits. The "
            "paper's machines "
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


def table_datasets(sweep: SweepRecords) -> list[str]:
    """This sweep's datasets, then those that only the paper has."""
    return [*sweep.datasets, *(name for name in PAPER_DATASETS if name not in sweep.datasets)]


def method_table(
    sweep: SweepRecords, paper: pd.DataFrame, name: str, title: str, quantities: Iterable[Quantity], note: str
) -> Table:
    """Mean and standard error over splits beside the published figure; best of each column marked."""
    values: dict[tuple[str, str, str], pd.Series] = {}
    text: dict[tuple[str, str, str], list[str]] = {}
    best: set[tuple[Any, Any]] = set()
    for dataset in table_datasets(sweep):
        for quantity in quantities:
            ours, error = _means(sweep, dataset, quantity)
            printed = _printed(paper, dataset, *quantity.paper)
            if ours.empty and printed.empty:
                continue  # the paper leaves this quantity out for balanced datasets
            place = (dataset, quantity.label)
            values |= {(*place, OURS): ours, (*place, ERROR): error, (*place, PAPER): printed}
            text[(*place, OURS)] = [
                _with_error(quantity.write, ours.get(m, np.nan), error.get(m, np.nan)) for m in METHODS
            ]
            text[(*place, PAPER)] = [_written(quantity.write, printed.get(m, np.nan)) for m in METHODS]
            for source, column in ((OURS, ours), (PAPER, printed)):
                best |= {(m, (*place, source)) for m in _best(column, quantity)}
    return Table(name, title, note, _frame(values, METHODS), _frame(text, METHODS), best)


def errors_table(sweep: SweepRecords, paper: pd.DataFrame, quantities: Iterable[Quantity]) -> Table:
    """Standard errors over splits alone, as the paper prints them."""
    values: dict[tuple[str, str, str], pd.Series] = {}
    for dataset in table_datasets(sweep):
        for quantity in quantities:
            _, error = _means(sweep, dataset, quantity)
            printed = _printed(paper, dataset, "auc_se", quantity.paper[1])
            if not error.empty or not printed.empty:
                values |= {(dataset, quantity.label, OURS): error, (dataset, quantity.label, PAPER): printed}
    frame = _frame(values, METHODS)
    text = frame.map(lambda value: _written(three_digits, value))
    note = "Of the mean over splits; one split has none."
    return Table("standard-errors", "Standard errors", note, frame, text)


def gamma_table(sweep: SweepRecords, paper: pd.DataFrame) -> Table:
    """The gamma that tuning chose most often, and in how many of the splits."""
    tuned = [m for m in METHODS if "gamma" in METHODS[m].tuned]
    values: dict[tuple[str, str, str], pd.Series] = {}
    text: dict[tuple[str, str, str], list[str]] = {}
    for dataset in table_datasets(sweep):
        chosen = sweep.results[(sweep.results["dataset"] == dataset) & sweep.results["gamma"].notna()]
        counts = {m: g["gamma"].value_counts() for m, g in chosen.groupby("method")}
        printed = _printed(paper, dataset, "best_gamma", "gamma")
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
    for dataset in table_datasets(sweep):
        of_dataset = printed[printed["dataset"] == dataset].set_index("quantity")["value"]
        values[(dataset, "", OURS)] = pd.Series(sizes.get(dataset, {}), dtype=float).reindex(list(_STATISTICS))
        values[(dataset, "", PAPER)] = of_dataset.reindex(list(_STATISTICS))
    frame = _frame(values, _STATISTICS).rename(index=_STATISTICS).rename_axis(index="count")
    text = frame.map(lambda value: _written(lambda v: f"{v:,.0f}", value))
    note = "A class is frequent if it has more examples, over the whole dataset, than its threshold."
    return Table("dataset-statistics", "Datasets", note, frame, text)


def plain_table(
    name: str,
    title: str,
    note: str,
    frame: pd.DataFrame,
    write: Mapping[str, Callable[[Any], str]] | None = None,
) -> Table:
    """A frame as it is; floats get three significant digits unless `write` says otherwise."""
    formats = write or {}
    text = pd.DataFrame(
        {column: [_plain(value, formats.get(str(column))) for value in frame[column]] for column in frame.columns},
        index=frame.index,
        columns=frame.columns,
    )
    return Table(name, title, note, frame, text)


def _plain(value: Any, write: Callable[[Any], str] | None) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return EMPTY
    if write is not None:
        return write(value)
    return significant(value) if isinstance(value, float) else str(value)


def _means(sweep: SweepRecords, dataset: str, quantity: Quantity) -> tuple[pd.Series, pd.Series]:
    """Mean over splits by method, and its standard error."""
    values = sweep.results[sweep.results["dataset"] == dataset]
    groups = (values.set_index("method")[quantity.column].astype(float) * quantity.scale).dropna().groupby(level=0)
    return groups.mean(), groups.sem()


def _printed(paper: pd.DataFrame, dataset: str, table: str, quantity: str) -> pd.Series:
    rows = paper[(paper["table"] == table) & (paper["dataset"] == dataset) & (paper["quantity"] == quantity)]
    return rows.set_index("method")["value"].astype(float)


def _written(write: Callable[[float], str], value: float) -> str:
    return EMPTY if pd.isna(value) else write(value)


def _with_error(write: Callable[[float], str], value: float, error: float) -> str:
    mean = _written(write, value)
    return f"{mean} ± {write(error)}" if mean and not pd.isna(error) else mean


def _best(values: pd.Series, quantity: Quantity) -> list[str]:
    """Methods whose written value is the best of the column."""
    if values.dropna().empty or not quantity.better:
        return []
    extreme = values.max() if quantity.better == "max" else values.min()
    return [str(m) for m, value in values.items() if quantity.write(value) == quantity.write(extreme)]


def _frame(columns: Mapping[tuple[str, str, str], Any], rows: Iterable[str]) -> pd.DataFrame:
    frame = pd.DataFrame(columns, index=pd.Index(rows, name="method"))
    return frame.rename_axis(columns=["dataset", "quantity", "source"])
