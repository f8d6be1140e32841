"""`sweep ui`: the MLflow UI on a home's runs."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sweep.commands.options import add_command, add_home, add_name, say
from sweep.errors import UserError


def register(commands: Any) -> None:
    summary = "the MLflow UI on this home's runs"
    command = add_command(commands, "ui", run, summary, "sweep ui quickstart --open")
    add_name(command, optional=True)
    command.add_argument("--port", type=int, default=5000, help="port on 127.0.0.1 (default 5000)")
    command.add_argument("--open", action="store_true", help="open a browser")
    add_home(command)


def run(options: Namespace) -> int:
    """Serve the MLflow UI on loopback until Ctrl-C or SIGTERM."""
    from sweep.api import Run, open_home, terminate_as_interrupt
    from sweep.store.home import Home
    from sweep.store.mlflow_ui import serve

    if not 1 <= options.port <= 65535:
        raise UserError(f"--port: expected a number from 1 to 65535, got {options.port}")
    home = Home(options.home)
    ledger = open_home(home, say)
    if options.name:
        Run(home, ledger, options.name)  # refuses a name that is not there
    with terminate_as_interrupt():
        return serve(home, ledger, options.name, port=options.port, open_browser=options.open)
