"""Where the fits of a plan run, and on which of the devices there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sweep.engine.driver import Display
from sweep.engine.executors import InlineExecutor
from sweep.errors import UserError
from sweep.fits import FitSpec
from sweep.store.home import Home
from sweep.studies.devices import GPU, Devices, choose, chooser, works
from sweep.studies.plan import Plan


def executor_maker(
    plan: Plan,
    home: Home,
    display: Display,
    address: str | None,
    gpus: int,
    *,
    code: Mapping[str, bytes],
    name: str | None = None,
) -> Callable[[], Any]:
    """What makes the place where fits run, when the first of them is due.

    Parameters
    ----------
    gpus : GPUs that an autoscaling cluster may grow to.
    code : the user's own, which travels to the workers.
    name : of the sweep whose devices these are, if it is not the plan's: a pilot finds them out for its sweep.
    """
    spec, sweep = plan.spec, name or plan.spec.name
    measured = spec.resources.device == "measured"
    if address == "inline":
        if measured:
            raise UserError("resources.device: measured chooses among the devices of a Ray; remove it to run inline")
        return lambda: InlineExecutor(plan.estimators)
    kinds = works(plan.studies, plan.cards) if measured else []  # starts the studies, as the driver does after

    def choose_devices(ray: Any) -> Callable[[FitSpec], str]:
        from sweep.engine.measuring import devices_for

        devices = devices_for(ray, kinds, spec.resources.gpus_per_fit, known_devices(home, sweep))
        home.write_state(f"{sweep}.devices", devices.to_dict())
        choices = choose(devices)
        on_gpu = sum(choice.device == GPU for choice in choices)
        display.note(f"{on_gpu} of {len(choices)} kinds of fits go to GPUs; `sweep plan` says which, and why")
        return chooser(choices)

    def make() -> Any:
        from sweep.engine.ray_executor import RayExecutor

        return RayExecutor(
            address,
            gpus_per_fit=spec.resources.gpus_per_fit,
            gpus=gpus,
            timeout=spec.resources.fit_timeout_seconds,
            one_gpu_model=spec.mode == "benchmark",
            code=code,
            estimators=plan.estimators,
            choose=choose_devices if measured else None,
        )

    return make


def known_devices(home: Home, sweep: str) -> Devices | None:
    """What an earlier run or pilot of a sweep found out about its devices."""
    state = home.read_state(f"{sweep}.devices")
    return Devices.from_dict(state) if state else None
