"""One finished home for all tests of commands that only look."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.cli import main
from tests.sweep.commands.homes import write_sweep


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tiny.yaml, after.yaml and a home in which both have run, in process."""
    folder = tmp_path_factory.mktemp("finished")
    after = write_sweep(folder, name="after", methods=["mdml-csfn", "euc"], grid={"gamma": [0.1, 1.0]}, splits=2)
    for file in (write_sweep(folder), after):
        assert main(["run", str(file), "--home", str(folder / "home"), "--address", "inline", "--json"]) == 0
    return folder
