"""`sweep rerun`: one finished fit again, beside what the ledger holds of it."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.options import add_command, add_home, add_json, add_name
from sweep.commands.printing import print_json, print_table
from sweep.errors import UserError


def register(commands: Any) -> None:
    summary = "one finished fit again, beside what is kept of it"
    command = add_command(commands, "rerun", run, summary, "sweep rerun quickstart 3f9a01c2")
    add_name(command)
    command.add_argument(
        "key", metavar="KEY", help="a fit's key or its first letters, from the report or results --fits"
    )
    add_home(command)
    add_json(command)


def run(options: Namespace) -> int:
    """Compute a fit again in this process and print both results; nothing is written."""
    from threadpoolctl import threadpool_limits

    from sweep.api import open_run
    from sweep.datasets.card import open_split
    from sweep.fits import Help, fit_and_score
    from sweep.store.export import choice_of
    from sweep.store.warm import warm_start

    found = open_run(options.name, options.home)
    fits = [fit for fit in found.ledger.records(found.name) if fit[0].key.startswith(options.key)]
    if len(fits) != 1:
        raise UserError(
            f"KEY: {len(fits)} fits of {found.name} begin with {options.key!r}, expected one; give more of it"
        )
    spec, kept = fits[0]
    if spec.estimator or spec.score_version:  # records may come from elsewhere: what they name is never imported
        raise UserError(f"rerun: {spec.label} needs code of yours, which only `sweep run` of your sweep file imports")
    data = open_split(
        choice_of(found.ledger, found.name, spec, {}), found.home.data, spec.split, spec.folds, spec.seed,
        label=spec.dataset, fingerprint=spec.data,
    )  # fmt: skip
    with threadpool_limits(1):  # as in a worker: sums in another order would change the last bits
        again = fit_and_score(spec, data, Help(device="cpu", warm=warm_start(spec, found.home, found.ledger))).record
    rows = [
        {
            "": what,
            spec.score: record.value,
            "objective": record.fit.objective,
            "gap": record.fit.relative_gap,
            "converged": record.fit.converged,
            "seconds": record.seconds.solve,
            "host": record.place.host,
        }
        for what, record in (("kept", kept), ("again", again))
    ]
    if options.json:
        print_json(rows)
    else:
        print_table(rows, title=spec.label)
    return exits.DONE
