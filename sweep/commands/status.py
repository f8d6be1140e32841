"""`sweep status`: where the sweeps of a home, or the jobs of a cluster, stand."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.options import add_cluster, add_command, add_home, add_json, add_name, say
from sweep.commands.printing import print_json, print_rows, print_table
from sweep.commands.standing import standing


def register(commands: Any) -> None:
    summary = "done, running, failed, left, expected end"
    command = add_command(commands, "status", run, summary, "sweep status quickstart")
    add_name(command, optional=True)
    command.add_argument("--watch", action="store_true", help="a live view of the whole terminal, until Ctrl-C")
    add_cluster(command)
    add_home(command)
    add_json(command)


def run(options: Namespace) -> int:
    """Print one row per sweep."""
    if options.address or options.cluster:
        from sweep.remote.jobs import job_rows, job_server

        with job_server(options.address, options.cluster) as client:
            print_rows(job_rows(client, options.name), options.json)
        return exits.DONE
    from sweep.api import Run, open_home
    from sweep.store.home import Home

    home = Home(options.home)
    ledger = open_home(home, say)
    names = [options.name] if options.name else [n for n in ledger.sweeps() if not ledger.about(n).get("pilot")]
    runs = [Run(home, ledger, name) for name in names]
    if options.watch:
        from sweep.commands.watch import watch

        return watch(runs)
    found = [standing(each) for each in runs]
    if options.json:
        print_json(found)
        return exits.DONE
    print_table([_shown(each) for each in found])
    for each in found:
        if each["running"]:
            say(f"{each['sweep']}: running {'; '.join(each['running'][:4])}")
    return exits.DONE


def _shown(found: dict[str, Any]) -> dict[str, Any]:
    from sweep.engine.progress import clock_time, duration, rate_text

    left, rate = found["seconds_left"], found["rate_per_second"]
    fits = "-" if found["fits"] is None else f"{found['fits_done']:,}/{'' if found['exact'] else '<='}{found['fits']:,}"
    return {
        "sweep": found["sweep"],
        "state": found["state"],
        "tasks": f"{found['tasks_done']:,}/{found['tasks']:,}",
        "fits": fits,
        "failed": found["failed"],
        "rate": rate_text(rate) if rate else "-",
        "ends": f"{clock_time(time.time() + left)} (in {duration(left)})" if left is not None else "-",
    }
