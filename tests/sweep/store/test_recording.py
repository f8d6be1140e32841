"""MLflow holds each run once, finished, whatever happened while it was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import pytest

from sweep.engine.executors import InlineExecutor
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.store.recording import Recorder
from tests.sweep.engine.test_driver import run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home whose ledger is complete and whose MLflow store is still empty."""
    home = Home(tmp_path_factory.mktemp("recording"))
    run(home, InlineExecutor())
    return home


def recorder(home: Home, notes: list[str] | None = None, uri: str = "sqlite") -> Recorder:
    return Recorder("tiny", uri, None, home, Ledger(home.ledger_url), (notes if notes is not None else []).append)


def runs(home: Home, experiment: str) -> list[Any]:
    client = mlflow.MlflowClient(home.mlflow_url)
    found = client.get_experiment_by_name(experiment)
    return list(client.search_runs([found.experiment_id])) if found else []


def test_runs_are_complete_readable_and_written_once(finished: Home) -> None:
    assert recorder(finished).sync() == 2 + 2 + 4  # methods, convex trials, non-convex trials
    assert recorder(finished).sync() == 0
    methods = {r.data.params["method"]: r for r in runs(finished, "tiny")}
    assert set(methods) == {"mdml-csfn", "pdml-sfn"}
    run_ = methods["mdml-csfn"]
    assert run_.info.status == "FINISHED"
    assert run_.info.run_name == "mdml-csfn (digits-imbalanced, split 0)"
    assert {"auc_all", "fit_seconds", "balance_score", "relative_gap", "n_eigh", "npv"} <= set(run_.data.metrics)
    assert {"sweep.data_fingerprint", "sweep.seed", "sweep.host", "sweep.version"} <= set(run_.data.tags)
    client = mlflow.MlflowClient(finished.mlflow_url)
    assert [a.path for a in client.list_artifacts(run_.info.run_id)] == ["metric.npz", "metric.png", "metric.svg"]
    trials = runs(finished, "tiny/trials")
    assert len(trials) == 6
    history = client.get_metric_history(trials[0].info.run_id, "fold_auc")
    assert [point.step for point in history] == [0, 1]


def test_a_half_written_run_is_replaced(finished: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    run(home, InlineExecutor())
    calls = 0

    def break_third(self: Any, *arguments: Any, **keywords: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError("cut off")
        original(self, *arguments, **keywords)

    original = mlflow.MlflowClient.log_batch
    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", break_third)
    with pytest.raises(OSError, match="cut off"):
        recorder(home).sync()
    recorder(home).sync()
    everything = runs(home, "tiny") + runs(home, "tiny/trials")
    assert [r.info.status for r in everything] == ["FINISHED"] * 8
    assert len({r.data.tags["sweep.run_key"] for r in everything}) == 8


def test_an_unreachable_server_is_said_once_and_recorded_later(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run(home, InlineExecutor())
    notes: list[str] = []
    dead = recorder(home, notes, "http://name:secret@127.0.0.1:9")
    assert dead.finish() is False
    assert dead.finish() is False
    assert len(notes) == 1
    assert "cannot be reached" in notes[0]
    assert "secret" not in notes[0]
    assert recorder(home).sync() == 8


def test_a_changed_choice_replaces_the_methods_run(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run(home, InlineExecutor())
    recorder(home).sync()
    run(home, InlineExecutor(), grid={"gamma": [0.001, 0.01, 0.1], "rank": [4, 8]})
    recorder(home).sync()
    assert len(runs(home, "tiny")) == 2
    assert len(runs(home, "tiny/trials")) == 9
