"""Homes with synthetic sweeps, made once."""

from __future__ import annotations

import pytest

from dashboards.records import SweepRecords, read_sweep
from solvers.methods import PAIRS
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from tests.dashboards.synthetic import fill

PAIRED = (*(convex for convex, _ in PAIRS), *(nonconvex for _, nonconvex in PAIRS))


@pytest.fixture(scope="session")
def paired_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The three pairs on two of the paper's datasets, three splits, all finished."""
    home = Home(tmp_path_factory.mktemp("paired"))
    fill(home, "paired", datasets=("reuters", "act"), methods=PAIRED, splits=3, n_examples=8000)
    return home


@pytest.fixture(scope="session")
def paired(paired_home: Home) -> SweepRecords:
    return read_sweep(Ledger(paired_home.ledger_url), "paired", paired_home)


@pytest.fixture(scope="session")
def on_path_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The pairs with the convex side tuned by the path, and a grid sweep of the same data beside it."""
    home = Home(tmp_path_factory.mktemp("path"))
    fill(home, "grid", methods=["mdml-csfn"], splits=1).close()
    fill(home, "path", methods=PAIRED, splits=2, search="path").close()
    return home


@pytest.fixture(scope="session")
def on_path(on_path_home: Home) -> SweepRecords:
    return read_sweep(Ledger(on_path_home.ledger_url), "path", on_path_home)
