"""The paper's tables: this sweep's figures are the ledger's, the published ones the paper's."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from dashboards.paper_tables import OURS, PAPER, paper_tables, papers_datasets
from dashboards.records import SweepRecords, read_sweep
from dashboards.tables import Table
from dashboards.writing import to_csv, to_latex, to_markdown
from sweep.store.home import Home
from tests.dashboards.conftest import PAIRED
from tests.dashboards.synthetic import fill

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
    assert tables["auc"].frame.loc["pdml-vnd", ("reuters", "BS", PAPER)] == 0.012
    assert tables["gamma"].frame.loc["mdml-cldd", ("act", "gamma", PAPER)] == 0.1
    assert tables["gap"].frame.loc["mdml-cvnd", ("reuters", "gap", PAPER)] == 0.008
    assert tables["dataset-statistics"].frame.loc["training examples", ("reuters", "", PAPER)] == 4152


def test_rows_of_methods_that_were_not_run_are_left_out(tables: dict[str, Table]) -> None:
    text = tables["auc"].text
    assert set(text.index) == set(PAIRED)
    assert {column[0] for column in text.columns} == {"act", "reuters"}
    assert text.loc["mdml-cvnd", ("act", "A-All", OURS)].count("±") == 1


def test_data_that_are_not_the_papers_have_no_published_columns(tmp_path: Path) -> None:
    own = read_sweep(fill(Home(tmp_path / "own"), "own", methods=["mdml-csfn"]), "own")
    assert paper_tables(own) == []
    demo = read_sweep(fill(Home(tmp_path / "demo"), "demo", datasets=["mimic"], methods=["euc"]), "demo")
    assert papers_datasets(demo) == {}  # a demo of 1,000 admissions is not the 58,000 of the paper


def test_options_of_a_dataset_do_not_hide_whose_it_is(paired: SweepRecords) -> None:
    def renamed(name: str) -> str:
        return f"{name}[scaling=l2]"

    rows = [replace(row, dataset=renamed(row.dataset)) for row in paired.rows]
    studies = [replace(study, dataset=renamed(study.dataset)) for study in paired.studies]
    other = replace(paired, rows=rows, studies=studies, about={})
    assert papers_datasets(other) == {"act[scaling=l2]": "act", "reuters[scaling=l2]": "reuters"}


def test_the_best_of_each_column_is_marked(tables: dict[str, Table]) -> None:
    ours = tables["auc"].frame["act", "A-All", OURS]
    assert ours.idxmax() in {row for row, column in tables["auc"].best if column == ("act", "A-All", OURS)}
    balance = tables["auc"].frame["act", "BS", OURS]  # the smallest is best
    assert balance.idxmin() in {row for row, column in tables["auc"].best if column == ("act", "BS", OURS)}


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
