"""A path's record: which gammas were scored and why, what is kept of each metric, what the refit starts from."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from solvers import MDML
from sweep.datasets.card import open_split
from sweep.datasets.choice import DatasetChoice
from sweep.fits import CHAIN, FitOutcome, FitRecord, FitSpec, Help, SplitData, Trial, fit_and_score
from sweep.fits.path import _top, coarse_gammas, path_tolerance
from sweep.fits.run import build_model, rows
from tests.sweep.studies.playing import template

SPAN = (1e-3, 1.0)


def spec_of(method: str = "mdml-csfn", **changes: object) -> FitSpec:
    settings = (("n_pairs", 2000), ("tol", 1e-3))
    return template(dataset="digits-imbalanced", method=method, settings=settings, **changes)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> SplitData:
    return open_split(DatasetChoice(name="digits-imbalanced"), tmp_path_factory.mktemp("data"), 0, 3, 0)


@pytest.fixture(scope="module")
def path(data: SplitData) -> tuple[FitSpec, FitOutcome]:
    spec = spec_of(gammas=SPAN, fold=0, start=CHAIN)
    return spec, fit_and_score(spec, data, Help(device="cpu"))


def test_scoring_is_coarse_everywhere_and_fine_around_the_best(path: tuple[FitSpec, FitOutcome]) -> None:
    curve = path[1].record.curve
    assert curve is not None
    assert set(coarse_gammas(*SPAN)) <= set(curve.gammas)
    assert curve.n_coarse == len(coarse_gammas(*SPAN)) == 7
    assert curve.n_coarse < len(curve.gammas) <= curve.n_coarse + 3
    assert 1 <= curve.n_scored <= len(curve.gammas)
    assert curve.kept == max(zip(curve.scores, curve.gammas, strict=True))[1]
    steps = np.diff(np.log(curve.gammas))
    place = curve.gammas.index(curve.kept)
    around = steps[max(0, place - 1) : place + 1]
    assert around.min() < 0.6 * np.log(10) / 2  # finer there than half a decade


def test_the_next_gamma_is_the_top_of_a_parabola_inside_the_range() -> None:
    gammas = (0.001, 0.00316, 0.01, 0.0316, 0.1)
    assert _top({gamma: 1 - np.log(gamma / 0.02) ** 2 for gamma in gammas}) == 0.02
    assert _top({gamma: gamma for gamma in gammas}) == pytest.approx((0.0316 * 0.1) ** 0.5, rel=1e-2)
    assert _top({gamma: -gamma for gamma in gammas}) == pytest.approx((0.001 * 0.00316) ** 0.5, rel=1e-2)
    assert gammas[0] < _top(dict.fromkeys(gammas, 0.5)) < gammas[-1]


def test_what_is_kept_of_a_gamma_is_what_its_metric_says(path: tuple[FitSpec, FitOutcome], data: SplitData) -> None:
    """At two gammas, from a path fitted anew."""
    from solvers.theory import non_convex_values

    spec, outcome = path
    curve = outcome.record.curve
    assert curve is not None
    (X, y), _ = rows(spec, data)
    fitted = build_model(spec, Help(device="cpu")).fit(X, y)
    for place in (0, len(curve.gammas) // 2):
        model = fitted.at(curve.gammas[place])
        values = np.linalg.eigvalsh(model.components_ @ model.components_.T)[::-1]
        assert curve.ranks[place] == model.rank_ == len(values)
        expected = non_convex_values(values)
        assert curve.sfn[place] == pytest.approx(expected.sfn, rel=1e-6)
        assert curve.vnd[place] == pytest.approx(expected.vnd, rel=1e-6)
        assert curve.ldd[place] == pytest.approx(expected.ldd, rel=1e-6)
        numbers = [n for n in curve.places if n <= len(values)]
        assert list(curve.spectra[place]) == pytest.approx([values[n - 1] for n in numbers], rel=1e-3)
        assert 0 <= curve.gaps[place] <= path_tolerance(spec) == 0.01


def test_a_record_comes_back_from_json_as_it_was_and_is_small(path: tuple[FitSpec, FitOutcome]) -> None:
    record = path[1].record
    text = json.dumps(record.to_dict())
    assert FitRecord.from_dict(json.loads(text)).curve == record.curve
    assert len(text) < 8000
    older = {k: v for k, v in record.to_dict()["curve"].items() if k in ("gammas", "scores")}
    assert FitRecord.from_dict(json.loads(json.dumps(record.to_dict() | {"curve": older}))).curve is not None


def test_a_refit_that_starts_from_a_folds_metric_costs_less_and_ends_within_the_tolerance(
    path: tuple[FitSpec, FitOutcome], data: SplitData
) -> None:
    spec, outcome = path
    spent = {"warm": 0, "cold": 0}
    for gamma in (0.001, 0.003, 0.01):
        refit = spec_of(trial=Trial.of({"gamma": gamma}), start=spec.key)
        warm = fit_and_score(refit, data, Help(device="cpu", warm=outcome.arrays["components"]))
        cold = fit_and_score(replace(refit, start="cold"), data, Help(device="cpu"))
        spent["warm"] += warm.record.fit.n_eigh or 0
        spent["cold"] += cold.record.fit.n_eigh or 0
        for one, other in ((warm, cold), (cold, warm)):
            assert one.record.fit.relative_gap is not None
            assert one.record.fit.relative_gap <= 1e-3
            assert one.record.fit.dual_objective <= other.record.fit.objective  # type: ignore[operator]
        assert "weights" not in warm.arrays  # nobody starts from a refit
    assert 0 < spent["warm"] < 0.9 * spent["cold"]


def test_metrics_of_the_wrong_shape_are_refused(data: SplitData) -> None:
    (X, y), _ = rows(spec_of(trial=Trial.of({"gamma": 0.1})), data)
    with pytest.raises(ValueError, match="init: expected components of 64 features"):
        MDML("csfn", n_pairs=500, random_state=0).fit(X, y, init=np.ones((3, 5)))
    with pytest.raises(ValueError, match="init: expected a square M"):
        MDML("tr", n_pairs=500, random_state=0).fit(X, y, init=np.ones((3, 64)))


def test_the_tolerance_of_a_path_is_its_own() -> None:
    assert path_tolerance(spec_of()) == 0.01
    assert path_tolerance(template(settings=(("tol", 0.05),))) == 0.05
    assert path_tolerance(template(settings=(("path_tol", 0.002), ("tol", 1e-3)))) == 0.002
    assert build_model(spec_of(gammas=SPAN, fold=0)).tol == 0.01
    refit = template(settings=(("path_tol", 0.002), ("tol", 1e-3)), trial=Trial.of({"gamma": 0.1}))
    assert build_model(refit).tol == 1e-3
