"""What several commands need: opening a home, printing rows and the efficiency table."""

from __future__ import annotations

import sys
from typing import Any

from sweep.commands.printing import print_json, print_table
from sweep.errors import UserError, nearest
from sweep.store.home import Home


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
    else:
        print_table(rows)


def print_sweep(ledger: Any, name: str, *, as_json: bool, refuse: bool = False) -> None:
    """The efficiency table, the ratios and the sentence that sums them up.

    Times that must not be compared are an error if `refuse`; else the reason stands for the ratios.
    """
    from sweep.store.results import efficiency, result_rows, verdict

    rows = result_rows(ledger.records(name), ledger.failures(name))
    try:
        comparisons = efficiency(rows)
        conclusion = verdict(comparisons)
    except UserError as error:
        if refuse:
            raise
        comparisons, conclusion = [], str(error)
    ratios = [
        {
            "convex": e.convex,
            "non-convex": e.nonconvex,
            "fits": f"{e.nonconvex_fits} / {e.convex_fits}",
            "runs ratio": e.runs_ratio,
            "time-per-run ratio": e.time_per_run_ratio,
            "total ratio": e.total_ratio,
        }
        for e in comparisons
    ]
    if as_json:
        print_json({"results": rows, "comparison": ratios, "verdict": conclusion})
        return
    several = len({(r["dataset"], r["split"]) for r in rows}) > 1
    table = [
        {
            **({"dataset": r["dataset"], "split": r["split"]} if several else {}),
            "method": r["method"],
            "fits": f"{r['n_fits']}+{r['n_refits']}" if r["n_refits"] else str(r["n_fits"]),
            "fit seconds": r["fit_seconds"],
            **({"wasted seconds": r["wasted_seconds"]} if any(q["wasted_seconds"] for q in rows) else {}),
            "AUC all": r["auc_all"],
            "frequent": r["auc_frequent"],
            "infrequent": r["auc_infrequent"],
            "balance": r["balance_score"],
            "vectors": r["npv"],
            "worst gap": r["relative_gap"],
        }
        for r in rows
    ]
    print_table(table, title=f"{name}: fits are tuning + refit; AUC on the test part")
    if ratios:
        print_table(ratios, title="non-convex over convex, tuning only")
    print(conclusion, flush=True)  # noqa: T201


def open_home(folder: str) -> tuple[Home, Any]:
    """An existing home and its ledger."""
    from sweep.store.ledger import open_ledger

    home = Home(folder)
    if not (home.ledger_path.exists() or home.ledger_setting != "sqlite"):
        raise UserError(f"--home: {folder} holds no sweep yet; start one with `sweep run quickstart --home {folder}`")
    return home, open_ledger(home.ledger_setting, home, say)


def check_name(ledger: Any, name: str) -> None:
    known = ledger.sweeps()
    if name not in known:
        raise UserError(f"unknown sweep {name!r} in this home.{nearest(name, known)}")


def say(message: str) -> None:
    sys.stderr.write(message + "\n")
