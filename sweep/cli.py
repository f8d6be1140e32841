"""The command line. Parsing only: each command imports what it needs when it is called."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from sweep import __version__, exits

SPEC_HELP = "a preset's name (quickstart, ...) or the path of a sweep file (YAML)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `sweep` command; returns its exit code."""
    options = build_parser().parse_args(arguments)
    from sweep import commands
    from sweep.errors import UserError, one_line

    try:
        return int(getattr(commands, options.command)(options))
    except UserError as error:
        _say(one_line(f"sweep: {error}"))
        return exits.USER_ERROR
    except KeyboardInterrupt:
        _say("sweep: interrupted; everything finished is kept, run the same command again to go on")
        return exits.INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.DONE


def _say(message: str) -> None:
    sys.stderr.write(message + "\n")


def build_parser() -> argparse.ArgumentParser:
    """The whole command line as a parser."""
    parser = argparse.ArgumentParser(
        prog="sweep",
        description="Hyperparameter sweeps for distance metric learning.",
        epilog="Start with: sweep run quickstart",
    )
    parser.add_argument("--version", action="version", version=f"orthosweep {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = _command(commands, "run", "run a sweep; run again, it goes on where it stopped", "sweep run my.yaml")
    command.add_argument("spec", metavar="SPEC", help=SPEC_HELP)
    command.add_argument("--name", help="another name than the sweep file's")
    command.add_argument(
        "--address",
        help="Ray cluster to use: 'auto', host:port or ray://...; by default a Ray is started here; "
        "'inline' runs the fits in this process, without Ray",
    )
    command.add_argument(
        "--gpus", type=int, default=os.environ.get("SWEEP_GPUS", "0"), metavar="N",
        help="GPUs that an autoscaling cluster may grow to (default: $SWEEP_GPUS, or those that are there)",
    )  # fmt: skip
    _add_home(command)
    _add_json(command)

    command = _command(
        commands, "plan", "show what would run, and how long it would take", "sweep plan my.yaml --pilot --gpus 1,8,40"
    )
    command.add_argument("spec", metavar="SPEC", help=SPEC_HELP)
    command.add_argument("--pilot", action="store_true", help="run a few of the fits first, to estimate the time")
    command.add_argument("--gpus", dest="workers", metavar="N,N,...", help="estimate for so many fits at a time")
    command.add_argument("--address", help="where the pilot fits run, as in `sweep run`")
    _add_home(command)
    _add_json(command)

    command = _command(commands, "status", "done, running, failed, left, expected end", "sweep status quickstart")
    _add_name(command, optional=True)
    command.add_argument("--watch", action="store_true", help="a live view of the whole terminal, until Ctrl-C")
    _add_cluster(command)
    _add_home(command)
    _add_json(command)

    command = _command(
        commands,
        "results",
        "one row per dataset, split and method",
        "sweep results quickstart --format csv > results.csv",
    )
    _add_name(command)
    command.add_argument("--format", choices=("table", "csv", "json"), default="table")
    _add_home(command)

    command = _command(commands, "compare", "convex against non-convex: fits, time, ratios", "sweep compare quickstart")
    _add_name(command)
    _add_home(command)
    _add_json(command)

    command = _command(
        commands, "report", "tables and figures in one HTML file", "sweep report quickstart -o report.html"
    )
    _add_name(command)
    command.add_argument("-o", "--output", metavar="FILE.html", help="default: reports/NAME.html under the home")
    command.add_argument("--price", type=float, metavar="P", help="price of a GPU-hour; adds the cost")
    _add_home(command)

    command = _command(
        commands,
        "export",
        "a learned metric as an MLflow model or .npz",
        "sweep export quickstart --method mdml-cvnd",
    )
    _add_name(command)
    command.add_argument("--method", help="default: the method with the best test AUC")
    command.add_argument("--dataset", help="default: the only one of the sweep")
    command.add_argument("-o", "--output", metavar="FOLDER", help="default: exports/NAME-METHOD under the home")
    command.add_argument("--register", metavar="MODEL", help="register it under this name in the sweep's MLflow store")
    _add_home(command)

    command = _command(commands, "methods", "the 31 methods", "sweep methods --json")
    _add_json(command)

    command = _command(commands, "datasets", "the datasets and what they need", "sweep datasets")
    _add_home(command)
    _add_json(command)

    command = _command(
        commands,
        "data",
        "turn raw files into a dataset",
        "sweep data prepare reuters --from reuters21578.tar.gz",
    )
    actions = command.add_subparsers(required=True, metavar="ACTION")
    action = actions.add_parser("prepare", help="raw files -> features and labels, cached under the home")
    action.add_argument("dataset", metavar="NAME", help="a name of `sweep datasets`")
    action.add_argument("--from", dest="source", metavar="PATH", help="a folder or the original archive")
    _add_home(action)

    command = _command(commands, "ui", "the MLflow UI on this home's runs", "sweep ui quickstart --open")
    _add_name(command, optional=True)
    command.add_argument("--port", type=int, default=5000, help="port on 127.0.0.1 (default 5000)")
    command.add_argument("--open", action="store_true", help="open a browser")
    _add_home(command)

    command = _command(
        commands,
        "submit",
        "hand a sweep to a Ray cluster",
        "sweep submit my.yaml --cluster clusters/on-prem.yaml",
    )
    command.add_argument("spec", metavar="SPEC", help=SPEC_HELP)
    command.add_argument("--name", help="another name than the sweep file's")
    command.add_argument("--detach", action="store_true", help="do not wait for the end; submit again to attach")
    _add_cluster(command)
    _add_remote_home(command)
    _add_home(command)
    _add_json(command)

    command = _command(
        commands,
        "fetch",
        "bring a cluster's records into this home",
        "sweep fetch --cluster clusters/on-prem.yaml",
    )
    _add_cluster(command)
    _add_remote_home(command)
    _add_home(command)

    command = _command(
        commands,
        "doctor",
        "look at every node and say what is wrong",
        "sweep doctor --address auto --gpus 4 --wait 600",
    )
    command.add_argument("spec", metavar="SPEC", nargs="?", help="also check the servers that this sweep file names")
    command.add_argument("--address", help="Ray cluster to look at: 'auto' or host:port; by default this machine")
    command.add_argument("--gpus", type=int, default=0, metavar="N", help="GPUs that there should be (default 0)")
    command.add_argument("--wait", type=float, default=60, metavar="SECONDS", help="time for them to come (default 60)")
    _add_json(command)
    return parser


def _command(commands: Any, name: str, summary: str, example: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:] + ".", epilog=f"Example: {example}"
    )
    command.set_defaults(command=name)
    return command


def _add_home(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--home",
        default=os.environ.get("SWEEP_HOME", "sweep-home"),
        help="folder for everything a sweep writes (default: $SWEEP_HOME or ./sweep-home)",
    )


def _add_cluster(command: argparse.ArgumentParser) -> None:
    command.add_argument("--cluster", metavar="FILE", help="a file of clusters/ that `ray up` has brought up")
    command.add_argument("--address", metavar="URL", help="a cluster's job server, as in http://127.0.0.1:8265")


def _add_remote_home(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--remote-home",
        metavar="DIR",
        help="the home on the cluster's head (default: its $SWEEP_HOME or ~/sweep-home)",
    )


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="JSON for programs to read")


def _add_name(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    if optional:
        command.add_argument("name", metavar="NAME", nargs="?", help="a sweep in this home (default: all)")
    else:
        command.add_argument("name", metavar="NAME", help="a sweep in this home")


if __name__ == "__main__":
    sys.exit(main())
