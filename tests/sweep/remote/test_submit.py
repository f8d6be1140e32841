"""What travels to a cluster, under which name, and what comes back."""

from __future__ import annotations

import base64
import io
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sweep.cli import main
from sweep.errors import UserError
from sweep.remote.fetch import _unpack, merge, record_in_mlflow
from sweep.remote.jobs import exit_code, follow, job_server
from sweep.remote.submit import entrypoint, refuse_credentials, stage, submission_id, submit
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.studies.spec import load_spec


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command sets the mode for its own process; here it would stay for the tests that follow."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")


@pytest.fixture
def spec(sweep_file: Any) -> Any:
    return load_spec(str(sweep_file(methods=["mdml-csfn"])))


# -- the id -------------------------------------------------------------------------------------------


def test_the_same_sweep_has_the_same_id_wherever_its_files_are(sweep_file: Any, tmp_path: Path) -> None:
    ids = []
    for folder in ("here", "there"):
        data = tmp_path / folder / "x.npz"
        data.parent.mkdir()
        data.write_bytes(b"the same bytes")
        ids.append(submission_id(load_spec(str(sweep_file(datasets=[str(data)])))))
    assert ids[0] == ids[1]
    assert ids[0].startswith("sweep-tiny-")


def test_another_content_is_another_id(sweep_file: Any, tmp_path: Path) -> None:
    data = tmp_path / "x.npz"
    data.write_bytes(b"one")
    ids = {submission_id(load_spec(str(sweep_file(datasets=[str(data)]))))}
    data.write_bytes(b"two")
    ids.add(submission_id(load_spec(str(sweep_file(datasets=[str(data)])))))
    ids |= {submission_id(load_spec(str(sweep_file(seed=seed)))) for seed in (0, 1)}
    assert len(ids) == 4


# -- what travels -------------------------------------------------------------------------------------


def test_the_uploaded_folder_runs_by_itself(sweep_file: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", X=rng.standard_normal((60, 5)), y=np.repeat([0, 1, 2], 20))
    (tmp_path / "private.txt").write_text("not for the cluster")
    spec = load_spec(str(sweep_file(datasets=["own.npz"], methods=["mdml-csfn"], grid={"gamma": [0.1]})))
    folder = tmp_path / "upload"
    folder.mkdir()
    stage(spec, folder)
    names = {path.relative_to(folder).parts[0] for path in folder.rglob("*")}
    assert names <= {"sweep", "solvers", "dashboards", "data", "sweep.yaml"}
    assert not list(folder.rglob("__pycache__"))
    home = tmp_path / "home"
    answer = subprocess.run(
        [sys.executable, "-m", "sweep", "run", "sweep.yaml", "--address", "inline", "--home", str(home)],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    assert len(Ledger(Home(home).ledger_url).keys()) == 1


def test_a_missing_relative_file_is_an_error_and_a_full_path_may_be_the_clusters(
    sweep_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    spec = load_spec(str(sweep_file()))
    missing = spec.datasets[0].model_copy(update={"name": "gone.npz"})
    with pytest.raises(UserError, match="full path there"):
        stage(spec.model_copy(update={"datasets": [missing]}), tmp_path / "a")
    (tmp_path / "b").mkdir()
    elsewhere = spec.datasets[0].model_copy(update={"name": "/shared/x.npz"})
    stage(spec.model_copy(update={"datasets": [elsewhere]}), tmp_path / "b")
    assert "/shared/x.npz" in (tmp_path / "b" / "sweep.yaml").read_text()


def test_too_much_data_is_refused_before_the_upload(
    sweep_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.remote.submit._LARGEST_UPLOAD", 1000)
    with pytest.raises(UserError, match="shared storage"):
        stage(load_spec(str(sweep_file())), tmp_path / "upload")


@pytest.mark.parametrize("key", ["mlflow", "ledger"])
def test_a_password_does_not_travel(sweep_file: Any, key: str) -> None:
    spec = load_spec(str(sweep_file(tracking={key: "postgresql+psycopg://me:hunter2@db/sweeps"})))
    with pytest.raises(UserError) as caught:
        refuse_credentials(spec)
    assert f"tracking.{key}" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    for url in ("postgresql+psycopg://db/sweeps", "postgresql+psycopg://me:$PGPASSWORD@db/sweeps"):
        refuse_credentials(load_spec(str(sweep_file(tracking={key: url}))))


def test_the_home_on_the_head_is_not_the_working_directory() -> None:
    assert "${SWEEP_HOME:-$HOME/sweep-home}" in entrypoint(None)
    assert "'/a b'" in entrypoint("/a b")


# -- the job ------------------------------------------------------------------------------------------


class Server:
    """A job server's client, as far as `submit` uses it."""

    def __init__(self, *jobs: Any) -> None:
        self.jobs = list(jobs)

    def list_jobs(self) -> list[Any]:
        return self.jobs

    def submit_job(self, **job: Any) -> str:
        if job["submission_id"] in {j.submission_id for j in self.jobs}:
            raise RuntimeError(f"Job with submission_id {job['submission_id']} already exists.")
        self.jobs.append(
            SimpleNamespace(
                submission_id=job["submission_id"], metadata=job["metadata"], status="RUNNING", start_time=1
            )
        )
        return str(job["submission_id"])


def test_a_second_submit_attaches_and_one_after_the_end_goes_on(spec: Any) -> None:
    server, said = Server(), []
    first = submit(server, spec, None, said.append)
    assert submit(server, spec, None, said.append) == first
    assert "attaching" in said[-1]
    for status in ("STOPPED", "FAILED", "SUCCEEDED"):
        server.jobs[-1].status = status
        server.jobs[-1].start_time = len(server.jobs)
        again = submit(server, spec, None, said.append)
        assert again == f"{first}-{len(server.jobs)}"
    assert submit(server, spec.model_copy(update={"name": "other"}), None, said.append) != first


def test_of_two_submits_at_the_same_moment_one_attaches(spec: Any) -> None:
    hidden = SimpleNamespace(submission_id=submission_id(spec), metadata={}, status="PENDING", start_time=None)
    said: list[str] = []
    assert submit(Server(hidden), spec, None, said.append) == submission_id(spec)
    assert "attaching" in said[-1]


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        ("SUCCEEDED", 0, 0),
        ("FAILED", 1, 1),
        ("FAILED", 2, 2),
        ("FAILED", 3, 3),
        ("FAILED", 70, 70),
        ("FAILED", 130, 130),
        ("FAILED", -9, 3),
        ("FAILED", None, 3),
        ("STOPPED", None, 130),
    ],
)
def test_the_jobs_exit_code_is_ours(status: str, code: int | None, expected: int) -> None:
    client = SimpleNamespace(get_job_info=lambda job: SimpleNamespace(status=status, driver_exit_code=code))
    assert exit_code(client, "x") == expected


def test_a_broken_connection_repeats_nothing_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.remote.jobs.time.sleep", lambda seconds: None)
    attempts = iter([(["one ", "two "], True), (["one two three ", "four"], False)])

    async def tail(job: str) -> Any:
        texts, breaks = next(attempts)
        for text in texts:
            yield text
        if breaks:
            raise ConnectionError("the tunnel fell")

    statuses = iter(["RUNNING", "SUCCEEDED"])
    client = SimpleNamespace(tail_job_logs=tail, get_job_status=lambda job: next(statuses))
    shown: list[str] = []
    follow(client, "x", shown.append)
    assert "".join(shown) == "one two three four"


@pytest.mark.parametrize(
    ("address", "cluster", "expected"),
    [
        (None, None, "either --cluster FILE or --address URL"),
        ("http://x", "y", "either --cluster FILE or --address URL"),
        ("10.0.0.1:6379", None, "expected the URL of Ray's job server"),
        ("http://127.0.0.1:9", None, "no job server of Ray answers"),
        ("http://", None, "expected a host and a port"),
        ("http://127.0.0.1:99999", None, "expected a host and a port"),
        (None, "clusters/gone.yaml", "no such file"),
    ],
)
def test_a_wrong_address_is_one_line(address: str | None, cluster: str | None, expected: str) -> None:
    with pytest.raises(UserError, match=expected) as caught, job_server(address, cluster):
        pass
    assert "\n" not in str(caught.value)


def test_the_plan_is_shown_before_anything_is_sent(sweep_file: Any, tmp_path: Path, capsys: Any) -> None:
    file = sweep_file(methods=["mdml-csfn"])
    assert main(["submit", str(file), "--address", "http://127.0.0.1:9", "--home", str(tmp_path / "home")]) == 2
    output = capsys.readouterr()
    assert "mdml-csfn" in output.out
    assert "no job server of Ray answers" in output.err
    assert main(["submit", str(sweep_file(methods=["mdml-typo"])), "--address", "http://127.0.0.1:9"]) == 2
    assert "unknown method" in capsys.readouterr().err


# -- what comes back ----------------------------------------------------------------------------------


def packed(home: Path) -> str:
    answer = subprocess.run(
        [sys.executable, str(Path(__file__).parents[3] / "sweep" / "remote" / "home_archive.py"), str(home)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return answer.stdout + answer.stderr


def test_fetched_records_are_the_heads_and_what_is_here_stays(sweep_file: Any, tmp_path: Path) -> None:
    head, here = tmp_path / "head", tmp_path / "here"
    few = {"methods": ["mdml-csfn"], "grid": {"gamma": [0.1]}}
    assert main(["run", str(sweep_file(name="remote", **few)), "--address", "inline", "--home", str(head)]) == 0
    assert main(["run", str(sweep_file(name="mine", seed=1, **few)), "--address", "inline", "--home", str(here)]) == 0
    (head / "driver.lock").write_text("not for others")
    for _ in range(2):  # again: nothing doubles
        arrived = tmp_path / "arrived"
        arrived.mkdir(exist_ok=True)
        _unpack("some words of Ray\n" + packed(head), arrived)
        assert not (arrived / "driver.lock").exists()
        assert merge(arrived, Home(here)) == ["remote"]
        record_in_mlflow(Home(here), ["remote"])
    ledger, remote = Ledger(Home(here).ledger_url), Ledger(Home(head).ledger_url)
    assert set(ledger.sweeps()) == {"mine", "remote"}
    found = {spec.key: record for spec, record in ledger.records("remote")}
    assert found == {spec.key: record for spec, record in remote.records("remote")}
    assert len(list(ledger.records("mine"))) == 1
    for spec, record in ledger.records("remote"):
        assert not record.artifact or Home(here).read_artifact(spec.key, record.artifact) is not None
    import mlflow

    client = mlflow.MlflowClient(Home(here).mlflow_url)
    experiment = client.get_experiment_by_name("remote")
    assert len(client.search_runs([experiment.experiment_id])) == 1


def test_records_in_a_database_stay_there_and_are_found_from_here(tmp_path: Path) -> None:
    head, here, arrived = Home(tmp_path / "head"), Home(tmp_path / "here"), tmp_path / "arrived"
    head.create()
    here.create()
    arrived.mkdir()
    head.remember_ledger("postgresql+psycopg://me:hunter2@db/sweeps")
    head.write_artifact("key", {"components": np.eye(2)})
    text = packed(head.folder)
    assert "hunter2" not in text
    _unpack(text, arrived)
    assert merge(arrived, here) == []
    assert here.ledger_setting == head.ledger_setting
    assert here.artifact_path("key").exists()
    Ledger(here.ledger_url).close()
    with pytest.raises(UserError, match="another --home"):
        merge(arrived, here)


def test_an_empty_home_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no sweep"):
        _unpack(packed(tmp_path), tmp_path)


def test_an_archive_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo("../evil")
        archive.addfile(entry, io.BytesIO(b""))
    body = base64.encodebytes(buffer.getvalue()).decode()
    text = f"-----BEGIN SWEEP HOME-----\n{body}-----END SWEEP HOME-----\n"
    (tmp_path / "in").mkdir()
    with pytest.raises(UserError):
        _unpack(text, tmp_path / "in")
    assert not (tmp_path / "evil").exists()
