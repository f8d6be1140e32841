"""One path per fold, whose mean curve picks gamma; the range grows while the score rises at its end."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from sweep.fits import Curve, FitSpec, Select, Trial
from sweep.fits.path import coarse_gammas
from sweep.studies.base import Told
from sweep.studies.path import PathStudy, choose_gamma, mean_curve
from sweep.studies.spec import Range
from tests.sweep.studies.playing import play, template

RANGE = Range(low=1e-3, high=1.0, least=1e-6, most=10.0)


def told(spec: FitSpec, best: float, sign: float = 1.0) -> Told:
    """A curve that is best at one gamma: a parabola over log gamma."""
    if spec.gammas is None:
        return Told(0.5)
    gammas = coarse_gammas(*spec.gammas)
    scores = [sign * (0.9 - 0.01 * math.log10(gamma / best) ** 2) for gamma in gammas]
    zeros = (0.0,) * len(gammas)
    kept = max(zip((sign * score for score in scores), gammas, strict=True))[1]
    return Told(max(scores), Curve(tuple(gammas), tuple(scores), zeros, (1,) * len(gammas), zeros, kept=kept))


@pytest.mark.parametrize(
    ("best", "spans"),
    [(0.03, 1), (1e-5, 1 + 3), (1e-9, 1 + 3), (5.0, 1 + 1), (1e9, 1 + 1)],
)  # inside; below, and below all bounds; above, and above all bounds
def test_the_range_grows_to_where_the_best_gamma_is_and_never_beyond_its_bounds(best: float, spans: int) -> None:
    study = PathStudy(template(), RANGE)
    played = play(study, lambda spec: told(spec, best), seed=1)
    assert len(played.ran) == spans * 3 + 1 <= study.size.tasks
    assert played.refit is not None
    gamma = played.refit.trial.get("gamma")
    assert gamma == pytest.approx(min(10.0, max(1e-6, best)), rel=2.0)
    covered = sorted({spec.gammas for spec in played.ran if spec.gammas})
    assert all(low == high for (_, low), (high, _) in itertools.pairwise(covered))  # no hole
    assert covered[0][0] >= 1e-6
    assert covered[-1][1] <= 10.0


@pytest.mark.parametrize("select", ["best", "one-se"])
def test_the_refit_starts_from_the_path_with_the_nearest_metric_whatever_came_first(select: Select) -> None:
    """Folds differ in their best gamma, and the range grows twice."""
    best = {0: 3e-3, 1: 1e-5, 2: 3e-5}
    starts = set()
    for seed in range(8):
        played = play(PathStudy(template(), RANGE, select), lambda spec: told(spec, best[spec.fold or 0]), seed=seed)
        assert played.refit is not None
        starts.add(played.refit.start)
    (start,) = starts
    (source,) = [spec for spec in played.ran if spec.key == start]
    assert source.gammas is not None
    gamma = played.refit.trial.get("gamma")
    kept = {
        spec.key: curve.kept
        for spec in played.ran
        if spec.gammas is not None and (curve := told(spec, best[spec.fold or 0]).curve) is not None
    }
    distances = {key: abs(math.log((own or 0.0) / gamma)) for key, own in kept.items()}
    assert distances[start] == min(distances.values())


def test_an_exact_size_where_the_range_may_not_grow() -> None:
    study = PathStudy(template(), Range(low=0.01, high=1.0))
    played = play(study, lambda spec: told(spec, 1e-9))
    assert study.size.exact
    assert len(played.ran) == study.size.tasks == 4
    assert played.refit is not None
    assert played.refit.trial == Trial.of({"gamma": 0.01})


def test_the_bounds_in_the_size_are_reached_exactly() -> None:
    """Five decades down from a range of one: the upper bound is what happens."""
    study = PathStudy(template(), Range(low=0.1, high=1.0, least=1e-6))
    assert len(play(study, lambda spec: told(spec, 1e-9)).ran) == study.size.tasks == (1 + 5) * 3 + 1


def test_smaller_scores_win_where_they_are_better() -> None:
    study = PathStudy(template(maximize=False), RANGE)
    refit = play(study, lambda spec: told(spec, 0.1, sign=-1.0)).refit
    assert refit is not None
    assert refit.trial.get("gamma") == pytest.approx(0.1)


def test_a_failed_fold_ends_the_study_without_a_refit() -> None:
    played = play(PathStudy(template(), RANGE), lambda spec: None if spec.fold == 1 else told(spec, 0.1))
    assert played.refit is None
    assert len(played.ran) == 3


def test_folds_that_scored_different_gammas_are_averaged_on_all_of_them() -> None:
    def curve(gammas: list[float], scores: list[float]) -> Curve:
        return Curve(tuple(gammas), tuple(scores))

    curves = {
        0: {(0.01, 1.0): curve([0.01, 0.1, 1.0], [0.0, 1.0, 0.0])},
        1: {(0.01, 1.0): curve([0.01, 1.0], [0.5, 0.5])},
    }
    gammas, rows = mean_curve(curves)
    assert gammas == [0.01, 0.1, 1.0]
    np.testing.assert_allclose(rows, [[0, 1, 0], [0.5, 0.5, 0.5]])
    assert choose_gamma(curves) == 0.1
    # Flat within a standard error: the strongest regularization is the simplest.
    flat = {f: {(0.01, 1.0): curve([0.01, 0.1, 1.0], [0.7, 0.71, 0.70 + 0.01 * f])} for f in range(3)}
    assert choose_gamma(flat, select="one-se") == 1.0


def test_coarse_gammas_contain_both_ends_and_two_points_per_decade() -> None:
    assert coarse_gammas(1e-3, 1.0) == [1e-3, 0.00316, 0.01, 0.0316, 0.1, 0.316, 1.0]
    assert coarse_gammas(0.3, 0.4) == [0.3, 0.4]


def test_where_two_ranges_meet_the_choice_does_not_depend_on_which_came_first() -> None:
    upper = Curve((0.01, 0.02, 1.0), (0.9, 0.8, 0.5), (0.0,) * 3, (1,) * 3, (0.0,) * 3)
    lower = Curve((0.001, 0.01), (0.3, 0.7), (0.0,) * 2, (1,) * 2, (0.0,) * 2)
    spans = {(0.01, 1.0): upper, (0.001, 0.01): lower}
    assert choose_gamma({0: spans}) == choose_gamma({0: dict(reversed(spans.items()))}) == 0.01
