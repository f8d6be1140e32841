"""Charts as SVG and PNG files, by Matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dashboards.charts import COLOURS, GREY, INK, SYMBOLS, Chart, Panel, Parallel, Series, square_range

_PANEL = (5.2, 3.4)  # inches
_MARGINS = {"left": 1.1, "right": 0.3, "top": 0.7, "bottom": 1.1}  # inches
_LEGEND_ROW = 0.22  # inches

def write_files(chart: Chart | Parallel, folder: Path) -> list[Path]:
    """The printed form, as SVG and PNG."""
    import matplotlib
    from matplotlib.figure import Figure

    # Text stays text in the SVG: smaller, searchable, and faster to write.
    settings = {"svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "svg.hashsalt": "sweep"}
    with matplotlib.rc_context(settings):
        if isinstance(chart, Parallel):
            figure = Figure(figsize=(10, 5))
            _draw_parallel(figure, chart)
        else:
            n_rows, n_columns = len(chart.rows), max(map(len, chart.rows))
            height = max(_PANEL[1], chart.row_height / 95)
            figure = Figure(figsize=(_PANEL[0] * n_columns, height * n_rows + 0.5))
            _draw_panels(figure, chart)
        paths = [folder / f"{chart.name}.{kind}" for kind in ("svg", "png")]
        figure.savefig(paths[0], bbox_inches="tight", metadata={"Date": None})
        figure.savefig(paths[1], bbox_inches="tight", dpi=120)
    return paths


def _draw_panels(figure: Any, chart: Chart) -> None:
    n_rows, n_columns = len(chart.rows), max(map(len, chart.rows))
    figure.suptitle(chart.title)
    figure.subplots_adjust(wspace=0.45, hspace=0.42)
    handles: dict[str, Any] = {}
    for i, row in enumerate(chart.rows):
        for j, panel in enumerate(row):
            axes = figure.add_subplot(n_rows, n_columns, i * n_columns + j + 1)
            # A figure with nothing in the foreground shows what it has.
            hide = any(not s.background for s in panel.series)
            shown = [s for s in panel.series if not (hide and s.background)]
            for name, handle in _draw_series(axes, shown).items():
                handles.setdefault(name, handle)
            _decorate_axes(axes, panel, shown)
    if len(handles) > 1:
        figure.legend(handles.values(), handles.keys(), loc="upper center", bbox_to_anchor=(0.5, 0.02),
                      ncols=6, frameon=False, fontsize=8)  # fmt: skip


def _draw_series(axes: Any, shown: Sequence[Series]) -> dict[str, Any]:
    handles: dict[str, Any] = {}
    stacked: dict[str, float] = {}
    for series in shown:
        marker = SYMBOLS[series.symbol][1]
        if series.kind == "bars":
            starts = [stacked.get(name, 0.0) for name in series.y]
            handles[series.name] = axes.barh(list(series.y), series.x, left=starts, color=series.colour)
            stacked |= {name: start + width for name, start, width in zip(series.y, starts, series.x, strict=True)}
        elif series.kind == "points":
            handles[series.name] = axes.errorbar(series.x, series.y, xerr=series.error, fmt=marker, color=series.colour,
                                                 markersize=5, linestyle="none")  # fmt: skip
        else:
            style = "--" if series.dashed and series.kind == "line" else "-"
            (handles[series.name],) = axes.plot(
                series.x, series.y, style, color=series.colour,
                marker=marker if series.kind != "segments" and len(series.x) <= 30 else None, markersize=3,
                drawstyle="steps-post" if series.kind == "steps" else "default",
                linewidth=6 if series.kind == "segments" else 1.5,
                solid_capstyle="butt",
            )  # fmt: skip
    return handles


def _decorate_axes(axes: Any, panel: Panel, shown: Sequence[Series]) -> None:
    axes.set(title=panel.title, xlabel=panel.x_title, ylabel=panel.y_title)
    axes.title.set_fontsize(10)
    if panel.x_log and shown:
        axes.set_xscale("log")
    if panel.y_log and shown:
        axes.set_yscale("log")
    for height, colour in panel.levels:
        axes.axhline(height, color=colour, linestyle=":")
    if panel.zero:
        axes.axvline(0, color=GREY, linewidth=1)
    if panel.diagonal and shown:
        low, high = square_range(panel)
        axes.plot([low, high], [low, high], ":", color=GREY)
    if not panel.series:
        axes.text(0.5, 0.5, panel.missing, ha="center", va="center", color=GREY, transform=axes.transAxes, wrap=True)
        axes.set(xticks=[], yticks=[])
    if any(isinstance(value, str) for series in shown for value in list(series.y)[:1]):
        axes.invert_yaxis()


def _draw_parallel(figure: Any, chart: Parallel) -> None:
    from matplotlib.collections import LineCollection

    axes = figure.add_subplot()
    axes.set_title(chart.title)
    if chart.is_empty:
        axes.text(0.5, 0.5, chart.missing, ha="center", va="center", color=GREY, transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    heights = []
    for place, (_, values, ticks) in enumerate(chart.axes):
        low, high = float(values.min()), float(values.max())
        span = (high - low) or 1.0
        heights.append((values - low) / span)
        axes.axvline(place, color=INK, linewidth=1)
        for at, label in ticks or [(low, f"{low:.3g}"), (high, f"{high:.3g}")]:
            axes.text(place, (at - low) / span, f" {label}", fontsize=7, va="center")
    lines = np.stack([np.column_stack([np.arange(len(heights)), row]) for row in np.stack(heights, axis=1)])
    colours = [COLOURS[method] for method in chart.methods]
    axes.add_collection(LineCollection(list(lines), colors=colours, alpha=0.5, linewidths=0.8))
    axes.set(xlim=(-0.1, len(heights) - 0.6), ylim=(-0.03, 1.03), yticks=[])
    axes.set_xticks(range(len(heights)), [label for label, _, _ in chart.axes])
    axes.grid(False)
