"""Tables: values for programs, texts for people, and where each number comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

EMPTY = ""


@dataclass(frozen=True)
class Table:
    """Values for programs, the same as text for people, and which cells stand out.

    `frame` may have more rows than `text`, which people have to read. Columns of `text` are tuples, (dataset, quantity,
    source), or one name. An empty text is a figure that does not exist.

    Attributes
    ----------
    best : (row, column) of text that are printed bold.
    fits : numbers of the studies behind a (row, column) of text; column None stands for the whole row.
    flagged : (row, column) of text that the reader should doubt.
    folded : shown when the reader asks for it.
    words : cells are sentences, not numbers.
    """

    name: str
    title: str
    note: str
    frame: pd.DataFrame
    text: pd.DataFrame
    best: set[tuple[Any, Any]] = field(default_factory=set)
    fits: Mapping[tuple[Any, Any], Sequence[int]] = field(default_factory=dict)
    flagged: set[tuple[Any, Any]] = field(default_factory=set)
    folded: bool = False
    words: bool = False

    @property
    def is_empty(self) -> bool:
        return self.text.empty


def three_digits(value: float) -> str:
    return f"{value:.3f}"


def four_digits(value: float) -> str:
    return f"{value:.4f}"


def significant(value: float) -> str:
    """Three significant digits without an exponent where people can read that."""
    if 1e3 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value == 0 or 1e-4 <= abs(value) < 1e3 else f"{value:.1e}"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 3600 else f"{seconds / 3600:.3g} h"


def plain_table(
    name: str,
    title: str,
    note: str,
    frame: pd.DataFrame,
    write: Mapping[str, Callable[[Any], str]] | None = None,
    **more: Any,
) -> Table:
    """A frame as it is; floats get three significant digits unless `write` says otherwise."""
    formats = write or {}
    text = pd.DataFrame(
        {column: [plain_text(value, formats.get(str(column))) for value in frame[column]] for column in frame.columns},
        index=frame.index,
        columns=frame.columns,
    )
    return Table(name, title, note, frame, text, **more)


def plain_text(value: Any, write: Callable[[Any], str] | None = None) -> str:
    """A cell; nothing for a missing value."""
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return EMPTY
    if write is not None:
        return write(value)
    return significant(float(value)) if isinstance(value, float | np.floating) else str(value)


def with_error(write: Callable[[float], str], value: float, error: float) -> str:
    """A mean and its standard error where there is one."""
    mean = plain_text(float(value), write)
    return f"{mean} ± {write(error)}" if mean and not pd.isna(error) else mean


def best_of(values: pd.Series, write: Callable[[float], str], better: str) -> list[str]:
    """Rows whose written value is the best of the column; none where no value is best."""
    known = values.dropna()
    if known.empty or not better:
        return []
    extreme = known.max() if better == "max" else known.min()
    return [str(row) for row, value in known.items() if write(value) == write(extreme)]
