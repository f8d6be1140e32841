"""The published reproduction says what its rows say."""

from __future__ import annotations

import re
from pathlib import Path

from tests import reproduction


def test_every_table_of_the_page_follows_from_the_rows_beside_it() -> None:
    text = reproduction.PAGE.read_text()
    assert set(re.findall(r"<!-- (\w+) -->", text)) == set(reproduction.TABLES)
    assert reproduction.page(text) == text, "run `python -m tests.reproduction`"


def test_the_readme_shows_the_tables_headline() -> None:
    shown = (Path(__file__).parents[1] / "README.md").read_text()
    together = [line for line in reproduction.headline().splitlines() if "| all |" in line]
    assert together
    assert all(line in shown for line in together)


def test_what_is_published_stays_small() -> None:
    assert sum(file.stat().st_size for file in reproduction.ROWS.iterdir()) < 3_000_000
