"""The `sweep` command: which commands there are, and what becomes of errors."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from gc import set_threshold

from sweep import __version__, exits
from sweep.commands import (
    compare,
    data,
    datasets,
    diff,
    doctor,
    export,
    fetch,
    gc,
    methods,
    plan,
    report,
    rerun,
    results,
    run,
    status,
    stop,
    submit,
    ui,
)
from sweep.errors import UserError, first_line, one_line
from sweep.urls import redact

# In the order in which a newcomer meets them.
COMMANDS = (
    *(run, plan, status, stop),
    *(results, compare, report, ui, export, diff, rerun),
    *(methods, datasets, data),
    *(submit, fetch, doctor, gc),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `sweep` command; returns its exit code."""
    options = build_parser().parse_args(arguments)
    # Looking for cycles among records, which are read by the ten thousand and kept, takes half as long as reading them.
    set_threshold(100_000, 50, 100)
    try:
        return int(options.run(options))
    except UserError as error:
        _say(one_line(f"sweep: {error}"))
        return exits.USER_ERROR
    except KeyboardInterrupt:
        _say("sweep: interrupted; everything finished is kept, run the same command again to go on")
        return exits.INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.DONE
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        _say(
            one_line(f"sweep: {what}{error.strerror or error}")
            + "; check the path, its permissions and the room on the disk"
        )
        return exits.USER_ERROR
    except Exception as error:
        _say(_defect(error))
        return exits.DEFECT


def build_parser() -> argparse.ArgumentParser:
    """The whole command line as a parser."""
    parser = argparse.ArgumentParser(
        prog="sweep",
        description="Hyperparameter sweeps for distance metric learning.",
        epilog="Start with: sweep run quickstart",
    )
    parser.add_argument("--version", action="version", version=f"orthosweep {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.register(commands)
    return parser


def _defect(error: Exception) -> str:
    """A line for a defect of ours, with the place of its traceback."""
    with tempfile.NamedTemporaryFile("w", prefix="sweep-defect-", suffix=".txt", delete=False) as file:
        file.write(redact("".join(traceback.format_exception(error))))
    return (
        f"sweep: a defect of ours: {first_line(error)[:200]}; "
        f"the traceback is in {file.name}, please report it with what you typed. Everything finished is kept"
    )


def _say(message: str) -> None:
    sys.stderr.write(message + "\n")


if __name__ == "__main__":
    sys.exit(main())
