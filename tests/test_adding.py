"""What CONTRIBUTING promises: to add something touches at most two files.

Each toy is added to a copy of the packages by editing just the files that the table there names, and used from
a process of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import ROOT

BLOBS = "from sklearn.datasets import make_blobs\nX, y = make_blobs(90, 4, centers=3, random_state=0)\n"
SWEEP = """
import sweep
def small(**more):
    return sweep.run(**{"name": "toy", "datasets": {"blobs": (X, y)}, "methods": ["mdml-l2"], "folds": 2,
                        "grid": {"gamma": [0.1, 1.0]}, "settings": {"n_pairs": 100, "tol": 0.01},
                        "tracking": {"mlflow": "none"}, "address": "inline", "home": "toy-home", **more})
"""


@dataclass(frozen=True)
class Toy:
    """Text put before a line of a file, or at its end; the check that uses what was added."""

    edits: Mapping[str, tuple[str | None, str]]
    check: str
    also: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)


TOYS = {
    "regularizer": Toy(
        {
            "solvers/regularizers/spectral.py": (
                "SPECTRAL: dict[str, type] = {\n",
                "@dataclass(frozen=True)\nclass Toy(SquaredL2):\n    pass\n\n\n",
            ),
        },
        BLOBS
        + "from solvers import MDML\n"
        + "toy, l2 = (MDML(name, 0.1, random_state=0).fit(X, y) for name in ('toy', 'l2'))\n"
        + "assert toy.converged_ and abs(toy.objective_ - l2.objective_) < 1e-6\n",
        {"solvers/regularizers/spectral.py": ('    "none": NoPenalty,\n', '    "toy": Toy,\n')},
    ),
    "method": Toy(
        {
            "solvers/other/toy.py": (None, "from solvers.other.euclidean import EUC\n\n\nclass TOY(EUC):\n    pass\n"),
            "solvers/methods.py": (
                '            _other("euc", "Euclidean distance", "-"),\n',
                '            _other("toy", "a toy", "-"),\n',
            ),
        },
        BLOBS + SWEEP + "assert list(small(methods=['toy', 'euc']).results.method) == ['toy', 'euc']\n",
    ),
    "dataset": Toy(
        {
            "sweep/datasets/toys.py": (
                None,
                "from sklearn.datasets import load_wine\n\nfrom sweep.datasets.base import Dataset\n\n\n"
                "def load(path, progress):\n    X, y = load_wine(return_X_y=True)\n"
                "    return Dataset('toy', X, y, ('a', 'b', 'c'), frequent_above=50, train_size=120)\n",
            ),
            "sweep/datasets/catalog.py": (
                '    "digits": DatasetInfo(\n',
                '    "toy": DatasetInfo(title="a toy", n_examples=178, n_classes=3, n_features=13, train_size=120,\n'
                '        train_fraction=0.7, frequent_above=50, pca=None, source="here", files="any", terms="none",\n'
                '        loader="toys:load"),\n',
            ),
        },
        BLOBS
        + SWEEP
        + "from pathlib import Path\nfrom sweep.datasets import prepare\nfrom sweep.store.home import Home\n"
        + "prepare('toy', Path('.'), cache=Home('toy-home').data)\n"
        + "assert list(small(datasets=['toy']).results.dataset) == ['toy']\n",
    ),
    "score": Toy(
        {
            "solvers/scores/table.py": (
                '    "auc_all": Score(',
                '    "toy_score": Score(True, 1.0, "a toy"),\n',
            ),
            "solvers/scores/ranking.py": (
                '            "auc": lambda: 1 - sums(',
                '            "toy_score": lambda: np.full(counts.shape, 0.25),\n',
            ),
        },
        BLOBS + SWEEP + "run = small(score='toy_score')\nassert set(run.results.test_score) == {0.25}\n",
        {"solvers/scores/ranking.py": ("PER_QUERY = (", None)},  # type: ignore[dict-item]
    ),
    "search strategy": Toy(
        {
            "sweep/studies/toy.py": (
                None,
                "from sweep.studies.grid import GridStudy\n\n\nclass FirstTrialStudy(GridStudy):\n"
                "    def start(self):\n        self.trials = self.trials[:1]\n        return super().start()\n",
            ),
            "sweep/studies/plan.py": (
                "        return GridStudy(template, trials, spec.select)\n",
                "        from sweep.studies.toy import FirstTrialStudy\n\n"
                "        return FirstTrialStudy(template, trials, spec.select)\n",
            ),
        },
        BLOBS + SWEEP + "run = small()\nassert len(run.fits) == 1 and run.results.gamma[0] == 0.1\n",
    ),
    "executor": Toy(
        {
            "sweep/engine/toy.py": (
                None,
                "from sweep.engine.executors import InlineExecutor\n\n\nclass ToyExecutor(InlineExecutor):\n"
                "    place = 'a toy'\n",
            ),
            "sweep/engine/places.py": (
                '    if address == "inline":\n',
                '    if address == "toy":\n        from sweep.engine.toy import ToyExecutor\n\n'
                "        return lambda: ToyExecutor(plan.estimators)\n",
            ),
        },
        BLOBS + SWEEP + "assert len(small(address='toy').rows) == 1\n",
    ),
    "figure": Toy(
        {
            "dashboards/toy.py": (
                None,
                "from dataclasses import replace\n\nfrom dashboards import path_figures\n\n\ndef toy_figure(sweep):\n"
                "    return replace(path_figures.rank_figure(sweep), title='A toy among figures')\n",
            ),
            "dashboards/report.py": (
                "        path_figures.path_figure(sweep),\n",
                "        __import__('dashboards.toy', fromlist=['toy']).toy_figure(sweep),\n",
            ),
        },
        BLOBS
        + SWEEP
        + "run = small(methods=['mdml-l2', 'mdml-csfn'])\npage = run.report('page.html').read_text()\n"
        + "assert 'A toy among figures' in page\n",
    ),
}


@pytest.mark.parametrize("what", TOYS)
def test_a_toy_of_each_kind_touches_at_most_two_files(what: str, tmp_path: Path) -> None:
    toy = TOYS[what]
    assert len(toy.edits.keys() | toy.also.keys()) <= 2
    for package in ("sweep", "solvers", "dashboards"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for edits in (toy.edits, toy.also):
        for name, (before, added) in edits.items():
            put(tmp_path / name, before, added)
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    answer = subprocess.run(
        [sys.executable, "-c", toy.check], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert answer.returncode == 0, answer.stderr[-3000:]


def put(path: Path, before: str | None, added: str | None) -> None:
    if before is None:
        path.write_text(added or "")
        return
    text = path.read_text()
    assert text.count(before) == 1, f"{path.name}: {before!r}"
    new = before.replace("(", '("toy_score", ') if added is None else added + before
    path.write_text(text.replace(before, new))
