"""A GPU that fails in the middle of a fit: told by kind, tried again in a fresh process. The errors are CuPy's own."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweep.engine import worker
from sweep.engine.executors import classify
from sweep.engine.ray_executor import RayExecutor
from sweep.engine.worker import LostDeviceError, MisplacedWorkerError, Order, run_fit
from sweep.fits import FitOutcome, FitRecord, FitSpec, Help, Place, Scores, Seconds, Solved, SplitData
from sweep.store.home import Home
from tests.sweep.engine.test_driver import one_fold, run
from tests.sweep.studies.playing import template

cupy = pytest.importorskip("cupy", reason="CuPy is not installed: pip install orthosweep[gpu]")
CUDADriverError = cupy.cuda.driver.CUDADriverError
CUDARuntimeError = cupy.cuda.runtime.CUDARuntimeError
OutOfMemoryError = cupy.cuda.memory.OutOfMemoryError


def driver_error(text: str) -> Exception:
    """As the driver raises it; its constructor would ask the driver, which is not here, for the text."""
    error: Exception = CUDADriverError.__new__(CUDADriverError, text)
    return error


ERRORS: list[tuple[Callable[[], Exception], str]] = [
    (lambda: OutOfMemoryError(1 << 34, 1 << 33, 0), "out of memory"),
    (lambda: CUDARuntimeError(2), "out of memory"),  # cudaErrorMemoryAllocation
    (lambda: driver_error("CUDA_ERROR_OUT_OF_MEMORY: out of memory"), "out of memory"),
    (lambda: CUDARuntimeError(46), "lost device"),  # cudaErrorDevicesUnavailable
    (lambda: CUDARuntimeError(214), "lost device"),  # cudaErrorECCUncorrectable
    (lambda: CUDARuntimeError(700), "lost device"),  # cudaErrorIllegalAddress
    (lambda: CUDARuntimeError(719), "lost device"),  # cudaErrorLaunchFailure
    (lambda: driver_error("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"), "lost device"),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS)
def test_an_error_of_cuda_is_told_by_kind(error: Callable[[], Exception], kind: str) -> None:
    assert classify(error()) == kind


@pytest.mark.parametrize("library", ["cublas.CUBLASError", "cusolver.CUSOLVERError", "cusparse.CuSparseError"])
def test_errors_of_cuda_libraries_go_by_the_names_that_cupy_gives_them(library: str) -> None:
    """The libraries cannot be loaded here; the names of their errors are in CuPy's own modules."""
    module, name = library.split(".")
    folder = Path(cupy.__file__).parents[1] / "cupy_backends" / "cuda" / "libs"
    assert any(name.encode() in file.read_bytes() for file in folder.glob(f"{module}.*"))
    raised = type(name, (RuntimeError,), {})
    assert classify(raised(f"{module.upper()}_STATUS_EXECUTION_FAILED")) == "lost device"
    assert classify(raised(f"{module.upper()}_STATUS_ALLOC_FAILED")) == "out of memory"


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Ends of this worker process that were set up; none comes about."""
    planned: list[Any] = []

    class Timer:
        def __init__(self, seconds: float, function: Any, arguments: list[int]) -> None:
            self.what = (function, arguments)

        def start(self) -> None:
            planned.append(self.what)

    monkeypatch.setattr(threading, "Timer", Timer)
    monkeypatch.setattr(worker, "_WORKER", worker._Worker(warm=True))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return planned


def attempt(monkeypatch: pytest.MonkeyPatch, error: Exception) -> Exception:
    def fit(*arguments: Any) -> FitOutcome:
        raise error

    zeros = np.zeros((4, 2)), np.zeros(4, dtype=int)
    data = SplitData(*zeros, *zeros, fold_of=np.zeros(4, dtype=int), class_sizes=np.array([4]))
    monkeypatch.setattr(worker, "fit_and_score", fit)
    monkeypatch.setattr(worker, "announced", lambda *_: contextlib.nullcontext())
    with pytest.raises(Exception) as raised:  # noqa: PT011 - which one is what is asked
        run_fit(template(), data, Order(0, time.time()), Help())
    return raised.value


@pytest.mark.parametrize(("error", "kind"), ERRORS)
def test_a_worker_whose_device_failed_ends_and_takes_no_further_fit(
    error: Callable[[], Exception], kind: str, ends: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cause = error()
    raised = attempt(monkeypatch, cause)
    assert type(raised) is {"lost device": LostDeviceError, "out of memory": MemoryError}[kind]
    assert raised.__cause__ is cause
    assert type(cause).__name__ in str(raised)
    assert classify(pickle.loads(pickle.dumps(raised))) == kind  # where no CuPy is installed as well
    assert ends == [(os._exit, [0])]
    assert type(attempt(monkeypatch, cause)) is MisplacedWorkerError


@pytest.mark.parametrize("error", [MemoryError("host"), FloatingPointError("no finite result"), ValueError("wrong")])
def test_a_worker_lives_on_after_failures_that_are_not_its_device_s(
    error: Exception, ends: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attempt(monkeypatch, error) is error
    assert ends == []


def failing_once(spec: FitSpec, data: SplitData, order: Any, help: Help) -> FitOutcome:
    """A fit whose device is lost at the first attempt of one fold."""
    import cupy

    from sweep.engine import worker

    tried = Path(os.environ["SWEEP_TEST_FOLDER"]) / spec.key

    def fit(*arguments: Any) -> FitOutcome:
        with tried.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if one_fold(spec) and len(tried.read_text().split()) == 1:
            raise cupy.cuda.runtime.CUDARuntimeError(700)
        place = Place(pid=os.getpid())
        return FitOutcome(FitRecord(spec.key, Scores(auc_all=0.5), Solved(objective=1.0), Seconds(), place, 0.0, 0.5))

    worker.fit_and_score = fit
    return worker.run_fit(spec, data, order, help)


@pytest.mark.serial
def test_a_fit_of_a_lost_device_is_done_by_a_fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    tried = tmp_path / "tried"
    tried.mkdir()
    monkeypatch.setenv("SWEEP_TEST_FOLDER", str(tried))
    executor = RayExecutor(None, gpus_per_fit=0, function=failing_once)
    tally, ledger = run(Home(tmp_path / "home"), executor, methods=["mdml-csfn"])
    assert (tally.failed, tally.left) == (0, 0)
    processes = {file.name: file.read_text().split() for file in tried.iterdir()}
    assert len(processes) == tally.done
    (lost,) = [failure for failure in ledger.failures("tiny") if failure.kind == "lost device"]
    assert "cudaErrorIllegalAddress" in lost.message
    assert not lost.final
    first, second = processes.pop(lost.key)
    assert first != second
    assert all(len(only) == 1 for only in processes.values())
