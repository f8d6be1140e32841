"""`sweep diff`: what differs between two sweeps."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.options import add_command, add_home, add_json, say
from sweep.commands.printing import print_json, print_table


def register(commands: Any) -> None:
    summary = "two sweeps: what differs in the files, in what was chosen, in scores and times"
    command = add_command(commands, "diff", run, summary, "sweep diff before after")
    command.add_argument("first", metavar="A", help="a sweep in this home")
    command.add_argument("second", metavar="B", help="another one, in this home or in --other-home")
    command.add_argument("--other-home", metavar="DIR", help="the home of B (default: the same)")
    add_home(command)
    add_json(command)


def run(options: Namespace) -> int:
    """Print three tables: files, choices, scores and times."""
    from sweep.api import open_run
    from sweep.store.difference import file_differences, row_differences

    first = open_run(options.first, options.home)
    second = open_run(options.second, options.other_home or options.home)
    files = file_differences(first.spec, second.spec)
    rows = row_differences(first.rows, second.rows)
    if options.json:
        print_json({"files": files, "rows": rows})
        return exits.DONE
    if files:
        print_table(files, title="in the sweep files")
    else:
        say("the sweep files say the same")
    if rows:
        print_table(rows, title=f"{first.name} -> {second.name}: what was chosen, test score, seconds in the solver")
    else:
        say("no method has a result in both")
    return exits.DONE
