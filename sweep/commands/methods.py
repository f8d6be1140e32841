"""`sweep methods`: what can be fitted."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.options import add_command, add_json
from sweep.commands.printing import print_json, print_table


def register(commands: Any) -> None:
    command = add_command(
        commands, "methods", run, "the 31 methods, and those of installed packages", "sweep methods --json"
    )
    command.add_argument("--wide", action="store_true", help="all columns")
    add_json(command)


def run(options: Namespace) -> int:
    """Print the table of methods; those of other packages by name, without importing them."""
    from solvers.methods import METHODS
    from sweep.code import entry_points

    full = [
        {
            "method": method.name,
            "family": method.family,
            "tuned": ", ".join(method.tuned) or "nothing",
            "convex": method.convex,
            "restarts": method.restarts,
            "certificate": method.certificate,
            "path": method.path,
            "version": method.version,
            "what": method.title,
            "note": method.note,
            "reference": method.reference,
        }
        for method in METHODS.values()
    ]
    others = [{"method": name, "estimator": path} for name, path in entry_points("methods").items()]
    if options.json:
        print_json(full + others)
        return exits.DONE
    short = ("method", "tuned", "convex", "certificate", "path", "what")
    print_table(full if options.wide else [{name: row[name] for name in short} for row in full])
    if others:
        print_table(others, title="of installed packages")
    return exits.DONE
