"""Commands that show what there is."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.printing import print_json, print_table, write_csv
from sweep.commands.shared import check_name, open_home, print_rows, print_sweep, say
from sweep.store.home import Home


def status(options: Namespace) -> int:
    """Print where the sweeps of a home, or the jobs of a cluster, stand."""
    if options.address or options.cluster:
        from sweep.remote.jobs import job_rows, job_server

        with job_server(options.address, options.cluster) as client:
            print_rows(job_rows(client, options.name), options.json)
        return exits.DONE
    home, ledger = open_home(options.home)
    names = [options.name] if options.name else list(ledger.sweeps())
    if options.watch:
        from sweep.commands.watch import watch

        for name in names:
            check_name(ledger, name)
        return watch(home, ledger, names)
    rows = []
    for name in names:
        check_name(ledger, name)
        done, total = ledger.count(name)
        state = home.read_state(name)
        running = home.is_locked() and time.time() - state.get("updated", 0) < 60
        rows.append(
            {
                "sweep": name,
                "state": "running" if running else "complete" if done == total else "stopped",
                "tasks done": done,
                "tasks": total,
                "fits done": state.get("done"),
                "fits": state.get("total"),
                "failed": state.get("failed", 0),
                "left": state.get("left"),
                "fits/s": state.get("rate_per_second") if running else None,
                "seconds left": state.get("seconds_left") if running else None,
                "running": "; ".join(state.get("running", [])) if running else "",
            }
        )
    print_rows(rows, options.json)
    return exits.DONE


def results(options: Namespace) -> int:
    """Print one row per (dataset, split, method)."""
    from sweep.store.results import result_rows

    _, ledger = open_home(options.home)
    check_name(ledger, options.name)
    rows = result_rows(ledger.records(options.name), ledger.failures(options.name))
    if ledger.sweeps()[options.name]["search"] != "grid":
        _add_fits_to_match_grid(ledger, options.name, rows)
    if options.format == "json":
        print_json(rows)
    elif options.format == "csv":
        write_csv(rows)
    else:
        print_table(rows)
    return exits.DONE


def _add_fits_to_match_grid(ledger: Any, name: str, rows: list[dict[str, Any]]) -> None:
    """How many fits a search needed to be as good as the best grid sweep of the same studies in this home."""
    from sweep.store.results import group_records

    best: dict[tuple[str, int, str], float] = {}
    for other, spec in ledger.sweeps().items():
        for study in group_records(ledger.records(other)) if spec["search"] == "grid" else ():
            place, score = (study.dataset, study.split, study.method), study.best_score()
            if score is not None:
                best[place] = max(score, best.get(place, score))
    for study in group_records(ledger.records(name)):
        place = (study.dataset, study.split, study.method)
        for row in rows:
            if (row["dataset"], row["split"], row["method"]) == place:
                row["grid_cv_auc"] = best.get(place)
                row["fits_to_match_grid"] = study.fits_until(best[place]) if place in best else None


def compare(options: Namespace) -> int:
    """Print the efficiency comparison."""
    _, ledger = open_home(options.home)
    check_name(ledger, options.name)
    print_sweep(ledger, options.name, as_json=options.json, refuse=True)
    return exits.DONE


def methods(options: Namespace) -> int:
    """Print the table of methods."""
    from solvers.methods import METHODS

    rows = [
        {
            "method": method.name,
            "family": method.family,
            "tuned": ", ".join(method.tuned) or "nothing",
            "convex": method.convex,
            "restarts": method.restarts,
            "certificate": method.certificate,
            "what": method.title,
            "reference": method.reference,
        }
        for method in METHODS.values()
    ]
    print_rows(rows, options.json)
    return exits.DONE


def datasets(options: Namespace) -> int:
    """Print the table of datasets."""
    from sweep.datasets import describe_datasets

    print_rows(describe_datasets(cache=Home(options.home).data), options.json)
    return exits.DONE


def ui(options: Namespace) -> int:
    """Serve the MLflow UI on loopback."""
    from sweep.store.mlflow_ui import serve

    home, ledger = open_home(options.home)
    if options.name:
        check_name(ledger, options.name)
    return serve(home, ledger, options.name, port=options.port, open_browser=options.open)


def report(options: Namespace) -> int:
    """Write the HTML report and the files beside it; prints where the page is."""
    from pathlib import Path

    from dashboards.report import write_report

    home, ledger = open_home(options.home)
    check_name(ledger, options.name)
    paths = write_report(
        home, ledger, options.name, Path(options.output) if options.output else None, price=options.price
    )
    say(f"{options.name}: {len(paths) - 1} tables and figures in {paths[1].parent}")
    print(paths[0])  # noqa: T201
    return exits.DONE


def export(options: Namespace) -> int:
    """Write a learned metric as an MLflow model; prints where it is."""
    from sweep.store.export import export_metric

    home, ledger = open_home(options.home)
    check_name(ledger, options.name)
    folder = export_metric(
        home, ledger, options.name, method=options.method, dataset=options.dataset, output=options.output,
        register=options.register, note=say,
    )  # fmt: skip
    print(folder)  # noqa: T201
    return exits.DONE
