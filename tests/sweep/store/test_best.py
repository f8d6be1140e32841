"""The refitted estimator takes raw rows, and a home that was opened imports nothing that its records name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import QuantileTransformer

import sweep
from solvers import retrieval_scores
from sweep.cli import main
from sweep.errors import UserError

X, Y = load_wine(return_X_y=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return sweep.run(
        name="wine",
        datasets={"wine": (X, Y)},
        methods=["mdml-csfn", PCA(n_components=3), QuantileTransformer(n_quantiles=10)],
        grid={"gamma": [0.01]}, folds=2, settings={"n_pairs": 200, "tol": 0.01}, tracking={"mlflow": "none"},
        home=tmp_path_factory.mktemp("best") / "home", address="inline",
    )  # fmt: skip


def test_raw_rows_give_what_the_refit_was_scored_on(run: Any) -> None:
    pipeline = run.best("mdml-csfn")
    assert pipeline[-1].get_params()["regularizer"] == "csfn"
    assert retrieval_scores(pipeline.transform(X), Y)["auc_all"] > retrieval_scores(X, Y)["auc_all"] + 0.1


def test_a_linear_map_of_anybodys_comes_without_its_code(run: Any) -> None:
    opened = sweep.open("wine", home=run.home.folder)
    with pytest.raises(UserError, match="export needs the data"):  # it was in memory only
        opened.best("pca")
    Z = run.best("pca").transform(X)
    expected = PCA(n_components=3).fit_transform(run.best("pca")[0].transform(X))
    assert Z.shape == expected.shape
    assert np.isfinite(Z).all()


def test_what_has_no_linear_map_is_fitted_again_by_the_run_alone(run: Any) -> None:
    assert run.best("quantiletransformer").transform(X).shape == X.shape
    spec = next(s for s, _ in run.ledger.records("wine") if s.method == "quantiletransformer")
    assert main(["rerun", "wine", spec.key, "--home", str(run.home.folder)]) == 2


def test_records_of_a_stranger_import_nothing(run: Any, tmp_path: Path, capsys: Any) -> None:
    spec = next(s for s, _ in run.ledger.records("wine") if s.method == "pca")
    capsys.readouterr()
    assert main(["rerun", "wine", spec.key, "--home", str(run.home.folder)]) == 2
    assert "needs code of yours" in capsys.readouterr().err
