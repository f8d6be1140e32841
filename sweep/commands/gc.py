"""`sweep gc`: what no sweep of a home refers to any more."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.options import add_command, add_home, add_json, say
from sweep.commands.printing import print_json, print_line, print_table


def register(commands: Any) -> None:
    summary = "list what no sweep of this home refers to, and with --delete remove it"
    command = add_command(commands, "gc", run, summary, "sweep gc --delete")
    command.add_argument("--delete", action="store_true", help="remove what is listed")
    add_home(command)
    add_json(command)


def run(options: Namespace) -> int:
    """List, and perhaps remove, fits and files that nothing refers to."""
    from sweep.api import open_home
    from sweep.store.garbage import collect, remove
    from sweep.store.home import Home
    from sweep.store.ledger import open_ledger

    home = Home(options.home)
    found = collect(home, open_home(home, say))
    if options.json:
        print_json([vars(each) for each in found])
    elif found:
        print_table([vars(each) for each in found], title="not referred to")
    else:
        print_line("nothing to remove: a sweep refers to every fit and file")
    if options.delete and found:
        with home.lock():
            freed = remove(home, open_ledger(home.ledger_setting, home, say))
        say(f"removed; {freed / 2**20:.1f} MB freed")
    elif found:
        say("nothing was removed; --delete does it")
    return exits.DONE
