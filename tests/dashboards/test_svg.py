"""Charts in the page: axes with ticks that can be told apart, marks where the values are."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from dashboards.charts import Chart, Panel, Parallel, Series, colour_of, series_style
from dashboards.scales import Scale, scale_of, tick_texts
from dashboards.svg import chart_svg
from solvers.methods import METHODS


def drawn(chart: Chart | Parallel) -> ET.Element:
    return ET.fromstring(f"<div>{chart_svg(chart)}</div>")


@pytest.mark.parametrize("most", [1, 2, 3, 5, 9, 40])
def test_a_count_has_whole_ticks_and_none_twice(most: int) -> None:
    ticks = scale_of([np.arange(1, most + 1)], 0, 100).ticks()
    assert all(text.isdigit() for _, text in ticks)
    assert len({text for _, text in ticks}) == len(ticks) >= 1


@pytest.mark.parametrize(
    ("low", "high", "log"),
    [(0.97991, 0.97994, False), (1e-6, 1.0, True), (0.002, 0.004, True), (3.0, 3.0, False), (-5e6, 2e7, False)],
)
def test_ticks_lie_inside_and_can_be_told_apart(low: float, high: float, log: bool) -> None:
    scale = scale_of([[low, high]], 10, 200, log=log)
    ticks = scale.ticks()
    assert len({text for _, text in ticks}) == len(ticks) >= 2
    assert all(scale.low <= value <= scale.high for value, _ in ticks)
    assert all(float(text) == pytest.approx(value, rel=1e-3) for value, text in ticks)


def test_a_short_logarithmic_axis_has_two_round_ticks() -> None:
    ticks = Scale(0.0081, 0.0152, 0, 100, log=True).ticks()
    assert [text for _, text in ticks] == ["0.01", "0.012"]


def test_texts_of_ticks_have_as_many_digits_as_they_need() -> None:
    assert tick_texts([0.001, 0.01, 0.1]) == ["0.001", "0.01", "0.1"]
    assert tick_texts([0.98001, 0.98002]) == ["0.98001", "0.98002"]
    assert tick_texts([1e-5, 1e-4]) == ["1e-5", "1e-4"]


def test_marks_stand_where_the_axes_attributes_say() -> None:
    x, y = np.array([0.001, 0.03, 1.0]), np.array([0.91, 0.97, 0.95])
    svg = drawn(Chart("c", "t", "", [Panel("p", "gamma", "AUC", [Series("s", x, y, "#123456")], x_log=True)])).find(
        ".//svg"
    )
    assert svg is not None
    line = svg.find(".//path[@class='l']")
    assert line is not None
    places = np.array([list(map(float, pair)) for pair in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", line.attrib["d"])])
    low, high, start, end, log = map(float, svg.attrib["data-x"].split(","))
    assert log == 1
    assert low * (high / low) ** ((places[:, 0] - start) / (end - start)) == pytest.approx(x, rel=0.02)
    low, high, start, end, log = map(float, svg.attrib["data-y"].split(","))
    assert low + (places[:, 1] - start) / (end - start) * (high - low) == pytest.approx(y, abs=2e-4)


def test_a_missing_value_leaves_a_gap_and_no_nan() -> None:
    series = Series("s", [1.0, 2.0, 3.0, 4.0], [1.0, np.nan, 2.0, 3.0], "#123456")
    text = chart_svg(Chart("c", "t", "", [Panel("", "", "", [series])]))
    assert "nan" not in text.lower()
    assert text.count("M") >= 2


def test_bars_are_stacked_and_say_their_values() -> None:
    bars = [
        Series("solve", [3.0, 1.0], ["a", "b"], "#111111", "bars"),
        Series("score", [1.0, 2.0], ["a", "b"], "#222222", "bars"),
    ]
    svg = drawn(Chart("c", "t", "", [Panel("", "hours", "", bars)])).find(".//svg[@role='img']")
    assert svg is not None
    rects = list(svg.iter("rect"))
    first, second = rects[0].attrib, rects[2].attrib
    assert float(first["x"]) + float(first["width"]) == pytest.approx(float(second["x"]), abs=0.11)
    assert [r.attrib["data-t"] for r in rects] == ["a: solve 3", "b: solve 1", "a: score 1", "b: score 2"]


def test_every_kind_of_chart_is_sound_xml_with_a_name_for_those_who_cannot_see_it() -> None:
    hostile = '<b>"&'
    x = np.array([1.0, 2.0])
    kinds = [
        Series(hostile, x, x, "#123456"),
        Series("band", x, x, "#123456", "band", upper=x + 1),
        Series("points", x, x, "#123456", "points", error=[0.1, 0.2]),
        Series("segments", [1.0, 2.0, np.nan], [1.0, 1.0, 1.0], "#123456", "segments"),
        Series("faint", x, x, "#123456", faint=True),
    ]
    root = drawn(
        Chart("c", hostile, "", [Panel(hostile, hostile, hostile, kinds, levels=[(1.5, "#000000")], zero=True)])
    )
    svg = root.find(".//svg[@role='img']")
    assert svg is not None
    assert hostile in svg.attrib["aria-label"]
    assert [b.attrib["data-n"] for b in root.iter("button")] == [hostile, "band", "points", "segments"]
    parallel = Parallel("p", "t", "", [("a", x, [(1.0, hostile)]), ("b", x, [])], ["euc", hostile])
    assert len(drawn(parallel).findall(".//g")) == 2


def test_every_method_has_one_colour_and_pairs_look_alike() -> None:
    assert len({colour_of(name) for name in METHODS}) == len(METHODS)
    assert colour_of("my-nca") == colour_of("my-nca") != colour_of("your-nca")
    assert series_style("my-nca")["symbol"] == "own"
    assert series_style("pdml-vnd")["dashed"]
    assert not series_style("mdml-cvnd")["dashed"]
    assert series_style("euc", foreground=["mdml"])["background"]
