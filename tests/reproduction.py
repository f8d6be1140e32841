"""The tables of docs/reproduction.md, from the rows that are kept beside it.

`python -m tests.reproduction` writes them into the page, between the comments that name them; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dashboards.paper_tables import published
from solvers.methods import METHODS, PAIRS

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"
ROWS = PAGE.parent / "reproduction"
CORE = ("euc", "mdml", "pdml", "mdml-csfn", "pdml-sfn", "mdml-cvnd", "pdml-vnd", "mdml-cldd", "pdml-ldd")
PAPERS = ("act", "reuters", "news")  # whose data are the paper's, as far as they can be rebuilt
DEMOS = ("mimic", "eicu")
_MARKED = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- /\2 -->)", re.DOTALL)

SWEEPS = ("reproduction-core", "reproduction-news", "reproduction")

# What one sweep took from another stands in both.
results = pd.concat([pd.read_csv(ROWS / f"{name}.csv") for name in SWEEPS]).drop_duplicates("key")
fits = pd.concat([pd.read_parquet(ROWS / f"{name}-fits.parquet") for name in SWEEPS]).drop_duplicates("key")
paper = published()


def headline() -> str:
    """What tuning costs, convex against non-convex, on all datasets together and on each."""
    rows = []
    for convex, nonconvex in PAIRS:
        sides = {
            method: results[results["method"] == method].set_index(["dataset", "split"])
            for method in (convex, nonconvex)
        }
        both = sides[convex].index.intersection(sides[nonconvex].index)
        for dataset in ("all", *(name for name in (*PAPERS, *DEMOS) if name in both.get_level_values(0))):
            place = both if dataset == "all" else both[both.get_level_values(0) == dataset]
            parts = [side.loc[place] for side in sides.values()]
            runs, seconds = ([int(p["n_fits"].sum()) for p in parts], [float(p["tuning_seconds"].sum()) for p in parts])
            per_run = [total / count for total, count in zip(seconds, runs, strict=True)]
            rows.append((
                f"{convex} / {nonconvex}", dataset, f"{runs[0]} / {runs[1]}", f"{per_run[0]:.2f} / {per_run[1]:.2f}",
                f"{per_run[1] / per_run[0]:.2f}", f"{seconds[1] / seconds[0]:.2f}",
            ))  # fmt: skip
    return _table(("pair", "dataset", "runs", "seconds per run", "ratio per run", "ratio in all"), rows)


def scores() -> str:
    """AUC of every method beside the paper's."""
    head = ["method", *(cell for d in PAPERS for cell in (d, "paper")), *DEMOS]
    rows = []
    for method in METHODS:
        cells = ((_mean(d, method, "auc_all"), _printed("auc", "auc_all", d, method)) for d in PAPERS)
        rows.append((method, *(cell for pair in cells for cell in pair), *(_mean(d, method, "auc_all") for d in DEMOS)))
    return _table(head, rows)


def balance() -> str:
    """Frequent and infrequent classes of the imbalanced datasets, the nine methods of the core."""
    columns = {"auc_all": ("auc", "auc_all"), "auc_frequent": ("auc_frequent", "auc_frequent"),
               "auc_infrequent": ("auc", "auc_infrequent"), "balance_score": ("auc", "balance_score")}  # fmt: skip
    head = ["method", *(cell for name in columns for cell in (name.replace("_", " "), "paper"))]
    rows = []
    for method in CORE:
        cells = ((_mean("reuters", method, name), _printed(*place, "reuters", method))
                 for name, place in columns.items())  # fmt: skip
        rows.append((method, *(cell for pair in cells for cell in pair)))
    return _table(head, rows)


def compactness() -> str:
    """Projection vectors and AUC per thousand of them."""
    head = ["method", *(cell for d in PAPERS for cell in (f"{d} vectors", "paper", "AUC / 1000 vectors", "paper"))]
    rows = []
    for method in CORE:
        cells = []
        for dataset in PAPERS:
            per = _mean(dataset, method, "compactness", "{:.1f}", 1000.0)
            cells += [_mean(dataset, method, "npv", "{:.0f}"),
                      _printed("compactness", "npv", dataset, method, "{:.0f}"), per,
                      _printed("compactness", "compactness_e-3", dataset, method, "{:.1f}")]  # fmt: skip
        rows.append((method, *cells))
    return _table(head, rows)


def gammas() -> str:
    """How often each gamma of the grid was chosen."""
    rows = []
    for kind, convex in (("convex", True), ("non-convex", False)):
        part = results[(results["convex"] == convex) & results["gamma"].notna() & (results["method"] != "mdml-drop")]
        for dataset in _datasets(part):
            chosen = part.loc[part["dataset"] == dataset, "gamma"]
            at_end = chosen.isin([0.001, 1.0])
            rows.append((kind, dataset, *(int((chosen == g).sum()) for g in (0.001, 0.01, 0.1, 1.0)),
                         f"{int(at_end.sum())} of {len(chosen)}"))  # fmt: skip
    return _table(("methods", "dataset", "0.001", "0.01", "0.1", "1", "at an end"), rows)


def restarts() -> str:
    """How far apart two restarts of one fit ended."""
    several = fits[fits["restart_spread"].notna()]
    rows = []
    for dataset in _datasets(several):
        for method in [m for m in METHODS if m in set(several.loc[several["dataset"] == dataset, "method"])]:
            spread = several.loc[(several["dataset"] == dataset) & (several["method"] == method), "restart_spread"]
            rows.append((dataset, method, len(spread), f"{spread.median():.0e}", f"{spread.max():.0e}",
                         f"{100 * (spread <= 1e-3).mean():.0f} %"))  # fmt: skip
    return _table(("dataset", "method", "fits", "median", "largest", "within 0.1 %"), rows)


def certificates() -> str:
    """Gaps of the certified fits."""
    certified = fits[fits["relative_gap"].notna()]
    rows = []
    for method in [m for m in METHODS if m in set(certified["method"])]:
        part = certified[certified["method"] == method]
        missed = int((part["converged"] == False).sum())  # noqa: E712  None is not False
        rows.append((method, len(part), f"{part['relative_gap'].median():.1e}", f"{part['relative_gap'].max():.1e}",
                     missed, f"{part['n_eigh'].median():.0f}", int(part["n_eigh"].max()),
                     f"{part['solve_seconds'].median():.1f}"))  # fmt: skip
    head = ("method", "fits", "median gap", "worst gap", "missed 0.01", "eigh, median", "eigh, most", "seconds, median")
    return _table(head, rows)


def cost() -> str:
    """Where the time went, by dataset."""
    rows = []
    for dataset in (*_datasets(fits), "all"):
        part = fits if dataset == "all" else fits[fits["dataset"] == dataset]
        hours = [part[f"{phase}_seconds"].sum() / 3600 for phase in ("solve", "score", "busy")]
        rows.append((dataset, len(part), int(part["restarts"].sum()), *(f"{value:.2f}" for value in hours)))
    return _table(("dataset", "tasks", "fits", "hours solving", "hours scoring", "hours busy"), rows)


TABLES: dict[str, Callable[[], str]] = {
    made.__name__: made
    for made in (headline, scores, balance, compactness, gammas, restarts, certificates, cost)
}  # fmt: skip


def page(text: str) -> str:
    """The page with its tables made anew."""
    return _MARKED.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)


def _datasets(frame: pd.DataFrame) -> list[str]:
    return [name for name in (*PAPERS, *DEMOS) if name in set(frame["dataset"])]


def _mean(dataset: str, method: str, column: str, form: str = "{:.3f}", scale: float = 1.0) -> str:
    chosen = (results["dataset"] == dataset) & (results["method"] == method)
    values = scale * results.loc[chosen, column].dropna()
    if values.empty:
        return ""
    error = f" ± {form.format(values.sem())}" if len(values) > 1 else ""
    return form.format(values.mean()) + error


def _printed(table: str, quantity: str, dataset: str, method: str, form: str = "{:.3f}") -> str:
    chosen = (paper["table"] == table) & (paper["quantity"] == quantity)
    found = paper[chosen & (paper["dataset"] == dataset) & (paper["method"] == method)]["value"]
    return form.format(found.iloc[0]) if len(found) else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
