def plotly_figure(chart: Chart | Parallel) -> Any:
    """The interactive form."""
    return _plotly_parallel(chart) if isinstance(chart, Parallel) else _plotly_panels(chart)


def _plotly_panels(chart: Chart) -> Any:
    from plotly.subplots import make_subplots

    n_rows, n_columns = len(chart.rows), max(map(len, chart.rows))
    titles = [p.title for row in chart.rows for p in [*row, *[Panel("", "", "")] * (n_columns - len(row))]]
    figure = make_subplots(
        n_rows, n_columns, subplot_titles=titles,
        horizontal_spacing=0.32 / n_columns if n_columns > 1 else 0.1, vertical_spacing=0.28 / n_rows,
    )  # fmt: skip
    listed: set[str] = set()
    for i, row in enumerate(chart.rows, start=1):
        for j, panel in enumerate(row, start=1):
            for series in panel.series:
                figure.add_trace(_trace(series, first=series.name not in listed), row=i, col=j)
                listed.add(series.name)
            _decorate(figure, panel, i, j, n_columns)
    figure.update_layout(
        **_LAYOUT, barmode="stack", height=chart.row_height * n_rows + 90, showlegend=len(listed) > 1,
        legend={"orientation": "h", "y": -70 / (chart.row_height * n_rows), "yanchor": "top", "groupclick": "togglegroup"},
    )  # fmt: skip
    figure.update_annotations(font_size=13)
    return figure


_LAYOUT: dict[str, Any] = {
    "template": "none",
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
    "margin": {"l": 64, "r": 16, "t": 36, "b": 56},
    "hoverlabel": {"namelength": -1},
}


def _trace(series: Series, *, first: bool) -> Any:
    from plotly import graph_objects as go

    common = {
        "name": series.name, "legendgroup": series.name, "showlegend": first,
        "visible": "legendonly" if series.background else True,
    }  # fmt: skip
    x, y = _compact(series.x), _compact(series.y)
    if series.kind == "bars":
        return go.Bar(x=x, y=y, orientation="h", marker_color=series.colour, **common)
    error = {"type": "data", "array": _compact(series.error), "thickness": 1.5} if series.error is not None else None
    modes = {"points": "markers", "segments": "lines"}
    line = {"color": series.colour, "dash": "dash" if series.dashed and series.kind == "line" else "solid",
            "width": 9 if series.kind == "segments" else 2,
            "shape": "hv" if series.kind == "steps" else "linear"}  # fmt: skip
    return go.Scatter(
        x=x, y=y, mode=modes.get(series.kind, "lines+markers" if len(x) <= 30 else "lines"), line=line, error_x=error,
        marker={"color": series.colour, "symbol": SYMBOLS[series.symbol][0], "size": 8 if series.kind == "points" else 5},
        **common,
    )  # fmt: skip


def _compact(values: Any) -> Any:
    """Numbers as float32, which Plotly embeds as bytes; times keep their precision."""
    array = np.asarray(values)
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    return array


def _decorate(figure: Any, panel: Panel, i: int, j: int, n_columns: int) -> None:
    grid = {"gridcolor": "rgba(128,128,128,0.25)", "zeroline": False, "automargin": True}
    figure.update_xaxes(title_text=panel.x_title, type="log" if panel.x_log else None, row=i, col=j, **grid)
    figure.update_yaxes(title_text=panel.y_title, type="log" if panel.y_log else None, row=i, col=j, **grid)
    if panel.x_log:
        figure.update_xaxes(dtick=1, exponentformat="power", row=i, col=j)
    if panel.y_log:
        figure.update_yaxes(exponentformat="power", row=i, col=j)
    for height, colour in panel.levels:
        figure.add_hline(y=height, line_dash="dot", line_color=colour, row=i, col=j)
    if panel.zero:
        figure.add_vline(x=0, line_color=GREY, line_width=1, row=i, col=j)
    if panel.diagonal:
        index = (i - 1) * n_columns + j
        figure.add_shape(type="line", x0=0, y0=0, x1=1, y1=1, line={"color": GREY, "dash": "dot"},
                         xref=f"x{index}", yref=f"y{index}")  # fmt: skip
        low, high = _range(panel)
        figure.update_xaxes(range=[low, high], row=i, col=j)
        figure.update_yaxes(range=[low, high], row=i, col=j)
    if not panel.series:
        figure.add_annotation(text=panel.missing, showarrow=False, x=0.5, y=0.5, xref="x domain", yref="y domain",
                              font_color=GREY, row=i, col=j)  # fmt: skip
        figure.update_xaxes(showticklabels=False, row=i, col=j)
        figure.update_yaxes(showticklabels=False, row=i, col=j)
    if any(isinstance(value, str) for series in panel.series for value in list(series.y)[:1]):
        figure.update_yaxes(autorange="reversed", row=i, col=j)  # categories read from the top


def _plotly_parallel(chart: Parallel) -> Any:
    from plotly import graph_objects as go

    figure = go.Figure()
    if not chart.is_empty:
        codes, scale, _ = _method_codes(chart)
        figure.add_trace(
            go.Parcoords(
                line={"color": codes, "colorscale": scale, "cmin": -0.5, "cmax": len(scale) / 2 - 0.5},
                dimensions=[
                    {
                        "label": label, "values": values.astype(np.float32),
                        **({"tickvals": [t for t, _ in ticks], "ticktext": [t for _, t in ticks]} if ticks else {}),
                    }
                    for label, values, ticks in chart.axes
                ],
            )
        )  # fmt: skip
    else:
        figure.add_annotation(text=chart.missing, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper", font_color=GREY)
        figure.update_xaxes(visible=False).update_yaxes(visible=False)
    figure.update_layout(**_LAYOUT | {"margin": {"l": 110, "r": 60, "t": 60, "b": 24}}, height=620)
    return figure


def _method_codes(chart: Parallel) -> tuple[np.ndarray, list[tuple[float, str]], list[str]]:
    """A number per line, and the stepwise colour scale that gives each method its colour."""
    names = [name for name in METHODS if name in set(chart.methods)]
    codes = np.array([names.index(method) for method in chart.methods], dtype=np.float32)
    scale = [((i + end) / len(names), COLOURS[name]) for i, name in enumerate(names) for end in (0, 1)]
    return codes, scale, names


