"""The `sweep` command as users call it, and homes for it to look at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.sweep.conftest import NO_MLFLOW, tiny


def sweep(*arguments: str, columns: int | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    if columns is not None:
        environment["COLUMNS"] = str(columns)
    return subprocess.run(
        [sys.executable, "-m", "sweep", *arguments],
        capture_output=True, text=True, timeout=240, env=environment, cwd=cwd,
    )  # fmt: skip


def write_sweep(folder: Path, **changes: Any) -> Path:
    """A sweep file that records nothing in MLflow."""
    path = folder / f"{changes.get('name', 'tiny')}.yaml"
    path.write_text(yaml.safe_dump(tiny(**(NO_MLFLOW | changes))))
    return path


def one_line(text: str) -> str:
    """The only line of a text."""
    assert text.count("\n") == 1, text
    return text.rstrip("\n")
