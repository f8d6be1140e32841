"""`sweep results`: one row per dataset and method, per split, or per fit."""

from __future__ import annotations

import contextlib
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from sweep import exits
from sweep.commands.options import add_command, add_home, add_name
from sweep.commands.printing import print_json, print_table, write_csv
from sweep.errors import UserError

FORMATS = ("table", "csv", "json", "parquet")


def register(commands: Any) -> None:
    summary = "one row per dataset, split and method"
    command = add_command(commands, "results", run, summary, "sweep results quickstart --format csv > results.csv")
    add_name(command)
    command.add_argument("--format", choices=FORMATS, default="table", help="parquet goes to a file: -o, or > FILE")
    command.add_argument("--fits", action="store_true", help="one row per fit, every hyperparameter as a column")
    command.add_argument("--wide", action="store_true", help="all columns of the table, one row per split")
    command.add_argument("-o", "--output", metavar="FILE", help="write there instead of to stdout")
    add_home(command)


def run(options: Namespace) -> int:
    """Print result rows or fits in the asked-for format."""
    from sweep.api import open_run
    from sweep.commands.tables import print_results

    found = open_run(options.name, options.home)
    if options.format == "table" and not (options.fits or options.wide or options.output):
        print_results(found.name, found.rows)
        return exits.DONE
    if options.format == "parquet":
        _write_parquet(found.fits if options.fits else found.results, options.output)
        return exits.DONE
    rows = found.fit_rows if options.fits else result_dicts(found)
    with contextlib.ExitStack() as stack:
        if options.output:
            file = stack.enter_context(Path(options.output).expanduser().open("w", encoding="utf-8", newline=""))
            stack.enter_context(contextlib.redirect_stdout(file))
        if options.format == "json":
            print_json(rows)
        elif options.format == "csv":
            write_csv(rows)
        else:
            print_table(rows)
    return exits.DONE


def result_dicts(run: Any) -> list[dict[str, Any]]:
    """Rows as plain values; of a search also how many fits it took to match the best grid sweep in this home."""
    rows: list[dict[str, Any]] = [row.to_dict() for row in run.rows]
    if isinstance(run.spec.get("search"), str):
        return rows
    from sweep.fits import mean
    from sweep.store.results import group_records

    best: dict[tuple[str, int, str], float] = {}
    for other, spec in run.ledger.sweeps().items():
        for study in group_records(run.ledger.records(other)) if spec.get("search") == "grid" else ():
            scores = study.chosen_scores()
            if scores:
                place = (study.dataset, study.split, study.method)
                best[place] = max(mean(scores), best.get(place, float("-inf")))
    studies = {(s.dataset, s.split, s.method): s for s in run.studies}
    for row in rows:
        place = (row["dataset"], row["split"], row["method"])
        row["grid_cv_score"] = best.get(place)
        row["fits_to_match_grid"] = studies[place].fits_until(best[place]) if place in best else None
    return rows


def _write_parquet(frame: Any, output: str | None) -> None:
    if output is None and sys.stdout.isatty():
        raise UserError("--format parquet: not for a terminal; name a file with -o, or redirect stdout")
    if "params" in frame:
        frame = frame.assign(params=[json.dumps(dict(value)) for value in frame["params"]])
    frame.to_parquet(Path(output).expanduser() if output else sys.stdout.buffer, index=False)
