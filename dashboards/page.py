"""A report's content laid out as one HTML page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pandas as pd
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from dashboards.charts import AnyChart
from dashboards.details import as_script, fit_details
from dashboards.paper_tables import PAPER
from dashboards.records import SweepRecords
from dashboards.svg import chart_svg
from dashboards.tables import Table

# Columns next to each other in one block of a table: more do not fit a printed page.
_COLUMNS = 12
_NUMERIC = frozenset("0123456789+-.")


@dataclass(frozen=True)
class Section:
    """A heading with its tables and charts; `folded` is what the reader sees until it is opened."""

    name: str
    title: str
    items: Sequence[Table | AnyChart] = ()
    note: str = ""
    folded: str = ""
    missing: Sequence[tuple[str, str]] = ()  # other things that are left out, and why

    @property
    def shown(self) -> list[Table | AnyChart]:
        return [item for item in self.items if not item.is_empty]

    @property
    def left_out(self) -> list[tuple[str, str]]:
        """Titles of empty charts, and why they are."""
        empty = [item for item in self.items if item.is_empty and not isinstance(item, Table)]
        return [*self.missing, *((chart.title, chart.missing) for chart in empty)]

    @property
    def is_empty(self) -> bool:
        return not self.shown and not self.left_out


@dataclass(frozen=True)
class Content:
    """What a report says, before it is laid out."""

    summary: Sequence[str]
    warnings: Sequence[str]
    sections: Sequence[Section] = field(default_factory=list)

    @property
    def tables(self) -> list[Table]:
        return [item for section in self.sections for item in section.shown if isinstance(item, Table)]

    @property
    def charts(self) -> list[AnyChart]:
        return [item for section in self.sections for item in section.shown if not isinstance(item, Table)]


def render(sweep: SweepRecords, content: Content, folder: str = "", *, live: float = 0, command: str = "") -> str:
    """The page as text.

    Parameters
    ----------
    folder : where the files of tables and charts lie beside the page; empty if there are none.
    live : seconds after which the page asks its server for a newer one; 0 for a file.
    command : as in `fit_details`.
    """
    return _template().render(
        sweep=sweep,
        content=content,
        sections=[section for section in content.sections if not section.is_empty],
        folder=folder,
        live=live,
        done=sum(len(study.fits) for study in sweep.studies),
        written=time.strftime("%Y-%m-%d %H:%M %Z"),
        spec=yaml.safe_dump(dict(sweep.spec), sort_keys=False, allow_unicode=True),
        fits=Markup(as_script(fit_details(sweep, command))),
        is_table=lambda item: isinstance(item, Table),
        blocks=table_blocks,
        counted=lambda n, word: f"{n} {word}{'' if n == 1 else 's'}",
        chart_svg=lambda chart: Markup(chart_svg(chart)),
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("dashboards", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")


@dataclass(frozen=True)
class Cell:
    """A text, how it looks, and the numbers of the studies behind it."""

    text: str
    classes: str = ""
    studies: str = ""


@dataclass(frozen=True)
class Heading:
    """A text over some columns; words stand at the left, numbers at the right."""

    text: str
    span: int = 1
    classes: str = ""


@dataclass(frozen=True)
class Block:
    """A part of a table that fits a page."""

    index_name: str
    header: list[list[Heading]]  # per level
    rows: list[tuple[str, list[Cell]]]


def table_blocks(table: Table) -> list[Block]:
    """A table of few columns as it is; of many, a few datasets at a time."""
    if not isinstance(table.text.columns, pd.MultiIndex):
        return [_block(table, list(table.text.columns))]
    columns_of: dict[str, list[Any]] = {}
    for column in table.text.columns:
        columns_of.setdefault(column[0], []).append(column)
    parts: list[list[Any]] = []
    for columns in columns_of.values():
        if parts and len(parts[-1]) + len(columns) <= _COLUMNS:
            parts[-1] += columns
        else:
            parts.append(list(columns))
    return [_block(table, columns) for columns in parts]


def _block(table: Table, columns: list[Any]) -> Block:
    depth = table.text.columns.nlevels
    names = [column if isinstance(column, tuple) else (column,) for column in columns]
    part = table.text[columns]
    words = [not any(text[:1] in _NUMERIC for text in part[column] if text) for column in columns]
    header = []
    for level in range(depth):
        spans: list[Heading] = []
        previous: Any = None
        for name, is_word in zip(names, words, strict=True):
            if name[: level + 1] == previous:
                spans[-1] = Heading(spans[-1].text, spans[-1].span + 1)
            else:
                spans.append(Heading(str(name[level]), 1, "word" if is_word else ""))
            previous = name[: level + 1]
        if any(heading.text for heading in spans):
            header.append(spans)
    places = list(zip(columns, words, strict=True))
    rows = [
        (str(label), [_cell(table, label, *place, text) for place, text in zip(places, texts, strict=True)])
        for label, texts in zip(part.index, part.itertuples(index=False, name=None), strict=True)
    ]
    return Block(str(table.text.index.name or ""), header, rows)


def _cell(table: Table, row: Any, column: Any, is_word: bool, text: str) -> Cell:
    place = (row, column)
    classes = {
        "best": place in table.best,
        "flag": place in table.flagged,
        "paper": isinstance(column, tuple) and column[-1] == PAPER,
        "word": is_word,
        "text": len(text) > 26,
        text.replace(" ", "-"): table.words and column == "verdict",
    }
    studies = ",".join(map(str, table.fits.get(place, ()))) if text else ""
    return Cell(text, " ".join(name for name, holds in classes.items() if holds), studies)
