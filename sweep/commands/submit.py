"""`sweep submit`: hand a sweep to a cluster, follow it to its end and bring the records here."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.options import add_cluster, add_command, add_home, add_json, add_remote_home, add_spec, say
from sweep.commands.run import say_where_next
from sweep.errors import UserError


def register(commands: Any) -> None:
    summary = "hand a sweep to a Ray cluster"
    command = add_command(commands, "submit", run, summary, "sweep submit my.yaml --cluster clusters/on-prem.yaml")
    add_spec(command)
    command.add_argument("--name", help="another name than the sweep file's")
    command.add_argument("--detach", action="store_true", help="do not wait for the end; submit again to attach")
    add_cluster(command)
    add_remote_home(command)
    add_home(command)
    add_json(command)


def run(options: Namespace) -> int:
    """Submit, follow, fetch, print."""
    from sweep.api import look_ahead, open_run, read_source
    from sweep.commands.tables import print_sweep
    from sweep.remote.fetch import fetch, record_in_mlflow
    from sweep.remote.jobs import exit_code, job_server
    from sweep.remote.submit import attach, submit
    from sweep.store.home import Home

    if (options.address is None) == (options.cluster is None):
        raise UserError("submit: expected either --cluster FILE or --address URL")
    source = read_source(options.spec, **({"name": options.name} if options.name else {}))
    home = Home(options.home)
    try:
        planned = look_ahead(source, home)
        say(f"{source.spec.name}: {sum(row['left'] for row in planned.rows):,} fits")
    except UserError as error:  # data that only the cluster has; the driver there checks again
        say(f"plan not shown: {error}")
    with job_server(options.address, options.cluster) as client:
        job = submit(client, source.spec, options.remote_home, say, code=source.code)
        if options.detach:
            return exits.DONE
        if not attach(client, job, say):
            return exits.INTERRUPTED
        code = exit_code(client, job)
        if code == exits.USER_ERROR:
            return code
        done = fetch(client, home, options.remote_home, say)
    record_in_mlflow(home, done.sweeps, say)
    if options.json:
        print_sweep(source.spec.name, open_run(source.spec.name, options.home).rows, as_json=True)
    else:
        say_where_next(options.home, source.spec.name)
    return code
