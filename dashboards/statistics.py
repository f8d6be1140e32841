"""How sure a difference is: corrected t-tests, bootstrap intervals, critical differences, words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.05
# Two methods whose scores differ by less are the same for every practical purpose (Benavoli et al., 2017).
ROPE = 0.01
_RESAMPLES = 2000


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences with its uncertainty; the latter is NaN where nothing was repeated."""

    mean: float
    standard_error: float
    n: int
    degrees: float

    @property
    def p(self) -> float:
        """Two-sided p value of no difference."""
        if not self.standard_error > 0:
            # Without any spread, equal means are no evidence, and unequal ones leave no doubt.
            return math.nan if math.isnan(self.standard_error) else float(self.mean == 0)
        return float(2 * stats.t.sf(abs(self.mean) / self.standard_error, self.degrees))

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % confidence interval."""
        if math.isnan(self.standard_error):
            return math.nan
        return float(stats.t.ppf(1 - LEVEL / 2, self.degrees) * self.standard_error)

    @property
    def significant(self) -> bool:
        return self.p < LEVEL

    def chances(self, rope: float = ROPE) -> tuple[float, float, float]:
        """Probabilities that the true difference is below -rope, within, above: Bayesian correlated t-test.

        Its posterior (Corani, Benavoli, 2015) is a Student distribution around the mean whose scale is the corrected
        standard error: their correlation rho = test / (test + train) makes rho / (1 - rho) the share of
        `corrected_difference`.
        """
        if math.isnan(self.standard_error):
            return math.nan, math.nan, math.nan
        if self.standard_error == 0:
            return float(self.mean < -rope), float(abs(self.mean) <= rope), float(self.mean > rope)
        below, up_to = (
            float(stats.t.cdf((edge - self.mean) / self.standard_error, self.degrees)) for edge in (-rope, rope)
        )
        return below, up_to - below, 1 - up_to


def corrected_difference(differences: Sequence[float] | np.ndarray, test_share: float) -> Difference:
    """Corrected resampled t-test (Nadeau, Bengio, 2003).

    The training parts of random splits overlap, so their differences vary too little; the variance
    of the mean is therefore (1/n + test_share) s^2 instead of s^2 / n.

    Parameters
    ----------
    differences : one per split or fold, of two methods on the same examples.
    test_share : test examples per training example; 1 / (k - 1) for k folds.
    """
    values = np.asarray(differences, dtype=np.float64)
    n = values.size
    if n < 2:
        return Difference(float(values.mean()) if n else math.nan, math.nan, n, math.nan)
    error = math.sqrt((1 / n + test_share) * values.var(ddof=1))
    return Difference(float(values.mean()), error, n, n - 1)


def over_datasets(differences: Sequence[Difference]) -> Difference:
    """Mean over independent datasets; one without its own uncertainty leaves the mean without one."""
    if not differences:
        return Difference(math.nan, math.nan, 0, math.nan)
    variances = np.array([d.standard_error**2 for d in differences])
    total = float(variances.sum())
    # Welch and Satterthwaite: the datasets' variances are unequal.
    weights = variances**2 / np.array([d.degrees for d in differences])
    degrees = total**2 / float(weights.sum()) if total > 0 else float(sum(d.degrees for d in differences))
    count = len(differences)
    return Difference(
        float(np.mean([d.mean for d in differences])),
        math.sqrt(total) / count,
        sum(d.n for d in differences),
        degrees,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """p values adjusted for testing several differences (Holm, 1979); NaN stays NaN and is not counted."""
    tested = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    adjusted = [math.nan] * len(p_values)
    highest = 0.0
    for order, (p, index) in enumerate(tested):
        highest = max(highest, min(1.0, p * (len(tested) - order)))
        adjusted[index] = highest
    return adjusted


def resampled_totals(seconds: np.ndarray, seed: int) -> np.ndarray:
    """Sums of bootstrap samples of a study's fits, (2000,)."""
    rng = np.random.default_rng(seed)
    return seconds[rng.integers(len(seconds), size=(_RESAMPLES, len(seconds)))].sum(axis=1)


def ratio_interval(above: Sequence[np.ndarray], below: Sequence[np.ndarray]) -> tuple[float, float]:
    """95 % bootstrap interval of sum(above) / sum(below).

    Both have one array of resampled totals per (dataset, split): fits were drawn again within each.
    With three or more places, the places are drawn again, too, both arms together.
    """
    totals = [np.stack(arm, axis=1) for arm in (above, below)]
    if len(above) >= 3:
        places = np.random.default_rng(0).integers(len(above), size=totals[0].shape)
        totals = [np.take_along_axis(total, places, axis=1) for total in totals]
    ratios = totals[0].sum(axis=1) / totals[1].sum(axis=1)
    low, high = np.quantile(ratios, [LEVEL / 2, 1 - LEVEL / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Ranking:
    """Mean ranks over datasets (1 is best) and the difference that is significant at 5 %."""

    mean_ranks: pd.Series  # by method, best first
    critical_difference: float
    p: float  # Friedman test: all methods alike
    n_datasets: int


def rank_methods(scores: pd.DataFrame) -> Ranking | None:
    """Friedman test and Nemenyi's critical difference.

    Parameters
    ----------
    scores : methods x datasets, larger is better; methods that miss a dataset are left out.

    Returns
    -------
    None with fewer than two datasets or three complete methods.
    """
    complete = scores.dropna()
    k, n = complete.shape
    if n < 2 or k < 3:
        return None
    ranks = complete.rank(axis=0, ascending=False).mean(axis=1).sort_values()
    q = stats.studentized_range.ppf(1 - LEVEL, k, np.inf) / math.sqrt(2)
    return Ranking(
        ranks,
        float(q * math.sqrt(k * (k + 1) / (6 * n))),
        float(stats.friedmanchisquare(*complete.to_numpy()).pvalue),
        n,
    )


def difference_in_words(
    first: str, second: str, difference: Difference, what: str, *, larger_is_better: bool = True
) -> str:
    """For example: a is better than b by 0.0040 ± 0.0031 AUC; not significant at 5 % (p = 0.21, n = 5)."""
    if math.isnan(difference.mean):
        return f"{first} and {second} have not both finished"
    better = (difference.mean > 0) == larger_is_better
    size = f"{abs(difference.mean):.4f}"
    relation = "equals" if difference.mean == 0 else "is better than" if better else "is worse than"
    if math.isnan(difference.standard_error):
        return f"{first} {relation} {second} by {size} {what}; not repeated, so how sure that is is unknown"
    verdict = "significant" if difference.significant else "not significant"
    return (
        f"{first} {relation} {second} by {size} ± {difference.standard_error:.4f} {what}; "
        f"{verdict} at 5 % (p = {difference.p:.2g}, n = {difference.n})"
    )
