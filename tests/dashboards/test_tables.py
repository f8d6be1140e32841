"""The paper's tables: this sweep's figures are the ledger's, the published ones the paper's."""

from __future__ import annotations

import csv
import io

import pandas as pd
import pytest

from dashboards.records import SweepRecords
from dashboards.tables import OURS, PAPER, Table, paper_tables, published
from dashboards.writing import to_csv, to_latex, to_markdown
from solvers.methods import METHODS

NAMES = (
    "dataset-statistics",
    "auc",
    "auc-frequent",
    "standard-errors",
    "training-time",
    "compactness",
    "gamma",
    "gap",
)


@pytest.fixture(scope="module")
def tables(paired: SweepRecords) -> dict[str, Table]:
    return {table.name: table for table in paper_tables(paired)}


def test_all_eight_tables_are_there(tables: dict[str, Table]) -> None:
    assert tuple(tables) == NAMES


@pytest.mark.parametrize(
    ("table", "label", "column", "scale"),
    [
        ("auc", "A-All", "auc_all", 1),
        ("auc", "A-IF", "auc_infrequent", 1),
        ("auc", "BS", "balance_score", 1),
        ("auc-frequent", "A-F", "auc_frequent", 1),
        ("training-time", "hours", "fit_seconds", 1 / 3600),
        ("compactness", "NPV", "npv", 1),
        ("compactness", "CS", "compactness", 1000),
        ("gap", "gap", "train_test_gap", 1),
    ],
)
def test_figures_are_the_ledgers_means(
    paired: SweepRecords, tables: dict[str, Table], table: str, label: str, column: str, scale: float
) -> None:
    for (dataset, method), rows in paired.results.groupby(["dataset", "method"]):
        shown = tables[table].frame.loc[method, (dataset, label, OURS)]
        assert shown == pytest.approx(rows[column].mean() * scale)
        error = tables[table].frame.loc[method, (dataset, label, "s.e.")]
        assert error == pytest.approx(rows[column].sem() * scale)


def test_published_figures_are_the_papers(tables: dict[str, Table]) -> None:
    auc = tables["auc"].frame
    assert auc.loc["mdml-cvnd", ("mimic", "A-All", PAPER)] == 0.672
    assert auc.loc["pdml-vnd", ("reuters", "BS", PAPER)] == 0.012
    assert tables["training-time"].frame.loc["pdml-dc", ("eicu", "hours", PAPER)] == 499.2
    assert tables["compactness"].frame.loc["mdml-cldd", ("birds", "NPV", PAPER)] == 71
    assert tables["gamma"].frame.loc["mdml-cldd", ("act", "gamma", PAPER)] == 0.1
    assert tables["gap"].frame.loc["mdml-cvnd", ("reuters", "gap", PAPER)] == 0.008
    assert tables["standard-errors"].frame.loc["mdml", ("act", "A-All", PAPER)] == 0.021
    assert tables["auc-frequent"].frame.loc["pdml-vnd", ("eicu", "A-F", PAPER)] == 0.748
    assert tables["dataset-statistics"].frame.loc["frequent classes", ("mimic", "", PAPER)] == 150


def test_every_published_figure_is_in_a_table(tables: dict[str, Table]) -> None:
    shown = sum(
        int(table.frame.xs(PAPER, axis=1, level="source").notna().to_numpy().sum()) for table in tables.values()
    )
    assert shown == len(published())


def test_what_was_not_run_is_left_empty(tables: dict[str, Table]) -> None:
    text = tables["auc"].text
    assert list(text.index) == list(METHODS)
    assert text.loc["lmnn", ("act", "A-All", OURS)] == ""
    assert (text["mimic"].xs(OURS, axis=1, level="source") == "").to_numpy().all()
    assert text.loc["mdml-cvnd", ("act", "A-All", OURS)].count("±") == 1


def test_the_best_of_each_column_is_marked(tables: dict[str, Table]) -> None:
    marked = {row for row, column in tables["auc"].best if column == ("mimic", "A-All", PAPER)}
    assert marked == {"mdml-cvnd"}
    marked = {row for row, column in tables["auc"].best if column == ("mimic", "BS", PAPER)}
    assert marked == {"mdml-cvnd"}  # the smallest balance score
    ours = tables["auc"].frame["act", "A-All", OURS]
    assert ours.idxmax() in {row for row, column in tables["auc"].best if column == ("act", "A-All", OURS)}


@pytest.mark.parametrize("name", NAMES)
def test_files_say_what_the_table_says(tables: dict[str, Table], name: str) -> None:
    table = tables[name]
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert len(rows) == len(table.frame)
    first = table.frame.columns[0]
    written = [row[" ".join(part for part in first if part)] for row in rows]
    assert [float(v) if v else None for v in written] == [None if pd.isna(v) else v for v in table.frame[first]]
    body = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
    assert len(body) == len(table.text) + 2
    assert {line.replace("\\|", "").count("|") for line in body} == {len(table.text.columns) + 2}
    latex = to_latex(table)
    lines = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert {line.replace(r"\&", "").count("&") for line in lines} == {len(table.text.columns)}
    assert "±" not in latex
    assert "_" not in latex.replace(r"\_", "")
