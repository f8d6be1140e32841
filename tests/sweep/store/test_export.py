"""An exported model takes raw rows, gives what the refit gave, and loads without pickle or this package."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import yaml
from sklearn.datasets import load_wine

from solvers import retrieval_scores
from sweep.cli import main
from sweep.datasets import Dataset, load_dataset, memory_choice, prepare
from sweep.datasets.features import fit_preprocessing
from sweep.datasets.splits import train_test_rows
from sweep.datasets.text import _reuters_documents
from sweep.errors import UserError
from sweep.store.export import export_metric
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.store.saved_model import save_model
from tests.dashboards.synthetic import fill
from tests.sweep.datasets.test_loaders import story, write_reuters

TOPICS = {"earn": "profit dividend shares", "grain": "wheat harvest tonnes", "crude": "barrel opec petroleum"}
COMMON = ["market", "price", "week", "company", "trade", "month"]


def stories() -> list[str]:
    rng = np.random.default_rng(0)
    found = []
    for number in range(90):
        topic = list(TOPICS)[number % 3]
        words = [*rng.choice(COMMON, size=6), *rng.choice(TOPICS[topic].split(), size=2)]
        found.append(story([topic], " ".join(words)))
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A sweep over a table, texts, and features behind PCA."""
    folder = tmp_path_factory.mktemp("export")
    found = Home(folder / "home")
    wine = load_wine(as_frame=True).frame
    wine["magnesium"] = wine["magnesium"].astype(int)
    wine.to_csv(folder / "wine.csv", index=False)
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = rng.normal(size=(120, 30)) + 2.0 * y[:, None] * (np.arange(30) < 4)
    np.savez(folder / "wide.npz", X=X, y=y)
    prepare("reuters", write_reuters(folder / "reuters", stories()), cache=found.data)
    spec = {
        "name": "s",
        "datasets": ["wine.csv", {"name": "wide.npz", "pca": 8, "scaling": "l2"}, {"name": "reuters", "pca": 6}],
        "methods": ["mdml-csfn", "euc", "ilhd"],
        "grid": {"gamma": [0.01, 0.1], "rank": [4]},
        "folds": 2,
        "splits": 2,
        "restarts": 1,
        "settings": {"n_pairs": 200, "tol": 0.01, "max_iter": 100},
        "seed": 3,
    }
    (folder / "s.yaml").write_text(yaml.safe_dump(spec))
    assert main(["run", str(folder / "s.yaml"), "--home", str(found.folder), "--address", "inline"]) == 0
    return found


def ledger(home: Home) -> Ledger:
    return Ledger(home.ledger_url)


def export(home: Home, output: Path, **options: Any) -> Path:
    notes: list[str] = []
    return export_metric(home, ledger(home), "s", output=str(output), note=notes.append, **options)


def rows(home: Home, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["results", "s", "--home", str(home.folder), "--format", "json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def raw_test_rows(home: Home, dataset: str, split: int) -> tuple[Any, np.ndarray]:
    """The raw rows of a test part, as a user would hold them, and their classes."""
    folder = home.folder.parent
    source = dataset if dataset == "reuters" else str(folder / dataset)
    label = "target" if dataset == "wine.csv" else None
    data = load_dataset(source, cache=home.data, label=label)
    _, test = train_test_rows(data, seed=3, split=split)
    if dataset == "wine.csv":
        raw: Any = pd.read_csv(folder / "wine.csv").drop(columns="target").iloc[test]
    elif dataset == "wide.npz":
        raw = np.load(folder / "wide.npz")["X"][test]
    else:
        files = sorted((folder / "reuters").iterdir())
        texts = [t for file in files for _, t in _reuters_documents(file.read_text("latin-1"), "here")]
        raw = pd.DataFrame({"text": np.array(texts)[test]})
    return raw, data.y[test]


@pytest.mark.parametrize("dataset", ["wine.csv", "wide.npz", "reuters"])
@pytest.mark.parametrize("method", ["mdml-csfn", "euc"])
def test_the_model_gives_on_raw_rows_the_scores_of_the_refit(
    home: Home, dataset: str, method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = export(home, tmp_path / "model", dataset=dataset, method=method)
    model = mlflow.pyfunc.load_model(str(folder))
    split = model.metadata.metadata["split"]
    raw, y = raw_test_rows(home, dataset, split)
    (row,) = [r for r in rows(home, capsys) if (r["dataset"], r["method"], r["split"]) == (dataset, method, split)]
    assert retrieval_scores(model.predict(raw), y)["auc_all"] == pytest.approx(row["auc_all"], abs=1e-9)
    assert model.metadata.metadata["fit"] == row["key"]
    if dataset == "wine.csv":
        assert row["auc_all"] > 0.9


def test_the_arrays_alone_are_enough(home: Home, tmp_path: Path) -> None:
    """The formula of the documentation, with NumPy only."""
    folder = export(home, tmp_path / "model", dataset="wine.csv")
    with np.load(folder / "artifacts" / "metric.npz", allow_pickle=False) as arrays:
        m = dict(arrays)
    raw, _ = raw_test_rows(home, "wine.csv", 0)
    names = json.loads(str(m["feature_names"]))
    Z = (raw[names].to_numpy() * m["factor"] - m["offset"]) @ m["components"].T
    assert mlflow.pyfunc.load_model(str(folder)).predict(raw) == pytest.approx(Z)


def test_columns_are_matched_by_name_or_refused(home: Home, tmp_path: Path) -> None:
    model = mlflow.pyfunc.load_model(str(export(home, tmp_path / "model", dataset="wine.csv")))
    raw, _ = raw_test_rows(home, "wine.csv", 0)
    expected = model.predict(raw)
    assert model.predict(raw[raw.columns[::-1]]) == pytest.approx(expected)
    assert model.predict(raw.astype(np.float32)) == pytest.approx(expected, rel=1e-4, abs=1e-4)
    inputs = {column.name: str(column.type) for column in model.metadata.signature.inputs}
    assert list(inputs) == list(raw.columns)
    assert inputs["alcohol"] == "DataType.double"
    with pytest.raises(mlflow.exceptions.MlflowException, match=r"missing inputs .'alcohol'"):
        model.predict(raw.rename(columns={"alcohol": "spirit"}))
    with pytest.raises(ValueError, match="column 'hue': the value of row 5 is missing"):
        model.predict(raw.reset_index(drop=True).assign(hue=lambda t: t["hue"].where(t.index != 5)))
    with pytest.raises(ValueError, match="column 'magnesium': expected numbers"):
        model.predict(raw.assign(magnesium="much"))


def test_arrays_without_names_are_taken_in_either_precision(home: Home, tmp_path: Path) -> None:
    model = mlflow.pyfunc.load_model(str(export(home, tmp_path / "model", dataset="wide.npz")))
    raw, _ = raw_test_rows(home, "wide.npz", 0)
    assert model.predict(raw.astype(np.float32)) == pytest.approx(model.predict(raw), rel=1e-4, abs=1e-4)
    assert model.predict(raw[:0].reshape(0, 30)).shape == (0, model.predict(raw).shape[1])
    for wrong in (raw[:, :7], pd.DataFrame(raw, columns=[f"x{i}" for i in range(30)])):
        with pytest.raises(mlflow.exceptions.MlflowException, match="missing inputs"):
            model.predict(wrong)


def test_by_default_the_cross_validated_score_decides(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = export(home, tmp_path / "model", dataset="wine.csv")
    facts = mlflow.pyfunc.load_model(str(folder)).metadata.metadata
    tuned = [r for r in rows(home, capsys) if r["dataset"] == "wine.csv" and r["cv_auc"] is not None]
    means = pd.DataFrame(tuned).groupby("method")["cv_auc"].mean()
    best = max((r for r in tuned if r["method"] == means.idxmax()), key=lambda r: r["cv_auc"])
    assert (facts["method"], facts["split"], facts["cv_score"]) == (best["method"], best["split"], best["cv_auc"])


def test_nothing_in_the_model_is_pickled_and_it_loads_without_this_package(home: Home, tmp_path: Path) -> None:
    folder = export(home, tmp_path / "model", dataset="reuters")
    assert not [path for path in folder.rglob("*") if path.suffix in (".pkl", ".pickle", ".joblib")]
    code = (
        "import sys, pickle, cloudpickle, mlflow.pyfunc, pandas as pd\n"
        "for module in (pickle, cloudpickle): module.load = module.loads = None\n"
        f"model = mlflow.pyfunc.load_model({str(folder)!r})\n"
        "ours = any(name.split('.')[0] in ('sweep', 'solvers') for name in sys.modules)\n"
        "print(model.predict(pd.DataFrame({'text': ['wheat and profit', '']})).shape[0], ours)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.stdout.strip() == "2 False", done.stderr


@pytest.mark.parametrize("given", [False, True], ids=["fitted vectors", "given vectors"])
def test_numbers_and_texts_go_through_the_same_steps_as_in_the_sweep(given: bool, tmp_path: Path) -> None:
    """As for admissions with clinical notes: numbers, tf-idf and averaged word vectors, scaled, then PCA."""
    rng = np.random.default_rng(0)
    words = ("aorta", "fever", "lung", "rash", "renal", "sepsis")
    counts = rng.poisson(0.8, size=(40, 6))
    numbers = rng.normal(size=(40, 2)) * [1.0, 50.0]
    X = sp.csr_matrix(np.hstack([numbers, counts]))
    vectors = np.vstack([rng.normal(size=(5, 3)), np.zeros((1, 3))]) if given else None
    data = Dataset("mimic", X, np.arange(40) % 2, ("a", "b"), 1, 30, n_words=6, vector_size=3, vectors=vectors)
    data = replace(data, feature_names=("age", "weight", *words))
    steps = fit_preprocessing(data, np.arange(30), scaling="minmax", pca=5)
    L = rng.normal(size=(2, 5))
    save_model(tmp_path / "model", steps, L, {})
    texts = [" and ".join(np.repeat(words, row)).upper() + "; x" for row in counts]
    raw = pd.DataFrame({"text": texts, "weight": numbers[:, 1], "age": numbers[:, 0]})
    found = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(raw)
    np.testing.assert_allclose(found, steps.transform(X) @ L.T, atol=1e-10)


def test_a_registered_name_may_hold_a_quote_and_a_wrong_one_is_one_line(home: Home, tmp_path: Path) -> None:
    for version in ("1", "2"):
        notes: list[str] = []
        export_metric(
            home, ledger(home), "s", dataset="wine.csv", register="a'b", output=str(tmp_path / "m"), note=notes.append
        )
        assert notes[-1] == f"registered as a'b, version {version}"
    client = mlflow.MlflowClient(home.mlflow_url, home.mlflow_url)
    assert client.get_model_version("a'b", "2").status == "READY"
    with pytest.raises(UserError, match="--register: MLflow refuses 'a/b'") as caught:
        export(home, tmp_path / "m", dataset="wine.csv", register="a/b")
    assert "\n" not in str(caught.value)


def test_the_command_prints_the_folder_and_says_nothing_of_libraries(home: Home) -> None:
    command = ["-m", "sweep", "export", "s", "--dataset", "wine.csv", "--register", "quiet", "--home", str(home.folder)]
    for _ in range(2):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120)
        assert done.stdout.strip() == str(home.folder / "exports" / "s-mdml-csfn")
        said = done.stderr.strip().splitlines()
        assert len(said) == 2, done.stderr
        assert "takes raw rows of 13 features" in said[0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"method": "mdml-cvnd"}, "--method: 'mdml-cvnd' has no result in s"),
        ({"dataset": "wine.cs"}, "Did you mean 'wine.csv'"),
        ({}, "--dataset: s has several, choose one of"),
        ({"dataset": "wine.csv", "method": "ilhd"}, "nothing of ilhd can be exported: a model needs `components_`"),
    ],
)
def test_a_wrong_choice_is_named(home: Home, options: dict[str, str], expected: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=expected):
        export(home, tmp_path / "m", **options)


def test_data_that_are_gone_or_changed_are_named_and_the_old_model_is_kept(home: Home, tmp_path: Path) -> None:
    folder = export(home, tmp_path / "model", dataset="wide.npz")
    path = home.folder.parent / "wide.npz"
    content = path.read_bytes()
    try:
        np.savez(path, X=np.ones((9, 30)), y=np.arange(9) % 3)
        with pytest.raises(UserError, match=r"export needs the data of wide\.npz.*changed"):
            export(home, folder, dataset="wide.npz")
        path.unlink()
        with pytest.raises(UserError, match=r"export needs the data of wide\.npz.*no such file"):
            export(home, folder, dataset="wide.npz")
        # Data in memory are in no sweep file, so whoever has them hands them over.
        with np.load(io.BytesIO(content)) as arrays:
            given = {"wide.npz": memory_choice("wide", arrays["X"], arrays["y"])}
        again = export(home, tmp_path / "again", dataset="wide.npz", data=given)
        rows = np.random.default_rng(1).normal(size=(3, 30))
        models = [mlflow.pyfunc.load_model(str(each)) for each in (folder, again)]
        np.testing.assert_array_equal(*(model.predict(rows) for model in models))
    finally:
        path.write_bytes(content)
    assert (folder / "MLmodel").exists()


def test_a_folder_of_the_users_is_never_overwritten(home: Home, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(UserError, match="no exported model"):
        export(home, tmp_path, dataset="wine.csv")
    assert (tmp_path / "mine.txt").exists()


def test_an_unfinished_sweep_has_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no method has its result yet"):
        export_metric(Home(tmp_path), fill(Home(tmp_path), "x", keep=0.0), "x", note=lambda _: None)
