"""The reader's own results: scores with their errors, what tuning chose, what it cost, what did not converge."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from dashboards.records import SweepRecords
from dashboards.tables import Table, best_of, duration, four_digits, plain_table, significant, with_error
from solvers.scores import SCORES
from sweep.fits import Scores, mean, standard_error
from sweep.fits.trials import shown
from sweep.store.results import ResultRow, restarts_needed

# What people know scores by, where it is not their name.
_HEADINGS = {
    "auc_all": "AUC",
    "auc_frequent": "AUC, frequent classes",
    "auc_infrequent": "AUC, infrequent classes",
    "balance_score": "balance score",
    "ap_all": "average precision",
    "recall_at_1": "recall at 1",
    "recall_at_5": "recall at 5",
    "recall_at_10": "recall at 10",
    "map_at_r": "MAP at R",
    "knn_accuracy": "5-NN accuracy",
}


def overview_table(sweep: SweepRecords) -> Table:
    """Test score of every method on every dataset, the best first."""
    methods = sweep.ranked()
    values: dict[str, pd.Series] = {}
    text: dict[str, list[str]] = {}
    fits: dict[tuple[Any, Any], list[int]] = {}
    best: set[tuple[Any, Any]] = set()
    better = "max" if sweep.maximize else "min"
    for dataset in sweep.datasets:
        level, error = _means(sweep, dataset, "test_score")
        if level.empty:
            continue
        values |= {dataset: level.reindex(methods), f"{dataset} s.e.": error.reindex(methods)}
        text[dataset] = [
            with_error(four_digits, level.get(m, float("nan")), error.get(m, float("nan"))) for m in methods
        ]
        best |= {(method, dataset) for method in best_of(level, four_digits, better)}
        fits |= {(method, dataset): _studies(sweep, dataset, method) for method in level.index}
    index = pd.Index(methods, name="method")
    return Table(
        "overview",
        f"{_capital(sweep.score_title)} on the test parts",
        f"Mean over splits ± standard error; settings were chosen by {sweep.score} on the tuning folds, "
        f"{'larger' if sweep.maximize else 'smaller'} is better. Methods in the order of their mean rank.",
        pd.DataFrame(values, index=index),
        pd.DataFrame(text, index=index),
        best,
        fits,
    )


def results_table(sweep: SweepRecords, dataset: str) -> Table:
    """One dataset: a row per method, sorted by the score that tuned."""
    by_method = {m: [r for r in sweep.rows if (r.dataset, r.method) == (dataset, m)] for m in sweep.ranked(dataset)}
    title = sweep.score_title
    names = [
        *(f"{title}, test", f"{title}, tuning folds", "chosen", "at the edge", "tolerance missed"),
        *("fits", "solver time", "worst gap", "vectors", "train - test AUC", "worker time"),
    ]
    columns: dict[str, list[str]] = {name: [] for name in names}
    flagged: set[tuple[Any, Any]] = set()
    for method, rows in by_method.items():
        cells = [
            _mean_text(rows, "test_score"),
            _mean_text(rows, "cv_score"),
            chosen_text(rows),
            _edges(rows),
            _missed(sweep, dataset, method, rows),
            str(sum(r.n_fits + r.n_refits for r in rows)),
            duration(sum(r.fit_seconds for r in rows)),
            _worst_gap(rows),
            _mean_text(rows, "npv", significant),
            _mean_text(rows, "train_test_gap"),
            duration(sum(r.wall_seconds for r in rows)),
        ]
        for column, cell in zip(columns, cells, strict=True):
            columns[column].append(cell)
            if cell and column in ("at the edge", "tolerance missed"):
                flagged.add((method, column))
    index = pd.Index(list(by_method), name="method")
    text = pd.DataFrame(columns, index=index)
    text = text.loc[:, [bool(text[column].any()) for column in text.columns]]
    frame = sweep.results[sweep.results["dataset"] == dataset].drop(columns=["dataset"])
    order = {method: place for place, method in enumerate(by_method)}
    frame = frame.sort_values(["method", "split"], key=lambda c: c.map(order) if c.name == "method" else c)
    better = "max" if sweep.maximize else "min"
    means = _means(sweep, dataset, "test_score")[0]
    best = {(method, f"{title}, test") for method in best_of(means, four_digits, better)}
    links = {(method, column): _studies(sweep, dataset, method) for method in by_method for column in text.columns}
    splits = len({row.split for rows in by_method.values() for row in rows})
    return Table(
        f"results-{1 + sweep.datasets.index(dataset)}-{_slug(dataset)}",
        dataset,
        f"{'Mean over ' + str(splits) + ' splits ± standard error' if splits > 1 else 'One split'}, sorted by "
        f"{sweep.score} on the test part; fits and times are sums over splits. Click a number for its fits.",
        frame.set_index("method"),
        text,
        best,
        links,
        flagged,
    )


def scores_table(sweep: SweepRecords) -> Table:
    """Every score that was taken of the refits, means over splits; those of installed packages among them."""
    taken: dict[tuple[str, str], list[Scores]] = {}
    for study in sweep.studies:
        if study.refit is not None:
            taken.setdefault((study.dataset, study.method), []).append(study.refit[1].scores)
    kept = [name for name in SCORES if any(s.get(name) is not None for scores in taken.values() for s in scores)]
    headings = {name: _HEADINGS.get(name, name.replace("_", " ")) for name in kept}
    rows: list[dict[str, Any]] = []
    texts: list[dict[str, str]] = []
    for dataset in sweep.datasets:
        for method in sweep.ranked(dataset):
            each = {
                name: [value for s in taken[dataset, method] if (value := s.get(name)) is not None] for name in kept
            }
            means = {headings[name]: mean(values) if values else math.nan for name, values in each.items()}
            rows.append({"dataset": dataset, "method": method} | means)
            texts.append({"method": method} | {headings[name]: _mean_of(values) for name, values in each.items()})
    columns = ["method", *headings.values()]
    frame = pd.DataFrame(rows, columns=["dataset", *columns]).set_index("dataset")
    text = pd.DataFrame(texts, columns=columns, index=frame.index)
    meanings = "; ".join(f"{heading}: {SCORES[name].meaning}" for name, heading in headings.items())
    return Table("scores", "Every score", f"Mean over splits ± standard error. {meanings}.", frame, text, folded=True)


def chosen_table(sweep: SweepRecords) -> Table:
    """The setting of every split, with its score on the tuning folds."""
    frame = pd.DataFrame(
        [
            {
                "dataset": row.dataset,
                "split": row.split,
                "method": row.method,
                "chosen": setting_text(row),
                "tuning score": row.cv_score,
                "s.e.": row.cv_score_se,
                "searched by": row.search,
                "at the edge": row.edge or "",
            }
            for row in sweep.rows
        ],
        columns=["dataset", "split", "method", "chosen", "tuning score", "s.e.", "searched by", "at the edge"],
    ).set_index("dataset")
    select = "the best mean over folds" if sweep.spec.get("select", "best") == "best" else (
        "the simplest setting within one standard error of the best mean over folds"
    )  # fmt: skip
    return plain_table(
        "chosen",
        "Chosen settings, split by split",
        f"By {sweep.score}: {select}. A value at the edge of what was searched may not be the best there is.",
        frame,
        {"tuning score": lambda v: f"{v:.4f}", "s.e.": lambda v: f"{v:.4f}"},
        folded=True,
    )


def restarts_table(sweep: SweepRecords) -> Table:
    """How many restarts were needed, per method and dataset."""
    rows = []
    for dataset in sweep.datasets:
        for method in sweep.ranked(dataset):
            fits = [r for s in sweep.studies if (s.dataset, s.method) == (dataset, method) for _, r in s.fits]
            several = [r for r in fits if r.fit.restart_spread is not None]
            if not several:
                continue
            each = [needed for r in several if (needed := restarts_needed([r])) is not None]
            rows.append(
                {
                    "dataset": dataset,
                    "method": method,
                    "fits": len(several),
                    "restarts run": sum(len(r.fit.restart_objectives or ()) for r in several) / len(several),
                    "needed, mean": sum(each) / len(each),
                    "needed, most": int(max(each)),
                    "first was enough": sum(n == 1 for n in each) / len(each),
                    "spread of objectives": max(r.fit.restart_spread or 0.0 for r in several),
                }
            )
    columns = ["dataset", "method", "fits", "restarts run", "needed, mean", "needed, most", "first was enough",
               "spread of objectives"]  # fmt: skip
    return plain_table(
        "restarts-needed",
        "Restarts that were needed",
        "Until one came within 0.1 % of the lowest objective of all restarts of its fit; the spread is the largest "
        "relative difference between the restarts of one fit.",
        pd.DataFrame(rows, columns=columns).set_index("dataset"),
        {"first was enough": lambda v: f"{100 * v:.0f} %", "needed, mean": lambda v: f"{v:.2f}"},
    )


def setting_text(row: ResultRow) -> str:
    """All tuned values of a row."""
    return " ".join(f"{name}={shown(value)}" for name, value in row.params.items()) or "nothing to tune"


def chosen_text(rows: Sequence[ResultRow]) -> str:
    """The setting that was chosen most often, and in how many of the splits."""
    (text, times), *others = Counter(setting_text(row) for row in rows).most_common()
    return f"{text} ({times} of {len(rows)})" if others else text


def _edges(rows: Sequence[ResultRow]) -> str:
    edges = Counter(edge for row in rows if row.edge for edge in row.edge.split("; "))
    return "; ".join(f"{edge} ({times} of {len(rows)})" if len(rows) > 1 else edge for edge, times in edges.items())


def _worst_gap(rows: Sequence[ResultRow]) -> str:
    gaps = [row.relative_gap for row in rows if row.relative_gap is not None]
    return f"{max(gaps):.1e}" if gaps else ""


def _missed(sweep: SweepRecords, dataset: str, method: str, rows: Sequence[ResultRow]) -> str:
    """Fits that stopped before they reached their tolerance."""
    missed = sum(row.missed for row in rows)
    of = sum(len(s.fits) for s in sweep.studies if (s.dataset, s.method) == (dataset, method))
    if missed:
        return f"{missed} of {of} fits"
    unconverged = sum(row.converged is False for row in rows)
    return f"{unconverged} of {len(rows)} refits" if unconverged else ""


def _mean_text(rows: Sequence[ResultRow], column: str, write: Any = four_digits) -> str:
    return _mean_of([float(value) for row in rows if (value := getattr(row, column)) is not None], write)


def _mean_of(values: Sequence[float], write: Any = four_digits) -> str:
    error = standard_error(values)
    return with_error(write, mean(values), math.nan if error is None else error) if values else ""


def _means(sweep: SweepRecords, dataset: str, column: str) -> tuple[pd.Series, pd.Series]:
    """Mean over splits by method, and its standard error."""
    values = sweep.results[sweep.results["dataset"] == dataset].set_index("method")[column].dropna()
    groups = values.groupby(level=0)
    return groups.mean(), groups.sem()


def _studies(sweep: SweepRecords, dataset: str, method: str) -> list[int]:
    return [number for number, s in enumerate(sweep.studies) if (s.dataset, s.method) == (dataset, method)]


def _slug(name: str) -> str:
    """A dataset's name as part of a file's name."""
    return "".join(c if c.isalnum() or c in "-." else "-" for c in name).strip("-.") or "data"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
