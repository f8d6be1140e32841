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
from sweep.store.home import Home
from sweep.store.ledger import Ledger

_START_SECONDS = 90
# MLflow's comparison page gets slow past about this many runs.
_COMPARED = 60
_VIEW = "sweep"
# What tells methods apart, in the order in which a reader asks.
_METRICS = ("auc_all", "balance_score", "fit_seconds", "npv", "train_test_gap", "relative_gap", "n_fits")
_PARAMS = ("method", "dataset", "split", "gamma", "rank")


def serve(home: Home, ledger: Ledger, name: str | None, *, port: int, open_browser: bool) -> int:
    """Serve until interrupted; prints the links when the server answers."""
    names = [name] if name else list(ledger.sweeps())
    with mlflow_server(home, port) as url:
        sys.stderr.write(f"MLflow at {url} (Ctrl-C stops it)\n")
        for sweep in names:
            for what, link in links(home, url, sweep).items():
                print(f"{sweep}: {what:8} {link}", flush=True)  # noqa: T201
        if open_browser and names:
            webbrowser.open(links(home, url, names[0])["compare"])
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


def links(home: Home, url: str, sweep: str) -> dict[str, str]:
    """Pages worth opening: the runs with useful columns, their charts, and the comparison."""
    import mlflow

    client: Any = mlflow.MlflowClient(tracking_uri=home.mlflow_url)
    experiment, runs = _runs(client, home, sweep)
    # The page's own state, as its share button would store it. MLflow does not document the format:
    # a version that reads it otherwise shows its default columns and charts behind the same links.
    client.set_experiment_tag(experiment, "mlflow.experimentKind", "custom_model_development")
    client.set_experiment_tag(experiment, f"mlflow.sharedViewState.{_VIEW}", json.dumps(view_state()))
    page = f"{url}/#/experiments/{experiment}/runs?viewStateShareKey={_VIEW}"
    chosen = {"runs": json.dumps(runs[:_COMPARED]), "experiments": json.dumps([experiment])}
    return {
        "runs": page,
        "charts": f"{page}&compareRunsMode=CHART",
        "compare": f"{url}/#/compare-runs?{urllib.parse.urlencode(chosen)}",
    }


def view_state() -> dict[str, Any]:
    """Columns of the run list, and charts that compare the methods."""
    charts: list[dict[str, Any]] = [
        {
            "type": "PARALLEL",
            # Only what every method has: MLflow leaves out the runs that lack one of the axes.
            "selectedParams": ["method"],
            "selectedMetrics": ["fit_seconds", "npv", "auc_all"],
        },
        {
            "type": "SCATTER",
            "xaxis": {"key": "fit_seconds", "type": "METRIC"},
            "yaxis": {"key": "auc_all", "type": "METRIC"},
        },
        *({"type": "BAR", "metricKey": metric} for metric in _METRICS),
    ]
    common = {"metricSectionId": "methods", "deleted": False, "isGenerated": False, "runsCountToCompare": 100}
    columns = [f"params.`{name}`" for name in _PARAMS] + [f"metrics.`{name}`" for name in _METRICS]
    return {
        "orderByKey": "metrics.`auc_all`",
        "orderByAsc": False,
        "selectedColumns": columns,
        "runsHiddenMode": "SHOW_ALL",
        "compareRunSections": [{"uuid": "methods", "name": "Methods", "display": True, "isReordered": False}],
        "compareRunCharts": [{**chart, **common, "uuid": f"sweep-{i}"} for i, chart in enumerate(charts)],
    }


def _runs(client: Any, home: Home, sweep: str) -> tuple[str, list[str]]:
    """The sweep's experiment and its methods' runs."""
    experiment = client.get_experiment_by_name(sweep)
    if experiment is None:
        raise UserError(f"{sweep}: nothing recorded in {home.mlflow_url} yet; let `sweep run` finish")
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
