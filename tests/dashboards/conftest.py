"""Homes with synthetic sweeps, made once."""

from __future__ import annotations

import pytest

from dashboards.records import SweepRecords, read_sweep
from sweep.store.home import Home
from tests.dashboards.synthetic import fill

PAIRED = ("mdml-csfn", "mdml-cvnd", "mdml-cldd", "pdml-sfn", "pdml-vnd", "pdml-ldd")


@pytest.fixture(scope="session")
def paired_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The three pairs on two datasets, three splits, all finished."""
    home = Home(tmp_path_factory.mktemp("paired"))
    fill(home, "paired", datasets=("reuters", "act"), methods=PAIRED, splits=3)
    return home


@pytest.fixture(scope="session")
def paired(paired_home: Home) -> SweepRecords:
    from sweep.store.ledger import Ledger

    return read_sweep(Ledger(paired_home.ledger_url), "paired")
