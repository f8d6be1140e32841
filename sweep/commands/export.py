"""`sweep export`: a learned metric, with its preprocessing, as an MLflow model or .npz."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.options import add_command, add_home, add_name, say
from sweep.commands.printing import print_line


def register(commands: Any) -> None:
    summary = "a learned metric with its preprocessing, as an MLflow model and .npz"
    command = add_command(commands, "export", run, summary, "sweep export quickstart --method mdml-cvnd")
    add_name(command)
    command.add_argument("--method", help="default: the method with the best cross-validated score")
    command.add_argument("--dataset", help="default: the only one of the sweep")
    command.add_argument("-o", "--output", metavar="FOLDER", help="default: exports/NAME-METHOD under the home")
    command.add_argument("--register", metavar="MODEL", help="register it under this name in the sweep's MLflow store")
    add_home(command)


def run(options: Namespace) -> int:
    """Write a learned metric as an MLflow model; prints where it is."""
    from sweep.api import open_run
    from sweep.store.export import export_metric

    found = open_run(options.name, options.home)
    folder = export_metric(
        found.home, found.ledger, found.name, method=options.method, dataset=options.dataset, output=options.output,
        register=options.register, note=say,
    )  # fmt: skip
    print_line(folder)
    return exits.DONE
