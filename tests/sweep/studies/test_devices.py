"""Where fits go is a function of timings alone; what a GPU has no memory for is refused, or goes to a core."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from solvers.memory import ProblemSize
from sweep.errors import UserError
from sweep.fits import Trial
from sweep.fits.memory import needed_bytes, problem_size, too_large
from sweep.studies.devices import CPU, GPU, Devices, Kind, Timed, Work, choose, chooser, works
from sweep.studies.plan import make_plan
from sweep.studies.sweepfile import parse_spec
from tests.sweep.conftest import tiny
from tests.sweep.studies.playing import template

SIZE = ProblemSize(100, 10, 50)


def timed(method: str, cpu: float, gpu: float | None, *, tasks: int = 10, needed: int = 10**9) -> Timed:
    work = Work(Kind("d", method, None), SIZE, needed, tasks)
    return Timed(work, {"eigh": cpu}, None if gpu is None else {"eigh": gpu})


def chosen(*each: Timed, cpus: int = 4, gpus: float = 1, gpus_per_fit: float = 1, memory: int = 16 * 10**9) -> dict:
    devices = Devices(cpus, gpus, gpus_per_fit, "L4", memory, each)
    assert Devices.from_dict(json.loads(json.dumps(devices.to_dict()))) == Devices(**vars(devices) | {"timed": [*each]})
    return {choice.kind.method: (choice.device, choice.why) for choice in choose(devices)}


def test_what_gains_most_goes_to_the_gpu_and_the_rest_keeps_the_cores_busy() -> None:
    found = chosen(timed("pdml-vnd", 10.0, 1.0), timed("mdml-csfn", 4.0, 2.0), timed("euc", 0.1, 1.0))
    assert {method: device for method, (device, _) in found.items()} == {"pdml-vnd": GPU, "mdml-csfn": CPU, "euc": CPU}
    assert found["pdml-vnd"][1] == "10.0 times faster on a GPU"
    assert found["mdml-csfn"][1] == "2.0 times faster on a GPU, but GPUs are busy with what gains more"
    assert found["euc"][1] == "10.0 times slower on a GPU"


def test_a_fast_gpu_takes_all_and_a_slow_one_nothing() -> None:
    kinds = [("mdml-csfn", 4.0), ("pdml-vnd", 10.0)]
    fast = chosen(*(timed(method, cpu, cpu / 100) for method, cpu in kinds))
    slow = chosen(*(timed(method, cpu, cpu * 100) for method, cpu in kinds))
    assert {device for device, _ in fast.values()} == {GPU}
    assert {device for device, _ in slow.values()} == {CPU}


def test_no_other_cut_ends_sooner() -> None:
    """Against all divisions, not only those that the sorted order allows, up to the largest single kind."""
    import itertools

    import numpy as np

    rng = np.random.default_rng(0)
    for _ in range(50):
        kinds = [timed(f"m{i}", *rng.uniform(0.1, 5, 2), tasks=int(rng.integers(1, 20))) for i in range(6)]

        def end(to_gpu: Any, kinds: list[Timed] = kinds) -> float:
            on_gpu = sum(k.work.tasks * k.gpu["eigh"] for k, g in zip(kinds, to_gpu, strict=True) if g and k.gpu)
            on_cpu = sum(k.work.tasks * k.cpu["eigh"] for k, g in zip(kinds, to_gpu, strict=True) if not g)
            return max(on_gpu / 2, on_cpu / 6)

        found = chosen(*kinds, cpus=8, gpus=2)
        best = min(end(each) for each in itertools.product([True, False], repeat=6))
        largest = max(k.work.tasks * max(k.cpu["eigh"] / 6, k.gpu["eigh"] / 2) for k in kinds if k.gpu)
        assert end([found[k.work.kind.method][0] == GPU for k in kinds]) <= best + largest


def test_shares_of_a_gpu_make_room_for_more_fits_with_less_memory() -> None:
    kinds = [timed("pdml-vnd", 2.0, 1.0), timed("mdml-csfn", 2.0, 1.1, needed=6 * 10**9)]
    assert [device for device, _ in chosen(*kinds, cpus=5, gpus_per_fit=0.25).values()] == [GPU, CPU]
    assert "may need 6.0 GB, a GPU has 4.0 GB for a fit" in chosen(*kinds, gpus_per_fit=0.25)["mdml-csfn"][1]


@pytest.mark.parametrize(
    ("each", "settings", "why"),
    [
        (timed("euc", 1.0, 0.1), {"gpus": 0}, "there is no GPU for it"),
        (timed("euc", 1.0, 0.1), {"gpus_per_fit": 0}, "there is no GPU for it"),
        (timed("euc", 1.0, None), {}, "did not run on the GPU"),
        (timed("euc", 1.0, 0.1, needed=10**12), {}, "may need 1000.0 GB, a GPU has 16.0 GB"),
    ],
)
def test_what_a_gpu_cannot_take_stays_on_the_cores(each: Timed, settings: dict[str, Any], why: str) -> None:
    device, told = chosen(each, **settings)["euc"]
    assert device == CPU
    assert why in told


def test_a_rank_that_was_not_timed_goes_where_the_nearest_goes() -> None:
    kinds = [
        Timed(Work(Kind("d", "pdml-vnd", k), SIZE, 1, 1), {"eigh": 1.0}, {"eigh": g}) for k, g in ((4, 9), (90, 0.1))
    ]
    device = chooser(choose(Devices(8, 1, 1, "L4", 10**9, kinds)))
    assert [device(template(method="pdml-vnd", trial=Trial.of({"rank": rank}))) for rank in (4, 9, 80)] == [
        CPU,
        CPU,
        GPU,
    ]


# -- plans ----------------------------------------------------------------------------------------------


def plan_of(tmp_path: Path, room: int = 0, **changes: Any) -> Any:
    return make_plan(parse_spec(yaml.safe_dump(tiny(**changes)), "t.yaml"), tmp_path, room=room)


def test_the_kinds_of_a_plan_are_its_methods_and_ranks(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, methods=["mdml-csfn", "pdml-sfn", "ilhd"], splits=2)
    found = works(plan.studies, plan.cards)
    assert [(work.kind.method, work.kind.rank) for work in found] == [
        ("mdml-csfn", None),
        ("pdml-sfn", 4),
        ("pdml-sfn", 8),
    ]
    assert all(work.tasks >= 4 for work in found)
    assert found[1].size == ProblemSize(plan.cards["digits-imbalanced"].train_size, 64, 200, 4, 2)
    assert found[1].needed < found[2].needed


def test_a_plan_refuses_what_no_gpu_has_memory_for_and_says_what_to_do(tmp_path: Path) -> None:
    whole = plan_of(tmp_path, methods=["pdml-sfn"])
    card = whole.cards["digits-imbalanced"]
    small, large = (work.needed for work in works(whole.studies, whole.cards))
    plan = plan_of(tmp_path, room=(small + large) // 2, methods=["pdml-sfn"])
    assert [(refusal.method, refusal.setting) for refusal in plan.refused] == [("pdml-sfn", "rank=8")]
    assert "GB, a GPU has" in plan.refused[0].reason
    assert "lower settings.n_pairs, rank or restarts" in plan.refused[0].reason
    nothing = plan_of(tmp_path, room=1000)
    assert {(refusal.method, refusal.setting) for refusal in nothing.refused} == {
        ("mdml-csfn", "all"), ("pdml-sfn", "rank=4"), ("pdml-sfn", "rank=8"),
    }  # fmt: skip
    assert nothing.studies == []
    assert card.train_size > 0


@pytest.mark.parametrize("resources", [{"gpus_per_fit": 0}, {"device": "measured"}])
def test_without_a_gpu_of_its_own_a_fit_is_not_refused_for_its_memory(
    tmp_path: Path, resources: dict[str, Any]
) -> None:
    assert plan_of(tmp_path, room=1000, resources=resources).refused == []


def test_a_benchmark_never_mixes_devices() -> None:
    with pytest.raises(UserError, match=r"resources.device: a benchmark never mixes devices, so expected auto"):
        parse_spec(yaml.safe_dump(tiny(mode="benchmark", resources={"device": "measured"})), "t.yaml")


def test_memory_follows_what_the_sweep_file_sets() -> None:
    fit = template(method="pdml-vnd", restarts=3, settings=(("n_pairs", 700),), fixed=(("rank", 30),))
    assert problem_size(fit, 100, 20) == ProblemSize(100, 20, 700, 20, 3)
    assert needed_bytes(fit, 100, 50, 20) > 8 * 150 * 20
    assert needed_bytes(template(method="ilhd"), 10**6, 10**6, 10**4) == 0
    assert too_large(10, 10, "x") is None
