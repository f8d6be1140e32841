"""`sweep stop`: a running sweep finishes what runs, commits it and ends."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.options import add_cluster, add_command, add_home, add_name, say
from sweep.errors import UserError


def register(commands: Any) -> None:
    summary = "end a running sweep after the fits that run; `sweep run` goes on later"
    command = add_command(commands, "stop", run, summary, "sweep stop quickstart")
    add_name(command)
    add_cluster(command)
    add_home(command)


def run(options: Namespace) -> int:
    """Ask the driver of a home, or the job on a cluster, to end."""
    if options.address or options.cluster:
        from sweep.remote.errands import stop_job
        from sweep.remote.jobs import job_server

        with job_server(options.address, options.cluster) as client:
            say(stop_job(client, options.name))
        return exits.DONE
    from sweep.api import Run, open_home
    from sweep.store.home import Home

    home = Home(options.home)
    Run(home, open_home(home), options.name)  # refuses a name that is not there
    if not home.is_locked():
        raise UserError(f"{options.name}: no sweep is running in {home.folder}; there is nothing to stop")
    home.write_state(f"{options.name}.stop", {"asked": time.time()})
    say(f"{options.name}: asked to stop; what runs is finished and kept, `sweep run` goes on from there")
    return exits.DONE
