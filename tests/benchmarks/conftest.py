"""Data at the paper's scale, and a table that a bench prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

Data = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="session")
def reuters(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Training part of Reuters: 4,152 x 1000 by the paper's pipeline."""
    return _training_part("reuters", real_data / "reuters21578.tar.gz", tmp_path_factory)


@pytest.fixture(scope="session")
def news(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Training part of 20 Newsgroups: 11,307 x 1000."""
    return _training_part("news", real_data / "20news-bydate.tar.gz", tmp_path_factory)


@pytest.fixture(scope="session", name="act_train")
def _act_train(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Training part of Act: 7,352 x 549, rebuilt features."""
    return _training_part("act", real_data / "har-rebuilt.npz", tmp_path_factory)


def _training_part(name: str, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Data:
    from sweep.datasets import prepare
    from sweep.datasets.card import open_split
    from sweep.datasets.choice import DatasetChoice

    if not source.exists():
        pytest.skip(f"no {name} at {source}")
    cache = tmp_path_factory.mktemp("data")
    prepare(name, str(source), cache=cache)
    split = open_split(DatasetChoice(name=name), cache, 0, 5, 0)
    return split.X_train, split.y_train


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n{title}")
    cells = [[str(c) for c in columns], *([str(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
