"""Sweeps from Python: a file, a mapping or keyword arguments; data and estimators in memory; objects to look at."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import sweep
from sweep.engine.progress import Progress, Silence
from sweep.errors import UserError
from sweep.store.results import RESULT_COLUMNS
from tests.sweep.conftest import NO_MLFLOW, tiny

SMALL: dict[str, Any] = {"folds": 2, "grid": {"gamma": [0.01, 0.1]}, "settings": {"n_pairs": 200, "tol": 0.01}}


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    """Three classes that differ in two of six features."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 40)
    X = rng.standard_normal((120, 6)) * np.array([0.3, 0.3, 3, 3, 3, 3])
    X[:, 0] += y
    X[:, 1] -= 2 * (y == 1)
    return X, y


def inline(*arguments: Any, home: Path, **fields: Any) -> sweep.Run:
    return sweep.run(*arguments, home=home, address="inline", display=Silence(), **({**NO_MLFLOW, **fields}))


def test_a_mapping_a_file_and_keyword_arguments_are_the_same_sweep(tmp_path: Path, sweep_file: Any) -> None:
    few: dict[str, Any] = {"methods": ["mdml-csfn"]}
    runs = [
        inline(tiny(**few), home=tmp_path / "a"),
        inline(str(sweep_file(**few)), home=tmp_path / "b"),
        inline(sweep_file(), home=tmp_path / "c", **few),  # keyword arguments override the file
        inline(home=tmp_path / "d", **tiny(**few)),
    ]
    keys = [set(run.ledger.keys()) for run in runs]
    assert len(keys[0]) == 5
    assert all(found == keys[0] for found in keys)
    assert all(run.name == "tiny" for run in runs)


def test_a_run_shows_results_fits_and_the_comparison(tmp_path: Path) -> None:
    run = inline(tiny(), home=tmp_path)
    assert run.outcome is not None
    assert (run.outcome.event, run.outcome.tally.done, run.outcome.failures) == ("done", 23, [])
    results = run.results
    assert list(results.columns) == list(RESULT_COLUMNS)
    assert list(results["method"]) == ["pdml-sfn", "mdml-csfn"]
    assert results.set_index("method").loc["mdml-csfn", "params"] == {"gamma": 0.01}
    fits = run.fits
    assert len(fits) == 14
    assert {"gamma", "rank", "fold", "auc_all", "relative_gap", "solve_seconds"} <= set(fits.columns)
    assert fits["fold"].isna().sum() == 2
    (ratio,) = run.compare()
    assert (ratio.convex, ratio.nonconvex, ratio.runs_ratio) == ("mdml-csfn", "pdml-sfn", 4)
    assert repr(run) == f"<sweep 'tiny' in {tmp_path}: 14 of 14 tasks>"
    # Looked at later, by another process, it says the same.
    again = sweep.open("tiny", home=tmp_path)
    pd.testing.assert_frame_equal(again.results, results)
    pd.testing.assert_frame_equal(again.fits, fits)
    with pytest.raises(UserError, match="Did you mean 'tiny'"):
        sweep.open("tinny", home=tmp_path)
    with pytest.raises(UserError, match="holds no sweep yet"):
        sweep.open("tiny", home=tmp_path / "elsewhere")


def test_a_plan_runs_and_writes_nothing(tmp_path: Path) -> None:
    planned = sweep.plan(tiny(), home=tmp_path / "home", workers=[1, 4])
    assert [(row["method"], row["fits"], row["left"]) for row in planned.rows] == [
        ("mdml-csfn", 5, 5), ("pdml-sfn", 18, 18),
    ]  # fmt: skip
    assert planned.forecast is None
    assert not (tmp_path / "home").exists()
    inline(tiny(), home=tmp_path / "home")
    after = sweep.plan(tiny(), home=tmp_path / "home", workers=[1, 4])
    assert [row["left"] for row in after.rows] == [0, 0]
    more = sweep.plan(tiny(seed=1), home=tmp_path / "home", workers=[1, 4])
    assert more.forecast is not None
    assert set(more.forecast.wall_seconds) == {1, 4}
    assert more.forecast.n_tasks == 14


@pytest.mark.parametrize("frame", [False, True])
def test_data_in_memory(tmp_path: Path, blobs: Any, frame: bool) -> None:
    X, y = blobs
    if frame:
        X = pd.DataFrame(X, columns=[f"f{k}" for k in range(6)])
        y = pd.Series(np.array(["a", "b", "c"])[y])
    arguments: dict[str, Any] = {"name": "mem", "datasets": {"mine": (X, y)}, "methods": ["mdml-csfn", "euc"], **SMALL}
    run = inline(home=tmp_path, **arguments)
    rows = run.results.set_index("method")
    assert list(rows["dataset"]) == ["mine", "mine"]
    assert rows.loc["mdml-csfn", "auc_all"] > rows.loc["euc", "auc_all"] + 0.05
    again = inline(home=tmp_path, **arguments)
    assert again.outcome is not None
    assert again.outcome.tally.cached == again.outcome.tally.done == again.outcome.tally.total
    # Other data under the same name is other data.
    other = inline(home=tmp_path, **(arguments | {"datasets": {"mine": (X * 2 + 1, y)}}))
    assert other.outcome is not None
    assert other.outcome.tally.cached == 0


def test_estimators_in_memory_with_values_to_tune(tmp_path: Path, blobs: Any) -> None:
    pipeline = Pipeline([("scale", StandardScaler()), ("pca", PCA(random_state=0))])
    methods = [
        "mdml-csfn",
        NeighborhoodComponentsAnalysis(n_components=2, max_iter=20),
        {"name": "scaled-pca", "estimator": pipeline, "tune": {"pca__n_components": [2, 4]}},
    ]
    arguments: dict[str, Any] = {"name": "mem", "datasets": {"mine": blobs}, "methods": methods, **SMALL}
    run = inline(home=tmp_path, **arguments)
    assert run.outcome is not None
    assert run.outcome.failures == []
    rows = run.results.set_index("method")
    assert set(rows.index) == {"mdml-csfn", "neighborhoodcomponentsanalysis", "scaled-pca"}
    assert rows.loc["scaled-pca", "params"]["pca__n_components"] in (2, 4)
    assert rows.loc["neighborhoodcomponentsanalysis", "npv"] == 2
    assert rows.loc["scaled-pca", "family"] == "own"
    # The caller's objects are not touched, the same ones are not computed again, and others are.
    assert not hasattr(methods[1], "components_")
    assert inline(home=tmp_path, **arguments).outcome.tally.cached == run.outcome.tally.done  # type: ignore[union-attr]
    methods[1] = NeighborhoodComponentsAnalysis(n_components=3, max_iter=20)
    changed = inline(home=tmp_path, **arguments)
    assert changed.outcome is not None
    assert changed.outcome.tally.done - changed.outcome.tally.cached == 1
    # They show without the objects, too.
    assert set(sweep.open("mem", home=tmp_path).results["method"]) == set(rows.index)


@pytest.mark.serial
def test_estimators_and_data_in_memory_run_on_ray_as_well(tmp_path: Path, blobs: Any) -> None:
    methods = [{"name": "pca", "estimator": PCA(random_state=0), "tune": {"n_components": [1, 2]}}]
    arguments: dict[str, Any] = {"name": "mem", "datasets": {"mine": blobs}, "methods": methods, **SMALL, **NO_MLFLOW}
    on_ray = sweep.run(home=tmp_path / "ray", display=Silence(), **arguments)
    here = inline(home=tmp_path / "inline", **arguments)
    columns = ["method", "auc_all", "cv_score", "params", "key"]
    pd.testing.assert_frame_equal(on_ray.results[columns], here.results[columns])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"datasets": {"mine": np.zeros((3, 2))}}, r"datasets: mine: expected a pair \(X, y\), got ndarray"),
        ({"datasets": {"digits": (np.zeros((4, 2)), [0, 1, 0, 1])}}, "cannot name data in memory"),
        ({"datasets": {"m": (np.zeros((4, 2)), [0, 1])}}, "rows"),
        ({"methods": [PCA(), PCA()]}, "two estimators are called 'pca'"),
        ({"methods": [{"name": "x", "estimator": PCA(), "tune": {"n_component": [1]}}]}, "Did you mean 'n_components'"),
        ({"methods": [object()]}, "has no fit"),
        ({"methods": ["mdml-cvdn"]}, "Did you mean 'mdml-cvnd'"),
        ({"fold": 3}, "sweep: fold: unknown key. Did you mean 'folds'"),
        ({"name": "Not Valid"}, "sweep: name: expected text to match"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected) as caught:
        inline(home=tmp_path / "home", **tiny(**changes))
    assert "\n" not in str(caught.value)


def test_the_refitted_estimator_takes_raw_rows(tmp_path: Path, blobs: Any) -> None:
    X, y = blobs
    methods = ["mdml-csfn", {"name": "pca", "estimator": PCA(random_state=0), "tune": {"n_components": [1, 2]}}]
    run = inline(home=tmp_path, name="mem", datasets={"mine": (X, y)}, methods=methods, **SMALL)
    best = run.best()
    assert best.transform(X).shape[0] == 120
    embedded = run.best("mdml-csfn").transform(X)
    assert embedded.shape == (120, int(run.results.set_index("method").loc["mdml-csfn", "npv"]))
    with pytest.raises(UserError, match="mdml-cvnd"):
        run.best("mdml-cvnd")


def test_paths_in_python_start_at_the_current_folder(
    tmp_path: Path, blobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = blobs
    np.savez(tmp_path / "mine.npz", X=X, y=y)
    monkeypatch.chdir(tmp_path)
    run = inline(home=tmp_path / "home", name="mem", datasets=["mine.npz"], methods=["euc"])
    assert list(run.results["dataset"]) == ["mine.npz"]
    assert os.fspath(run.home.folder) == os.fspath(tmp_path / "home")


def test_progress_goes_where_it_is_asked_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    asked = tiny(methods=["euc"], **NO_MLFLOW)
    sweep.run(asked, home=tmp_path, address="inline", display=Progress("tiny", stream, live=False))
    assert "1 fits computed" in stream.getvalue()
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_sweep_runs_in_a_thread_of_its_own(tmp_path: Path) -> None:
    """Signals can be handled in the main thread only; elsewhere it runs without."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(inline, tiny(methods=["euc"]), home=tmp_path).result(60)
    assert len(run.results) == 1


def test_a_notebook_shows_progress_in_its_output(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    asked = tiny(**NO_MLFLOW)
    source = (
        "import sweep\n"
        f"run = sweep.run({asked!r}, home={str(tmp_path / 'home')!r}, address='inline')\n"
        "run.results[['method', 'auc_all']]"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = notebook.cells[0].outputs
    streamed = "".join(output["text"] for output in outputs if output["output_type"] == "stream")
    assert "\rtiny: " in streamed  # the live line is drawn over itself
    assert "23 fits computed, 0 were there already" in streamed
    (shown,) = [output for output in outputs if output["output_type"] == "execute_result"]
    assert "mdml-csfn" in shown["data"]["text/html"]
