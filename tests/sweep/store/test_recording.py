"""MLflow holds what the ledger holds, each run once and finished, whatever happened to either of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest

from sweep.engine.executors import InlineExecutor
from sweep.store.home import Home
from sweep.store.ledger import Ledger, open_ledger
from sweep.store.recording import Recorder
from sweep.store.run_contents import run_contents
from sweep.urls import redact, redacted, secrets_in
from tests.sweep.engine.test_driver import run
from tests.sweep.store.test_ledger import record, spec

METHODS, TRIALS = 2, 6  # of the small sweep: 2 trials of the convex method, 4 of the other


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home whose ledger is complete, and that MLflow knows nothing of."""
    home = Home(tmp_path_factory.mktemp("recording"))
    run(home, InlineExecutor())[1].close()
    return home


@pytest.fixture
def home(finished: Home, tmp_path: Path) -> Home:
    shutil.copytree(finished.folder, tmp_path / "home")
    return Home(tmp_path / "home")


def recorder(home: Home, notes: list[str] | None = None, uri: str = "sqlite", **more: Any) -> Recorder:
    ledger = open_ledger("sqlite", home)
    return Recorder("tiny", uri, None, home, ledger, (notes if notes is not None else []).append, **more)


def runs(uri: str, experiment: str = "tiny") -> list[Any]:
    client = mlflow.MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    return list(client.search_runs([found.experiment_id])) if found else []


def assert_equal_to_ledger(home: Home, uri: str | None = None) -> None:
    """Every run that the ledger implies is there once, finished and with its numbers; and no other."""
    ledger = open_ledger("sqlite", home)
    wanted = {content.run_key: content for content in run_contents(ledger, home, "tiny")}
    ledger.close()
    found = runs(uri or home.mlflow_url) + runs(uri or home.mlflow_url, "tiny/trials")
    assert sorted(r.data.tags["sweep.run_key"] for r in found) == sorted(wanted)
    for each in found:
        content = wanted[each.data.tags["sweep.run_key"]]
        assert each.info.status == "FINISHED"
        assert each.data.params == content.params
        latest = {name: value for name, value, _ in sorted(content.metrics, key=lambda metric: metric[2])}
        assert each.data.metrics == pytest.approx(latest)


def test_runs_are_complete_readable_and_written_once(home: Home) -> None:
    def pictures(method: str, arrays: Mapping[str, np.ndarray], folder: Path) -> list[Path]:
        assert "components" in arrays
        (folder / f"{method}.svg").write_text("<svg/>")
        return [folder / f"{method}.svg"]

    assert recorder(home, pictures=pictures).sync() == METHODS + TRIALS
    assert recorder(home).sync() == 0
    methods = {r.data.params["method"]: r for r in runs(home.mlflow_url)}
    assert set(methods) == {"mdml-csfn", "pdml-sfn"}
    run_ = methods["mdml-csfn"]
    assert run_.info.run_name == "mdml-csfn (digits-imbalanced, split 0)"
    assert {"auc_all", "cv_score", "fit_seconds", "balance_score", "relative_gap", "npv"} <= set(run_.data.metrics)
    assert {"sweep.data_fingerprint", "sweep.seed", "sweep.host", "sweep.version"} <= set(run_.data.tags)
    client = mlflow.MlflowClient(home.mlflow_url)
    assert [a.path for a in client.list_artifacts(run_.info.run_id)] == ["mdml-csfn.svg", "metric.npz"]
    trials = runs(home.mlflow_url, "tiny/trials")
    assert len(trials) == TRIALS
    assert [point.step for point in client.get_metric_history(trials[0].info.run_id, "fold_score")] == [0, 1]
    assert_equal_to_ledger(home)


def test_a_sweep_that_is_recorded_already_costs_no_import_of_mlflow(home: Home) -> None:
    recorder(home).sync()
    code = (
        "import sys; from sweep.store.home import Home; from sweep.store.ledger import open_ledger\n"
        "from sweep.store.recording import Recorder\n"
        "home = Home(sys.argv[1]); made = Recorder('tiny', 'sqlite', None, home, open_ledger('sqlite', home), print)\n"
        "assert made.finish(); assert 'mlflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(home.folder)], check=True)


def test_a_sweep_that_goes_back_to_what_was_recorded_is_looked_at_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In between a shorter one was recorded half-way: its method's run is there, the trial it lacks not yet removed."""
    recorder(home).sync()
    ledger = open_ledger("sqlite", home)
    fits = [fit for fit, _ in ledger.records("tiny")]
    dropped = next(fit for fit in fits if fit.fold is not None)

    def ask_for(keys: list[str]) -> None:
        ledger.open_sweep("tiny", ledger.sweeps()["tiny"], ledger.about("tiny"))
        ledger.adopt("tiny", keys)

    ask_for([fit.key for fit in fits if fit.trial != dropped.trial or fit.method != dropped.method or fit.fold is None])
    delete_run: Any = mlflow.MlflowClient.delete_run
    deleted: list[str] = []

    def break_second(self: Any, run_id: str) -> None:
        deleted.append(run_id)
        if len(deleted) == 2:
            raise OSError("cut off")
        delete_run(self, run_id)

    with monkeypatch.context() as patch:
        patch.setattr(mlflow.MlflowClient, "delete_run", break_second)
        with pytest.raises(OSError, match="cut off"):
            recorder(home).sync()
    ask_for([fit.key for fit in fits])
    ledger.close()
    recorder(home).sync()
    assert_equal_to_ledger(home)


@pytest.mark.parametrize("call", ["create_run", "log_batch", "log_artifact", "set_terminated"])
def test_a_half_written_run_is_replaced(home: Home, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    calls = 0

    def break_second(self: Any, *arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError("cut off")
        return original(self, *arguments, **keywords)

    original = getattr(mlflow.MlflowClient, call)
    monkeypatch.setattr(mlflow.MlflowClient, call, break_second)
    writer = recorder(home)
    with pytest.raises(OSError, match="cut off"):
        writer.sync()
    assert writer.finish()  # the same recorder
    assert_equal_to_ledger(home)
    assert recorder(home).sync() == 0


def test_an_unreachable_server_is_said_once_and_recorded_later(home: Home) -> None:
    notes: list[str] = []
    dead = recorder(home, notes, "http://name:se%2Fcret@127.0.0.1:9?token=hidden")
    assert dead.finish() is False
    assert dead.finish() is False
    assert len(notes) == 1
    assert "MLflow at http://127.0.0.1:9 cannot be reached" in notes[0]
    assert not any(secret in notes[0] for secret in ("se%2Fcret", "se/cret", "hidden", "name"))
    assert recorder(home).sync() == METHODS + TRIALS


def _delete(home: Home) -> None:
    home.mlflow_path.unlink()
    shutil.rmtree(home.mlflow_artifacts)


def _overwrite(home: Home) -> None:
    home.mlflow_path.write_bytes(b"no database" * 1000)


def _scribble(home: Home) -> None:
    with home.mlflow_path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * 40_000)


def _empty(home: Home) -> None:
    home.mlflow_path.write_bytes(b"")


def _delete_a_run(home: Home) -> None:
    mlflow.MlflowClient(home.mlflow_url).delete_run(runs(home.mlflow_url)[0].info.run_id)


def _delete_the_experiment(home: Home) -> None:
    client = mlflow.MlflowClient(home.mlflow_url)
    client.delete_experiment(client.get_experiment_by_name("tiny").experiment_id)


def _leave_a_run_unfinished(home: Home) -> None:
    mlflow.MlflowClient(home.mlflow_url).update_run(runs(home.mlflow_url, "tiny/trials")[0].info.run_id, "RUNNING")


@pytest.mark.parametrize(
    "harm",
    [_delete, _overwrite, _scribble, _empty, _delete_a_run, _delete_the_experiment, _leave_a_run_unfinished],
)
def test_a_store_that_was_harmed_is_written_anew(home: Home, harm: Callable[[Home], None]) -> None:
    recorder(home).sync()
    harm(home)
    notes: list[str] = []
    assert recorder(home, notes).finish()
    assert_equal_to_ledger(home)
    assert all("is damaged" in note for note in notes)
    assert bool(notes) == (harm in (_overwrite, _scribble))
    assert recorder(home).sync() == 0


def test_a_home_that_was_moved_has_its_runs_once_and_their_files(home: Home, tmp_path: Path) -> None:
    recorder(home).sync()
    moved = Home(tmp_path / "moved")
    home.folder.rename(moved.folder)
    assert recorder(moved).finish()
    assert_equal_to_ledger(moved)
    client = mlflow.MlflowClient(moved.mlflow_url)
    for each in runs(moved.mlflow_url):
        assert [a.path for a in client.list_artifacts(each.info.run_id)] == ["metric.npz"]
    assert recorder(moved).sync() == 0


def test_a_lost_ledger_doubles_nothing(home: Home) -> None:
    recorder(home).sync()
    home.ledger_path.unlink()
    run(home, InlineExecutor())[1].close()
    assert recorder(home).finish()
    assert_equal_to_ledger(home)


@pytest.mark.parametrize("changes", [{"grid": {"gamma": [0.1], "rank": [4]}}, {"folds": 3}, {"methods": ["mdml-csfn"]}])
def test_what_a_changed_sweep_file_does_not_say_any_more_is_removed(home: Home, changes: dict[str, Any]) -> None:
    recorder(home).sync()
    run(home, InlineExecutor(), **changes)[1].close()
    assert recorder(home).finish()
    assert_equal_to_ledger(home)
    kept = {r.info.run_id for r in runs(home.mlflow_url)}
    assert {p.name for p in home.mlflow_artifacts.iterdir()} <= kept


def test_while_a_sweep_runs_nothing_is_removed_and_a_screening_gives_way_to_the_whole(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ledger = open_ledger("sqlite", home)
    ledger.open_sweep("tiny", {"search": "grid"}, {"version": "1"})
    folds = [spec(fold, folds=2, method="pdml-sfn", restarts=restarts) for restarts in (1, 5) for fold in (0, 1)]
    writer = Recorder("tiny", "sqlite", None, home, ledger, print)
    for i, fit in enumerate(folds):
        ledger.adopt("tiny", [fit.key])
        ledger.commit(fit, record(fit))
        assert writer.sync(complete=False) == (1 if i in (1, 3) else 0)
    assert {r.data.params["restarts"] for r in runs(home.mlflow_url, "tiny/trials")} == {"5", "1"}
    assert writer.finish()
    assert [r.data.params["restarts"] for r in runs(home.mlflow_url, "tiny/trials")] == ["5"]
    assert_equal_to_ledger(home)
    ledger.close()


def test_two_homes_share_a_store_without_touching_each_others_runs(home: Home, tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    shutil.copytree(home.folder, other.folder)
    (other.folder / "home.id").write_text("f" * 32)
    shared = f"sqlite:///{tmp_path / 'shared.sqlite'}"
    for each in (home, other, home, other):
        made = recorder(each, uri=shared)
        made._artifacts = (tmp_path / "shared").as_uri()
        assert made.finish()
    assert len(runs(shared)) == 2 * METHODS
    assert len(runs(shared, "tiny/trials")) == 2 * TRIALS
    run(other, InlineExecutor(), methods=["mdml-csfn"])[1].close()
    assert recorder(other, uri=shared).finish()
    owners = [r.data.tags["sweep.ledger"] for r in runs(shared)]
    assert (owners.count(home.id), owners.count(other.id)) == (METHODS, 1)


def test_runs_of_an_older_version_are_known_and_replaced(home: Home) -> None:
    client = mlflow.MlflowClient(home.mlflow_url)
    writer = recorder(home)
    writer.sync()
    for each in runs(home.mlflow_url) + runs(home.mlflow_url, "tiny/trials"):
        for tag in ("sweep.ledger", "sweep.content"):
            client.delete_tag(each.info.run_id, tag)
    ledger = Ledger(home.ledger_url)
    ledger.remember_run(writer._store_id, "sweep tiny", "", "as version 0.1 left it")
    ledger.close()
    assert recorder(home).finish()
    assert_equal_to_ledger(home)


def test_a_picture_that_cannot_be_drawn_costs_the_picture_only(home: Home) -> None:
    def broken(*_: Any) -> list[Path]:
        raise RuntimeError("no font")

    notes: list[str] = []
    assert recorder(home, notes, pictures=broken).finish()
    assert notes == ["no pictures for MLflow's runs: RuntimeError: no font"]
    assert_equal_to_ledger(home)


def test_the_thread_records_while_fits_come_in(home: Home) -> None:
    writer = recorder(home)
    writer.poke()
    writer.poke()
    assert writer.finish()
    assert_equal_to_ledger(home)


def test_a_users_own_method_is_recorded_like_ours(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ledger = open_ledger("sqlite", home)
    ledger.open_sweep("tiny", {}, {})
    own = spec(None, method="my-nca", estimator="mypkg.nca:NCA", version="abc", fixed=(("max_iter", 5),))
    ledger.adopt("tiny", [own.key])
    scores = replace(record(own).scores, own=0.25)
    ledger.commit(own, record(own, scores=scores))
    assert Recorder("tiny", "sqlite", None, home, ledger, print).finish()
    (found,) = runs(home.mlflow_url)
    assert found.data.params["estimator"] == "mypkg.nca:NCA"
    assert found.data.params["max_iter"] == "5"
    ledger.close()


@pytest.mark.parametrize("password", ["plain", "with/slash", "with@at", "per%25cent", "qu?estion", "ha#sh"])
def test_no_secret_of_an_address_is_shown(password: str) -> None:
    from urllib.parse import quote

    uri = f"https://me:{quote(password, safe='')}@host:5000/path?token=t0ken"
    assert redacted(uri) == "https://host:5000/path"
    said = redact(f"failed: {uri} {password} t0ken", secrets_in(uri))
    assert password not in said
    assert "t0ken" not in said
