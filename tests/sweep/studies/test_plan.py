"""A plan counts fits as the paper does, and keys depend on what determines a result alone."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweep.fits import FitSpec
from sweep.store.home import Home
from sweep.studies.plan import Plan, make_plan, n_fits
from sweep.studies.spec import SweepSpec, load_spec, parse_spec
from tests.sweep.conftest import tiny


def plan_of(tmp_path: Path, **changes: Any) -> Plan:
    return make_plan(parse_spec(yaml.safe_dump(tiny(**changes)), "t.yaml"), Home(tmp_path))


def keys(plan: Plan) -> set[str]:
    return {fit.key for study in plan.studies for fit in study.start()}


def test_twelve_fits_against_three_hundred_and_sixty(tmp_path: Path) -> None:
    plan = make_plan(load_spec("quickstart"), Home(tmp_path))
    counts = {s.template.method: sum(map(n_fits, s.start())) for s in plan.studies}
    assert counts == {
        "mdml-csfn": 12, "mdml-cvnd": 12, "mdml-cldd": 12, "pdml-sfn": 360, "pdml-vnd": 360, "pdml-ldd": 360,
    }  # fmt: skip
    assert plan.refused == []


def test_a_rank_above_the_dimension_is_refused_with_the_reason(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, grid={"gamma": [0.1, 1], "rank": [4, 65]})
    assert {(r.method, r.setting) for r in plan.refused} == {
        ("pdml-sfn", "gamma=0.1, rank=65"),
        ("pdml-sfn", "gamma=1, rank=65"),
    }
    assert all("64 features" in r.reason for r in plan.refused)


def test_keys_do_not_depend_on_order_or_on_the_rest_of_the_sweep(tmp_path: Path) -> None:
    base = keys(plan_of(tmp_path))
    assert keys(plan_of(tmp_path, methods=["pdml-sfn", "mdml-csfn"], name="other")) == base
    assert keys(plan_of(tmp_path, grid={"gamma": [0.1, 0.01, 1], "rank": [8, 4]})) > base
    assert keys(plan_of(tmp_path, resources={"gpus_per_fit": 0.5})) == base


@pytest.mark.parametrize(
    "changes",
    [{"seed": 1}, {"folds": 3}, {"settings": {"n_pairs": 201, "tol": 0.01}}, {"algorithm": "paper"},
     {"datasets": ["digits"]}, {"datasets": [{"name": "digits-imbalanced", "scaling": "l2"}]}],
)  # fmt: skip
def test_what_changes_a_result_changes_its_key(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert keys(plan_of(tmp_path)).isdisjoint(keys(plan_of(tmp_path, **changes)))


def test_a_benchmark_shares_no_key_with_another_sweep(tmp_path: Path) -> None:
    benchmark = keys(plan_of(tmp_path, mode="benchmark"))
    assert benchmark.isdisjoint(keys(plan_of(tmp_path)))
    assert benchmark.isdisjoint(keys(plan_of(tmp_path, mode="benchmark", name="again")))


def test_every_field_of_a_spec_is_in_its_key(tmp_path: Path) -> None:
    spec = next(fit for fit in plan_of(tmp_path).studies[1].start())
    for field in fields(FitSpec):
        value = getattr(spec, field.name)
        changed = (
            f"{value}x" if isinstance(value, str) else (("a", 1),) if isinstance(value, tuple) else (value or 0) + 1
        )
        assert replace(spec, **{field.name: changed}).key != spec.key, field.name


def test_a_spec_survives_json(tmp_path: Path) -> None:
    import json
    from dataclasses import asdict

    spec = plan_of(tmp_path).studies[0].start()[0]
    assert FitSpec.from_dict(json.loads(json.dumps(asdict(spec)))) == spec


def test_a_sweep_spec_is_hash_stable_through_its_own_dump() -> None:
    spec = load_spec("quickstart")
    assert SweepSpec.model_validate(spec.model_dump(mode="json")) == spec
