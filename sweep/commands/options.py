"""Options that several commands share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

SPEC_HELP = "a preset's name (quickstart, ...) or the path of a sweep file (YAML)"

Command = Callable[[argparse.Namespace], int]


def add_command(commands: Any, name: str, function: Command, summary: str, example: str) -> argparse.ArgumentParser:
    """A command's parser, which knows the function to call."""
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:] + ".", epilog=f"Example: {example}"
    )
    command.set_defaults(run=function)
    return command


def add_spec(command: argparse.ArgumentParser) -> None:
    command.add_argument("spec", metavar="SPEC", help=SPEC_HELP)


def add_home(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--home",
        default=os.environ.get("SWEEP_HOME", "sweep-home"),
        help="folder for everything a sweep writes (default: $SWEEP_HOME or ./sweep-home)",
    )


def add_cluster(command: argparse.ArgumentParser) -> None:
    command.add_argument("--cluster", metavar="FILE", help="a file of clusters/ that `ray up` has brought up")
    command.add_argument("--address", metavar="URL", help="a cluster's job server, as in http://127.0.0.1:8265")


def add_remote_home(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--remote-home",
        metavar="DIR",
        help="the home on the cluster's head (default: its $SWEEP_HOME or ~/sweep-home)",
    )


def add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="JSON for programs to read")


def add_name(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    if optional:
        command.add_argument("name", metavar="NAME", nargs="?", help="a sweep in this home (default: all)")
    else:
        command.add_argument("name", metavar="NAME", help="a sweep in this home")


def say(message: str) -> None:
    """Messages go to stderr: stdout is for data."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def home_option(folder: str) -> str:
    """How to name a home in a command that is printed; nothing for the default one."""
    return "" if folder == "sweep-home" else f" --home {folder}"
