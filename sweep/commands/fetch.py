"""`sweep fetch`: bring a cluster's records into this home."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.options import add_cluster, add_command, add_home, add_remote_home, say


def register(commands: Any) -> None:
    summary = "bring a cluster's records into this home"
    command = add_command(commands, "fetch", run, summary, "sweep fetch --cluster clusters/on-prem.yaml")
    add_cluster(command)
    add_remote_home(command)
    add_home(command)


def run(options: Namespace) -> int:
    """Merge a cluster's records into this home."""
    from sweep.remote.fetch import fetch, record_in_mlflow
    from sweep.remote.jobs import job_server
    from sweep.store.home import Home

    home = Home(options.home)
    with job_server(options.address, options.cluster) as client:
        done = fetch(client, home, options.remote_home, say)
    record_in_mlflow(home, done.sweeps, say)
    say(f"{options.home}: {', '.join(done.sweeps) or 'no sweeps'}: {done.fits} fits came, {done.known} were here")
    return exits.DONE
