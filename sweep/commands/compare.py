"""`sweep compare`: the efficiency comparison, convex against non-convex."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.options import add_command, add_home, add_json, add_name


def register(commands: Any) -> None:
    summary = "convex against non-convex: fits, time, ratios"
    command = add_command(commands, "compare", run, summary, "sweep compare quickstart")
    add_name(command)
    add_home(command)
    add_json(command)


def run(options: Namespace) -> int:
    """Print the table of methods and the ratios; refuse times that must not be compared."""
    from sweep.api import open_run
    from sweep.commands.tables import print_sweep

    found = open_run(options.name, options.home)
    print_sweep(found.name, found.rows, as_json=options.json, refuse=True)
    return exits.DONE
