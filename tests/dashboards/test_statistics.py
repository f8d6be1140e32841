"""How sure a difference is."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dashboards.statistics import (
    Difference,
    corrected_difference,
    difference_in_words,
    holm,
    over_datasets,
    rank_methods,
    ratio_interval,
    resampled_totals,
)


def test_without_overlap_the_corrected_test_is_the_paired_t_test() -> None:
    differences = [0.01, 0.03, -0.01, 0.02, 0.04]
    expected = stats.ttest_1samp(differences, 0.0)
    found = corrected_difference(differences, test_share=0.0)
    assert found.p == pytest.approx(expected.pvalue)
    low, high = expected.confidence_interval(0.95)
    assert found.half_width == pytest.approx((high - low) / 2)


def test_overlapping_training_parts_widen_the_interval_by_the_published_factor() -> None:
    differences = [0.01, 0.03, -0.01, 0.02, 0.04]
    plain, corrected = (corrected_difference(differences, share) for share in (0.0, 3 / 7))
    assert corrected.standard_error / plain.standard_error == pytest.approx(math.sqrt(1 + 5 * 3 / 7))


def test_the_corrected_test_holds_its_level_where_splits_overlap() -> None:
    """Splits of one sample: without the correction about a third of all null differences look significant."""
    rng = np.random.default_rng(0)
    rejections = {0.0: 0, 3 / 7: 0}
    for _ in range(300):
        sample = rng.standard_normal(100)
        differences = [rng.permutation(sample)[:30].mean() + rng.permutation(sample)[30:].mean() for _ in range(10)]
        for share in rejections:
            rejections[share] += corrected_difference(differences, share).significant
    assert rejections[3 / 7] < rejections[0.0] / 2


@pytest.mark.parametrize("differences", [[], [0.02]])
def test_what_was_not_repeated_has_no_uncertainty(differences: list[float]) -> None:
    found = corrected_difference(differences, 0.4)
    assert math.isnan(found.standard_error)
    assert math.isnan(found.p)
    assert not found.significant


def test_equal_scores_everywhere_are_no_difference() -> None:
    assert corrected_difference([0.0, 0.0, 0.0], 0.4).p == 1.0


def test_the_bayesian_test_integrates_its_posterior() -> None:
    """Against the definition: Student's density around the mean, scale (1/n + rho/(1-rho)) s^2, rho = 0.3."""
    differences = np.array([0.004, 0.012, -0.002, 0.009, 0.015])
    n, rho = len(differences), 0.3
    scale = math.sqrt((1 / n + rho / (1 - rho)) * differences.var(ddof=1))
    grid = np.linspace(-1, 1, 2_000_001)
    density = stats.t.pdf((grid - differences.mean()) / scale, n - 1) / scale
    step = grid[1] - grid[0]
    expected = [density[part].sum() * step for part in (grid < -0.01, abs(grid) <= 0.01, grid > 0.01)]
    found = corrected_difference(differences, rho / (1 - rho)).chances(0.01)
    assert found == pytest.approx(expected, abs=1e-4)
    assert sum(found) == pytest.approx(1)


def test_equal_methods_are_practically_equal_and_unrepeated_ones_unknown() -> None:
    assert corrected_difference([0.0, 0.0], 0.4).chances() == (0.0, 1.0, 0.0)
    assert corrected_difference([0.2, 0.2], 0.4).chances() == (0.0, 0.0, 1.0)
    assert all(math.isnan(chance) for chance in corrected_difference([0.2], 0.4).chances())


def test_datasets_are_averaged_as_independent() -> None:
    pooled = over_datasets([Difference(0.02, 0.01, 5, 4), Difference(0.04, 0.01, 5, 4)])
    assert pooled.mean == pytest.approx(0.03)
    assert pooled.standard_error == pytest.approx(0.01 / math.sqrt(2))
    assert pooled.degrees == pytest.approx(8)


def test_holm_adjusts_as_published_and_skips_what_was_not_tested() -> None:
    assert holm([0.01, math.nan, 0.04, 0.03])[0] == pytest.approx(0.03)
    assert holm([0.01, math.nan, 0.04, 0.03])[2:] == pytest.approx([0.06, 0.06])
    assert math.isnan(holm([0.01, math.nan])[1])


def test_the_bootstrap_interval_covers_the_true_ratio() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for trial in range(100):
        above, below = rng.exponential(3.0, 60), rng.exponential(1.0, 60)
        low, high = ratio_interval([resampled_totals(above, trial)], [resampled_totals(below, trial + 1000)])
        covered += low <= 3.0 <= high
    assert covered >= 85


def test_ranks_name_the_best_and_their_critical_difference() -> None:
    scores = pd.DataFrame({"a": [0.9, 0.8, 0.7], "b": [0.9, 0.7, 0.6]}, index=["x", "y", "z"])
    found = rank_methods(scores)
    assert found is not None
    assert list(found.mean_ranks.index) == ["x", "y", "z"]
    # Demsar (2006), table 5: q = 2.343 for three methods.
    assert found.critical_difference == pytest.approx(2.343 * math.sqrt(3 * 4 / (6 * 2)), rel=1e-3)
    assert rank_methods(scores[["a"]]) is None


def test_a_verdict_says_who_by_how_much_and_how_sure() -> None:
    words = difference_in_words("cvnd", "vnd", Difference(0.004, 0.003, 5, 4), "AUC")
    assert words == "cvnd is better than vnd by 0.0040 ± 0.0030 AUC; not significant at 5 % (p = 0.25, n = 5)"
    assert "is worse than" in difference_in_words("a", "b", Difference(-0.1, 0.001, 5, 4), "AUC")
    assert "unknown" in difference_in_words("a", "b", Difference(0.1, math.nan, 1, math.nan), "AUC")
