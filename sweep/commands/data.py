"""`sweep data prepare`: raw files into a dataset."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.options import add_command, add_home, say


def register(commands: Any) -> None:
    example = "sweep data prepare reuters --from reuters21578.tar.gz"
    command = add_command(commands, "data", prepare, "turn raw files into a dataset", example)
    actions = command.add_subparsers(required=True, metavar="ACTION")
    action = actions.add_parser("prepare", help="raw files -> features and labels, cached under the home")
    action.add_argument("dataset", metavar="NAME", help="a name of `sweep datasets`")
    action.add_argument("--from", dest="source", metavar="PATH", help="a folder or the original archive")
    add_home(action)


def prepare(options: Namespace) -> int:
    """Prepare a dataset from its raw files."""
    from sweep.datasets import prepare as make
    from sweep.store.home import Home

    home = Home(options.home)
    home.create()
    path = make(options.dataset, options.source, cache=home.data, progress=say)
    say(f"{options.dataset}: ready ({path.name})")
    return exits.DONE
