"""One self-contained HTML page from a sweep's records, with every table and figure as files beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from dashboards import cost_figures, metric_figures
from dashboards.charts import Chart, Parallel
from dashboards.claims import check_claims
from dashboards.comparisons import differences_frame, ranking, verdicts
from dashboards.efficiency import efficiency_frame, refusal, restarts_frame, score_over_hours, seconds_frame
from dashboards.page import Content, render
from dashboards.printed import write_files
from dashboards.records import SweepRecords, read_sweep
from dashboards.tables import Table, paper_tables, plain_table, published
from dashboards.writing import write_table
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.store.results import efficiency, verdict

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


def build(home: Home, ledger: Ledger, sweep: SweepRecords, price: float | None) -> Content:
    """All tables, figures and sentences."""
    cost = efficiency_frame(sweep)
    seconds = seconds_frame(sweep, price)
    differences = differences_frame(sweep)
    return Content(
        summary=[refusal(sweep) or verdict(efficiency(sweep.rows)), *verdicts(differences)],
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
        metric_figures.regularizers_figure(sweep),
        metric_figures.scores_figure(sweep, published()),
        metric_figures.balance_figure(sweep),
        cost_figures.seconds_figure(seconds),
        cost_figures.hours_figure(sweep, score_over_hours(sweep)),
        cost_figures.restarts_figure(sweep, restarts_frame(sweep)),
        cost_figures.convergence_figure(sweep, arrays, other, other_name),
        metric_figures.differences_figure(differences),
        metric_figures.ranks_figure(ranking(sweep)),
        metric_figures.spectrum_figure(sweep, arrays),
        metric_figures.classes_figure(sweep, arrays),
        cost_figures.trials_figure(sweep),
        cost_figures.timeline_figure(sweep),
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
        notes.append(
            f"{len(reasons)} combinations were refused before the start: "
            f"{'; '.join(reasons[:5])}{' ...' if len(reasons) > 5 else ''}"
        )
    return notes


def _efficiency_table(cost: pd.DataFrame) -> Table:
    frame = cost.set_index("dataset")
    return plain_table(
        "efficiency",
        "Runs ratio x time-per-run ratio = total ratio",
        "Non-convex over convex, tuning fits only, solver seconds only; low and high bound the total "
        "ratio at 95 % "
        "(bootstrap over fits, and over splits and datasets where there are three or more).",
        frame.rename(columns=lambda c: c.replace("_", " ").replace("nonconvex", "non-convex")),
    )


def _seconds_table(sweep: SweepRecords, seconds: pd.DataFrame, price: float | None) -> Table:
    total = seconds.sum(axis=0).rename("all methods")
    frame = pd.concat([seconds, total.to_frame().T.astype({"fits": int})]).rename_axis(index="method")
    note = f"Seconds over all fits. {sweep.hours_unit}: a device was held; waiting in the queue holds none."
    if price is not None:
        note += f" Cost at {price:g} an hour."
    names = {"hours": sweep.hours_unit, "startup": "start-up"}
    return plain_table("seconds", "Where the time went", note, frame.rename(columns=names))


def _differences_table(differences: pd.DataFrame) -> Table:
    frame = (
        differences.drop(columns="words")
        .set_index("convex")
        .rename(
            columns={
                "nonconvex": "non-convex",
                "basis": "judged by",
                "standard_error": "s.e.",
                "half_width": "95 % ±",
                "p_holm": "p (Holm)",
            }
        )
    )
    return plain_table(
        "differences",
        "Differences in AUC: convex minus non-convex",
        "Corrected resampled t-test (Nadeau, Bengio), over test parts of splits and over tuning folds. "
        "Holm's p allows for "
        "the number of rows. The folds also made the choice, which flatters the method with more settings.",
        frame,
        {"difference": lambda v: f"{v:+.4f}", "s.e.": lambda v: f"{v:.4f}", "95 % ±": lambda v: f"{v:.4f}"},
    )


def _failures_table(sweep: SweepRecords) -> Table:
    frame = sweep.failures[["label", "attempt", "kind", "message", "seconds", "final"]].tail(_SHOWN_FAILURES)
    frame = frame.set_index("label").rename(columns={"final": "gave up"})
    note = f"{len(sweep.failures)} failed attempts" + (
        f"; the last {_SHOWN_FAILURES} are shown." if len(sweep.failures) > _SHOWN_FAILURES else "."
    )
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
