"""Every claim gets a line, and its verdict follows the numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashboards.claims import NOT_REPRODUCED, NOT_TESTED, REPRODUCED, Claim, check_claims
from dashboards.comparisons import TEST, differences_frame, verdicts
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
    results = sweep.results.copy()
    results.loc[results["method"].str.startswith(methods), column] += by
    return replace(sweep, results=results, rows=results.to_dict("records"))


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
    assert len(claims) == 12
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


def test_differences_are_judged_by_test_parts_and_by_folds(paired: SweepRecords) -> None:
    frame = differences_frame(paired)
    assert len(frame) == 3 * 2 * 3  # pairs, bases, two datasets and all
    assert set(frame["n"]) == {3, 9, 6, 18}
    assert (frame["p_holm"] >= frame["p"]).all()
    sentences = verdicts(frame)
    assert len(sentences) == 3
    assert all(s.endswith(f"[all, {TEST}]") for s in sentences)
