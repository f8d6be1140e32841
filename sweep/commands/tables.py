"""The tables that `run`, `results` and `compare` print: methods by score, and convex against non-convex."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sweep.commands.printing import print_json, print_line, print_table, with_error
from sweep.errors import UserError
from sweep.fits import mean, standard_error
from sweep.store.efficiency import Efficiency, efficiency, verdict
from sweep.store.results import ResultRow


def print_sweep(name: str, rows: Sequence[ResultRow], *, as_json: bool, refuse: bool = False) -> None:
    """The table of methods, the ratios and the sentence that sums them up.

    Times that must not be compared are an error if `refuse`; else the reason stands for the ratios.
    """
    try:
        comparisons = efficiency(rows)
        conclusion = verdict(comparisons)
    except UserError as error:
        if refuse:
            raise
        comparisons, conclusion = [], str(error)
    if as_json:
        ratios = [_full(e) for e in comparisons]
        print_json({"results": [r.to_dict() for r in rows], "comparison": ratios, "verdict": conclusion})
        return
    print_results(name, rows)
    if comparisons:
        print_table([_ratio(e) for e in comparisons], title="non-convex over convex, tuning only")
    if comparisons or refuse:
        print_line(conclusion)


def print_results(name: str, rows: Sequence[ResultRow]) -> None:
    """One table per dataset: mean and standard error over splits, best score first."""
    if not rows:
        print_line(f"{name}: no method has its result yet")
    for dataset in dict.fromkeys(row.dataset for row in rows):
        of_dataset = [row for row in rows if row.dataset == dataset]
        score, splits = of_dataset[0].score, len({row.split for row in of_dataset})
        title = f"{name}: {dataset}, {splits} split{'s' * (splits > 1)}; tuned by {score}; scores of the test part"
        print_table(summary(of_dataset), title=title, optional=("balance", "cv", "vectors"))
        for line in _warnings(of_dataset):
            print_line(line)


def summary(rows: Sequence[ResultRow]) -> list[dict[str, Any]]:
    """About ten columns that matter, one row per method."""
    by_method: dict[str, list[ResultRow]] = defaultdict(list)
    for row in rows:
        by_method[row.method].append(row)
    other = rows[0].score != "auc_all"
    wasted = any(row.wasted_seconds for row in rows)
    balance = any(row.balance_score is not None for row in rows)
    entries = []
    for method, found in by_method.items():
        tuned = _mean(row.cv_score for row in found)
        entry = {
            "method": method,
            "AUC": with_error(_mean(row.auc_all for row in found), standard_error(_known(r.auc_all for r in found))),
            **({"score": _short(_mean(row.test_score for row in found))} if other else {}),
            "cv": None if tuned is None else f"{tuned:.4f}",
            **({"balance": _short(_mean(row.balance_score for row in found))} if balance else {}),
            "chosen": _chosen(found),
            "vectors": _mean(row.npv for row in found),
            "fits": _fits(found),
            "seconds": _short(sum(row.fit_seconds for row in found)),
            **({"wasted s": _short(sum(row.wasted_seconds for row in found))} if wasted else {}),
            "gap": _gap(found),
        }
        entries.append((_mean(row.test_score for row in found), entry))
    sign = -1 if rows[0].larger_is_better else 1
    entries.sort(key=lambda each: (each[0] is None, sign * (each[0] or 0.0)))
    return [entry for _, entry in entries]


def _chosen(rows: Sequence[ResultRow]) -> str:
    """The chosen values, of one split or the range over several; ! marks the end of what was searched."""
    names = dict.fromkeys(name for row in rows for name in row.params)
    parts = []
    for name in names:
        values = [row.params[name] for row in rows if row.params.get(name) is not None]
        shown = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in values]
        text = (
            shown[0] if len(set(shown)) == 1 else f"{min(values):.3g}-{max(values):.3g}" if _numbers(values) else "..."
        )
        short = {"gamma": "g", "rank": "r"}.get(name, name)
        mark = "!" if any(f"{name}=" in (row.edge or "") for row in rows) else ""
        parts.append(f"{short}={text}{mark}")
    return " ".join(parts)


def _gap(rows: Sequence[ResultRow]) -> str:
    """The worst gap; * marks a tolerance that some fit missed."""
    gaps = _known(row.relative_gap for row in rows)
    missed = "*" if any(row.missed for row in rows) else ""
    return (f"{max(gaps):.0e}" if gaps else "-") + missed


def _warnings(rows: Sequence[ResultRow]) -> list[str]:
    lines = []
    if any(row.edge for row in rows):
        where = sorted({row.method for row in rows if row.edge})
        lines.append(f"! chosen at the end of what was searched: search further for {_some(where)}")
    missed = {row.method: 0 for row in rows if row.missed}
    for row in rows:
        if row.missed:
            missed[row.method] += row.missed
    if missed:
        lines.append("* tolerance not reached in " + _some([f"{n} fits of {m}" for m, n in sorted(missed.items())]))
    return lines


def _some(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _fits(rows: Sequence[ResultRow]) -> str:
    tuning, refits = sum(row.n_fits for row in rows), sum(row.n_refits for row in rows)
    return f"{tuning}+{refits}" if refits else str(tuning)


def _ratio(e: Efficiency) -> dict[str, Any]:
    return {
        "convex": e.convex + (" (path)" if e.search == "path" else ""),
        "non-convex": e.nonconvex,
        "fits": f"{e.nonconvex_fits}/{e.convex_fits}",
        "runs": e.runs_ratio,
        "time/run": e.time_per_run_ratio,
        "total": e.total_ratio,
    }


def _full(e: Efficiency) -> dict[str, Any]:
    ratios = {"runs_ratio": e.runs_ratio, "time_per_run_ratio": e.time_per_run_ratio, "total_ratio": e.total_ratio}
    return vars(e) | ratios


def _short(value: float | None) -> str:
    """Three digits, without an exponent where people would not write one."""
    return (
        "-"
        if value is None
        else f"{value:.0f}"
        if value >= 100
        else f"{value:.3g}"
        if value >= 1e-3
        else f"{value:.0e}"
    )


def _known(values: Any) -> list[float]:
    return [float(value) for value in values if value is not None]


def _mean(values: Any) -> float | None:
    found = _known(values)
    return mean(found) if found else None


def _numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) for value in values)
