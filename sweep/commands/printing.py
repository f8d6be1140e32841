"""Rows for people and for programs, on stdout."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def print_table(rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """Rows as aligned text; one table, never wrapped by the width of a terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in rows[0] if rows else ("nothing here yet",):
        numeric = any(isinstance(row[column], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    console = Console(file=sys.stdout, width=10_000, highlight=False, markup=False)
    console.print(table, soft_wrap=True)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def write_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        writer = csv.DictWriter(sys.stdout, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.4g}"
    return str(value)
