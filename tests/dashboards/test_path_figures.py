"""Curves over gamma are the records', with what is proved about them and a grid's points on them."""

from __future__ import annotations

import numpy as np
import pytest

from dashboards.path_figures import certificate_figure, path_figure, rank_figure
from dashboards.records import SweepRecords
from sweep.studies.path import mean_curve


def test_the_score_over_gamma_is_the_mean_over_folds_and_splits(on_path: SweepRecords) -> None:
    panel = next(panel for panel in path_figure(on_path).panels if panel.title == "digits, mdml-csfn")
    (strong,) = [s for s in panel.series if s.kind == "line" and not s.faint]
    studies = [s for s in on_path.studies if s.method == "mdml-csfn"]
    expected = np.mean([mean_curve(study.curves)[1].mean(axis=0) for study in studies], axis=0)
    assert np.asarray(strong.y) == pytest.approx(expected)
    assert len([s for s in panel.series if s.faint]) == 2 * 3  # splits, folds
    assert panel.marks == [0.01]  # the choice


def test_a_grids_points_lie_on_the_curve(on_path: SweepRecords) -> None:
    panel = next(panel for panel in path_figure(on_path).panels if panel.title == "digits, mdml-csfn")
    (points,) = [s for s in panel.series if s.kind == "points"]
    assert list(points.x) == [0.001, 0.01, 0.1, 1.0]
    other = next(panel for panel in path_figure(on_path).panels if panel.title == "digits, mdml-cvnd")
    assert not [s for s in other.series if s.kind == "points"]  # the grid sweep did not run it


def test_the_band_holds_the_optimum_between_bound_and_objective(on_path: SweepRecords) -> None:
    chart = certificate_figure(on_path)
    band, line = chart.panels[0].series
    study = next(s for s in on_path.studies if s.method == "mdml-csfn")
    (curve,) = study.curves[0].values()
    assert list(line.y) == list(curve.objectives)
    expected = [o - g * max(1.0, abs(o)) for o, g in zip(curve.objectives, curve.gaps, strict=True)]
    assert np.asarray(band.y) == pytest.approx(expected)
    assert list(band.upper) == list(curve.objectives)
    gaps = next(panel for panel in chart.panels if "worst fold" in panel.title)
    assert [s.name for s in gaps.series] == ["mdml-csfn", "mdml-cvnd", "mdml-cldd"]
    assert gaps.levels[0][0] == 0.001


def test_ranks_over_gamma_come_from_paths_and_from_grids(on_path: SweepRecords, paired: SweepRecords) -> None:
    (panel,) = rank_figure(on_path).panels
    assert list(panel.series[0].y) == [40 - 3 * k for k in range(9)]
    assert {s.name for s in rank_figure(paired).panels[0].series} == {"mdml-csfn", "mdml-cvnd", "mdml-cldd"}


def test_without_a_path_the_figures_are_empty_and_say_why(paired: SweepRecords) -> None:
    for chart in (path_figure(paired), certificate_figure(paired)):
        assert chart.is_empty
        assert "no method was tuned by the path of gamma" in chart.missing
