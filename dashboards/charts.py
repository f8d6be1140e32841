"""Charts as plain descriptions: `interactive` gives them to Plotly, `printed` to Matplotlib.

One description per figure keeps both forms equal, and every method in its one colour.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from solvers.methods import METHODS

INK = "#444444"
GREY = "#888888"
# A convex method and the non-convex one that it stands for share a hue.
_PAIRED = {
    "mdml-csfn": "#2f6fde",
    "pdml-sfn": "#86aef0",
    "mdml-cvnd": "#d9480f",
    "pdml-vnd": "#f0a27c",
    "mdml-cldd": "#0f9d58",
    "pdml-ldd": "#79cda2",
}


def _spread_hues(names: Sequence[str]) -> dict[str, str]:
    """Muted colours for the methods in the background, neighbours far apart in hue."""
    colours = {}
    for index, name in enumerate(names):
        rgb = colorsys.hls_to_rgb((0.13 + index * 0.618034) % 1, 0.5, 0.38)
        colours[name] = "#" + "".join(f"{round(255 * part):02x}" for part in rgb)
    return colours


COLOURS = _spread_hues([name for name in METHODS if name not in _PAIRED]) | _PAIRED
SYMBOLS = {"mdml": ("circle", "o"), "pdml": ("diamond", "D"), "other": ("square", "s")}
FOREGROUND = tuple(_PAIRED)

# Side by side, more datasets than this are too narrow to read; the tables have all of them.
DATASETS = 4
_POINTS = 150  # of a curve; more cannot be told apart on a screen


@dataclass(frozen=True)
class Series:
    """One named set of points.

    kind : "line", "points", "bars" (horizontal, stacked) or "segments" (x and y have pairs of
        ends, separated by NaN).
    background : drawn only when the reader asks for it in the legend.
    """

    name: str
    x: Any
    y: Any
    colour: str
    kind: str = "line"
    error: Any = None  # half widths along x
    dashed: bool = False
    symbol: str = "mdml"
    background: bool = False


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
    zero: bool = False  # a vertical line at zero
    diagonal: bool = False
    missing: str = ""  # what to say where there is nothing to draw


@dataclass(frozen=True)
class Chart:
    """A figure: panels in rows."""

    name: str
    title: str
    caption: str
    rows: list[list[Panel]]
    row_height: int = 340  # pixels
    legend: bool = True

    @property
    def panels(self) -> list[Panel]:
        return [panel for row in self.rows for panel in row]

    @property
    def is_empty(self) -> bool:
        return not any(panel.series for panel in self.panels)


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


def series_style(method: str) -> dict[str, Any]:
    """What makes a method look the same in every figure."""
    family = METHODS[method].family
    return {
        "colour": COLOURS[method],
        "symbol": family,
        "dashed": family == "pdml",
        "background": method not in FOREGROUND,
    }


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


def method_lines(curves: pd.DataFrame, x: str, y: str) -> list[Series]:
    """One line per method of a frame that holds the points of all."""
    return [
        Series(str(method), curve[x].to_numpy(), curve[y].to_numpy(), **series_style(str(method)))
        for method, curve in curves.groupby("method", sort=False)
    ]


def thinned(n: int) -> np.ndarray:
    """At most `_POINTS` indices below n, denser at the start."""
    if n <= _POINTS:
        return np.arange(n)
    return np.unique(np.geomspace(1, n, _POINTS).astype(int) - 1)


def nothing() -> Panel:
    """A panel for a sweep without a finished fit."""
    return Panel("", "", "", missing="no fit has finished")


def left_out(datasets: Sequence[str]) -> str:
    """Says which datasets a figure has no room for."""
    rest = datasets[DATASETS:]
    return f" Not drawn, but in the tables: {', '.join(rest)}." if rest else ""
