"""A report's content laid out as one HTML page."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

import pandas as pd
import yaml
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from dashboards.charts import Chart, Parallel
from dashboards.claims import Claim
from dashboards.interactive import plotly_figure
from dashboards.records import SweepRecords
from dashboards.tables import PAPER, Table, plain_table

# Columns next to each other in one block of a table: more do not fit a printed page.
_COLUMNS = 12


@dataclass(frozen=True)
class Content:
    """What a report says, before it is laid out."""

    summary: list[str]
    warnings: list[str]
    claims: list[Claim]
    paper: list[Table]
    efficiency: Table
    seconds: Table
    differences: Table
    failures: Table
    charts: Mapping[str, Chart | Parallel]
    provenance: Mapping[str, str]

    @property
    def tables(self) -> list[Table]:
        claims = plain_table(
            "claims",
            "Claims of the paper",
            "",
            pd.DataFrame([asdict(c) for c in self.claims]).set_index("claim"),
        )
        return [claims, self.efficiency, self.seconds, self.differences, *self.paper, self.failures]


def render(sweep: SweepRecords, content: Content, folder: str) -> str:
    """The page as text."""
    from plotly.offline import get_plotlyjs

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((resources.files("dashboards") / "report.html.j2").read_text(encoding="utf-8"))
    return template.render(
        sweep=sweep,
        content=content,
        folder=folder,
        done=len(sweep.fits),
        written=time.strftime("%Y-%m-%d %H:%M %Z"),
        spec=yaml.safe_dump(dict(sweep.spec), sort_keys=False),
        plotly_js=Markup(get_plotlyjs()),
        blocks=table_blocks,
        counted=lambda n, word: f"{n} {word}{'' if n == 1 else 's'}",
        chart_html=_chart_html,
        chart_width=_chart_width,
    )


def _chart_html(chart: Chart | Parallel) -> Markup:
    from plotly.io import to_html

    config = {"responsive": True, "displaylogo": False}
    return Markup(
        to_html(
            plotly_figure(chart),
            validate=False,
            full_html=False,
            include_plotlyjs=False,
            div_id=f"chart-{chart.name}",
            config=config,
        )
    )


def _chart_width(chart: Chart | Parallel) -> int:
    """Pixels below which a chart scrolls instead of shrinking."""
    if isinstance(chart, Parallel):
        return 760
    names = {series.name for panel in chart.panels for series in panel.series}
    return max(340 * max(map(len, chart.rows)), 640 if len(names) > 8 else 0)


@dataclass(frozen=True)
class Block:
    """A part of a table that fits a page."""

    title: str  # empty for the part that is always shown
    index_name: str
    header: list[list[tuple[str, int]]]  # per level: text and number of columns
    rows: list[tuple[str, list[tuple[str, str]]]]  # label, then text and CSS class of each cell


def table_blocks(table: Table, datasets: list[str]) -> list[Block]:
    """This sweep's datasets first, a few at a time; then those that only the paper has."""
    text = table.text
    if not isinstance(text.columns, pd.MultiIndex):
        return [_block(table, list(text.columns), "")]
    columns_of: dict[str, list[Any]] = {}
    for column in text.columns:
        columns_of.setdefault(column[0], []).append(column)
    parts: list[tuple[bool, list[str]]] = []
    for name in sorted(columns_of, key=lambda name: name not in datasets):
        own = name in datasets
        fits = bool(parts) and parts[-1][0] == own
        if fits and sum(len(columns_of[n]) for n in [*parts[-1][1], name]) <= _COLUMNS:
            parts[-1][1].append(name)
        else:
            parts.append((own, [name]))
    return [
        _block(
            table,
            [c for n in names for c in columns_of[n]],
            "" if own else f"Not in this sweep: {', '.join(names)}",
        )
        for own, names in parts
    ]


def _block(table: Table, columns: list[Any], title: str) -> Block:
    depth = table.text.columns.nlevels
    names = [column if isinstance(column, tuple) else (column,) for column in columns]
    header = []
    for level in range(depth):
        spans: list[tuple[str, int]] = []
        previous: Any = None
        for name in names:
            if name[: level + 1] == previous:
                spans[-1] = (spans[-1][0], spans[-1][1] + 1)
            else:
                spans.append((str(name[level]), 1))
            previous = name[: level + 1]
        if any(text for text, _ in spans):
            header.append(spans)
    part = table.text[columns]
    rows = [
        (
            str(label),
            [(cell, _cell_class(table, label, column, cell)) for column, cell in zip(columns, cells, strict=True)],
        )
        for label, cells in zip(part.index, part.itertuples(index=False, name=None), strict=True)
    ]
    return Block(title, str(table.text.index.name or ""), header, rows)


def _cell_class(table: Table, row: Any, column: Any, cell: str) -> str:
    classes = []
    if not cell:
        classes.append("empty")
    if (row, column) in table.best:
        classes.append("best")
    if isinstance(column, tuple) and column[-1] == PAPER:
        classes.append("paper")
    return " ".join(classes)
