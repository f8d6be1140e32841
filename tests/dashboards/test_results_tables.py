"""The reader's own results: what was chosen, how good it is, what it cost, what did not converge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dashboards.records import SweepRecords, collect, read_sweep
from dashboards.results_tables import (
    chosen_table,
    chosen_text,
    overview_table,
    restarts_table,
    results_table,
    scores_table,
)
from solvers.scores.table import SCORES, Score
from sweep.store.home import Home
from tests.dashboards.conftest import PAIRED
from tests.dashboards.synthetic import fill


def test_methods_are_sorted_by_the_score_that_tuned(paired: SweepRecords) -> None:
    for dataset in ("act", "reuters"):
        means = paired.results[paired.results["dataset"] == dataset].groupby("method")["test_score"].mean()
        table = results_table(paired, dataset)
        assert list(table.text.index) == list(means.sort_values(ascending=False).index)
        assert (means.idxmax(), "AUC, test") in table.best


def test_another_score_is_named_and_sorted_its_own_way(tmp_path: Path) -> None:
    ledger = fill(Home(tmp_path), "bs", methods=["mdml-csfn", "euc"], splits=2, score="balance_score", maximize=False)
    table = results_table(read_sweep(ledger, "bs"), "digits")
    assert list(table.text.columns)[:2] == ["balance score, test", "balance score, tuning folds"]
    assert list(table.text.index) == ["mdml-csfn", "euc"]
    assert "sorted by balance_score" in table.note


def test_costs_and_counts_are_sums_over_splits(paired: SweepRecords) -> None:
    table = results_table(paired, "act")
    assert table.text.loc["mdml-csfn", "fits"] == str(3 * 13)
    assert table.text.loc["pdml-sfn", "fits"] == str(3 * 365)
    assert table.text.loc["mdml-csfn", "worst gap"] == "1.0e-04"
    assert "tolerance missed" not in table.text.columns  # nothing was missed
    assert len(table.frame) == 3 * 6  # the file has every split


def test_edges_and_missed_tolerances_are_flagged(paired: SweepRecords) -> None:
    rows = [
        replace(row, edge="gamma=0.001 lowest", missed=1)
        if (row.dataset, row.method, row.split) == ("act", "mdml-csfn", 0)
        else row
        for row in paired.rows
    ]
    table = results_table(replace(paired, rows=rows), "act")
    assert table.text.loc["mdml-csfn", "at the edge"] == "gamma=0.001 lowest (1 of 3)"
    assert table.text.loc["mdml-csfn", "tolerance missed"] == "1 of 39 fits"
    assert table.flagged == {("mdml-csfn", "at the edge"), ("mdml-csfn", "tolerance missed")}


def test_a_refit_that_stopped_early_is_flagged_whatever_the_method(paired: SweepRecords) -> None:
    rows = [replace(row, converged=False) if row.method == "pdml-sfn" else row for row in paired.rows]
    table = results_table(replace(paired, rows=rows), "act")
    assert table.text.loc["pdml-sfn", "tolerance missed"] == "3 of 3 refits"


def test_the_choice_names_all_parameters_and_how_often_it_was_made(paired: SweepRecords) -> None:
    rows = [row for row in paired.rows if (row.dataset, row.method) == ("act", "pdml-vnd")]
    assert chosen_text(rows) == "gamma=0.01 rank=100"
    other = replace(rows[0], params={"gamma": 1.0, "rank": 50})
    assert chosen_text([other, *rows[1:]]) == "gamma=0.01 rank=100 (2 of 3)"
    assert len(chosen_table(paired).text) == len(paired.rows)


def test_every_number_leads_to_its_studies(paired: SweepRecords) -> None:
    for table in (results_table(paired, "act"), overview_table(paired)):
        for (method, column), numbers in table.fits.items():
            dataset = "act" if table.name != "overview" else column
            assert {(paired.studies[n].dataset, paired.studies[n].method) for n in numbers} == {(dataset, method)}
            assert len(numbers) == 3


def test_every_score_that_was_taken_is_in_one_table(paired: SweepRecords) -> None:
    table = scores_table(paired)
    assert {"AUC", "average precision", "recall at 1", "5-NN accuracy"} <= set(table.text.columns)
    assert "MAP at R" not in table.text.columns  # nobody took it
    row = table.frame[(table.frame.index == "act") & (table.frame["method"] == "mdml-csfn")]
    expected = paired.results.query("dataset == 'act' and method == 'mdml-csfn'")["recall_at_1"].mean()
    assert row["recall at 1"].item() == pytest.approx(expected)


def test_a_score_without_a_field_of_its_own_has_its_column(
    paired: SweepRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCORES, "ndcg_at_5", Score(True, 1.0, "discounted gain of the 5 nearest"))
    fits = [
        (spec, replace(record, scores=replace(record.scores, more={"ndcg_at_5": 0.25 + 0.5 * (spec.split == 0)})))
        for study in paired.studies
        for spec, record in study.fits
    ]
    table = scores_table(collect("more", paired.spec, paired.about, fits))
    assert table.frame["ndcg at 5"].tolist() == pytest.approx([(0.75 + 0.25 + 0.25) / 3] * len(table.frame))
    assert table.text["ndcg at 5"].iloc[0].startswith("0.4167 ±")
    assert "ndcg at 5: discounted gain of the 5 nearest" in table.note


def test_restarts_that_were_needed_are_counted_per_method_and_dataset(paired: SweepRecords) -> None:
    frame = restarts_table(paired).frame
    assert len(frame) == 2 * 3
    assert set(frame["fits"]) == {3 * 73}
    assert set(frame["needed, most"]) == {5}
    # The lowest of five objectives in random order comes third on average.
    assert frame["needed, mean"].mean() == pytest.approx(3, abs=0.2)
    assert frame["first was enough"].mean() == pytest.approx(0.2, abs=0.05)
    assert set(frame["spread of objectives"].round(12)) == {0.04}


def test_a_sweep_without_restarts_has_no_such_table(tmp_path: Path) -> None:
    assert restarts_table(read_sweep(fill(Home(tmp_path), "x", methods=["euc"]), "x")).is_empty


def test_methods_run_elsewhere_and_long_names_keep_their_files_apart(tmp_path: Path) -> None:
    ledger = fill(Home(tmp_path), "two", datasets=("a/wine.csv", "a-wine.csv"), methods=PAIRED[:1])
    sweep = read_sweep(ledger, "two")
    names = [results_table(sweep, dataset).name for dataset in sweep.datasets]
    assert len(set(names)) == 2
    assert not any("/" in name for name in names)
