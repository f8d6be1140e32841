"""`sweep doctor`: look at every node and say what is wrong."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sweep import exits
from sweep.commands.options import add_command, add_home, add_json, say
from sweep.commands.printing import print_json, print_table
from sweep.errors import UserError


def register(commands: Any) -> None:
    summary = "look at every node and say what is wrong"
    command = add_command(commands, "doctor", run, summary, "sweep doctor --address auto --gpus 4 --wait 600")
    command.add_argument("spec", metavar="SPEC", nargs="?", help="also reach its servers and time its kernels")
    command.add_argument("--address", help="Ray cluster to look at: 'auto' or host:port; by default this machine")
    command.add_argument("--gpus", type=int, default=0, metavar="N", help="GPUs that there should be (default 0)")
    command.add_argument("--wait", type=float, default=60, metavar="SECONDS", help="time for them to come (default 60)")
    add_home(command)
    add_json(command)


def run(options: Namespace) -> int:
    """Examine every node of a cluster; exit code 1 if something is wrong."""
    from sweep.remote.doctor import find_problems, home_problems, look, node_rows
    from sweep.remote.home_facts import home_facts
    from sweep.studies.sweepfile import load_spec

    tracking = load_spec(options.spec).tracking.model_dump() if options.spec else {}
    urls = {name: url for name, url in tracking.items() if url and "://" in url}
    home = home_facts(options.home)
    works = _works(options) if options.spec else []
    nodes = look(options.address, gpus=options.gpus, wait=options.wait, urls=urls, works=works)
    problems = [vars(problem) for problem in [*home_problems(home), *find_problems(nodes, options.gpus)]]
    if options.json:
        print_json({"home": vars(home), "nodes": [vars(node) for node in nodes], "problems": problems})
    else:
        print_table(node_rows(nodes), title="nodes")
        if works:
            rows = [{"node": node.name} | row for node in nodes for row in node.found.get("kernels", [])]
            print_table(rows, title="an iteration of each kind of fit")
        say(f"home: {home.folder}, on {home.filesystem}: {home.consequence}")
        if problems:
            print_table(problems, title="problems")
        else:
            say("no problems found")
    return exits.FAILED_FITS if problems else exits.DONE


def _works(options: Namespace) -> Any:
    """The kinds of fits of the sweep; none where its data are not there to plan with."""
    from sweep.api import plan_source, read_source
    from sweep.store.home import Home
    from sweep.studies.devices import works

    try:
        plan = plan_source(read_source(options.spec), Home(options.home), None)
    except UserError as error:
        say(f"kernels are not timed: {error}")
        return []
    return works(plan.studies, plan.cards)
