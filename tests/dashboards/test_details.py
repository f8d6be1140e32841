"""Every number leads to its fits, and their list is small and safe to embed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dashboards import details
from dashboards.details import as_script, fit_details
from dashboards.records import SweepRecords, read_sweep
from sweep.store.home import Home
from tests.dashboards.synthetic import fill


def test_every_fit_is_listed_with_key_score_seconds_and_certificate(paired: SweepRecords) -> None:
    found = fit_details(paired)
    assert len(found["studies"]) == len(paired.studies)
    for study, (dataset, split, method, chosen, fits) in zip(paired.studies, found["studies"], strict=True):
        assert (dataset, split, method) == (study.dataset, study.split, study.method)
        assert chosen == study.chosen.label  # type: ignore[union-attr]
        records = {record.key: (spec, record) for spec, record in study.fits}
        assert {fit[0] for fit in fits} == set(records)
        assert fits[0][2] is None  # the refit first
        for key, setting, fold, score, seconds, busy, gap, converged, _ in fits:
            spec, record = records[key]
            assert (setting, fold) == (spec.trial.label, spec.fold)
            assert score == pytest.approx(record.scores.auc_all, rel=1e-5)
            assert seconds == pytest.approx(record.seconds.solve, rel=1e-3)
            assert busy == pytest.approx(record.seconds.busy, rel=1e-3)
            assert (gap, converged) == (record.fit.relative_gap, record.fit.converged)


def test_a_large_sweep_lists_the_chosen_fits_only(paired: SweepRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(details, "MOST_FITS", 100)
    found = fit_details(paired)
    assert found["cut"]
    assert {len(fits) for *_, fits in found["studies"]} == {4}  # three folds and the refit
    assert {fit[1] for *_, chosen, fits in found["studies"] for fit in fits if fit[1] != chosen} == set()


def test_paths_are_listed_with_their_range(on_path: SweepRecords) -> None:
    study = next(s for s in fit_details(on_path)["studies"] if s[2] == "mdml-csfn")
    assert [fit[1] for fit in study[4]] == ["gamma=0.01", *["gamma=0.0001..1"] * 3]


def test_the_script_cannot_be_left_and_reads_back(tmp_path: Path) -> None:
    name = "x</script><!--"
    sweep = read_sweep(fill(Home(tmp_path), "own", datasets=[name], methods=["euc"]), "own")
    text = as_script(fit_details(sweep, "again {key}"))
    assert "<" not in text
    assert json.loads(text)["studies"][0][0] == name
    assert json.loads(text)["command"] == "again {key}"
