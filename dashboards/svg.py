"""Charts as SVG inside the page: text in the reader's own colours, and marks that the page's script can read.

Every mark keeps its series' name; the script turns pixels back into values with the axes' attributes, so that no
number stands in the page twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from dashboards.charts import AnyChart, Chart, Panel, Parallel, Series, colour_of, square_range
from dashboards.scales import Scale, scale_of

WIDTH = 390  # of a panel, in its own units; the page stretches it
_CHARACTER = 6.3  # width of a letter, same units
_ROW = 21  # height of a category


def chart_svg(chart: AnyChart) -> str:
    """The panels of a chart, and its legend."""
    if isinstance(chart, Parallel):
        return f'<div class="panels one">{_parallel(chart)}</div>'
    narrow = "".join(_panel(panel, chart, WIDTH) for panel in chart.drawn)
    if len(chart.drawn) == 1 and not chart.drawn[0].diagonal:
        # Alone it has room for more, but not on a telephone, where its letters would become too small to read.
        wide = _panel(chart.drawn[0], chart, 2 * WIDTH)
        shown = f'<div class="panels one wide">{wide}</div><div class="panels narrow">{narrow}</div>'
    else:
        shown = f'<div class="panels">{narrow}</div>'
    return shown + _legend(chart)


def _legend(chart: Chart) -> str:
    shown: dict[str, Series] = {}
    for panel in chart.drawn:
        for series in panel.series:
            if not series.faint:
                shown.setdefault(series.name, series)
    if not chart.legend or len(shown) < 2:
        return ""
    return '<div class="legend">' + "".join(_key(series) for series in shown.values()) + "</div>"


def _key(series: Series) -> str:
    if series.kind in ("bars", "band", "segments"):
        sign = f'<rect width="14" height="8" y="2" fill="{series.colour}"/>'
    elif series.kind == "points":
        sign = _marker(series.symbol, 8, 6, series.colour)
    else:
        sign = f'<path d="M0 6H18" {_stroke(series)}/>'
    grey = ' class="grey"' if series.background else ""
    return (
        f'<button type="button" data-n="{escape(series.name)}"{grey}><svg width="18" height="12" aria-hidden="true">'
        f"{sign}</svg>{escape(series.name)}</button>"
    )


def _panel(panel: Panel, chart: Chart, width: int) -> str:
    names = panel.categories if panel.is_categorical else []
    height = max(90, _ROW * len(names) + 62) if names else chart.height
    left = min(16 + _CHARACTER * max(map(len, names)), 0.45 * width) if names else 58
    x_scale, y_scale = _scales(panel, names, (left, width - 14), (height - 40, 26 if panel.title else 10))
    label = escape(", ".join(part for part in (chart.title, panel.title, panel.y_title, panel.x_title) if part))
    attributes = " ".join(
        f'data-{axis}="{scale.low:.6g},{scale.high:.6g},{scale.start:.5g},{scale.end:.5g},{int(scale.log)}"'
        for axis, scale in (("x", x_scale), ("y", y_scale))
        if not scale.names
    )
    marks = [_series(series, x_scale, y_scale) for series in _stacked(panel.series)]
    titles = f' data-tx="{escape(panel.x_title)}" data-ty="{escape(panel.y_title)}"'
    opening = f'<svg class="panel" viewBox="0 0 {width} {height}" role="img" tabindex="0" aria-label="{label}"'
    return (
        f"{opening} {attributes}{titles}>"
        f"{_frame(panel, x_scale, y_scale, width, height)}{''.join(marks)}"
        '<circle class="at" r="5"/></svg>'
    )


def _scales(
    panel: Panel, names: Sequence[str], across: tuple[float, float], up: tuple[float, float]
) -> tuple[Scale, Scale]:
    foreground = [s for s in panel.series if not s.background] or panel.series
    xs = [s.x for s in panel.series] + ([[0.0]] if panel.zero or any(s.kind == "bars" for s in panel.series) else [])
    for series in panel.series:
        if series.error is not None:
            xs += [np.asarray(series.x) + np.asarray(series.error), np.asarray(series.x) - np.asarray(series.error)]
    if any(s.kind == "bars" for s in panel.series):
        xs.append([sum(np.asarray(s.x, dtype=float) for s in panel.series if s.kind == "bars")])
    if panel.diagonal:
        low, high = square_range(panel)
        return Scale(low, high, *across), Scale(low, high, *up)
    ys = [] if names else [v for s in foreground for v in (s.y, s.upper) if v is not None]
    ys += [[height] for height, _ in panel.levels if not names]
    from_top = (up[1], up[0]) if names else up
    return (
        scale_of(xs, *across, log=panel.x_log),
        scale_of(ys, *from_top, log=panel.y_log, names=names, room=0.06),
    )


def _frame(panel: Panel, x_scale: Scale, y_scale: Scale, width: int, height: int) -> str:
    """Title, grid, ticks, titles of the axes, lines that stand for something."""
    left, right = x_scale.start, x_scale.end
    top, bottom = min(y_scale.start, y_scale.end), max(y_scale.start, y_scale.end)
    parts = [f'<text class="t" x="{left:.0f}" y="15">{escape(panel.title)}</text>'] if panel.title else []
    for value, text in x_scale.ticks(5 if width == WIDTH else 9):
        at = float(x_scale.place([value])[0])
        parts.append(f'<path class="g" d="M{at:.1f} {top:.1f}V{bottom:.1f}"/>')
        parts.append(f'<text x="{at:.1f}" y="{bottom + 15:.0f}" text-anchor="middle">{escape(text)}</text>')
    for value, text in y_scale.ticks():
        at = y_scale.start + (value - y_scale.low) / (y_scale.high - y_scale.low) * (y_scale.end - y_scale.start)
        if not y_scale.names:
            at = float(y_scale.place([value])[0])
        shown = text if len(text) * _CHARACTER < left else text[: int(left / _CHARACTER) - 2] + "…"
        parts.append(f'<path class="g" d="M{left:.1f} {at:.1f}H{right:.1f}"/>')
        parts.append(f'<text x="{left - 6:.1f}" y="{at + 4:.1f}" text-anchor="end">{escape(shown)}</text>')
    if panel.x_title:
        middle = (left + right) / 2
        parts.append(f'<text x="{middle:.0f}" y="{height - 6}" text-anchor="middle">{escape(panel.x_title)}</text>')
    if panel.y_title and not y_scale.names:
        middle = (top + bottom) / 2
        turned = f'transform="translate(11 {middle:.0f}) rotate(-90)"'
        parts.append(f'<text {turned} text-anchor="middle">{escape(panel.y_title)}</text>')
    for level, colour in panel.levels:
        at = float(y_scale.place([level])[0])
        parts.append(f'<path d="M{left:.1f} {at:.1f}H{right:.1f}" stroke="{colour}" stroke-dasharray="2 3"/>')
    for value in [*panel.marks, *([0.0] if panel.zero else [])]:
        at = float(x_scale.place([value])[0])
        parts.append(f'<path class="z" d="M{at:.1f} {top:.1f}V{bottom:.1f}"/>')
    if panel.diagonal:
        parts.append(f'<path class="z" stroke-dasharray="2 3" d="M{left:.1f} {bottom:.1f}L{right:.1f} {top:.1f}"/>')
    return "".join(parts)


def _stacked(series: Sequence[Series]) -> Iterable[tuple[Series, np.ndarray | None]]:
    """Each series with where its bars start; grey ones first, so that they lie below."""
    ends: dict[str, float] = {}
    for each in sorted(series, key=lambda s: (not s.background, s.kind != "band", not s.faint)):
        if each.kind != "bars":
            yield each, None
            continue
        starts = np.array([ends.get(str(name), 0.0) for name in each.y])
        yield each, starts
        ends |= {str(name): start + float(size) for name, start, size in zip(each.y, starts, each.x, strict=True)}


def _series(drawn: tuple[Series, np.ndarray | None], x_scale: Scale, y_scale: Scale) -> str:
    series, starts = drawn
    kinds = " ".join(word for word, is_so in (("grey", series.background), ("faint", series.faint)) if is_so)
    opening = f'<g class="s {kinds}" data-n="{escape(series.name)}" style="--c:{series.colour}">'
    x, y = x_scale.place(series.x), y_scale.place(series.y)
    if series.kind == "bars":
        assert starts is not None
        begin, end = x_scale.place(starts), x_scale.place(starts + np.asarray(series.x, dtype=float))
        inner = "".join(
            f'<rect x="{a:.1f}" y="{at - 7:.1f}" width="{max(b - a, 0):.1f}" height="14" data-t="{escape(note)}"/>'
            for a, b, at, note in zip(begin, end, y, _notes(series, "bars"), strict=True)
            if b - a > 0.05
        )
    elif series.kind == "band":
        upper = y_scale.place(series.upper)
        ring = [*zip(x, y, strict=True), *reversed(list(zip(x, upper, strict=True)))]
        inner = f'<path class="b" d="{_path(ring)}Z"/>'
    elif series.kind == "points":
        inner = _points(series, x, y, x_scale)
    else:
        plain = series.kind == "segments" or series.faint or series.background or len(x) > 30
        marker = "" if plain else _dots(series, x, y)
        dash = ' stroke-dasharray="5 3"' if series.dashed and series.kind == "line" else ""
        kind = "l w" if series.kind == "segments" else "l"
        inner = f'<path class="{kind}" d="{_path(zip(x, y, strict=True))}"{dash}/>{marker}'
    return f"{opening}{inner}</g>"


def _points(series: Series, x: np.ndarray, y: np.ndarray, x_scale: Scale) -> str:
    parts = []
    for index, (at, height, note) in enumerate(zip(x, y, _notes(series, "points"), strict=True)):
        if not np.isfinite(at) or not np.isfinite(height):
            continue
        if series.error is not None:
            value, half = float(np.asarray(series.x)[index]), float(np.asarray(series.error)[index])
            low, high = x_scale.place([value - half, value + half])
            parts.append(f'<path class="e" d="M{low:.1f} {height:.1f}H{high:.1f}"/>')
        parts.append(_marker(series.symbol, at, height, "", note))
    return "".join(parts)


def _dots(series: Series, x: np.ndarray, y: np.ndarray) -> str:
    return "".join(
        _marker(series.symbol, at, height, "", size=3)
        for at, height in zip(x, y, strict=True)
        if np.isfinite(at + height)
    )


def _marker(symbol: str, x: float, y: float, colour: str, note: str = "", size: float = 4.5) -> str:
    r = size
    shapes = {
        "pdml": f"M{x:.1f} {y - r - 1:.1f}l{r + 1:g} {r + 1:g}l-{r + 1:g} {r + 1:g}l-{r + 1:g} -{r + 1:g}z",
        "other": f"M{x - r:.1f} {y - r:.1f}h{2 * r:g}v{2 * r:g}h-{2 * r:g}z",
        "own": f"M{x:.1f} {y - r - 1:.1f}l{r + 1:g} {2 * r:g}h-{2 * r + 2:g}z",
    }
    fill = f' fill="{colour}"' if colour else ""
    text = f' data-t="{escape(note)}" data-p="{x:.1f},{y:.1f}"' if note else ""
    if symbol in shapes:
        return f'<path class="p" d="{shapes[symbol]}"{fill}{text}/>'
    return f'<circle class="p" cx="{x:.1f}" cy="{y:.1f}" r="{r:g}"{fill}{text}/>'


def _notes(series: Series, kind: str) -> list[str]:
    if series.notes is not None:
        return list(series.notes)
    named = [f"{y}: " if isinstance(y, str) and y != series.name else "" for y in series.y]
    values = list(series.x)
    if kind == "points" and not isinstance(next(iter(series.y), None), str):
        return [f"{series.name}: {x:.4g}, {y:.4g}" for x, y in zip(values, series.y, strict=True)]
    return [f"{name}{series.name} {value:.4g}" for name, value in zip(named, values, strict=True)]


def _path(points: Iterable[tuple[float, float]]) -> str:
    """Move and line commands; a gap wherever a point is missing."""
    parts, pen = [], "M"
    for x, y in points:
        if not (np.isfinite(x) and np.isfinite(y)):
            pen = "M"
            continue
        parts.append(f"{pen}{_short(x)} {_short(y)}")
        pen = "L"
    return "".join(parts)


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _stroke(series: Series) -> str:
    dash = ' stroke-dasharray="5 3"' if series.dashed else ""
    return f'stroke="{series.colour}" stroke-width="2"{dash}'


def _parallel(chart: Parallel) -> str:
    width, height, top = 2 * WIDTH, 380, 34
    # Room for the names of the first axis on its left, and for the numbers of the others on their right.
    first = max((len(text) for _, text in chart.axes[0][2]), default=0)
    left, right = 16 + _CHARACTER * first, width - 70
    places = np.linspace(left, right, len(chart.axes))
    heights, parts = [], []
    for index, (at, (label, values, ticks)) in enumerate(zip(places, chart.axes, strict=True)):
        low, high = float(values.min()), float(values.max())
        span = (high - low) or 1.0
        heights.append(height - 20 - (values - low) / span * (height - 40 - top))
        parts.append(f'<path class="z" d="M{at:.1f} {top + 10}V{height - 12}"/>')
        parts.append(f'<text class="t" x="{at:.1f}" y="18" text-anchor="middle">{escape(label)}</text>')
        for value, text in ticks or [(low, f"{low:.3g}"), (high, f"{high:.3g}")]:
            y = height - 20 - (value - low) / span * (height - 40 - top)
            side = (at - 6, "end") if index == 0 else (at + 6, "start")
            parts.append(
                f'<text class="o" x="{side[0]:.1f}" y="{y + 4:.1f}" text-anchor="{side[1]}">{escape(text)}</text>'
            )
    lines = [
        f'<g class="s thin" data-n="{escape(method)}" style="--c:{colour_of(method)}">'
        f'<path class="l" d="{_path(zip(places, row, strict=True))}"/></g>'
        for method, row in zip(chart.methods, np.stack(heights, axis=1), strict=True)
    ]
    return (
        f'<svg class="panel" viewBox="0 0 {width} {height}" role="img" tabindex="0" aria-label="{escape(chart.title)}">'
        f"{''.join(lines)}{''.join(parts)}</svg>"
    )
