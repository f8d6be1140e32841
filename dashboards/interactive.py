"""Charts as Plotly figures.

Figures are plain dictionaries: building some hundred traces as validated objects would take longer
than all the rest of a report.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from dashboards.charts import COLOURS, GREY, INK, SYMBOLS, Chart, Panel, Parallel, Series, square_range
from solvers.methods import METHODS

_LEGEND_ROW = 20  # pixels
_LEGEND_COLUMNS = 7


def plotly_figure(chart: Chart | Parallel) -> dict[str, Any]:
    """Data and layout, as plotly.js takes them."""
    return _parallel(chart) if isinstance(chart, Parallel) else _panels(chart)


def _panels(chart: Chart) -> dict[str, Any]:
    from plotly.subplots import make_subplots

    n_rows, n_columns = len(chart.rows), max(map(len, chart.rows))
    # The grid's axes and titles only; everything else is added as dictionaries.
    grid = make_subplots(
        n_rows,
        n_columns,
        subplot_titles=[panel.title for panel in chart.panels],
        horizontal_spacing=0.32 / n_columns if n_columns > 1 else 0.1,
        vertical_spacing=0.36 / n_rows,
    )
    layout = grid.to_dict()["layout"]
    layout.setdefault("annotations", [])
    data: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    listed: set[str] = set()
    for index, panel in enumerate(chart.panels, start=1):
        number = "" if index == 1 else str(index)
        for series in panel.series:
            data.append(_trace(series, number, first=series.name not in listed))
            listed.add(series.name)
        layout[f"xaxis{number}"] |= _axis(panel.x_title, panel.x_log)
        layout[f"yaxis{number}"] |= _axis(panel.y_title, panel.y_log)
        _decorate(layout, shapes, panel, number)
    legend_rows = -(-len(listed) // _LEGEND_COLUMNS) if chart.legend else 0
    plot_height = chart.row_height * n_rows
    layout |= _LAYOUT | {
        "barmode": "stack",
        "height": plot_height + 60 + _LEGEND_ROW * legend_rows,
        "shapes": shapes,
        "showlegend": chart.legend and len(listed) > 1,
        "legend": {"orientation": "h", "y": -60 / plot_height, "yanchor": "top"},
    }
    for annotation in layout["annotations"]:
        annotation["font"] = {"size": 13, "color": INK}
    return {"data": data, "layout": layout}


_LAYOUT: dict[str, Any] = {
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
    "margin": {"l": 64, "r": 16, "t": 36, "b": 56},
    "hoverlabel": {"namelength": -1},
    "modebar": {
        "bgcolor": "rgba(0,0,0,0)",
        "color": GREY,
        "activecolor": GREY,
        "remove": ["lasso2d", "select2d"],
    },
}


def _axis(title: str, log: bool) -> dict[str, Any]:
    axis = {
        "title": {"text": title},
        "gridcolor": "rgba(128,128,128,0.25)",
        "zeroline": False,
        "automargin": True,
    }
    return axis | ({"type": "log", "exponentformat": "power"} if log else {})


def _trace(series: Series, number: str, *, first: bool) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "name": series.name,
        "legendgroup": series.name,
        "showlegend": first,
        "visible": "legendonly" if series.background else True,
        "xaxis": f"x{number}",
        "yaxis": f"y{number}",
        "x": _packed(series.x),
        "y": _packed(series.y),
    }
    if series.kind == "bars":
        return trace | {"type": "bar", "orientation": "h", "marker": {"color": series.colour, "line": {"width": 0}}}
    if series.error is not None:
        trace["error_x"] = {"type": "data", "array": _packed(series.error), "thickness": 1.5}
    modes = {"points": "markers", "segments": "lines"}
    return trace | {
        "type": "scatter",
        "mode": modes.get(series.kind, "lines+markers" if len(series.x) <= 30 else "lines"),
        "line": {
            "color": series.colour,
            "dash": "dash" if series.dashed and series.kind == "line" else "solid",
            "width": 9 if series.kind == "segments" else 2,
        },
        "marker": {
            "color": series.colour,
            "symbol": SYMBOLS[series.symbol][0],
            "size": 8 if series.kind == "points" else 5,
        },
    }


def _packed(values: Any) -> Any:
    """Longer runs of numbers as bytes, which plotly.js reads and which take a third of the room."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        return list(values)
    if array.size <= 8:
        return [float(f"{value:.7g}") for value in array]
    return {"dtype": "f4", "bdata": base64.b64encode(array.astype("<f4").tobytes()).decode()}


def _decorate(layout: dict[str, Any], shapes: list[dict[str, Any]], panel: Panel, number: str) -> None:
    x, y = layout[f"xaxis{number}"], layout[f"yaxis{number}"]
    for height, colour in panel.levels:
        shapes.append(
            {
                "type": "line",
                "xref": f"x{number} domain",
                "yref": f"y{number}",
                "x0": 0,
                "x1": 1,
                "y0": height,
                "y1": height,
                "line": {"color": colour, "dash": "dot", "width": 2},
            }
        )
    if panel.zero:
        shapes.append(
            {
                "type": "line",
                "xref": f"x{number}",
                "yref": f"y{number} domain",
                "x0": 0,
                "x1": 0,
                "y0": 0,
                "y1": 1,
                "line": {"color": GREY, "width": 1},
            }
        )
    if panel.diagonal:
        low, high = square_range(panel)
        x["range"] = y["range"] = [low, high]
        shapes.append(
            {
                "type": "line",
                "xref": f"x{number}",
                "yref": f"y{number}",
                "x0": low,
                "x1": high,
                "y0": low,
                "y1": high,
                "line": {"color": GREY, "dash": "dot", "width": 1},
            }
        )
    if panel.levels and panel.series:
        # Shapes do not widen an axis, and a level out of sight would be no comparison.
        values = np.concatenate(
            [np.asarray(s.y, dtype=float) for s in panel.series if not s.background]
            + [[height for height, _ in panel.levels]]
        )
        room = 0.08 * float(np.ptp(values)) or 0.001
        y["range"] = [float(values.min()) - room, float(values.max()) + room]
    if panel.series and all(np.asarray(s.x).dtype.kind == "i" for s in panel.series):
        x["tickformat"], x["nticks"] = "d", 1 + max(int(np.max(s.x)) for s in panel.series)
    if not panel.series:
        layout["annotations"].append(
            {
                "text": panel.missing,
                "showarrow": False,
                "x": 0.5,
                "y": 0.5,
                "xref": f"x{number} domain",
                "yref": f"y{number} domain",
            }
        )
        x["visible"] = y["visible"] = False
    elif isinstance(next(iter(panel.series[0].y), None), str):
        y["autorange"] = "reversed"  # categories read from the top
        y["type"] = "category"


def _parallel(chart: Parallel) -> dict[str, Any]:
    layout = _LAYOUT | {"margin": {"l": 110, "r": 60, "t": 60, "b": 24}, "height": 620}
    if chart.is_empty:
        hidden = {"visible": False}
        note = {
            "text": chart.missing,
            "showarrow": False,
            "x": 0.5,
            "y": 0.5,
            "xref": "paper",
            "yref": "paper",
        }
        return {
            "data": [],
            "layout": layout | {"annotations": [note], "xaxis": hidden, "yaxis": hidden, "height": 200},
        }
    names = [name for name in METHODS if name in set(chart.methods)]
    # Steps of the colour scale, one per method: a parallel plot colours its lines by number only.
    scale = [[(i + end) / len(names), COLOURS[name]] for i, name in enumerate(names) for end in (0, 1)]
    trace = {
        "type": "parcoords",
        "line": {
            "color": [names.index(method) for method in chart.methods],
            "colorscale": scale,
            "cmin": -0.5,
            "cmax": len(names) - 0.5,
        },
        "dimensions": [
            {"label": label, "values": _packed(values)}
            | ({"tickvals": [at for at, _ in ticks], "ticktext": [text for _, text in ticks]} if ticks else {})
            for label, values, ticks in chart.axes
        ],
    }
    return {"data": [trace], "layout": layout}
