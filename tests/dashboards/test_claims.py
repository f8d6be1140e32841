"""Every claim gets a line, and its verdict follows the numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashboards.claims import NOT_REPRODUCED, NOT_TESTED, REPRODUCED, Claim, check_claims
from dashboards.comparisons import FOLDS, TEST, differences_frame, pair_verdicts
from dashboards.efficiency import efficiency_frame
from dashboards.records import SweepRecords, read_sweep
from sweep.store.home import Home
from tests.dashboards.conftest import PAIRED
from tests.dashboards.synthetic import fill


def claims_of(sweep: SweepRecords) -> dict[str, Claim]:
    return {claim.claim: claim for claim in check_claims(sweep, efficiency_frame(sweep))}


def find(claims: dict[str, Claim], words: str) -> Claim:
    (found,) = [claim for text, claim in claims.items() if words in text]
    return found


def changed(sweep: SweepRecords, column: str, methods: str, by: float) -> SweepRecords:
    """The same sweep with a column of some methods' results moved."""
    moved = [
        replace(row, **{column: getattr(row, column) + by}) if row.method.startswith(methods) else row
        for row in sweep.rows
    ]
    return replace(sweep, rows=moved)


@pytest.mark.parametrize(
    ("words", "column", "by", "verdict"),
    [
        ("better metrics", "auc_all", 0.0, REPRODUCED),
        ("better metrics", "auc_all", -0.2, NOT_REPRODUCED),
        ("more balanced", "balance_score", -0.05, REPRODUCED),
        ("more balanced", "balance_score", 0.05, NOT_REPRODUCED),
        ("more compact", "compactness", 0.05, REPRODUCED),
        ("more compact", "compactness", -0.05, NOT_REPRODUCED),
        ("generalize better", "train_test_gap", -0.05, REPRODUCED),
        ("generalize better", "train_test_gap", 0.0, NOT_REPRODUCED),
    ],
)
def test_a_verdict_follows_the_sign_and_the_test(
    paired: SweepRecords, words: str, column: str, by: float, verdict: str
) -> None:
    assert find(claims_of(changed(paired, column, "mdml", by)), words).verdict == verdict


def test_the_cost_claims_state_the_measured_ratios(paired: SweepRecords) -> None:
    claims = claims_of(paired)
    efficient = find(claims, "more efficient")
    assert efficient.verdict == REPRODUCED
    assert "30 x the runs" in efficient.evidence
    assert find(claims, "single convex run").verdict == REPRODUCED
    assert find(claims, "global optimum").evidence.startswith("234 of 234")


def test_one_split_is_not_enough_to_judge_a_difference(tmp_path: Path) -> None:
    ledger = fill(Home(tmp_path), "one", methods=PAIRED)
    claim = find(claims_of(read_sweep(ledger, "one")), "better metrics")
    assert claim.verdict == NOT_TESTED
    assert "one split" in claim.evidence


def test_with_nothing_finished_every_claim_is_untested(tmp_path: Path) -> None:
    ledger = fill(Home(tmp_path), "none", methods=PAIRED, keep=0.0)
    claims = claims_of(read_sweep(ledger, "none"))
    assert len(claims) == 13
    assert {claim.verdict for claim in claims.values()} == {NOT_TESTED}


def test_theorem_one_is_checked_only_where_its_condition_holds(paired: SweepRecords) -> None:
    def with_theory(**theory: Any) -> SweepRecords:
        study = paired.studies[0]
        assert study.refit is not None
        spec, record = study.refit
        values = {f"theory.{name}": value for name, value in theory.items()}
        kept = replace(study, fits=[(spec, replace(record, theory=values))])
        return replace(paired, studies=[kept])

    valid = {"imbalance_factor": 2.0, "imbalance_bound_vnd": 3.0, "row_space_holds": True}
    assert find(claims_of(with_theory(**valid)), "Theorem 1").verdict == REPRODUCED
    broken = with_theory(**valid | {"imbalance_factor": 4.0})
    assert find(claims_of(broken), "Theorem 1").verdict == NOT_REPRODUCED
    outside = with_theory(**valid | {"imbalance_factor": 4.0, "row_space_holds": False})
    assert find(claims_of(outside), "Theorem 1").verdict == NOT_TESTED


def test_any_two_methods_are_compared_and_every_pair_counts_for_holm(paired: SweepRecords) -> None:
    frame = differences_frame(paired)
    assert len(frame) == 2 * 15  # two datasets, six methods
    assert set(frame["n"]) == {3}
    assert set(frame["basis"]) == {TEST}
    assert (frame["p_holm"] >= frame["p"]).all()
    one = frame[frame["dataset"] == "act"]
    assert one["p_holm"].min() == pytest.approx(15 * one["p"].min())
    assert (frame["difference"] >= 0).all()  # the better one stands first
    chances = frame[["p_first_better", "p_equivalent", "p_second_better"]]
    assert chances.sum(axis=1).to_numpy() == pytest.approx(1.0)


def test_the_pairs_of_the_paper_get_a_sentence_each(paired: SweepRecords) -> None:
    sentences = pair_verdicts(paired)
    assert len(sentences) == 3
    assert all(s.endswith(f"[all, {TEST}]") for s in sentences)


def test_with_one_split_the_folds_decide_also_of_a_path(tmp_path: Path) -> None:
    ledger = fill(Home(tmp_path), "one", methods=["mdml-csfn", "pdml-sfn", "my-nca"], search="path")
    frame = differences_frame(read_sweep(ledger, "one"))
    assert len(frame) == 3
    assert set(frame["basis"]) == {FOLDS}
    assert set(frame["n"]) == {3}


def test_a_score_where_smaller_is_better_turns_the_comparison_round(tmp_path: Path) -> None:
    ledger = fill(Home(tmp_path), "bs", methods=["mdml-csfn", "euc"], splits=3, score="balance_score", maximize=False)
    sweep = read_sweep(ledger, "bs")
    assert sweep.ranked() == ["mdml-csfn", "euc"]
    (row,) = differences_frame(sweep).to_dict("records")
    assert row["first"] == "mdml-csfn"
    assert row["difference"] < 0
    assert row["p_first_better"] > row["p_second_better"]


def test_a_gamma_at_the_edge_of_the_grid_is_said(paired: SweepRecords) -> None:
    assert find(claims_of(paired), "inside the grid").verdict == REPRODUCED
    moved = [replace(row, edge="gamma=0.001 lowest") for row in paired.rows]
    claim = find(claims_of(replace(paired, rows=moved)), "inside the grid")
    assert claim.verdict == NOT_REPRODUCED
    assert "36 of 36" in claim.evidence


def test_the_path_is_an_arm_of_its_own(on_path: SweepRecords) -> None:
    claims = claims_of(on_path)
    assert find(claims, "whole path of gamma").verdict == REPRODUCED
    assert find(claims, "tuning them takes less time").verdict == NOT_TESTED
