"""What travels to a cluster, under which name, and what comes back."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from sweep.cli import main
from sweep.code import bundle
from sweep.engine.cluster import connect
from sweep.errors import UserError
from sweep.remote.errands import stop_job
from sweep.remote.head import ASKED
from sweep.remote.jobs import exit_code, follow, job_server
from sweep.remote.staging import refuse_credentials, stage
from sweep.remote.submit import entrypoint, submission_id, submit
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.studies.sweepfile import load_spec


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
        ids.append(submission_id(load_spec(str(sweep_file(datasets=[str(data)]))), {}))
    assert ids[0] == ids[1]
    assert ids[0].startswith("sweep-tiny-")


def test_another_content_is_another_id(sweep_file: Any, tmp_path: Path) -> None:
    data = tmp_path / "x.npz"
    data.write_bytes(b"one")
    ids = {submission_id(load_spec(str(sweep_file(datasets=[str(data)]))), {})}
    data.write_bytes(b"two")
    ids.add(submission_id(load_spec(str(sweep_file(datasets=[str(data)]))), {}))
    ids |= {submission_id(load_spec(str(sweep_file(seed=seed))), {}) for seed in (0, 1)}
    assert len(ids) == 4


# -- what travels -------------------------------------------------------------------------------------


def test_the_uploaded_folder_runs_by_itself(sweep_file: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", X=rng.standard_normal((60, 5)), y=np.repeat([0, 1, 2], 20))
    (tmp_path / "private.txt").write_text("not for the cluster")
    few = {"methods": ["mdml-csfn"], "grid": {"gamma": [0.1]}, "tracking": {"mlflow": "none"}}
    spec = load_spec(str(sweep_file(datasets=["own.npz"], **few)))
    folder = tmp_path / "upload"
    folder.mkdir()
    stage(spec, folder, {})
    names = {path.relative_to(folder).parts[0] for path in folder.rglob("*")}
    assert names <= {"sweep", "solvers", "dashboards", "data", "sweep.yaml", "upload-id"}
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


def test_no_two_jobs_share_an_upload_that_ray_would_delete_with_the_first(sweep_file: Any, tmp_path: Path) -> None:
    from ray._private.runtime_env.packaging import get_uri_for_directory

    uris = set()
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        stage(load_spec(str(sweep_file())), tmp_path / name, {})
        uris.add(get_uri_for_directory(str(tmp_path / name), include_gitignore=True))
    assert len(uris) == 2


def test_a_missing_relative_file_is_an_error_and_a_full_path_may_be_the_clusters(
    sweep_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    spec = load_spec(str(sweep_file()))
    missing = spec.datasets[0].model_copy(update={"name": "gone.npz"})
    with pytest.raises(UserError, match="full path there"):
        stage(spec.model_copy(update={"datasets": [missing]}), tmp_path / "a", {})
    (tmp_path / "b").mkdir()
    elsewhere = spec.datasets[0].model_copy(update={"name": "/shared/x.npz"})
    stage(spec.model_copy(update={"datasets": [elsewhere]}), tmp_path / "b", {})
    assert "/shared/x.npz" in (tmp_path / "b" / "sweep.yaml").read_text()


def test_data_files_of_the_same_name_stay_apart(sweep_file: Any, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "wine.csv").write_text(folder)
    upload = tmp_path / "upload"
    upload.mkdir()
    stage(load_spec(str(sweep_file(datasets=["a/wine.csv", "b/wine.csv"]))), upload, {})
    sent = yaml.safe_load((upload / "sweep.yaml").read_text())
    assert [(upload / choice["name"]).read_text() for choice in sent["datasets"]] == ["a", "b"]


def test_the_users_own_code_travels_and_another_code_is_another_id(sweep_file: Any, tmp_path: Path) -> None:
    package = tmp_path / "mypkg"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__pycache__" / "x.pyc").touch()
    (package / "__init__.py").write_text("x = 1")
    (tmp_path / "helper.py").write_text("y = 2")
    spec = load_spec(str(sweep_file(code=["mypkg", "helper.py"])))
    upload = tmp_path / "upload"
    upload.mkdir()
    stage(spec, upload, bundle(spec.code, tmp_path))
    assert (upload / "mypkg" / "__init__.py").read_text() == "x = 1"
    assert (upload / "helper.py").read_text() == "y = 2"
    assert not list(upload.rglob("__pycache__"))
    assert yaml.safe_load((upload / "sweep.yaml").read_text())["code"] == ["mypkg", "helper.py"]
    before = submission_id(spec, bundle(spec.code, tmp_path))
    (package / "__init__.py").write_text("x = 2")
    assert submission_id(spec, bundle(spec.code, tmp_path)) != before


@pytest.mark.parametrize("name", ["sweep", "solvers", "data"])
def test_code_that_would_replace_ours_is_refused(sweep_file: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    (tmp_path / "upload").mkdir()
    with pytest.raises(UserError, match="rename yours"):
        stage(load_spec(str(sweep_file())), tmp_path / "upload", bundle([name], tmp_path))


def test_too_much_data_is_refused_before_the_upload(
    sweep_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.remote.staging._LARGEST_UPLOAD", 1000)
    with pytest.raises(UserError, match="shared storage"):
        stage(load_spec(str(sweep_file())), tmp_path / "upload", {})


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
    first = submit(server, spec, None, said.append, code={})
    assert submit(server, spec, None, said.append, code={}) == first
    assert "attaching" in said[-1]
    for status in ("STOPPED", "FAILED", "SUCCEEDED"):
        server.jobs[-1].status = status
        server.jobs[-1].start_time = len(server.jobs)
        again = submit(server, spec, None, said.append, code={})
        assert again == f"{first}-{len(server.jobs)}"
    assert submit(server, spec.model_copy(update={"name": "other"}), None, said.append, code={}) != first


def test_of_two_submits_at_the_same_moment_one_attaches(spec: Any) -> None:
    hidden = SimpleNamespace(submission_id=submission_id(spec, {}), metadata={}, status="PENDING", start_time=None)
    said: list[str] = []
    assert submit(Server(hidden), spec, None, said.append, code={}) == submission_id(spec, {})
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


def test_what_would_run_is_said_before_anything_is_sent(sweep_file: Any, tmp_path: Path, capsys: Any) -> None:
    file, home = str(sweep_file(methods=["mdml-csfn"])), str(tmp_path / "home")
    assert main(["submit", file, "--address", "http://127.0.0.1:9", "--home", home]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "tiny: 5 fits"
    assert "no job server of Ray answers" in said[-1]
    assert main(["submit", str(sweep_file(methods=["mdml-typo"])), "--address", "http://127.0.0.1:9"]) == 2
    assert "unknown method" in capsys.readouterr().err


def test_without_a_cluster_nothing_but_that_is_said(sweep_file: Any, capsys: Any) -> None:
    assert main(["submit", str(sweep_file())]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert "--cluster FILE or --address URL" in output.err


def test_an_address_that_does_not_answer_is_given_up_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.engine.cluster._CONNECT_SECONDS", 0.5)
    with socket.socket() as silent, contextlib.ExitStack() as waiting:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        port = silent.getsockname()[1]
        for _ in range(4):  # until its queue is full, and the next is not answered
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        start = time.monotonic()
        with pytest.raises(UserError, match=r"no answer within 0\.5 s"):
            connect(f"127.0.0.1:{port}")
        assert time.monotonic() - start < 5
    with pytest.raises(UserError, match="no Ray answers at foo:1"):
        connect("foo:1")


# -- stopping -----------------------------------------------------------------------------------------


class Running:
    """A job server's client, as far as `stop_job` uses it."""

    def __init__(self, status: str, said: str = ASKED) -> None:
        self.job = SimpleNamespace(
            submission_id="sweep-tiny-1", metadata={"sweep": "tiny", "home": "/a b"}, status=status, start_time=1
        )
        self.said, self.commands, self.stopped = said, [], []

    def list_jobs(self) -> list[Any]:
        return [self.job]

    def submit_job(self, *, entrypoint: str, runtime_env: dict[str, Any]) -> str:
        self.commands.append(entrypoint)
        return "errand"

    async def tail_job_logs(self, job: str) -> Any:
        yield self.said

    def get_job_info(self, job: str) -> Any:
        return SimpleNamespace(status="SUCCEEDED", driver_exit_code=0)

    def delete_job(self, job: str) -> None:
        assert job == "errand"

    def stop_job(self, job: str) -> None:
        self.stopped.append(job)


def test_a_running_job_is_asked_to_stop_in_its_own_home() -> None:
    client = Running("RUNNING")
    assert "asked to stop" in stop_job(client, "tiny")
    assert client.commands == ["exec python -m sweep.remote.head stop '/a b' --name tiny"]
    assert client.stopped == []


def test_a_job_that_has_not_begun_is_taken_back() -> None:
    client = Running("PENDING")
    assert "taken back" in stop_job(client, "tiny")
    assert client.stopped == ["sweep-tiny-1"]


@pytest.mark.parametrize(
    ("client", "name", "expected"),
    [
        (Running("SUCCEEDED"), "tiny", "no job of this sweep is running"),
        (Running("RUNNING"), "tinny", "Did you mean 'tiny'"),
        (Running("RUNNING", "sweep: /x: holds no sweep\n"), "tiny", "holds no sweep"),
    ],
)
def test_what_cannot_be_stopped_is_one_line(client: Running, name: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        stop_job(client, name)
