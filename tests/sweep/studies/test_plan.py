"""A plan counts fits as the paper does, and keys depend on what determines a result alone."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweep.errors import UserError
from sweep.fits import FitSpec, Trial
from sweep.studies.base import Size
from sweep.studies.grid import EliminatingGridStudy, GridStudy, WarmGridStudy
from sweep.studies.path import PathStudy
from sweep.studies.plan import Plan, make_plan
from sweep.studies.sweepfile import load_spec, parse_spec
from tests.sweep.conftest import tiny


def plan_of(tmp_path: Path, **changes: Any) -> Plan:
    return make_plan(parse_spec(yaml.safe_dump(tiny(**changes)), "t.yaml"), tmp_path)


def keys(plan: Plan) -> set[str]:
    return {fit.key for study in plan.studies for fit in study.start()}


def kinds(plan: Plan) -> dict[str, type]:
    return {study.template.method: type(study) for study in plan.studies}


# -- counts -------------------------------------------------------------------------------------------


def test_twelve_fits_against_three_hundred_and_sixty(tmp_path: Path) -> None:
    plan = make_plan(load_spec("quickstart"), tmp_path)
    tuning = {s.template.method: s.size.fits - s.template.restarts for s in plan.studies}
    assert tuning == {
        "mdml-csfn": 12, "mdml-cvnd": 12, "mdml-cldd": 12, "pdml-sfn": 360, "pdml-vnd": 360, "pdml-ldd": 360,
    }  # fmt: skip
    asked = {s.template.method: sum(fit.restarts for fit in s.start()) for s in plan.studies}
    assert asked == tuning
    assert plan.size == Size(3 * 13 + 3 * 73, 3 * 13 + 3 * 365)
    assert plan.refused == []


@pytest.mark.parametrize(
    ("changes", "tasks", "fits", "exact"),
    [
        ({"methods": ["mdml-csfn"]}, 5, 5, True),
        ({"methods": ["pdml-sfn"]}, 9, 18, True),
        ({"methods": ["euc"]}, 1, 1, True),
        ({"methods": ["mdml-csfn"], "grid": {"gamma": [1]}}, 1, 1, True),
        ({"methods": ["mdml-csfn"], "warm": True}, 5, 5, True),
        ({"methods": ["mdml-csfn"], "splits": 3}, 15, 15, True),
        ({"methods": ["mdml-csfn"], "eliminate": True}, 5, 5, False),
        ({"methods": ["mdml-csfn"], "search": "path"}, 3, 3, True),
        # From 1e-4 to 1, and three decades more if the score rises at the ends: down to 1e-6, up to 10.
        ({"methods": ["mdml-csfn"], "grid": {}}, (1 + 3) * 2 + 1, (1 + 3) * 2 + 1, False),
        ({"methods": ["mdml-csfn"], "search": {"optuna": {"trials": 7}}}, 15, 15, False),
        # Screened on one restart per fold, then with all of them, then the refit.
        ({"methods": ["pdml-sfn"], "search": {"optuna": {"trials": 7}}}, 14 + 14 + 1, 14 + 28 + 2, False),
    ],
)
def test_every_kind_of_study_says_beforehand_how_much_it_is(
    tmp_path: Path, changes: dict[str, Any], tasks: int, fits: int, exact: bool
) -> None:
    assert plan_of(tmp_path, **changes).size == Size(tasks, fits, exact)


def test_each_method_gets_the_strategy_that_suits_it(tmp_path: Path) -> None:
    both = ["mdml-csfn", "pdml-sfn"]
    assert kinds(plan_of(tmp_path, methods=both)) == {"mdml-csfn": GridStudy, "pdml-sfn": GridStudy}
    assert kinds(plan_of(tmp_path, methods=both, warm=True)) == {"mdml-csfn": WarmGridStudy, "pdml-sfn": GridStudy}
    assert kinds(plan_of(tmp_path, methods=both, search="path")) == {"mdml-csfn": PathStudy, "pdml-sfn": GridStudy}
    assert set(kinds(plan_of(tmp_path, methods=both, eliminate=True)).values()) == {EliminatingGridStudy}
    # No gamma named: certified methods take the path, the others a grid that reaches down to 1e-5.
    plan = plan_of(tmp_path, methods=both, grid={"rank": [4]})
    assert kinds(plan) == {"mdml-csfn": PathStudy, "pdml-sfn": GridStudy}
    assert min(fit.trial.get("gamma") for fit in plan.studies[1].start()) == 1e-5


def test_globs_name_methods_in_table_order_and_each_once(tmp_path: Path) -> None:
    names = [method.name for method in plan_of(tmp_path, methods=["pdml-s*", "mdml-c*", "pdml-sfn"]).methods]
    assert names == ["pdml-sfn", "mdml-csfn", "mdml-cvnd", "mdml-cldd"]


# -- refusals -----------------------------------------------------------------------------------------


def test_a_rank_above_the_dimension_is_refused_with_the_reason(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, grid={"gamma": [0.1, 1], "rank": [4, 65]})
    assert [(r.method, r.setting) for r in plan.refused] == [("pdml-sfn", "rank=65")]
    assert "64 features" in plan.refused[0].reason
    assert {fit.trial.get("rank") for fit in plan.studies[1].start()} == {4}


def test_a_method_without_any_value_left_is_not_run(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, grid={"gamma": [0.1], "rank": [65]})
    assert [study.template.method for study in plan.studies] == ["mdml-csfn"]


def test_a_probability_of_one_is_refused_and_ranges_are_cut_below_it(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, methods=["mdml-drop"], grid={"gamma": [0.5, 1]})
    assert [(r.method, r.setting) for r in plan.refused] == [("mdml-drop", "gamma=1")]
    plan = plan_of(
        tmp_path, methods=["mdml-drop"], grid={"gamma": {"low": 0.1, "high": 1}}, search={"optuna": {"trials": 20}}
    )
    assert all(fit.trial.get("gamma") < 1 for fit in plan.studies[0].start())


def test_a_dataset_that_cannot_be_used_is_refused_for_all_methods(tmp_path: Path) -> None:
    small = tmp_path / "small.csv"
    small.write_text("a,label\n" + "\n".join(f"{i},{'xyz'[i % 3]}" for i in range(12)))
    plan = plan_of(tmp_path, datasets=[str(small), "digits-imbalanced"])
    assert [(r.dataset, r.method, r.setting) for r in plan.refused] == [
        ("small.csv", "mdml-csfn", "all"), ("small.csv", "pdml-sfn", "all"),
    ]  # fmt: skip
    assert {study.template.dataset for study in plan.studies} == {"digits-imbalanced"}
    plan = plan_of(tmp_path, score="balance_score", datasets=[{"name": "digits-imbalanced", "frequent_above": 10**6}])
    assert not plan.studies
    assert "set frequent_above" in plan.refused[0].reason


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"grid": {"gamma": {"low": 0.1, "high": 1}}, "methods": ["pdml-sfn"]}, "grid.gamma: a range goes with"),
        ({"methods": [{"name": "lmnn", "tune": {"n_neighbour": [1]}}]}, "Did you mean 'n_neighbors'"),
        ({"methods": [{"name": "euc", "params": {"gamma": 1}}]}, "methods[0].params: euc has no 'gamma'"),
        ({"methods": [{"name": "euc", "estimator": "sklearn.neighbors:NCA"}]}, "'euc' is a method of ours"),
        ({"methods": [{"name": "x", "estimator": "sklearn.neighbors"}]}, "expected a dotted path like"),
        ({"methods": [{"name": "x", "estimator": "no_such_pkg:X"}]}, ".estimator: cannot import 'no_such_pkg'"),
        (
            {"methods": [{"name": "x", "estimator": "sklearn.neighbors:NeighborhoodComponentAnalysis"}]},
            "Did you mean 'NeighborhoodComponentsAnalysis'",
        ),
        ({"methods": [{"name": "x", "estimator": "sklearn.linear_model:Ridge"}]}, "Ridge has no transform"),
        (
            {
                "methods": [
                    {
                        "name": "x",
                        "estimator": "sklearn.neighbors:NeighborhoodComponentsAnalysis",
                        "tune": {"n_component": [2]},
                    }
                ]
            },
            "Did you mean 'n_components'",
        ),
        ({"score": "json:dumpz"}, "score: 'json' has no 'dumpz'. Did you mean 'dump'?"),
        ({"score": "json:__name__"}, "score: expected a function of embedding and labels"),
        ({"datasets": ["digits", "digits"]}, "datasets[1]: digits with the same options is datasets[0] already"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_answered_with_one_line(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UserError) as caught:
        plan_of(tmp_path, **changes)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


# -- keys ---------------------------------------------------------------------------------------------


def test_keys_do_not_depend_on_order_or_on_the_rest_of_the_sweep(tmp_path: Path) -> None:
    base = keys(plan_of(tmp_path))
    assert keys(plan_of(tmp_path, methods=["pdml-sfn", "mdml-csfn"], name="other")) == base
    assert keys(plan_of(tmp_path, grid={"gamma": [0.1, 0.01, 1], "rank": [8, 4]})) > base
    unchanged: list[dict[str, Any]] = [
        {"resources": {"gpus_per_fit": 0.5}}, {"select": "one-se"}, {"eliminate": True}, {"score": "knn_accuracy"},
        {"datasets": ["digits-imbalanced", "digits"]}, {"splits": 2}, {"max_queries": 4000},
    ]  # fmt: skip
    for changes in unchanged:
        assert keys(plan_of(tmp_path, **changes)) >= base, changes


@pytest.mark.parametrize(
    "changes",
    [{"seed": 1}, {"folds": 3}, {"settings": {"n_pairs": 201, "tol": 0.01}}, {"algorithm": "paper"},
     {"datasets": ["digits"]}, {"datasets": [{"name": "digits-imbalanced", "scaling": "l2"}]},
     {"max_queries": 50}, {"methods": [{"name": "mdml-csfn", "params": {"tol": 0.5}}]}],
)  # fmt: skip
def test_what_changes_a_result_changes_its_key(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert keys(plan_of(tmp_path)).isdisjoint(keys(plan_of(tmp_path, **changes)))


def test_a_benchmark_shares_no_key_with_another_sweep(tmp_path: Path) -> None:
    benchmark = keys(plan_of(tmp_path, mode="benchmark"))
    assert benchmark.isdisjoint(keys(plan_of(tmp_path)))
    assert benchmark.isdisjoint(keys(plan_of(tmp_path, mode="benchmark", name="again")))


def test_every_field_of_a_spec_is_in_its_key(tmp_path: Path) -> None:
    spec = replace(plan_of(tmp_path).studies[1].start()[0], estimator="mypkg:X", version="a", score_version="b")
    changes: dict[str, Any] = {
        "trial": Trial.of({"gamma": 7.0, "rank": 4}), "gammas": (0.1, 1.0), "max_queries": 7, "fold": 1, "pca": 3,
        "settings": (("a", 1),), "fixed": (("a", 1),), "maximize": None,
    }  # fmt: skip
    for field in fields(FitSpec):
        value = getattr(spec, field.name)
        changed = f"{value}x" if isinstance(value, str) else value + 1 if isinstance(value, int) else None
        changed = changes.get(field.name, changed)
        if field.name != "maximize":  # the score says which way is better
            assert replace(spec, **{field.name: changed}).key != spec.key, field.name
    assert replace(spec, trial=spec.trial.with_values(other="x")).key != spec.key
    refit = replace(spec, fold=None)
    assert replace(refit, folds=9).key == refit.key  # a refit does not see the folds


# As the first version computed them; homes that it wrote hold fits under these keys.
OLD_SPECS: dict[str, dict[str, Any]] = {
    "91426f910b81d4b953e3fc8224ad7fe6": {
        "dataset": "digits-imbalanced", "data": "ab12", "scaling": "minmax", "pca": None, "frequent_above": 100,
        "split": 0, "folds": 3, "fold": 1, "method": "mdml-csfn", "gamma": 0.01, "rank": None, "restarts": 1,
        "algorithm": "certified", "seed": 0, "start": "cold", "salt": "",
        "settings": [["epsilon", 1e-05], ["margin", 1.0], ["n_pairs", 20000], ["rank_tol", 0.001], ["tol", 0.001]],
    },
    "f6a8eb5dc002c78cb673a09a913065de": {
        "dataset": "reuters", "data": "f" * 64, "scaling": "l2", "pca": 300, "frequent_above": 1000,
        "split": 4, "folds": 5, "fold": None, "method": "pdml-vnd", "gamma": 0.1, "rank": 50, "restarts": 5,
        "algorithm": "paper", "seed": 7, "start": "cold", "salt": "bench", "settings": [["n_pairs", 200]],
    },
    "dcb1d8f4c87d0a3fc86226859fe26b0d": {
        "dataset": "act", "data": "0" * 64, "scaling": "none", "pca": 20, "frequent_above": 30,
        "split": 2, "folds": 2, "fold": 0, "method": "mdml-cldd", "gamma": 1.0, "rank": None, "restarts": 1,
        "algorithm": "certified", "seed": -3, "start": "d" * 32, "salt": "", "settings": [["tol", 0.01]],
    },
    "9372b56ce4c5d7bc16c015877ff803de": {
        "dataset": "act", "data": "0" * 64, "scaling": "none", "pca": 20, "frequent_above": 30,
        "split": 2, "folds": 2, "fold": None, "method": "euc", "gamma": None, "rank": None, "restarts": 1,
        "algorithm": "certified", "seed": -3, "start": "cold", "salt": "", "settings": [["tol", 0.01]],
    },
}  # fmt: skip


@pytest.mark.parametrize("key", OLD_SPECS)
def test_fits_of_the_first_version_keep_their_keys(key: str) -> None:
    old = dict(OLD_SPECS[key])
    trial = {"gamma": old.pop("gamma"), "rank": old.pop("rank")}
    assert FitSpec.from_dict(old | {"trial": trial, "version": "4"}).key == key


def test_a_spec_survives_json(tmp_path: Path) -> None:
    methods = ["mdml-csfn", {"name": "lmnn", "params": {"max_iter": 5}, "tune": {"n_neighbors": [1, 3]}}]
    for changes in ({}, {"search": "path"}):
        for study in plan_of(tmp_path, methods=methods, **changes).studies:
            for spec in study.start():
                assert FitSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


# -- seeds and labels ---------------------------------------------------------------------------------


def test_all_methods_face_the_same_pairs_and_splits_are_numbered_from_zero(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, splits=2)
    first = {study.template.study: study.start()[0] for study in plan.studies}
    seeds = {(dataset, split): set() for dataset, split, _ in first}
    for (dataset, split, _), spec in first.items():
        seeds[dataset, split].add(spec.seed_for("pairs"))
    assert [len(found) for found in seeds.values()] == [1, 1]
    assert first["digits-imbalanced", 1, "mdml-csfn"].label == "digits-imbalanced split 1 mdml-csfn gamma=0.01 fold 0"


def test_datasets_are_told_apart_by_path_and_options(tmp_path: Path) -> None:
    rows = "\n".join(f"{i % 7},{i % 3},c{i % 2}" for i in range(60))
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "wine.csv").write_text("x,z,label\n" + rows + "\n1,1,c0" * (folder == "b"))
    datasets = [
        str(tmp_path / "a" / "wine.csv"), str(tmp_path / "b" / "wine.csv"), "digits",
        {"name": "digits", "scaling": "l2"},
    ]  # fmt: skip
    plan = plan_of(tmp_path, datasets=datasets, methods=["mdml-csfn"])
    assert list(plan.cards) == ["a/wine.csv", "b/wine.csv", "digits", "digits[scaling=l2]"]
    assert len({key for study in plan.studies for key in [study.start()[0].key]}) == 4
