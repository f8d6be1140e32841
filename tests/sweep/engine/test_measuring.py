"""Kernels are timed where fits run; what is known of the same work is not timed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from solvers.memory import ProblemSize
from sweep.engine import measuring, worker
from sweep.engine.executors import classify
from sweep.engine.measuring import DeviceTimes, devices_for, measure, time_device
from sweep.fits import SplitData
from sweep.fits.memory import TooLargeError
from sweep.studies.devices import CPU, GPU, Kind, Work, choose
from tests.sweep.studies.playing import template

WORKS = [
    Work(Kind("d", "mdml-csfn", None), ProblemSize(200, 20, 100), 10**6, 5),
    Work(Kind("d", "mdml-cvnd", None), ProblemSize(200, 20, 100), 10**6, 5),
    Work(Kind("d", "pdml-vnd", 4), ProblemSize(200, 20, 100, 4, 2), 10**6, 5),
]


def test_a_core_is_timed_and_equal_kernels_once() -> None:
    found = time_device(WORKS, "cpu")
    assert found.name == "CPU"
    assert found.memory > 2**28
    assert found.parts[0] is found.parts[1]
    assert all(parts is not None and min(parts.values()) >= 0 and parts["eigh"] > 0 for parts in found.parts)


def test_a_gpu_that_is_not_there_is_told_not_raised() -> None:
    assert time_device(WORKS, "cuda:0") == DeviceTimes("no GPU that CuPy can use", 0, [None] * 3)


class LocalRay:
    """Ray's calls that `measure` makes, answered here."""

    def __init__(self, gpus: float) -> None:
        self.present = {"CPU": 8.0, "GPU": gpus}

    def cluster_resources(self) -> dict[str, float]:
        return self.present

    def remote(self, **_: Any) -> Any:
        class Task:
            def __init__(self, function: Any) -> None:
                self.function = function

            def options(self, **_: Any) -> Any:
                return self

            def remote(self, *arguments: Any) -> Any:
                return self.function(*arguments)

        return Task

    def get(self, answers: list[Any]) -> list[Any]:
        return answers


def pretended(works: Sequence[Work], device: str) -> DeviceTimes:
    seconds = 1.0 if device == "cpu" else 0.01
    return DeviceTimes("L4", 24 * 10**9, [{"eigh": seconds}] * len(works))


def test_both_devices_are_measured_and_chosen_by(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = measure(LocalRay(2), WORKS, 1, pretended)
    assert (devices.cpus, devices.gpus, devices.gpu, devices.room) == (8, 2, "L4", 24 * 10**9)
    assert {choice.device for choice in choose(devices)} == {GPU}
    alone = measure(LocalRay(0), WORKS, 1, pretended)
    assert {choice.device for choice in choose(alone)} == {CPU}
    assert alone.room == 0
    times = []
    monkeypatch.setattr(measuring, "measure", lambda *arguments: times.append(arguments) or alone)
    assert devices_for(LocalRay(2), WORKS, 1, devices) is devices
    assert times == []
    assert devices_for(LocalRay(3), WORKS, 1, devices) is alone
    assert devices_for(LocalRay(2), WORKS[:1], 1, devices) is alone
    assert devices_for(LocalRay(2), WORKS, 1, None) is alone


def test_a_fit_that_cannot_fit_is_refused_before_it_starts() -> None:
    zeros = np.zeros((6, 2)), np.zeros(6, dtype=int)
    data = SplitData(*zeros, *zeros, fold_of=np.arange(6) % 3, class_sizes=np.array([12]))
    fit = replace(template(), fold=0, settings=(("n_pairs", 10**9),))
    with pytest.raises(
        TooLargeError, match=r"may need \d+\.\d GB, this machine has .*; lower settings.n_pairs"
    ) as error:
        worker._refuse_too_large(fit, data, 0)
    assert classify(error.value) == "too large"
    worker._refuse_too_large(replace(fit, settings=(("n_pairs", 10),)), data, 0)
