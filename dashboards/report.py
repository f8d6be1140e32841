"""One self-contained HTML page from a sweep's records, with every table and figure as files beside it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from dashboards import figures
from dashboards.claims import Claim, check_claims
from dashboards.comparisons import differences_frame, ranking, verdicts
from dashboards.drawing import Chart, Parallel, plotly_figure, write_files
from dashboards.efficiency import efficiency_frame, restarts_frame, score_over_hours, seconds_frame
from dashboards.records import SweepRecords, read_sweep
from dashboards.tables import PAPER, Table, paper_tables, plain_table, published
from dashboards.writing import write_table
from sweep.home import Home
from sweep.ledger import Ledger
from sweep.results import efficiency, verdict

# Datasets next to each other in one block of a table: more do not fit a printed page.
_BLOCK = 3
_SHOWN_FAILURES = 50


def write_report(
    home: Home, ledger: Ledger, name: str, output: Path | None = None, *, price: float | None = None
) -> list[Path]:
    """Write the page and the files beside it; returns all paths, the page first.

    Parameters
    ----------
    output : the HTML file; under the home's `reports` if not given. Tables and figures go to a folder
        next to it, named after it.
    price : of one device-hour, in whatever currency; adds the cost.
    """
    page = output or home.folder / "reports" / f"{name}.html"
    folder = page.with_name(f"{page.stem}-files")
    folder.mkdir(parents=True, exist_ok=True)
    sweep = read_sweep(ledger, name)
    content = build(home, ledger, sweep, price)
    paths = [page]
    for table in content.tables:
        paths += write_table(table, folder)
    for chart in content.charts.values():
        paths += write_files(chart, folder)
    page.write_text(render(sweep, content, folder.name), encoding="utf-8")
    return paths


@dataclass(frozen=True)
class Content:
    """What a report says, before it is laid out."""

    summary: list[str]
    warnings: list[str]
    claims: list[Claim]
    paper: list[Table]
    efficiency: Table
    seconds: Table
    differences: Table
    failures: Table
    charts: Mapping[str, Chart | Parallel]
    provenance: Mapping[str, str]

    @property
    def tables(self) -> list[Table]:
        claims = plain_table("claims", "Claims of the paper", "", pd.DataFrame([asdict(c) for c in self.claims]).set_index("claim"))
        return [claims, self.efficiency, self.seconds, self.differences, *self.paper, self.failures]


def build(home: Home, ledger: Ledger, sweep: SweepRecords, price: float | None) -> Content:
    """All tables, figures and sentences."""
    cost = efficiency_frame(sweep)
    seconds = seconds_frame(sweep, price)
    differences = differences_frame(sweep)
    rows = sweep.results.to_dict("records")
    return Content(
        summary=[verdict(efficiency(rows)), *verdicts(differences)],
        warnings=_warnings(sweep),
        claims=check_claims(sweep, cost),
        paper=paper_tables(sweep),
        efficiency=_efficiency_table(cost),
        seconds=_seconds_table(sweep, seconds, price),
        differences=_differences_table(differences),
        failures=_failures_table(sweep),
        charts={chart.name: chart for chart in _charts(home, ledger, sweep, seconds, differences)},
        provenance=_provenance(sweep),
    )


def _charts(
    home: Home, ledger: Ledger, sweep: SweepRecords, seconds: pd.DataFrame, differences: pd.DataFrame
) -> list[Chart | Parallel]:
    arrays = first_split_arrays(home, sweep)
    other, other_name = _other_algorithm(home, ledger, sweep)
    return [
        figures.regularizers_figure(sweep),
        figures.scores_figure(sweep, published()),
        figures.balance_figure(sweep),
        figures.seconds_figure(seconds),
        figures.hours_figure(sweep, score_over_hours(sweep)),
        figures.restarts_figure(sweep, restarts_frame(sweep)),
        figures.convergence_figure(sweep, arrays, other, other_name),
        figures.differences_figure(differences),
        figures.ranks_figure(ranking(sweep)),
        figures.spectrum_figure(sweep, arrays),
        figures.classes_figure(sweep, arrays),
        figures.trials_figure(sweep),
        figures.timeline_figure(sweep),
    ]


def first_split_arrays(home: Home, sweep: SweepRecords) -> dict[tuple[str, str], dict[str, np.ndarray]]:
    """Arrays of each method's refit on the first split of each dataset that has one."""
    found: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for study in sweep.studies:
        place = (study.dataset, study.method)
        if place not in found and study.refit is not None and study.refit[1].artifact:
            arrays = home.read_artifact(study.refit[0].key, study.refit[1].artifact)
            if arrays is not None:
                found[place] = arrays
    return found


def _other_algorithm(
    home: Home, ledger: Ledger, sweep: SweepRecords
) -> tuple[dict[tuple[str, str], dict[str, np.ndarray]], str]:
    """Refits of the same data with the other algorithm, from another sweep of this home."""
    own = str(sweep.spec.get("algorithm"))
    for name, spec in ledger.sweeps().items():
        algorithm = str(spec.get("algorithm"))
        if algorithm != own:
            candidate = read_sweep(ledger, name)
            if set(candidate.datasets) & set(sweep.datasets):
                return first_split_arrays(home, candidate), f"{algorithm}, sweep {name}"
    return {}, ""


def _warnings(sweep: SweepRecords) -> list[str]:
    """What a reader must know before trusting a number."""
    done, notes = len(sweep.fits), []
    if done == 0:
        notes.append("Nothing has finished yet, so the tables hold the published figures only.")
    elif done < sweep.asked:
        notes.append(f"Partial: {done} of {sweep.asked} tasks have finished; methods without a result are left empty.")
    lost = sweep.failures[sweep.failures["final"].astype(bool)]
    if len(lost):
        notes.append(f"{len(lost)} tasks failed for good; they are listed at the end.")
    if done and sweep.spec.get("mode") != "benchmark":
        notes.append(
            "Times were taken in production mode, where devices may be shared and fits may start warm; "
            "run with mode: benchmark before quoting them."
        )
    if done and not sweep.has_gpu:
        notes.append("No fit ran on a GPU: hours are CPU-hours.")
    if done and int(sweep.spec.get("splits", 1)) == 1:
        notes.append("One random split: there are no standard errors, and differences are judged by the tuning folds.")
    refused = sweep.about.get("refused", [])
    if refused:
        reasons = sorted({f"{r['dataset']} {r['method']} {r['setting']}: {r['reason']}" for r in refused})
        notes.append(f"{len(reasons)} combinations were refused before the start: {'; '.join(reasons[:5])}{' ...' if len(reasons) > 5 else ''}")
    return notes


def _efficiency_table(cost: pd.DataFrame) -> Table:
    frame = cost.set_index("dataset")
    return plain_table(
        "efficiency", "Runs ratio x time-per-run ratio = total ratio",
        "Non-convex over convex, tuning fits only, solver seconds only; low and high bound the total ratio at 95 % "
        "(bootstrap over fits, and over splits and datasets where there are three or more).",
        frame.rename(columns=lambda c: c.replace("_", " ").replace("nonconvex", "non-convex")),
    )  # fmt: skip


def _seconds_table(sweep: SweepRecords, seconds: pd.DataFrame, price: float | None) -> Table:
    total = seconds.sum(axis=0).rename("all methods")
    frame = pd.concat([seconds, total.to_frame().T.astype({"fits": int})]).rename_axis(index="method")
    note = f"Seconds over all fits. Hours are {sweep.hours_unit} during which a device was held; the queue is not among them."
    if price is not None:
        note += f" Cost at {price:g} an hour."
    names = {"hours": sweep.hours_unit, "startup": "start-up"}
    return plain_table("seconds", "Where the time went", note, frame.rename(columns=names))


def _differences_table(differences: pd.DataFrame) -> Table:
    frame = differences.drop(columns="words").set_index("convex").rename(columns={
        "nonconvex": "non-convex", "basis": "judged by", "standard_error": "s.e.", "half_width": "95 % ±", "p_holm": "p (Holm)",
    })  # fmt: skip
    return plain_table(
        "differences", "Differences in AUC: convex minus non-convex",
        "Corrected resampled t-test (Nadeau, Bengio), over test parts of splits and over tuning folds. Holm's p allows for "
        "the number of rows. The folds also made the choice, which flatters the method with more settings.",
        frame,
        {"difference": lambda v: f"{v:+.4f}", "s.e.": lambda v: f"{v:.4f}", "95 % ±": lambda v: f"{v:.4f}"},
    )  # fmt: skip


def _failures_table(sweep: SweepRecords) -> Table:
    frame = sweep.failures[["label", "attempt", "kind", "message", "seconds", "final"]].tail(_SHOWN_FAILURES)
    frame = frame.set_index("label").rename(columns={"final": "gave up"})
    note = f"{len(sweep.failures)} failed attempts" + (f"; the last {_SHOWN_FAILURES} are shown." if len(sweep.failures) > _SHOWN_FAILURES else ".")
    return plain_table("failures", "Failures and retries", note, frame, {"gave up": lambda v: "yes" if v else "no"})


def _provenance(sweep: SweepRecords) -> dict[str, str]:
    about = dict(sweep.about)
    data = about.pop("data", {})
    about.pop("datasets", None)
    about.pop("refused", None)
    facts = {key: str(value) for key, value in about.items()}
    facts["seed"] = str(sweep.spec.get("seed"))
    facts |= {f"data fingerprint, {name}": str(value) for name, value in data.items()}
    facts["devices"] = ", ".join(sorted(sweep.fits["lane"].unique())[:20]) or "none"
    facts["retried fits"] = str(int((sweep.fits["attempts"] > 1).sum())) if len(sweep.fits) else "0"
    facts["warm starts"] = str(int(sweep.fits["warm"].sum())) if len(sweep.fits) else "0"
    return facts


# -- layout ---------------------------------------------------------------------------------------


def render(sweep: SweepRecords, content: Content, folder: str) -> str:
    """The page as text."""
    from plotly.offline import get_plotlyjs

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((resources.files("dashboards") / "report.html.j2").read_text(encoding="utf-8"))
    return template.render(
        sweep=sweep,
        content=content,
        folder=folder,
        done=len(sweep.fits),
        written=time.strftime("%Y-%m-%d %H:%M %Z"),
        spec=yaml.safe_dump(dict(sweep.spec), sort_keys=False),
        plotly_js=Markup(get_plotlyjs()),
        blocks=table_blocks,
        chart_html=_chart_html,
        chart_width=_chart_width,
    )


def _chart_html(chart: Chart | Parallel) -> Markup:
    from plotly.io import to_html

    config = {"responsive": True, "displaylogo": False}
    return Markup(
        to_html(plotly_figure(chart), validate=False, full_html=False, include_plotlyjs=False, div_id=f"chart-{chart.name}", config=config)
    )


def _chart_width(chart: Chart | Parallel) -> int:
    """Pixels below which a chart scrolls instead of shrinking."""
    if isinstance(chart, Parallel):
        return 760
    names = {series.name for panel in chart.panels for series in panel.series}
    return max(340 * max(map(len, chart.rows)), 640 if len(names) > 8 else 0)


@dataclass(frozen=True)
class Block:
    """A part of a table that fits a page."""

    title: str  # empty for the part that is always shown
    index_name: str
    header: list[list[tuple[str, int]]]  # per level: text and number of columns
    rows: list[tuple[str, list[tuple[str, str]]]]  # label, then text and CSS class of each cell


def table_blocks(table: Table, datasets: list[str]) -> list[Block]:
    """This sweep's datasets first, a few at a time; then those that only the paper has."""
    text = table.text
    if not isinstance(text.columns, pd.MultiIndex):
        return [_block(table, list(text.columns), "")]
    names = list(dict.fromkeys(text.columns.get_level_values(0)))
    own = [name for name in names if name in datasets]
    rest = [name for name in names if name not in datasets]
    blocks = []
    for group, hidden in ((own, False), (rest, True)):
        for start in range(0, len(group), _BLOCK):
            part = group[start : start + _BLOCK]
            columns = [column for column in text.columns if column[0] in part]
            blocks.append(_block(table, columns, f"Not in this sweep: {', '.join(part)}" if hidden else ""))
    return blocks


def _block(table: Table, columns: list[Any], title: str) -> Block:
    depth = table.text.columns.nlevels
    names = [column if isinstance(column, tuple) else (column,) for column in columns]
    header = []
    for level in range(depth):
        spans: list[tuple[str, int]] = []
        previous: Any = None
        for name in names:
            if name[: level + 1] == previous:
                spans[-1] = (spans[-1][0], spans[-1][1] + 1)
            else:
                spans.append((str(name[level]), 1))
            previous = name[: level + 1]
        if any(text for text, _ in spans):
            header.append(spans)
    part = table.text[columns]
    rows = [
        (str(label), [(cell, _cell_class(table, label, column, cell)) for column, cell in zip(columns, cells, strict=True)])
        for label, cells in zip(part.index, part.itertuples(index=False, name=None), strict=True)
    ]
    return Block(title, str(table.text.index.name or ""), header, rows)


def _cell_class(table: Table, row: Any, column: Any, cell: str) -> str:
    classes = []
    if not cell:
        classes.append("empty")
    if (row, column) in table.best:
        classes.append("best")
    if isinstance(column, tuple) and column[-1] == PAPER:
        classes.append("paper")
    return " ".join(classes)


