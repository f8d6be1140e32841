"""`sweep datasets`: the datasets and what they need, or one file looked at."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.options import add_command, add_home, add_json, say
from sweep.commands.printing import print_json, print_line, print_table

_SHOWN_CLASSES = 12


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
    """What a file holds, what stands in the way of a sweep, and a sweep file to start from."""
    from dataclasses import asdict

    from sweep.datasets.describe import describe_own

    found = describe_own(options.file, label=options.label)
    if options.json:
        print_json(asdict(found))
        return exits.DONE
    print_table([asdict(column) for column in found.columns], title=f"{found.path}: {found.n_rows:,} rows")
    if found.label is not None:
        how = " (a guess: give --label if it is another)" if found.guessed else ""
        print_line(f"label: {found.label}{how}; a class with more than {found.frequent_above} rows counts as frequent")
        if found.frequent_above is not None and all(size <= found.frequent_above for _, size in found.classes):
            print_line("no class is larger than the others, so there is no balance between frequent and rare ones")
        largest = [{"class": name, "rows": size} for name, size in found.classes[:_SHOWN_CLASSES]]
        more = len(found.classes) - len(largest)
        print_table(
            largest, title=f"{len(found.classes)} classes" + (f", the {_SHOWN_CLASSES} largest" if more > 0 else "")
        )
    for problem in found.problems:
        say(f"in the way: {problem}")
    print_line("A sweep file to start from:")
    print_line(found.sweep_file)
    return exits.DONE
