"""An exported metric loads without pickle and transforms as the fitted one does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mlflow
import numpy as np
import pytest

from sweep.cli import main
from sweep.errors import UserError
from sweep.store.export import export_metric
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from tests.dashboards.synthetic import fill


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    found = Home(tmp_path_factory.mktemp("export"))
    fill(found, "s", methods=["mdml-csfn", "pdml-sfn"], splits=2)
    return found


def ledger(home: Home) -> Ledger:
    return Ledger(home.ledger_url)


def test_the_best_split_of_the_method_is_exported_and_registered(home: Home) -> None:
    notes: list[str] = []
    folder = export_metric(home, ledger(home), "s", method="pdml-sfn", register="my-metric", note=notes.append)
    L = np.load(folder / "artifacts" / "metric.npz", allow_pickle=False)["components"]
    X = np.random.default_rng(0).standard_normal((4, L.shape[1]))
    model = mlflow.pyfunc.load_model(str(folder))
    assert model.predict(X) == pytest.approx(X @ L.T)
    assert model.metadata.signature.inputs.to_dict()[0]["tensor-spec"]["shape"] == (-1, L.shape[1])
    assert model.metadata.metadata["method"] == "pdml-sfn"
    assert model.input_example is not None
    from sweep.store.results import result_rows

    rows = [row for row in result_rows(ledger(home).records("s")) if row["method"] == "pdml-sfn"]
    best = max(rows, key=lambda row: row["auc_all"])
    assert (model.metadata.metadata["split"], model.metadata.metadata["fit"]) == (best["split"], best["key"])
    client = mlflow.MlflowClient(home.mlflow_url, home.mlflow_url)
    (version,) = client.search_model_versions("name = 'my-metric'")
    assert version.status == "READY"
    assert "version 1" in notes[-1]


def test_nothing_in_the_model_is_pickled_and_it_loads_without_this_package(home: Home, tmp_path: Path) -> None:
    folder = export_metric(home, ledger(home), "s", output=str(tmp_path / "model"), note=lambda _: None)
    assert not [path for path in folder.rglob("*") if path.suffix in (".pkl", ".pickle", ".joblib")]
    code = (
        "import sys, pickle, cloudpickle, mlflow.pyfunc, numpy as np\n"
        "for module in (pickle, cloudpickle): module.load = module.loads = None\n"
        f"model = mlflow.pyfunc.load_model({str(folder)!r})\n"
        "ours = any(name.split('.')[0] in ('sweep', 'solvers') for name in sys.modules)\n"
        "print(model.predict(np.ones((1, 40))).shape, ours)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.stdout.strip() == "(1, 20) False", done.stderr


def test_the_command_prints_the_folder_and_replaces_an_older_export(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert main(["export", "s", "--method", "mdml-csfn", "--home", str(home.folder)]) == 0
        assert Path(capsys.readouterr().out.strip()) == home.folder / "exports" / "s-mdml-csfn"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"method": "mdml-cvnd"}, "--method: 'mdml-cvnd' has no result in s"),
        ({"dataset": "digts"}, "Did you mean 'digits'"),
    ],
)
def test_a_wrong_choice_is_named(home: Home, options: dict[str, str], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        export_metric(home, ledger(home), "s", note=lambda _: None, **options)  # type: ignore[arg-type]


def test_a_folder_of_the_users_is_never_overwritten(home: Home, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(UserError, match="no exported model"):
        export_metric(home, ledger(home), "s", output=str(tmp_path), note=lambda _: None)
    assert (tmp_path / "mine.txt").exists()


def test_an_unfinished_sweep_has_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no method has its result yet"):
        export_metric(Home(tmp_path), fill(Home(tmp_path), "x", keep=0.0), "x", note=lambda _: None)
