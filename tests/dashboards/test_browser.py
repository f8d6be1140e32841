"""Headless Chromium opens the report and MLflow's pages: everything draws, nothing leaves the machine."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboards.report import write_report
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from tests.dashboards.chromium import chromium
from tests.dashboards.test_report import FIGURES

pytestmark = pytest.mark.browser

# MLflow asks a server without users who the user is, and logs the answer itself. And whatever the data, its parallel
# coordinates are now and then drawn first into a box that has no height yet: the browser complains about each mark
# at NaN, then they are drawn again in their places, which `wait_for_parallel_axes` checks.
MLFLOWS_OWN = re.compile(r"users/current|Error: <(g|path|rect)> attribute (transform|d|x|height): ")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Chromium that logs its console and every request."""
    found = chromium(tmp_path_factory.mktemp("profile"))
    yield found
    found.quit()


@pytest.fixture(scope="module")
def page(paired_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("browser") / "report.html"
    return write_report(paired_home, Ledger(paired_home.ledger_url), "paired", output, command="again {key}")[0]


def show(browser: Any, address: str, width: int, scheme: str) -> None:
    browser.get_log("performance")
    browser.get_log("browser")
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get("about:blank")  # addresses that differ in their fragment only would not load anew
    browser.get(address)


def requests(browser: Any) -> set[str]:
    """Addresses that the page asked for since `show`."""
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    return {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}


def errors(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_the_report_draws_every_chart_without_an_error(browser: Any, page: Path, width: int, scheme: str) -> None:
    show(browser, page.as_uri(), width, scheme)
    drawn = (
        "return Object.fromEntries(Array.from(document.querySelectorAll('figure'), f => [f.id, {"
        "marks: f.querySelectorAll('.s path, .s circle, .s rect').length,"
        "width: Math.max(...Array.from(f.querySelectorAll('svg.panel'), s => s.getBoundingClientRect().width)),"
        "wrong: f.outerHTML.includes('NaN') || f.outerHTML.includes('undefined')}]))"
    )
    found = browser.execute_script(drawn)
    assert set(found) == {f"figure-{name}" for name in FIGURES}
    assert not [name for name, chart in found.items() if chart["marks"] < 2 or chart["width"] < 300 or chart["wrong"]]
    assert errors(browser) == []
    assert {address for address in requests(browser) if not address.startswith("data:")} == {page.as_uri()}
    # Wide things scroll inside their own boxes, never the page.
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    ink, paper = browser.execute_script(
        "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
    )
    bright = [sum(map(int, colour[4:-1].split(","))) > 380 for colour in (ink, paper)]
    assert bright == ([True, False] if scheme == "dark" else [False, True])
    texts = browser.execute_script(
        "return Array.from(document.querySelectorAll('svg.panel text'), t => getComputedStyle(t).fill)"
    )
    assert set(texts) == {ink}


@pytest.mark.parametrize("width", [1280, 390])
def test_no_text_of_a_chart_lies_on_another_or_outside(browser: Any, page: Path, width: int) -> None:
    """Titles, ticks and names of every panel, the restart axis among them."""
    show(browser, page.as_uri(), width, "light")
    clashes = browser.execute_script(
        """
        const found = [];
        for (const svg of document.querySelectorAll("svg.panel")) {
          if (svg.closest("figure").id === "figure-trials" || !svg.checkVisibility()) continue;
          const [,, width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
          const upright = svg.querySelectorAll("text:not([transform])");
          const places = Array.from(upright, text => [text.textContent, text.getBBox()]);
          for (const [text, box] of places)
            if (box.x < -1 || box.y < -1 || box.x + box.width > width + 1 || box.y + box.height > height + 1)
              found.push([svg.getAttribute("aria-label"), text, "outside"]);
          for (let i = 0; i < places.length; i++) for (let j = i + 1; j < places.length; j++) {
            const [[a, p], [b, q]] = [places[i], places[j]];
            const x = Math.min(p.x + p.width, q.x + q.width) - Math.max(p.x, q.x);
            const y = Math.min(p.y + p.height, q.y + q.height) - Math.max(p.y, q.y);
            if (x > 1 && y > 3) found.push([svg.getAttribute("aria-label"), a, b]);
          }
        }
        return found;
        """
    )
    assert clashes == []


def test_the_tables_show_the_ledgers_numbers(browser: Any, page: Path, paired: Any) -> None:
    show(browser, page.as_uri(), 1280, "light")
    rows = browser.execute_script(
        "return Array.from(document.querySelectorAll('#table-efficiency tbody tr'),"
        "                  row => Array.from(row.cells, cell => cell.innerText))"
    )
    from dashboards.efficiency import efficiency_frame

    frame = efficiency_frame(paired)
    assert [row[0] for row in rows] == list(frame["dataset"])
    assert [int(row[4].replace(",", "")) for row in rows] == list(frame["convex_fits"])
    assert [float(row[10]) for row in rows] == pytest.approx(list(frame["total_ratio"]), rel=5e-3)


def test_a_number_leads_to_its_fits_and_the_command_that_reruns_one(browser: Any, page: Path, paired: Any) -> None:
    show(browser, page.as_uri(), 1280, "light")
    button = browser.find_element("css selector", "#table-results-1-act tbody td button")
    browser.execute_script("arguments[0].click()", button)
    method = paired.ranked("act")[0]
    dialog = browser.find_element("css selector", "dialog[open]")
    assert dialog.find_element("css selector", "h3").text == f"act, {method}"
    rows = dialog.find_elements("css selector", "tbody tr")
    studies = [s for s in paired.studies if (s.dataset, s.method) == ("act", method)]
    assert len(rows) == sum(len(s.fits) for s in studies)
    keys = {record.key for s in studies for _, record in s.fits}
    shown = browser.execute_script(
        "return Array.from(document.querySelectorAll('dialog tbody tr'), r => r.lastChild.textContent)"
    )
    assert set(shown) == keys
    browser.execute_script("arguments[0].click()", rows[3])
    assert dialog.find_element("css selector", "code").text == f"again {shown[3]}"


def test_pointing_at_a_chart_names_the_series_and_its_values(browser: Any, page: Path) -> None:
    show(browser, page.as_uri(), 1280, "light")
    svg = browser.find_element("css selector", "#figure-restarts svg.panel")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].focus()", svg)
    svg.send_keys("\ue014")  # arrow to the right: the next point
    tip = browser.execute_script("return document.getElementById('tip').textContent")
    assert re.match(r"pdml-\w+\nrestarts m: 1\ntest AUC of the best of m: 0\.8\d+", tip)
    raised = browser.execute_script("return document.querySelectorAll('#figure-restarts .s.up').length")
    assert raised == 2  # the method in the panels of both datasets
    key = browser.find_element("css selector", "#figure-restarts .legend button")
    browser.execute_script("arguments[0].click()", key)
    assert browser.execute_script("return document.querySelectorAll('#figure-restarts .s.off').length") == 2


def test_tables_sort_and_filter(browser: Any, page: Path) -> None:
    show(browser, page.as_uri(), 1280, "light")
    cells = (
        "return Array.from(document.querySelectorAll('#table-differences tbody tr'))"
        ".filter(r => !r.hidden).map(r => Array.from(r.cells, c => c.textContent))"
    )
    assert len(browser.execute_script(cells)) == 30
    browser.execute_script(
        "document.querySelector('#fold-differences').open = true;"
        "const box = document.querySelector('#table-differences input'); box.value = 'cvnd pdml-vnd act';"
        "box.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    (row,) = browser.execute_script(cells)
    assert row[:3] == ["act", "mdml-cvnd", "pdml-vnd"]
    browser.execute_script("document.querySelectorAll('#table-seconds thead th')[2].click()")
    solve = browser.execute_script(
        "return Array.from(document.querySelectorAll('#table-seconds tbody tr'), r => r.cells[2].textContent)"
    )
    values = [float(text.replace(",", "")) for text in solve]
    assert values == sorted(values, reverse=True)


def test_the_live_page_takes_in_what_is_new_and_keeps_what_was_opened(
    browser: Any, paired: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from dashboards.live import LivePage
    from dashboards.records import read_sweep
    from tests.dashboards.synthetic import fill

    part = read_sweep(
        fill(Home(tmp_path_factory.mktemp("part")), "paired", datasets=("act",), methods=["mdml-csfn"], keep=0.5),
        "paired",
    )
    with LivePage() as served:
        served.show(part)
        show(browser, served.url, 1280, "light")
        wait_for(browser, ["partial:", "live"])
        browser.execute_script("document.getElementById('fold-provenance').open = true")
        wait_for_answers(browser, served.url, 2)  # the page, and which version it is
        served.show(paired)
        wait_for(browser, ["complete: 1548 tasks"])
        assert browser.execute_script("return document.getElementById('fold-provenance').open")
        button = browser.find_element("css selector", "#table-results-1-act tbody td button")
        browser.execute_script("arguments[0].click()", button)
        assert browser.find_elements("css selector", "dialog[open] tbody tr")
        assert {a for a in requests(browser) if a.startswith("http")} == {served.url}
    assert errors(browser) == []


def test_printing_opens_what_is_folded(browser: Any, page: Path) -> None:
    show(browser, page.as_uri(), 1280, "light")
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"landscape": True})
    assert len(printed["data"]) > 100_000
    assert browser.execute_script("return document.querySelectorAll('details:not([open])').length") == 0


def test_mlflow_shows_the_runs_the_charts_and_the_comparison(
    browser: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from sweep.engine.executors import InlineExecutor
    from sweep.store.mlflow_ui import links, mlflow_server
    from sweep.store.recording import Recorder
    from tests.sweep.engine.test_driver import run

    home = Home(tmp_path_factory.mktemp("mlflow"))
    run(home, InlineExecutor())
    Recorder("tiny", "sqlite", None, home, Ledger(home.ledger_url), print).sync()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with mlflow_server(home, port) as url:
        for what, address in links(home, url, "tiny").items():
            show(browser, address, 1400, "light")
            expected = {
                "runs": ["mdml-csfn", "auc_all"],
                "charts": ["Methods", "Add chart", "balance_score"],
                "compare": ["Comparing 2 Runs"],
            }[what]
            wait_for(browser, expected)
            if what == "charts":
                wait_for_parallel_axes(browser, {"mdml-csfn", "pdml-sfn"})
            assert [e for e in errors(browser) if not MLFLOWS_OWN.search(e)] == []
            hosts = {a.split("/")[2] for a in requests(browser) if a.startswith("http")}
            assert hosts == {f"127.0.0.1:{port}"}


def wait_for_answers(browser: Any, address: str, count: int) -> None:
    """Until the browser has had so many answers from an address."""
    deadline = time.monotonic() + 60
    while count > 0:
        assert time.monotonic() < deadline
        messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
        answers = (m["params"]["response"] for m in messages if m["method"] == "Network.responseReceived")
        count -= sum(answer["url"] == address for answer in answers)


def wait_for(browser: Any, texts: list[str]) -> None:
    deadline = time.monotonic() + 60
    shown = ""
    while time.monotonic() < deadline:
        shown = browser.execute_script("return document.body.innerText")
        if all(text in shown for text in texts):
            return
        time.sleep(0.5)
    raise AssertionError(f"expected {texts} on the page, got {shown[:500]!r}")


def wait_for_parallel_axes(browser: Any, methods: set[str]) -> None:
    """Until the chart has an axis with these methods, and no mark anywhere is out of place."""
    look = (
        "return [Array.from(document.querySelectorAll('.parcoords .tick text'), tick => tick.textContent),"
        "        document.querySelectorAll('[transform*=NaN], [d*=NaN], [x*=NaN], [height*=NaN]').length]"
    )
    deadline = time.monotonic() + 60
    ticks, misplaced = browser.execute_script(look)
    while not methods <= set(ticks) or misplaced:
        assert time.monotonic() < deadline, (ticks, misplaced)
        time.sleep(0.2)
        ticks, misplaced = browser.execute_script(look)
