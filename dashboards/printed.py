"""Charts as SVG and PNG files, by Matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dashboards.charts import GREY, INK, SYMBOLS, AnyChart, Chart, Panel, Parallel, Series, colour_of, square_range

_PANEL = (5.2, 3.4)  # inches
_MARGINS = {"left": 1.1, "right": 0.3, "top": 0.7}  # inches
_LEGEND_ROW = 0.22  # inches
_ACROSS = 3  # panels in a row


def write_files(chart: AnyChart, folder: Path) -> list[Path]:
    """One SVG and one PNG; returns their paths."""
    import matplotlib
    from matplotlib.figure import Figure

    # Text stays text in the SVG: smaller, searchable, and faster to write.
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "svg.hashsalt": "sweep",
    }
    with matplotlib.rc_context(settings):
        figure = Figure()
        if isinstance(chart, Parallel):
            figure.set_size_inches(11, 5)
            _draw_parallel(figure, chart)
        else:
            _draw_panels(figure, chart)
        paths = [folder / f"{chart.name}.{kind}" for kind in ("svg", "png")]
        figure.savefig(paths[0], metadata={"Date": None})
        figure.savefig(paths[1], dpi=110)
    return paths


def _draw_panels(figure: Any, chart: Chart) -> None:
    panels = chart.drawn or chart.panels
    n_columns = min(_ACROSS, len(panels))
    n_rows = -(-len(panels) // n_columns)
    left = max(_MARGINS["left"], _label_width(chart))
    width = _PANEL[0] * n_columns + left - _MARGINS["left"]
    tallest = max(len(panel.categories) if panel.is_categorical else 0 for panel in panels)
    height = max(_PANEL[1], 0.22 * tallest + 1) * n_rows
    handles: dict[str, Any] = {}
    for index, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(n_rows, n_columns, index)
        for name, handle in _draw_series(axes, panel.series).items():
            handles.setdefault(name, handle)
        _decorate_axes(axes, panel, panel.series)
    columns = max(1, int(width / 1.7))
    legend_rows = -(-len(handles) // columns) if chart.legend and len(handles) > 1 else 0
    height += legend_rows * _LEGEND_ROW
    figure.set_size_inches(width, height)
    # Fixed margins: measuring every label for a tight layout would double the time of a report.
    bottom = (0.6 + legend_rows * _LEGEND_ROW) / height
    figure.subplots_adjust(
        left=left / width,
        right=1 - _MARGINS["right"] / width,
        bottom=bottom,
        top=1 - _MARGINS["top"] / height,
        wspace=0.25 * left / _MARGINS["left"],
        hspace=0.45,
    )
    figure.suptitle(chart.title, y=1 - 0.2 / height)
    if legend_rows:
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=columns, frameon=False, fontsize=8)


def _label_width(chart: Chart) -> float:
    """Inches that the longest category on a y axis takes."""
    names = [str(y) for panel in chart.panels for s in panel.series for y in list(s.y)[:40] if isinstance(y, str)]
    return 0.35 + 0.075 * max(map(len, names), default=0)


def _draw_series(axes: Any, shown: Sequence[Series]) -> dict[str, Any]:
    handles: dict[str, Any] = {}
    stacked: dict[str, float] = {}
    for series in shown:
        marker, colour = SYMBOLS[series.symbol], "#c4cad1" if series.background else series.colour
        handle: Any
        if series.kind == "bars":
            starts = [stacked.get(name, 0.0) for name in series.y]
            handle = axes.barh(list(series.y), series.x, left=starts, color=colour)
            stacked |= {name: start + width for name, start, width in zip(series.y, starts, series.x, strict=True)}
        elif series.kind == "band":
            handle = axes.fill_between(series.x, series.y, series.upper, color=colour, alpha=0.3, linewidth=0)
        elif series.kind == "points":
            handle = axes.errorbar(
                series.x, series.y, xerr=series.error, fmt=marker, color=colour, markersize=5, linestyle="none"
            )
        else:
            (handle,) = axes.plot(
                series.x,
                series.y,
                "--" if series.dashed and series.kind == "line" else "-",
                color=colour,
                marker=marker if series.kind == "line" and len(series.x) <= 30 and not series.faint else None,
                markersize=3,
                linewidth=6 if series.kind == "segments" else 0.6 if series.faint else 1.5,
                alpha=0.5 if series.faint else 1.0,
                zorder=1 if series.background else 2,
                solid_capstyle="butt",
            )
        if not series.faint:
            handles[series.name] = handle
    return handles


def _decorate_axes(axes: Any, panel: Panel, shown: Sequence[Series]) -> None:
    axes.set(xlabel=panel.x_title, ylabel=panel.y_title)
    axes.set_title(panel.title, fontsize=10, y=1.01)  # a given height spares a search for a free one
    if panel.x_log and shown:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")  # powers as formulas would have to be typeset
    if panel.y_log and shown:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    if shown and all(np.asarray(series.x).dtype.kind == "i" for series in shown):
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.minorticks_off()  # a logarithmic axis would spend most of the time on them
    for height, colour in panel.levels:
        axes.axhline(height, color=colour, linestyle=":")
    for value in [*panel.marks, *([0.0] if panel.zero else [])]:
        axes.axvline(value, color=GREY, linewidth=1)
    if panel.diagonal and shown:
        low, high = square_range(panel)
        axes.plot([low, high], [low, high], ":", color=GREY)
    if not panel.series:
        axes.text(0.5, 0.5, panel.missing, ha="center", va="center", color=GREY, transform=axes.transAxes, wrap=True)
        axes.set(xticks=[], yticks=[])
    if panel.is_categorical:
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
    colours = [colour_of(method) for method in chart.methods]
    axes.add_collection(LineCollection(list(lines), colors=colours, alpha=0.5, linewidths=0.8))
    axes.set(xlim=(-0.1, len(heights) - 0.6), ylim=(-0.03, 1.03), yticks=[])
    axes.set_xticks(range(len(heights)), [label for label, _, _ in chart.axes])
    axes.grid(False)
