"""Curves over gamma are the records', with what is proved about them and a grid's points on them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dashboards.path_figures import (
    certificate_figure,
    path_figure,
    rank_figure,
    regularizers_figure,
    spectrum_over_gamma_figure,
)
from dashboards.records import SweepRecords, collect
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


def test_the_band_reaches_as_far_down_as_the_worst_proof(on_path: SweepRecords) -> None:
    chart = certificate_figure(on_path)
    assert [panel.title for panel in chart.panels] == [f"digits, mdml-{name}" for name in ("csfn", "cvnd", "cldd")]
    band, bound = chart.panels[0].series
    curves = [c for s in on_path.studies if s.method == "mdml-csfn" for f in s.curves.values() for c in f.values()]
    assert len(curves) == 2 * 3  # splits, folds
    expected = -100 * np.max([curve.gaps for curve in curves], axis=0)
    assert np.asarray(bound.y) == pytest.approx(expected)
    # Between the points only the tolerance is proved.
    assert list(band.y) == pytest.approx([-1.0, -1.0])
    assert list(band.x) == [bound.x[0], bound.x[-1]]
    assert set(band.upper) == {0.0}  # the objective that was reached
    assert chart.panels[0].levels[0][0] == pytest.approx(-1.0)  # the path's tolerance of 0.01 in percent


def test_a_path_that_missed_its_tolerance_has_no_band(on_path: SweepRecords) -> None:
    fits = [fit for study in on_path.studies for fit in study.fits]
    missed = [
        (spec, replace(record, fit=replace(record.fit, converged=(spec.method, spec.fold) != ("mdml-csfn", 1))))
        for spec, record in fits
    ]
    csfn, cvnd, _ = certificate_figure(collect("missed", on_path.spec, on_path.about, missed)).panels
    assert [series.kind for series in csfn.series] == ["points"]
    assert [series.kind for series in cvnd.series] == ["band", "points"]


def test_ranks_over_gamma_come_from_paths_and_from_grids(on_path: SweepRecords, paired: SweepRecords) -> None:
    (panel,) = rank_figure(on_path).panels
    assert list(panel.series[0].y) == [40 - 3 * k for k in range(9)]
    assert {s.name for s in rank_figure(paired).panels[0].series} == {"mdml-csfn", "mdml-cvnd", "mdml-cldd"}


def test_without_a_path_the_figures_are_empty_and_say_why(paired: SweepRecords) -> None:
    for chart in (path_figure(paired), certificate_figure(paired), spectrum_over_gamma_figure(paired)):
        assert chart.is_empty
        assert "no method was tuned by the path of gamma" in chart.missing


def test_non_convex_regularizers_follow_the_path(on_path: SweepRecords) -> None:
    sfn, _, ldd = regularizers_figure(on_path).panels
    (line,) = sfn.series
    assert list(line.y) == pytest.approx([9.0 - k for k in range(9)])
    assert len(line.x) == 9
    (line,) = ldd.series
    assert len(line.x) == 8  # infinite at the smallest gamma


def test_eigenvalues_over_gamma_end_where_the_rank_does(on_path: SweepRecords) -> None:
    chart = spectrum_over_gamma_figure(on_path)
    lines = {series.name: series for series in chart.panels[0].series}
    assert list(lines) == [f"number {place}" for place in (1, 2, 5, 10, 20)]
    assert list(lines["number 2"].y) == pytest.approx([2.0 / 2**0.5] * 9)
    ranks = [40 - 3 * k for k in range(9)]
    assert list(np.isfinite(lines["number 20"].y)) == [rank >= 20 for rank in ranks]


def test_curves_of_an_older_version_leave_out_what_they_did_not_keep(on_path: SweepRecords) -> None:
    old = {"sfn": (), "vnd": (), "ldd": (), "places": (), "spectra": ()}
    fits = [
        (spec, record if record.curve is None else replace(record, curve=replace(record.curve, **old)))
        for study in on_path.studies
        for spec, record in study.fits
    ]
    sweep = collect("old", on_path.spec, on_path.about, fits)
    assert spectrum_over_gamma_figure(sweep).is_empty
    assert regularizers_figure(sweep).is_empty
    assert not rank_figure(sweep).is_empty
