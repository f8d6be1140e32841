"""A user's own folder: an estimator and a score beside the sweep file, through everything that ours go through."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sweep.cli import main
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from tests.sweep.engine.test_kill import committed

NCA = '''\
"""A metric learner that is not ours."""

from sklearn.neighbors import NeighborhoodComponentsAnalysis

from mypkg.settings import STEPS


class NCA(NeighborhoodComponentsAnalysis):
    """Few steps, so that tests are quick."""

    def __init__(self, n_components=None, *, max_iter=STEPS, random_state=None):
        super().__init__(n_components, max_iter=max_iter, random_state=random_state)
'''
SCORES = '''\
"""A score that is not ours: the mean rank of the nearest example of the same class; smaller is better."""

import numpy as np


def first_hit(Z, y, *, frequent):
    assert len(frequent)
    squared = ((Z[:, None] - Z[None]) ** 2).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    same = y[np.argsort(squared, axis=1)] == y[:, None]
    return float((same[:, :-1].argmax(axis=1) + 1).mean())


first_hit.larger_is_better = False
'''
MINE: dict[str, Any] = {
    "name": "mine",
    "datasets": [{"name": "own.csv", "frequent_above": 30}],
    "methods": ["mdml-csfn", {"name": "my-nca", "estimator": "mypkg.nca:NCA", "tune": {"n_components": [2, 3]}}],
    "score": "mypkg.scores:first_hit",
    "code": ["mypkg"],
    "grid": {"gamma": [0.01, 0.1]},
    "folds": 2,
    "settings": {"n_pairs": 200, "tol": 0.01},
    "tracking": {"mlflow": "none"},
}
TASKS = 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """my.yaml, own.csv and mypkg/, as a user has them."""
    made = tmp_path / "project"
    (made / "mypkg").mkdir(parents=True)
    for name, text in {"__init__": "", "nca": NCA, "scores": SCORES, "settings": "STEPS = 15\n"}.items():
        (made / "mypkg" / f"{name}.py").write_text(text)
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [50, 40, 20])
    X = rng.standard_normal((110, 5)) * [1, 1, 4, 4, 4]
    X[:, 0] += 2 * y
    rows = "\n".join(",".join(f"{v:.4f}" for v in x) + f",class{label}" for x, label in zip(X, y, strict=True))
    (made / "own.csv").write_text("a,b,c,d,e,label\n" + rows + "\n")
    write(made)
    return made


def write(folder: Path, **changes: Any) -> None:
    (folder / "my.yaml").write_text(yaml.safe_dump(MINE | changes))


@dataclass(frozen=True)
class Answer:
    """What a command said, and whether it imported the user's package."""

    code: int
    out: str
    err: str
    imported: bool


def command(folder: Path, *arguments: str) -> Answer:
    """The command as in a process of its own: what it imported of the user's is forgotten afterwards."""
    out, err, before = io.StringIO(), io.StringIO(), list(sys.path)
    importlib.invalidate_caches()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([*arguments, "--home", str(folder / "home")])
        imported = "mypkg" in sys.modules
    finally:
        sys.path[:] = before
        for name in [name for name in sys.modules if name.partition(".")[0] == "mypkg"]:
            del sys.modules[name]
    return Answer(code, out.getvalue(), err.getvalue(), imported)


@pytest.fixture(autouse=True)
def _no_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two edits within a second leave the same time, by which Python would take the older bytecode."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def run(folder: Path) -> Answer:
    answer = command(folder, "run", str(folder / "my.yaml"), "--address", "inline")
    assert answer.code == 0, answer.err
    return answer


def rows(folder: Path) -> dict[str, Any]:
    answer = command(folder, "results", "mine", "--format", "json")
    assert answer.code == 0, answer.err
    assert not answer.imported
    return {row["method"]: row for row in json.loads(answer.out)}


def test_a_crash_results_and_report_of_a_users_own_method_and_score(folder: Path) -> None:
    # A driver that is killed in the middle loses nothing.
    words = [sys.executable, "-m", "sweep", "run", str(folder / "my.yaml"), "--address", "inline", "--home"]
    killed = subprocess.Popen([*words, str(folder / "home")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not committed(folder / "home") and killed.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    before = committed(folder / "home")
    assert before
    second = run(folder)
    assert before.items() <= committed(folder / "home").items()
    assert len(committed(folder / "home")) == TASKS
    assert f"{TASKS - len(before)} fits computed, {len(before)} were there already" in second.err
    # Chosen by the own score, whose smallest value is the best.
    found = rows(folder)
    assert set(found) == {"mdml-csfn", "my-nca"}
    ledger = Ledger(Home(folder / "home").ledger_url)
    for method, row in found.items():
        assert (row["score"], row["larger_is_better"]) == ("mypkg.scores:first_hit", False)
        assert row["test_score"] >= 1
        means: dict[Any, list[float]] = {}
        for spec, record in ledger.records("mine"):
            if spec.method == method and spec.fold is not None:
                assert record.scores.own is not None
                means.setdefault(spec.trial, []).append(record.scores.own)
        chosen = min(sum(values) / 2 for values in means.values())
        assert row["cv_score"] == pytest.approx(chosen)
    assert found["my-nca"]["params"] in ({"n_components": 2}, {"n_components": 3})
    assert (found["my-nca"]["family"], found["my-nca"]["convex"]) == ("own", None)
    report = command(folder, "report", "mine")
    assert report.code == 0, report.err
    page = Path(report.out.strip()).read_text()
    assert "my-nca" in page
    assert "first_hit" in page


def test_edited_code_is_computed_again_and_said_unedited_never(folder: Path) -> None:
    run(folder)
    assert "0 fits computed" in run(folder).err
    # What the estimator's module imports from its own package counts, too.
    (folder / "mypkg" / "settings.py").write_text("STEPS = 16\n")
    edited = run(folder)
    assert "my-nca: the code of mypkg.nca:NCA has changed since the last run" in edited.err
    assert "5 fits computed, 5 were there already" in edited.err
    assert "0 fits computed" in run(folder).err
    (folder / "mypkg" / "scores.py").write_text(SCORES.replace("+ 1", "+ 2"))
    assert "10 fits computed" in run(folder).err
    # A file that nothing of this imports changes nothing.
    (folder / "mypkg" / "unrelated.py").write_text("X = 1\n")
    assert "0 fits computed" in run(folder).err


def test_records_show_where_the_package_is_not_installed(folder: Path) -> None:
    run(folder)
    before = rows(folder)
    (folder / "mypkg").rename(folder / "gone")
    (folder / "my.yaml").rename(folder / "gone.yaml")
    assert rows(folder) == before
    for arguments in (["status"], ["compare", "mine"], ["results", "mine", "--fits", "--format", "csv"], ["gc"]):
        answer = command(folder, *arguments)
        assert answer.code == 0, (arguments, answer.err)
        assert not answer.imported
    report = command(folder, "report", "mine")
    assert report.code == 0, report.err
    # Only what would run it says that it is missing.
    (folder / "gone.yaml").rename(folder / "my.yaml")
    for verb in ("run", "plan"):
        answer = command(folder, verb, str(folder / "my.yaml"))
        assert answer.code == 2
        assert answer.err.startswith("sweep: code[0]: 'mypkg' is not there")
        assert answer.err.count("\n") == 1


def test_an_exported_metric_of_a_users_own_takes_raw_rows(folder: Path) -> None:
    run(folder)
    answer = command(folder, "export", "mine", "--method", "my-nca", "-o", str(folder / "exported"))
    assert answer.code == 0, answer.err
    import mlflow
    import pandas as pd

    frame = pd.read_csv(folder / "own.csv").drop(columns="label")
    model = mlflow.pyfunc.load_model(answer.out.strip())
    embedded = np.asarray(model.predict(frame))
    assert embedded.shape == (110, rows(folder)["my-nca"]["params"]["n_components"])


def test_code_that_cannot_travel_or_be_imported_is_one_line(folder: Path) -> None:
    (folder.parent / "outside").mkdir()
    nca = MINE["methods"][1]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"code": ["../outside"]}, "lies outside the sweep file's folder"),
        ({"code": ["nopkg"]}, "code[0]: 'nopkg' is not there"),
        ({"code": []}, "list its folder or file under code:"),
        ({"methods": [{**nca, "estimator": "mypkg.nca:NC"}]}, "has no 'NC'. Did you mean 'NCA'?"),
        ({"methods": [{**nca, "tune": {"n_component": [1]}}]}, "Did you mean 'n_components'?"),
        ({"score": "mypkg.scores:first_hits"}, "Did you mean 'first_hit'?"),
    ]
    for changes, expected in cases:
        write(folder, **changes)
        answer = command(folder, "plan", str(folder / "my.yaml"))
        assert answer.code == 2, (changes, answer.err)
        assert expected in answer.err
        assert answer.err.count("\n") == 1, answer.err
    (folder / "mypkg" / "nca.py").write_text("import no_such_library\n")
    write(folder)
    answer = command(folder, "plan", str(folder / "my.yaml"))
    assert answer.code == 2
    assert "cannot import 'mypkg.nca': ModuleNotFoundError: No module named 'no_such_library'" in answer.err
    assert answer.err.count("\n") == 1


def test_a_score_that_is_no_number_fails_its_fits_alone(folder: Path) -> None:
    (folder / "mypkg" / "scores.py").write_text("def first_hit(Z, y):\n    return float('nan')\n")
    answer = command(folder, "run", str(folder / "my.yaml"), "--address", "inline")
    assert answer.code == 1
    assert "numerical" in answer.err
    assert "score mypkg.scores:first_hit is nan" in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.serial
def test_the_code_travels_to_ray_workers_that_do_not_have_it(folder: Path) -> None:
    """Workers start in a folder of their own; what they import was sent to them."""
    words = [sys.executable, "-m", "sweep", "run", str(folder / "my.yaml"), "--home", str(folder / "home")]
    subprocess.run(words, capture_output=True, check=True, timeout=240, cwd=folder.parent)
    on_ray = {spec.key: record.scores for spec, record in Ledger(Home(folder / "home").ledger_url).records("mine")}
    (folder / "home").rename(folder / "ray-home")
    run(folder)
    here = {spec.key: record.scores for spec, record in Ledger(Home(folder / "home").ledger_url).records("mine")}
    assert on_ray == here


@pytest.fixture
def job_server(tmp_path: Path) -> Iterator[str]:
    """A Ray with a job server, started in a folder without the user's package."""
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = os.environ | {"RAY_AUTH_MODE": "disabled", "SWEEP_HOME": str(tmp_path / "head-home")}
    environment.pop("PYTHONPATH", None)
    tools = Path(sys.executable).parent  # as on a head, whose `python` has the project
    environment["PATH"] = f"{tools}{os.pathsep}{environment['PATH']}"
    ray = tools / "ray"
    options = ("--head", "--block", "--num-cpus=2", "--dashboard-host=127.0.0.1", "--disable-usage-stats")
    head = subprocess.Popen(
        [ray, "start", *options, f"--port={ports[0]}", f"--dashboard-port={ports[1]}"],
        cwd=elsewhere, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{ports[1]}"
    deadline = time.monotonic() + 120
    while True:
        assert head.poll() is None
        assert time.monotonic() < deadline
        try:
            from ray.job_submission import JobSubmissionClient

            JobSubmissionClient(url).list_jobs()
            break
        except Exception:  # whatever a server that is not up yet answers with
            time.sleep(0.5)
    yield url
    head.terminate()
    head.wait(60)


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timeout(400)
def test_a_submitted_sweep_runs_where_the_package_is_not(
    folder: Path, job_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    answer = command(folder, "submit", str(folder / "my.yaml"), "--address", job_server)
    assert answer.code == 0, answer.err
    fetched = rows(folder)
    (folder / "home").rename(folder / "fetched-home")
    run(folder)
    here = rows(folder)
    assert {m: (r["params"], r["test_score"], r["key"]) for m, r in fetched.items()} == {
        m: (r["params"], r["test_score"], r["key"]) for m, r in here.items()
    }
