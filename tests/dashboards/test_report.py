"""One page for any state of a sweep: small, quick, self-contained, and honest about what is missing."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

from dashboards.page import render
from dashboards.records import SweepRecords, read_sweep
from dashboards.report import build, write_report
from dashboards.tables import OURS, paper_tables
from solvers.methods import METHODS
from sweep.store.home import Home
from sweep.store.ledger import Failure, Ledger
from tests.dashboards.conftest import PAIRED
from tests.dashboards.synthetic import fill

FIGURES = (
    "regularizers",
    "scores",
    "balance",
    "seconds",
    "score-over-hours",
    "restarts",
    "convergence",
    "differences",
    "ranks",
    "spectrum",
    "classes",
    "trials",
    "timeline",
)


def without_plotly(text: str) -> str:
    return text[text.index("<body>") :]


def shown(home: Home, ledger: Ledger, name: str) -> str:
    """The page, without the files beside it."""
    sweep = read_sweep(ledger, name)
    return without_plotly(render(sweep, build(home, ledger, sweep, None), "files"))


@pytest.fixture(scope="module")
def written(paired_home: Home, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The report of the paired sweep, with a price."""
    page = tmp_path_factory.mktemp("written") / "r.html"
    return write_report(paired_home, Ledger(paired_home.ledger_url), "paired", page, price=1.5)


def body(page: Path) -> str:
    return without_plotly(page.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_report_of_all_methods_is_small_and_quick(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ledger = fill(home, "big", datasets=("mimic", "eicu", "reuters"), methods=tuple(METHODS), splits=5)
    start = time.process_time()
    page, *files = write_report(home, ledger, "big")
    assert time.process_time() - start < 20
    assert page.stat().st_size < 8_000_000
    assert sum(path.stat().st_size for path in files) < 20_000_000
    assert {path.suffix for path in files} == {".csv", ".md", ".tex", ".svg", ".png"}


def test_every_table_and_figure_lies_beside_the_page(written: list[Path]) -> None:
    page, *files = written
    assert page.name == "r.html"
    names = {path.name for path in files}
    assert {f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png")} <= names
    assert {f"{name}.{kind}" for name in ("auc", "efficiency", "claims") for kind in ("csv", "md", "tex")} <= names
    linked = set(re.findall(r'href="r-files/([^"]+)"', body(page)))
    assert linked <= names
    assert all(path.parent.name == "r-files" and path.stat().st_size > 0 for path in files)
    assert "Cost at 1.5 an hour" in body(page)


def test_the_page_asks_nothing_of_the_network(written: list[Path]) -> None:
    page = written[0]
    text = page.read_text(encoding="utf-8")
    assert text.count("<script>") + text.count('<script type="text/javascript">') == text.count("</script>")
    own = body(page)
    assert not re.search(r"""(src|href)\s*=\s*["'](https?:)?//""", own)
    assert "@import" not in text.split("<script>")[0]
    assert len(re.findall(r"\* plotly\.js v", text)) == 1


def test_the_pages_numbers_are_the_ledgers(written: list[Path], paired: SweepRecords) -> None:
    page = body(written[0])
    auc = next(table for table in paper_tables(paired) if table.name == "auc")
    for method in PAIRED:
        rows = paired.results[(paired.results["dataset"] == "act") & (paired.results["method"] == method)]
        cell = f"{rows['auc_all'].mean():.3f} ± {rows['auc_all'].sem():.3f}"
        assert auc.text.loc[method, ("act", "A-All", OURS)] == cell
        assert f">{cell}<" in page


def test_a_partial_sweep_says_so(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ledger = fill(home, "part", methods=PAIRED, keep=0.4)
    page = body(write_report(home, ledger, "part")[0])
    done, asked = ledger.count("part")
    assert 0 < done < asked
    assert f"partial: {done} of {asked} tasks" in page
    assert "nothing to compare" in page


def test_nothing_at_all_still_gives_a_page(tmp_path: Path) -> None:
    home = Home(tmp_path)
    page = body(write_report(home, fill(home, "none", keep=0.0), "none")[0])
    assert "nothing has finished" in page
    assert "0.672" in page  # the published figures are there all the same


def test_one_method_and_one_finished_fold_give_a_page(tmp_path: Path) -> None:
    for number, keep in enumerate((1.0, 0.02)):
        home = Home(tmp_path / str(number))
        ledger = fill(home, "one", methods=["pdml-vnd"], keep=keep)
        page = shown(home, ledger, "one")
        assert "nothing to compare" in page
        assert ("complete" if keep == 1 else "partial: 1 of 73") in page


def test_failures_are_listed_with_their_first_line_and_escaped(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ledger = fill(home, "bad", methods=["mdml-csfn"])
    ledger.fail(
        "bad",
        Failure("k", "digits mdml-csfn", "mdml-csfn", 2, "bug", "<script>alert(1)</script>", "", 3.0, True, 0.0),
    )
    page = shown(home, ledger, "bad")
    assert "1 tasks failed for good" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page


def test_a_hostile_dataset_name_stays_text(tmp_path: Path) -> None:
    home = Home(tmp_path)
    name = 'x</script><script>alert("y")'
    ledger = fill(home, "own", datasets=[name], methods=["mdml-csfn", "pdml-sfn"])
    assert '<script>alert("y")' not in shown(home, ledger, "own")


def test_the_other_algorithm_is_drawn_beside_this_one(tmp_path: Path) -> None:
    home = Home(tmp_path)
    fill(home, "published", methods=["mdml-csfn"], algorithm="paper")
    ledger = fill(home, "ours", methods=["mdml-csfn"])
    assert "mdml-csfn (paper, sweep published)" in shown(home, ledger, "ours")


def test_a_damaged_artifact_costs_its_curve_only(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ledger = fill(home, "hurt", methods=["mdml-csfn", "mdml-cvnd"])
    for path in (home.folder / "artifacts").iterdir():
        path.write_bytes(b"not what was written")
    assert "no history recorded" in shown(home, ledger, "hurt")


def test_the_spectrum_of_a_projection_is_that_of_its_metric() -> None:
    from dashboards.metric_figures import metric_spectrum

    rng = np.random.default_rng(0)
    for L in (rng.standard_normal((5, 9)), rng.standard_normal((9, 5)), np.diag([3.0, 2.0, 0.0])):
        expected = np.linalg.eigvalsh(L.T @ L)[::-1]
        assert metric_spectrum(L) == pytest.approx(expected[expected > 1e-12 * expected[0]])


@pytest.mark.parametrize("kept", [(), ("components",), ("class_auc", "class_sizes")])
def test_a_metrics_own_picture_draws_what_was_recorded(tmp_path: Path, kept: tuple[str, ...]) -> None:
    from dashboards.method_figure import write_method_figure
    from tests.dashboards.synthetic import arrays_of, study_specs

    arrays = arrays_of(study_specs("digits", 0, "euc", 2)[0], np.random.default_rng(0))
    picture = write_method_figure("euc", {name: arrays[name] for name in kept} if kept else arrays, tmp_path)
    svg = picture[0].read_text()
    assert svg.count("not recorded for this method") == (2 if kept else 0)
    assert [path.name for path in picture] == ["metric.svg", "metric.png"]
