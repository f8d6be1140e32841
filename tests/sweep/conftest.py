"""Small sweeps that finish in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

TINY: dict[str, Any] = {
    "name": "tiny",
    "datasets": ["digits-imbalanced"],
    "methods": ["mdml-csfn", "pdml-sfn"],
    "grid": {"gamma": [0.01, 0.1], "rank": [4, 8]},
    "folds": 2,
    "restarts": 2,
    "settings": {"n_pairs": 200, "tol": 0.01, "max_iter": 60},
}
NO_MLFLOW = {"tracking": {"mlflow": "none"}}


def tiny(**changes: Any) -> dict[str, Any]:
    return {**TINY, **changes}


@pytest.fixture
def sweep_file(tmp_path: Path) -> Any:
    """Writes a small sweep file with changes; returns its path."""

    def write(**changes: Any) -> Path:
        path = tmp_path / f"{changes.get('name', 'tiny')}.yaml"
        path.write_text(yaml.safe_dump(tiny(**changes)))
        return path

    return write
