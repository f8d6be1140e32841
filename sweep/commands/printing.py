"""Rows for people and for programs, on stdout."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

# Columns of names and numbers keep their width; texts give way.
_NEVER_CUT = 20
_NUMBER = re.compile(r"(<= ?)?\d[\d.,e+/-]*( ± [\d.]+)?$")


def print_table(rows: Sequence[Mapping[str, Any]], title: str = "", optional: Sequence[str] = ()) -> None:
    """Rows as aligned text, one line each; on a terminal, long texts are cut to its width.

    Where it is too narrow, columns of `optional` are left out, the first of them first.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    rows = _aligned(rows)
    for column in optional:
        if _width(rows) > table_width():
            rows = [{name: value for name, value in row.items() if name != column} for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    columns = list(rows[0]) if rows else ["nothing here yet"]
    widths = {c: max(len(c), *(len(_cell(row[c])) for row in rows)) if rows else len(c) for c in columns}
    texts = [column for column in columns if widths[column] > _NEVER_CUT]
    room = table_width() - 2 * (len(columns) - 1) - sum(widths[column] for column in columns if column not in texts)
    for column in columns:
        numeric = any(_is_number(row[column]) for row in rows)
        cut = max(8, room // len(texts)) if column in texts else widths[column]
        table.add_column(
            column, justify="right" if numeric else "left", no_wrap=True, overflow="ellipsis",
            min_width=min(cut, widths[column]), max_width=cut,
        )  # fmt: skip
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    console = Console(file=sys.stdout, width=table_width(), highlight=False, markup=False)
    if title:
        sys.stdout.write(f"{title}\n")
    console.print(table)
    sys.stdout.flush()


def _aligned(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows that all have the columns of any of them, in one order; fits of several methods differ in theirs."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in columns} for row in rows]


def _width(rows: Sequence[Mapping[str, Any]]) -> int:
    """Columns that a table takes, two between any two of its own."""
    widths = [max(len(name), *(len(_cell(row[name])) for row in rows)) for name in (rows[0] if rows else ())]
    return sum(widths) + 2 * (len(widths) - 1)


def table_width() -> int:
    """Columns of the terminal; a file or a pipe takes lines of any length."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return shutil.get_terminal_size().columns if known else 10_000


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def print_rows(rows: Sequence[Mapping[str, Any]], as_json: bool, title: str = "") -> None:
    if as_json:
        print_json(list(rows))
    else:
        print_table(rows, title)


def write_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        rows = _aligned(rows)
        writer = csv.DictWriter(sys.stdout, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def print_line(text: Any) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def with_error(value: float | None, error: float | None) -> str:
    """0.8512 ± 0.0031; the error is left out where there is none."""
    if value is None:
        return "-"
    return f"{value:.4f}" if error is None else f"{value:.4f} ± {error:.4f}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and bool(_NUMBER.match(value)))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
