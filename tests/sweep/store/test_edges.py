"""A chosen value at the end of what was searched is said, however it was searched."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from sweep.commands.tables import print_results
from sweep.fits import Curve, FitRecord, FitSpec, Place, Scores, Seconds, Solved, Trial
from sweep.store.results import ResultRow, result_rows
from sweep.studies.path import PathStudy
from sweep.studies.spec import DEFAULT_PATH, Range
from sweep.studies.sweepfile import load_spec
from tests.sweep.studies.playing import play, template
from tests.sweep.studies.test_path_study import told

GRID = (0.001, 0.01, 0.1, 1.0)


def record(spec: FitSpec, value: float, curve: Curve | None = None) -> tuple[FitSpec, FitRecord]:
    made = FitRecord(
        key=spec.key, scores=Scores(auc_all=value), fit=Solved(), seconds=Seconds(), place=Place(), started=0.0,
        value=value, curve=curve,
    )  # fmt: skip
    return spec, made


def searched(trials: list[dict[str, float]], score: Callable[[dict[str, float]], float]) -> ResultRow:
    """A study of these trials on three folds, and the refit of the best."""
    fits = [
        record(template(trial=Trial.of(values), fold=fold), score(values)) for values in trials for fold in range(3)
    ]
    best = max(trials, key=score)
    (row,) = result_rows([*fits, record(template(trial=Trial.of(best)), score(best))])
    return row


@pytest.mark.parametrize(
    ("best", "edge"), [(1e-6, "gamma=0.001 lowest"), (0.01, None), (0.1, None), (50.0, "gamma=1 highest")]
)
def test_of_a_grid(best: float, edge: str | None) -> None:
    row = searched([{"gamma": gamma} for gamma in GRID], lambda v: 0.9 - abs(math.log10(v["gamma"] / best)) / 100)
    assert row.edge == edge


def test_of_several_values_and_of_an_adaptive_search() -> None:
    """Scattered trials, as Optuna leaves them: the lowest gamma and the highest rank that were tried."""
    trials: list[dict[str, float]] = [
        {"gamma": 0.013, "rank": 40},
        {"gamma": 0.2, "rank": 7},
        {"gamma": 0.5, "rank": 22},
    ]
    row = searched(trials, lambda v: v["rank"] / 100)
    assert row.edge == "gamma=0.013 lowest; rank=40 highest"
    assert (
        searched([{"gamma": 0.1, "rank": 5}, {"gamma": 0.1, "rank": 6}], lambda v: v["rank"]).edge == "rank=6 highest"
    )


@pytest.mark.parametrize(("best", "edge"), [(0.05, None), (1e-9, "gamma=0.001 lowest")])
def test_of_a_path_that_may_not_grow_any_further(best: float, edge: str | None) -> None:
    study = PathStudy(template(), Range(low=0.01, high=1.0, least=0.001))
    played = play(study, lambda spec: told(spec, best))
    fits = [record(spec, (t := told(spec, best)).value, t.curve) for spec in played.ran]
    (row,) = result_rows(fits)
    assert row.edge == edge


def test_the_last_lines_name_the_methods_and_mark_the_value(capsys: pytest.CaptureFixture[str]) -> None:
    row = searched([{"gamma": gamma} for gamma in GRID], lambda v: -v["gamma"])
    print_results("mine", [row])
    shown = capsys.readouterr().out
    assert "g=0.001!" in shown
    assert "! chosen at the end of what was searched: search further for mdml-csfn" in shown
    print_results("mine", [replace(row, edge=None)])
    assert "end of what was searched" not in capsys.readouterr().out


def test_the_papers_presets_keep_its_grid_and_the_default_range_reaches_below_it() -> None:
    for name in ("quickstart", "paper", "paper-timing", "reproduction"):
        assert load_spec(name).grid.gamma == list(GRID), name
    assert DEFAULT_PATH.low == 1e-4
    assert DEFAULT_PATH.bounds == (1e-6, 10.0)
