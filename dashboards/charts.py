"""Charts as plain descriptions: `svg` draws them into the page, `printed` into files.

One description per figure keeps both forms equal, and every method in its one colour.
"""

from __future__ import annotations

import colorsys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from solvers.methods import METHODS, PAIRS
from sweep.methods import known_method

INK = "#444444"
GREY = "#888888"
# A convex method and the non-convex one that it stands for share a hue; all are told from white and from black.
_PAIR_COLOURS = (("#2f6fde", "#6598ee"), ("#d9480f", "#e5834f"), ("#0b8a4b", "#3aac77"), ("#8a4fd0", "#ac82e0"))
DATASET_COLOURS = ("#2f6fde", "#d9480f", "#0b8a4b", "#8a4fd0", "#a87b00", "#0b8fa6", "#c2367c")

# Side by side, more datasets than this are too narrow to read; the tables have all of them.
DATASETS = 4
# More methods than this cannot be told apart by colour: the rest is grey until the reader points at it.
FOREGROUND = 8
_POINTS = 50  # of a curve; more cannot be told apart on a screen


def _spread(index: int) -> str:
    """Muted colours, neighbours far apart in hue."""
    rgb = colorsys.hls_to_rgb((0.5 + index * 0.618034) % 1, 0.47, 0.42)
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


_OURS = {name: _spread(index) for index, name in enumerate(METHODS)} | {
    method: colour
    for pair, colours in zip(PAIRS, _PAIR_COLOURS, strict=False)
    for method, colour in zip(pair, colours, strict=True)
}


def colour_of(method: str) -> str:
    """The one colour of a method, also of one that is not ours: its name decides."""
    return _OURS.get(method) or _spread(zlib.crc32(method.encode()) % 997)


@dataclass(frozen=True)
class Series:
    """One named set of points.

    kind : "line", "points", "bars" (horizontal, stacked), "band" (from `y` up to `upper`) or "segments" (x and y have
        pairs of ends, separated by NaN).
    faint : drawn thin, without a place in the legend: one of several that a stronger series sums up.
    background : drawn grey until the reader points at it.
    notes : what to say of each point, in place of its coordinates.
    """

    name: str
    x: Any
    y: Any
    colour: str
    kind: str = "line"
    error: Any = None  # half widths along x
    upper: Any = None
    dashed: bool = False
    symbol: str = "mdml"
    faint: bool = False
    background: bool = False
    notes: Sequence[str] | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x_title: str
    y_title: str
    series: list[Series] = field(default_factory=list)
    x_log: bool = False
    y_log: bool = False
    levels: list[tuple[float, str]] = field(default_factory=list)  # horizontal lines: height, colour
    marks: list[float] = field(default_factory=list)  # vertical lines
    zero: bool = False  # a vertical line at zero
    diagonal: bool = False
    missing: str = ""  # what to say where there is nothing to draw

    @property
    def is_categorical(self) -> bool:
        return any(isinstance(value, str) for series in self.series for value in list(series.y)[:1])

    @property
    def categories(self) -> list[str]:
        """Names on the y axis, from the top."""
        return list(dict.fromkeys(str(value) for series in self.series for value in series.y))


@dataclass(frozen=True)
class Chart:
    """A figure: panels that stand side by side as far as there is room."""

    name: str
    title: str
    caption: str
    panels: list[Panel]
    height: int = 270  # of a panel, in the units of `svg`
    legend: bool = True

    @property
    def drawn(self) -> list[Panel]:
        return [panel for panel in self.panels if panel.series]

    @property
    def is_empty(self) -> bool:
        return not self.drawn

    @property
    def missing(self) -> str:
        """Why there is nothing to draw."""
        reasons = dict.fromkeys(panel.missing for panel in self.panels if panel.missing)
        return "; ".join(reasons) or "no fit has finished"


@dataclass(frozen=True)
class Parallel:
    """Parallel coordinates: one line per row of the columns, coloured by method."""

    name: str
    title: str
    caption: str
    axes: list[tuple[str, np.ndarray, list[tuple[float, str]]]]  # label, values, ticks
    methods: list[str]  # of every line
    missing: str = ""

    @property
    def is_empty(self) -> bool:
        return not self.methods


AnyChart = Chart | Parallel


def series_style(method: str, foreground: Sequence[str] = ()) -> dict[str, Any]:
    """What makes a method look the same in every figure; outside a given foreground it is grey."""
    known = known_method(method)
    return {
        "colour": colour_of(method),
        "symbol": known.family if known.family in SYMBOLS else "own",
        "dashed": known.family == "pdml",
        "background": bool(foreground) and method not in foreground,
    }


# Matplotlib's names of the markers of each family.
SYMBOLS = {"mdml": "o", "pdml": "D", "other": "s", "own": "^"}


def square_range(panel: Panel) -> tuple[float, float]:
    """Common limits of both axes, a little wider than the points."""
    values = [np.asarray(v, dtype=float) for s in panel.series for v in (s.x, s.y)]
    if not values:
        return 0.0, 1.0
    low, high = float(np.nanmin(np.concatenate(values))), float(np.nanmax(np.concatenate(values)))
    room = 0.05 * (high - low) or 0.01
    return low - room, high + room


def of_dataset(frame: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Rows of one dataset."""
    return frame[frame["dataset"] == dataset]


def method_lines(curves: pd.DataFrame, x: str, y: str, foreground: Sequence[str] = ()) -> list[Series]:
    """One line per method of a frame that holds the points of all."""
    return [
        Series(str(method), curve[x].to_numpy(), curve[y].to_numpy(), **series_style(str(method), foreground))
        for method, curve in curves.groupby("method", sort=False)
    ]


def thinned(n: int) -> np.ndarray:
    """At most `_POINTS` indices below n, denser at the start."""
    if n <= _POINTS:
        return np.arange(n)
    return np.unique(np.geomspace(1, n, _POINTS).astype(int) - 1)


def left_out(datasets: Sequence[str]) -> str:
    """Says which datasets a figure has no room for."""
    rest = datasets[DATASETS:]
    return f" Not drawn, but in the tables: {', '.join(rest)}." if rest else ""
