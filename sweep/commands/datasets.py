"""`sweep datasets`: the datasets and what they need, or one file looked at."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.options import add_command, add_home, add_json
from sweep.commands.printing import print_json, print_line, print_table


def register(commands: Any) -> None:
    command = add_command(
        commands, "datasets", run, "the datasets, or what is in a file of yours", "sweep datasets my.csv"
    )
    command.add_argument("file", metavar="FILE", nargs="?", help="an own .csv, .parquet or .npz file to look at")
    command.add_argument("--label", help="the label column of the file")
    command.add_argument("--wide", action="store_true", help="all columns")
    add_home(command)
    add_json(command)


def run(options: Namespace) -> int:
    """Print the table of datasets, or the description of a file."""
    from sweep.datasets import describe_datasets
    from sweep.store.home import Home

    if options.file:
        return _describe(options)
    rows = describe_datasets(cache=Home(options.home).data)
    if options.json:
        print_json(rows)
        return exits.DONE
    short = ("name", "prepared", "title", "files")
    print_table(rows if options.wide else [{name: row[name] for name in short if name in row} for row in rows])
    return exits.DONE


def _describe(options: Namespace) -> int:
    from dataclasses import asdict

    from sweep.datasets.look import describe_file

    found = describe_file(options.file, label=options.label)
    if options.json:
        print_json(asdict(found))
    else:
        print_line(found.text())
    return exits.DONE
