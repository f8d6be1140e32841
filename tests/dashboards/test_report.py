"""One page for any state of a sweep: small, quick, self-contained, and honest about what is missing."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from dashboards.errata import ERRATA
from dashboards.page import render
from dashboards.records import SweepRecords, read_sweep
from dashboards.report import build, write_report
from solvers.methods import METHODS
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.store.rows import Failure
from tests.dashboards.conftest import PAIRED
from tests.dashboards.synthetic import fill

# Figures of a sweep that was tuned by grids.
FIGURES = (
    "scores",
    "rank-over-gamma",
    "regularizers",
    "convergence",
    "restarts",
    "differences",
    "ranks",
    "score-over-hours",
    "seconds",
    "timeline",
    "balance",
    "classes",
    "spectrum",
    "trials",
)


class Outline(HTMLParser):
    """Headings, ids and unbalanced elements of a page."""

    VOID = frozenset({"meta", "link", "input", "br", "circle", "rect", "path"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.outside: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        self.outside += [
            str(value) for name, value in attrs if name in ("src", "href") and re.match(r"(\w+:)?//", value or "")
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def shown(home: Home, ledger: Ledger, name: str) -> str:
    """The page, without the files beside it."""
    sweep = read_sweep(ledger, name, home)
    text = render(sweep, build(sweep), "files")
    outline = Outline(text)
    assert outline.open == []
    assert outline.outside == []
    assert len(outline.ids) == len(set(outline.ids))
    return text


def figures(page: str) -> list[str]:
    return re.findall(r'<figure id="figure-([\w-]+)"', page)


@pytest.fixture(scope="module")
def written(paired_home: Home, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The report of the paired sweep, with a price."""
    page = tmp_path_factory.mktemp("written") / "r.html"
    return write_report(paired_home, Ledger(paired_home.ledger_url), "paired", page, price=1.5)


@pytest.fixture(scope="module")
def page(written: list[Path]) -> str:
    return written[0].read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_report_of_all_methods_is_small_and_quick(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ledger = fill(home, "big", datasets=("mimic", "eicu", "reuters"), methods=tuple(METHODS), splits=5)
    start = time.process_time()
    page, *files = write_report(home, ledger, "big")
    assert time.process_time() - start < 40
    assert page.stat().st_size < 1_000_000
    assert sum(path.stat().st_size for path in files) < 20_000_000
    assert {path.suffix for path in files} == {".csv", ".md", ".tex", ".svg", ".png"}
    differences = next(path for path in files if path.name == "differences.csv")
    assert len(differences.read_text().splitlines()) == 1 + 3 * 31 * 30 // 2  # every pair, if not in the page


def test_every_table_and_figure_lies_beside_the_page(written: list[Path], page: str) -> None:
    path, *files = written
    assert path.name == "r.html"
    names = {path.name for path in files}
    assert {f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png")} <= names
    assert {f"{name}.{kind}" for name in ("auc", "efficiency", "claims") for kind in ("csv", "md", "tex")} <= names
    assert set(re.findall(r'href="r-files/([^"]+)"', page)) == names
    assert all(path.parent.name == "r-files" and path.stat().st_size > 0 for path in files)
    assert "Cost at 1.5 an hour" in page


def test_the_page_is_small_sound_and_asks_nothing_of_the_network(page: str) -> None:
    assert len(page) < 1_000_000
    outline = Outline(page)
    assert outline.open == []
    assert outline.outside == []
    assert not re.search(r"@import|url\(", page)


def test_the_readers_own_results_come_first_and_the_papers_last(page: str) -> None:
    places = [page.index(f'<h2 id="{name}"') for name in ("results", "gamma", "convergence", "comparisons", "cost")]
    assert places == sorted(places)
    assert page.index("table-results-1-act") < page.index("table-claims") < page.index("table-errata")
    assert "fold-paper" not in page  # these data are the paper's
    assert tuple(figures(page)) == FIGURES


def test_the_pages_numbers_are_the_ledgers(page: str, paired: SweepRecords) -> None:
    for method in PAIRED:
        rows = paired.results[(paired.results["dataset"] == "act") & (paired.results["method"] == method)]
        assert f">{rows['test_score'].mean():.4f} ± {rows['test_score'].sem():.4f}<" in page
        assert f">{rows['auc_all'].mean():.3f} ± {rows['auc_all'].sem():.3f}<" in page  # beside the paper


def test_claims_about_other_data_than_the_papers_are_folded_away(tmp_path: Path) -> None:
    page = shown(Home(tmp_path), fill(Home(tmp_path), "own", methods=PAIRED, splits=2), "own")
    assert '<details id="fold-paper">' in page
    assert "published" not in page[page.index("<body>") : page.index('id="paper"')]
    assert "table-auc" not in page


def test_all_errata_are_printed_with_their_numbers(page: str) -> None:
    assert [e.label for e in ERRATA] == [f"E{k}" for k in range(1, 39)]
    assert re.findall(r"<tr><th>(E\d+)</th>", page) == [e.label for e in ERRATA]


def test_a_partial_sweep_says_so(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ledger = fill(home, "part", methods=PAIRED, keep=0.4)
    page = shown(home, ledger, "part")
    done, asked = ledger.count("part")
    assert 0 < done < asked
    assert f"partial: {done} of {asked} tasks" in page
    assert "have both finished" in page


def test_nothing_at_all_still_gives_a_page(tmp_path: Path) -> None:
    home = Home(tmp_path)
    page = shown(home, fill(home, "none", keep=0.0), "none")
    assert "nothing has finished" in page
    assert figures(page) == []
    assert "no method has finished all of its fits yet" in page


def test_one_method_and_one_finished_fold_give_a_page(tmp_path: Path) -> None:
    for number, keep in enumerate((1.0, 0.02)):
        home = Home(tmp_path / str(number))
        ledger = fill(home, "one", methods=["pdml-vnd"], keep=keep)
        page = shown(home, ledger, "one")
        assert "no two methods have finished on the same data" in page
        assert ("complete" if keep == 1 else "partial: 1 of 73") in page


def test_an_estimator_that_is_not_installed_here_is_shown_like_ours(tmp_path: Path) -> None:
    home = Home(tmp_path)
    page = shown(home, fill(home, "own", methods=["mdml-cvnd", "my-nca"], splits=2), "own")
    assert "n_components=8" in page
    assert "n_components=8 lowest (2 of 2)" in page
    assert "mdml-cvnd is best" in page
    assert 'data-n="my-nca"' in page


def test_empty_charts_are_left_out_with_a_reason(tmp_path: Path) -> None:
    home = Home(tmp_path)
    page = shown(home, fill(home, "euc", methods=["euc"]), "euc")
    assert "restarts" not in figures(page)
    assert "no method with several restarts has finished" in page
    assert "no method was tuned by the path of gamma" in page


def test_missed_tolerances_and_refusals_stand_at_the_top(paired: SweepRecords) -> None:
    from dataclasses import replace

    rows = [replace(row, missed=2) if row.method == "mdml-csfn" else row for row in paired.rows]
    refused = [{"dataset": "act", "method": "itml", "setting": "all", "reason": "too few examples"}]
    page = render(paired, build(replace(paired, rows=rows, about={**paired.about, "refused": refused})), "files")
    assert "Not every fit reached its tolerance: mdml-csfn" in page
    assert "of 39 fits" in page
    assert "act itml all: too few examples" in page


def test_failures_are_listed_with_their_first_line_and_escaped(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ledger = fill(home, "bad", methods=["mdml-csfn"])
    message = "<script>alert(1)</script>\nsecond line"
    failure = Failure("k", "digits", 0, "mdml-csfn", "digits mdml-csfn", 2, "bug", message, "", 3.0, True, 0.0)
    ledger.fail("bad", failure)
    page = shown(home, ledger, "bad")
    assert "1 task failed for good" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert "second line" not in page


def test_a_hostile_dataset_name_stays_text(tmp_path: Path) -> None:
    home = Home(tmp_path)
    name = 'x</script><script>alert("y")'
    ledger = fill(home, "own", datasets=[name], methods=["mdml-csfn", "pdml-sfn"])
    page = shown(home, ledger, "own")
    assert '<script>alert("y")' not in page
    files = write_report(home, ledger, "own")
    assert all(path.parent.name == "own-files" for path in files[1:])


def test_the_other_algorithm_is_drawn_beside_this_one(tmp_path: Path) -> None:
    home = Home(tmp_path)
    fill(home, "published", methods=["mdml-csfn"], algorithm="paper").close()
    ledger = fill(home, "ours", methods=["mdml-csfn"])
    assert "mdml-csfn (paper, sweep published)" in shown(home, ledger, "ours")


def test_a_damaged_artifact_costs_its_curve_only(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ledger = fill(home, "hurt", methods=["mdml-csfn", "mdml-cvnd"])
    for path in (home.folder / "artifacts").iterdir():
        path.write_bytes(b"not what was written")
    page = shown(home, ledger, "hurt")
    assert "no history recorded" in page
    assert "mdml-cvnd is best" in page or "mdml-csfn is best" in page


def test_the_spectrum_of_a_projection_is_that_of_its_metric() -> None:
    from dashboards.metric_figures import metric_spectrum

    rng = np.random.default_rng(0)
    for L in (rng.standard_normal((5, 9)), rng.standard_normal((9, 5)), np.diag([3.0, 2.0, 0.0])):
        expected = np.linalg.eigvalsh(L.T @ L)[::-1]
        assert metric_spectrum(L) == pytest.approx(expected[expected > 1e-12 * expected[0]])


@pytest.mark.parametrize("kept", [(), ("components",), ("class_auc", "class_sizes")])
@pytest.mark.parametrize("method", ["euc", "my-nca"])
def test_a_metrics_own_picture_draws_what_was_recorded(tmp_path: Path, kept: tuple[str, ...], method: str) -> None:
    from dashboards.method_figure import write_method_figure
    from tests.dashboards.synthetic import arrays_of, study_specs

    arrays = arrays_of(study_specs("digits", 0, "euc", 2)[0], np.random.default_rng(0))
    picture = write_method_figure(method, {name: arrays[name] for name in kept} if kept else arrays, tmp_path)
    svg = picture[0].read_text()
    titles = ("convergence", "spectrum of M", "classes")
    assert [title in svg for title in titles] == [
        not kept,
        not kept or "components" in kept,
        not kept or "class_auc" in kept,
    ]
    assert [path.name for path in picture] == ["metric.svg", "metric.png"]
