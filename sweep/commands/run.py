"""`sweep run`: run a sweep to its end and print what came out."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.options import add_command, add_home, add_json, add_spec, home_option, say


def register(commands: Any) -> None:
    summary = "run a sweep; run again, it goes on where it stopped"
    command = add_command(commands, "run", run, summary, "sweep run my.yaml")
    add_spec(command)
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
    add_home(command)
    add_json(command)


def run(options: Namespace) -> int:
    """Run a sweep to its end and print the table of methods."""
    from sweep.api import read_source, run_source
    from sweep.commands.tables import print_sweep
    from sweep.store.home import Home

    source = read_source(options.spec, **({"name": options.name} if options.name else {}))
    done = run_source(source, Home(options.home), address=options.address, gpus=options.gpus)
    assert done.outcome is not None
    rows = done.rows
    print_sweep(done.name, rows, as_json=options.json)
    for failure in done.outcome.failures:
        say(f"failed: {failure.label}: {failure.kind}: {failure.message}")
    if not options.json:
        say_where_next(options.home, done.name)
    if done.outcome.failures:
        return exits.FAILED_FITS
    if done.outcome.stopped:
        return exits.ENDED_EARLY
    if done.outcome.refused and not rows:
        say("nothing could run: every combination was refused, see above")
        return exits.ENDED_EARLY
    return exits.DONE


def say_where_next(home: str, name: str) -> None:
    suffix, prefix = home_option(home), command_prefix()
    lines = {
        f"report {name}": "tables and figures in one HTML file",
        f"ui {name}": "compare the runs in MLflow",
        "run my.yaml": "a sweep of your own; the README explains the file",
    }
    width = max(map(len, lines)) + len(suffix)
    say("Where to look next:")
    for command, what in lines.items():
        say(f"  {prefix}sweep {command + suffix:{width}}  {what}")


def command_prefix() -> str:
    """What has to stand before `sweep` in this shell: its folder, unless it is on the PATH."""
    import shutil
    import sys
    from pathlib import Path

    here = Path(sys.executable).parent
    found = shutil.which("sweep")
    if found is not None and Path(found).parent.resolve() == here.resolve():
        return ""
    if not (here / "sweep").exists():
        return ""
    return f"{os.path.relpath(here)}{os.sep}"
