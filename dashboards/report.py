"""One self-contained HTML page from a sweep's records, with every table and figure as files beside it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd

from dashboards import cost_figures, metric_figures, path_figures, results_tables
from dashboards.charts import AnyChart
from dashboards.claims import check_claims
from dashboards.comparisons import differences_frame, ranking
from dashboards.efficiency import efficiency_frame, refusal, restarts_frame, score_over_hours, seconds_frame
from dashboards.errata import ERRATA
from dashboards.page import Content, Section, render
from dashboards.paper_tables import paper_tables, papers_datasets, published
from dashboards.printed import write_files
from dashboards.records import SweepRecords, read_sweep
from dashboards.statistics import ROPE
from dashboards.summary import summary, warnings
from dashboards.tables import Table, plain_table, significant
from dashboards.writing import write_table
from sweep.store.home import Home
from sweep.store.ledger import Ledger

_SHOWN_FAILURES = 50
_SHOWN_DIFFERENCES = 10  # more are folded
_SHOWN_METHODS = 12  # of each dataset, compared with one another in the page


def write_report(
    home: Home,
    ledger: Ledger,
    name: str,
    output: Path | None = None,
    *,
    price: float | None = None,
    command: str = "",
) -> list[Path]:
    """Write the page and the files beside it; returns all paths, the page first.

    Parameters
    ----------
    output : the HTML file; under the home's `reports` if not given. Tables and figures go to a folder
        next to it, named after it.
    price : of one device-hour, in whatever currency; adds the cost.
    command : computes a fit again, with `{key}` in the place of its key; empty if there is none.
    """
    page = output or home.folder / "reports" / f"{name}.html"
    folder = page.with_name(f"{page.stem}-files")
    folder.mkdir(parents=True, exist_ok=True)
    sweep = read_sweep(ledger, name, home)
    content = build(sweep, price)
    paths = [page]
    for table in content.tables:
        paths += write_table(table, folder)
    for chart in content.charts:
        paths += write_files(chart, folder)
    page.write_text(render(sweep, content, folder.name, command=command), encoding="utf-8")
    return paths


def build(sweep: SweepRecords, price: float | None = None) -> Content:
    """All tables, figures and sentences: the reader's own results first, the paper's last."""
    differences = differences_frame(sweep)
    return Content(
        summary=summary(sweep, differences),
        warnings=warnings(sweep),
        sections=[
            _results(sweep),
            _over_gamma(sweep),
            _convergence(sweep),
            _comparisons(sweep, differences),
            _cost(sweep, price),
            _metrics(sweep),
            _paper(sweep),
            _provenance(sweep),
        ],
    )


def _results(sweep: SweepRecords) -> Section:
    if not sweep.rows:
        return Section("results", "Results", missing=[("results", "no method has finished all of its fits yet")])
    each = [results_tables.results_table(sweep, dataset) for dataset in sweep.datasets if sweep.ranked(dataset)]
    overview = [results_tables.overview_table(sweep)] if len(each) > 1 else []
    more = [results_tables.scores_table(sweep), results_tables.chosen_table(sweep)]
    paper = published()
    printed = paper[(paper["table"] == "auc") & (paper["quantity"] == "auc_all")]
    known = {source: dataset for dataset, source in papers_datasets(sweep).items()} if sweep.score == "auc_all" else {}
    printed = printed[printed["dataset"].isin(known)].replace({"dataset": known})
    return Section("results", "Results", [*overview, *each, metric_figures.scores_figure(sweep, printed), *more])


def _over_gamma(sweep: SweepRecords) -> Section:
    charts = [
        path_figures.path_figure(sweep),
        path_figures.certificate_figure(sweep),
        path_figures.rank_figure(sweep),
        path_figures.regularizers_figure(sweep),
        path_figures.spectrum_over_gamma_figure(sweep),
    ]
    return Section("gamma", "Over gamma", charts if sweep.studies else [])


def _convergence(sweep: SweepRecords) -> Section:
    if not sweep.studies:
        return Section("convergence", "Convergence")
    restarts = results_tables.restarts_table(sweep)
    missing = [(restarts.title, "no method with several restarts has finished")] if restarts.is_empty else []
    return Section(
        "convergence",
        "Convergence and restarts",
        [
            cost_figures.convergence_figure(sweep),
            restarts,
            cost_figures.restarts_figure(sweep, restarts_frame(sweep)),
        ],
        missing=missing,
    )


def _comparisons(sweep: SweepRecords, differences: pd.DataFrame) -> Section:
    if not sweep.studies:
        return Section("comparisons", "Comparisons")
    items: list[Table | AnyChart] = [
        metric_figures.differences_figure(sweep, differences),
        _differences_table(sweep, differences),
        metric_figures.ranks_figure(ranking(sweep)),
    ]
    return Section("comparisons", "Any two methods compared", items)


def _differences_table(sweep: SweepRecords, differences: pd.DataFrame) -> Table:
    names = {
        "basis": "judged by",
        "standard_error": "s.e.",
        "half_width": "95 % ±",
        "p_holm": "p (Holm)",
        "p_first_better": "P(first better)",
        "p_equivalent": "P(equal)",
        "p_second_better": "P(second better)",
    }
    four, chance = (lambda v: f"{v:.4f}"), (lambda v: f"{v:.3f}")
    write = {"difference": lambda v: f"{v:+.4f}", "s.e.": four, "95 % ±": four}
    write |= dict.fromkeys(("P(first better)", "P(equal)", "P(second better)"), chance)
    frame = differences.set_index("dataset").rename(columns=names)
    best = {dataset: sweep.ranked(dataset)[:_SHOWN_METHODS] for dataset in sweep.datasets}
    shown = [second in best[dataset] for dataset, second in zip(frame.index, frame["second"], strict=True)]
    table = plain_table(
        "differences",
        f"Differences in {sweep.score_title} between any two methods",
        "First minus second, the better one first. p: corrected resampled t-test (Nadeau, Bengio) over the test parts "
        "of the splits, or over the tuning folds where there is one split, which flatters the method with more "
        "settings to choose from; p (Holm) allows for all pairs of the dataset. P: Bayesian correlated t-test; equal "
        f"means closer than {ROPE:g}."
        + (
            ""
            if all(shown)
            else f" Here for the {_SHOWN_METHODS} best methods; the CSV file has all {len(frame)} pairs."
        ),
        frame[shown],
        write,
        folded=sum(shown) > _SHOWN_DIFFERENCES,
    )
    return replace(table, frame=frame)


def _cost(sweep: SweepRecords, price: float | None) -> Section:
    if not sweep.studies:
        return Section("cost", "Cost")
    cost, seconds = efficiency_frame(sweep), seconds_frame(sweep, price)
    tables = [_seconds_table(sweep, seconds, price)]
    missing = []
    if cost.empty:
        why = refusal(sweep) or "no convex method and its non-convex counterpart have both finished"
        missing.append(("Convex against non-convex", why))
    else:
        tables.insert(0, _efficiency_table(cost))
    return Section(
        "cost",
        "Cost",
        [
            *tables,
            cost_figures.hours_figure(sweep, score_over_hours(sweep)),
            cost_figures.seconds_figure(seconds),
            cost_figures.timeline_figure(sweep),
        ],
        missing=missing,
    )


def _efficiency_table(cost: pd.DataFrame) -> Table:
    return plain_table(
        "efficiency",
        "Convex against non-convex: runs ratio x time-per-run ratio = total ratio",
        "Non-convex over convex, tuning fits only, solver seconds only. Search is how the convex side was tuned: a "
        "path of gamma is an arm of its own, never added to grids. Low and high bound the total ratio at 95 % "
        "(bootstrap over fits, and over splits and datasets where there are three or more).",
        cost.set_index("dataset").rename(columns=lambda c: c.replace("_", " ").replace("nonconvex", "non-convex")),
    )


def _seconds_table(sweep: SweepRecords, seconds: pd.DataFrame, price: float | None) -> Table:
    total = seconds.sum(axis=0).rename("all methods")
    frame = pd.concat([seconds, total.to_frame().T.astype({"fits": int})]).rename_axis(index="method")
    note = f"Seconds over all fits. {sweep.hours_unit}: a device was held; waiting in the queue holds none."
    if price is not None:
        note += f" Cost at {price:g} an hour."
    names = {"hours": sweep.hours_unit, "startup": "start-up"}
    return plain_table(
        "seconds", "Where the time went", note, frame.rename(columns=names), {sweep.hours_unit: significant}
    )


def _metrics(sweep: SweepRecords) -> Section:
    charts: list[AnyChart] = [
        metric_figures.balance_figure(sweep),
        metric_figures.classes_figure(sweep),
        metric_figures.spectrum_figure(sweep),
        cost_figures.trials_figure(sweep),
    ]
    return Section("metrics", "The learned metrics", charts if sweep.studies else [])


def _paper(sweep: SweepRecords) -> Section:
    tables = paper_tables(sweep)
    claims = pd.DataFrame([asdict(c) for c in check_claims(sweep, efficiency_frame(sweep))]).set_index("claim")
    about_claims = plain_table(
        "claims",
        "The paper's claims",
        "A difference between methods counts as reproduced if it has the claimed sign and is significant at 5 % over "
        "all pairs and datasets of this sweep. Total time: the whole interval of the ratio lies above 1. Restarts: on "
        "average they gain at least 0.001 AUC. The other claims have to hold in every case that the evidence names.",
        claims,
        words=True,
    )
    errata = pd.DataFrame(
        [(e.label, e.about, e.text) for e in ERRATA], columns=["number", "about", "what is not as printed"]
    )
    errata_table = plain_table("errata", "Errata of the paper", "", errata.set_index("number"), words=True, folded=True)
    names = ", ".join(papers_datasets(sweep))
    note = f"This sweep's figures beside the published ones (grey) on {names}; settings were chosen by {sweep.score}."
    if sweep.score != "auc_all":
        note += " The paper chose by AUC, so its figures compare with care."
    return Section(
        "paper",
        "Beside the paper",
        [about_claims, *tables, errata_table],
        note=note if tables else "",
        folded="" if tables else "None of these data are the paper's: its claims judged on them, and its errata",
    )


def _provenance(sweep: SweepRecords) -> Section:
    facts = {
        key: str(value)
        for key, value in sweep.about.items()
        if key not in ("data", "datasets", "refused", "studies", "notes", "methods")
    }
    facts["seed"] = str(sweep.spec.get("seed"))
    facts |= {f"data fingerprint, {name}": str(value) for name, value in sweep.about.get("data", {}).items()}
    facts |= {f"version of {name}": str(value) for name, value in sweep.about.get("methods", {}).items()}
    facts["devices"] = ", ".join(sorted(sweep.fits["lane"].unique())[:20]) or "none"
    facts["retried fits"] = str(int((sweep.fits["attempts"] > 1).sum()))
    facts["warm starts"] = str(int(sweep.fits["warm"].astype(bool).sum()))
    frame = pd.DataFrame({"value": facts}).rename_axis(index="what")
    tables = [plain_table("provenance", "Where this comes from", "", frame, words=True, folded=True)]
    if sweep.failed:
        tables.append(_failures_table(sweep))
    return Section("provenance", "Provenance", tables)


def _failures_table(sweep: SweepRecords) -> Table:
    frame = sweep.failures[["label", "attempt", "kind", "message", "seconds", "final"]].tail(_SHOWN_FAILURES)
    frame = frame.set_index("label").rename(columns={"final": "gave up"})
    note = f"{len(sweep.failures)} failed attempts" + (
        f"; the last {_SHOWN_FAILURES} are shown." if len(sweep.failures) > _SHOWN_FAILURES else "."
    )
    write = {"gave up": lambda v: "yes" if v else "no", "message": lambda v: next(iter(str(v).splitlines()), "")}
    return plain_table("failures", "Failures and retries", note, frame, write)
