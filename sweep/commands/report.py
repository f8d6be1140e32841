"""`sweep report`: tables and figures in one HTML file."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from sweep import exits
from sweep.commands.options import add_command, add_home, add_name, home_option, say
from sweep.commands.printing import print_line


def register(commands: Any) -> None:
    summary = "tables and figures in one HTML file"
    command = add_command(commands, "report", run, summary, "sweep report quickstart -o report.html")
    add_name(command)
    command.add_argument("-o", "--output", metavar="FILE.html", help="default: reports/NAME.html under the home")
    command.add_argument("--price", type=float, metavar="P", help="price of a GPU-hour; adds the cost")
    command.add_argument("--live", action="store_true", help="serve the page on loopback while the sweep runs")
    command.add_argument("--port", type=int, default=8899, help="port on 127.0.0.1 for --live (default 8899)")
    add_home(command)


def run(options: Namespace) -> int:
    """Write the HTML report and the files beside it; prints where the page is."""
    from dashboards.report import write_report
    from sweep.api import open_run

    found = open_run(options.name, options.home)
    command = f"sweep rerun {found.name} {{key}}{home_option(options.home)}"
    if options.live:
        from dashboards.live import serve_live
        from dashboards.records import read_sweep

        return serve_live(
            lambda: read_sweep(found.ledger, found.name, found.home), port=options.port, note=say, command=command
        )
    output = Path(options.output).expanduser() if options.output else None
    paths = write_report(found.home, found.ledger, found.name, output, price=options.price, command=command)
    say(f"{found.name}: {len(paths) - 1} tables and figures in {paths[1].parent}" if len(paths) > 1 else found.name)
    print_line(paths[0])
    return exits.DONE
