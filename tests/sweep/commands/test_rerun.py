"""A fit that is computed again gives what the ledger holds of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.cli import main


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rerun") / "home"
    sweep.run(
        name="tiny", datasets=["digits-imbalanced"], methods=["mdml-csfn", "pdml-sfn"], folds=2, restarts=2, warm=True,
        grid={"gamma": [0.01, 0.1], "rank": [4]}, settings={"n_pairs": 200, "tol": 0.01}, tracking={"mlflow": "none"},
        home=folder, address="inline",
    )  # fmt: skip
    return folder


def test_every_kind_of_fit_gives_the_same_again(home: Path, capsys: Any) -> None:
    fits = sweep.open("tiny", home=home).fits
    for _, group in fits.groupby(["method", "warm", fits["fold"].isna()]):
        capsys.readouterr()
        assert main(["rerun", "tiny", group["key"].iloc[0], "--home", str(home), "--json"]) == 0
        kept, again = json.loads(capsys.readouterr().out)
        assert again["auc_all"] == pytest.approx(kept["auc_all"], abs=1e-9)
        assert again["objective"] == pytest.approx(kept["objective"], rel=1e-9)


def test_a_key_that_names_no_fit_or_several_is_one_line(home: Path, capsys: Any) -> None:
    for key in ("zz", ""):
        assert main(["rerun", "tiny", key, "--home", str(home)]) == 2
        assert "expected one" in capsys.readouterr().err
