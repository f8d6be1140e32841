"""The MLflow UI on a home's runs, on loopback only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sweep.errors import UserError
from sweep.home import Home
from sweep.ledger import Ledger
from sweep.recording import without_credentials

_START_SECONDS = 90
# MLflow's comparison page gets slow past about this many runs.
_COMPARED = 60


def serve(home: Home, ledger: Ledger, name: str | None, *, port: int, open_browser: bool) -> int:
    """Serve until interrupted; prints the links when the server answers."""
    names = [name] if name else list(ledger.sweeps())
    with mlflow_server(home, port) as url:
        links = {sweep: comparison_link(home, url, sweep) for sweep in names}
        sys.stderr.write(f"MLflow at {url} (Ctrl-C stops it)\n")
        for sweep, link in links.items():
            print(f"{sweep}: runs     {experiment_link(home, url, sweep)}")  # noqa: T201
            print(f"{sweep}: compare  {link}", flush=True)  # noqa: T201
        if open_browser and links:
            webbrowser.open(next(iter(links.values())))
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            return 0


@contextmanager
def mlflow_server(home: Home, port: int) -> Iterator[str]:
    """A running MLflow server on 127.0.0.1 over the home's store; ends with the block."""
    if not (home.folder / "mlflow.sqlite").exists():
        raise UserError(f"{home.folder}: no MLflow store here yet; `sweep run` makes one")
    url = f"http://127.0.0.1:{port}"
    if _answers(url):
        raise UserError(f"--port: something answers on {port} already; choose another with --port")
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", home.mlflow_url, "--default-artifact-root", home.mlflow_artifacts.as_uri(),
    ]  # fmt: skip
    # Its job runner starts eight more processes that a laptop has no use for.
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    log = home.folder / "mlflow-server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        _wait_until_up(url, server, str(log))
        yield url
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()


def experiment_link(home: Home, url: str, sweep: str) -> str:
    """The list of the methods' runs."""
    experiment, _ = _runs(home, sweep)
    return f"{url}/#/experiments/{experiment}/runs"


def comparison_link(home: Home, url: str, sweep: str) -> str:
    """MLflow's comparison page over the methods' runs of a sweep."""
    experiment, runs = _runs(home, sweep)
    query = urllib.parse.urlencode({"runs": json.dumps(runs[:_COMPARED]), "experiments": json.dumps([experiment])})
    return f"{url}/#/compare-runs?{query}"


def _runs(home: Home, sweep: str) -> tuple[str, list[str]]:
    import mlflow

    client: Any = mlflow.MlflowClient(tracking_uri=home.mlflow_url)
    experiment = client.get_experiment_by_name(sweep)
    if experiment is None:
        raise UserError(f"{sweep}: nothing recorded in {without_credentials(home.mlflow_url)} yet; let `sweep run` finish")
    runs = client.search_runs([experiment.experiment_id], order_by=["params.method ASC"])
    return str(experiment.experiment_id), [run.info.run_id for run in runs]


def _wait_until_up(url: str, server: subprocess.Popen[bytes], log: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise UserError(f"the MLflow server ended at once (exit code {server.returncode}); see {log}")
        if _answers(url):
            return
        time.sleep(0.3)
    raise UserError(f"the MLflow server did not answer within {_START_SECONDS} s; see {log}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
