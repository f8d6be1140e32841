"""Commands that bring data and work to where they belong: datasets, clusters, their health."""

from __future__ import annotations

from argparse import Namespace

from sweep import exits
from sweep.cli import build_parser
from sweep.commands.printing import print_json, print_table
from sweep.commands.running import plan, renamed, say_where_next
from sweep.commands.shared import open_home, print_sweep, say
from sweep.errors import UserError
from sweep.store.home import Home


def data(options: Namespace) -> int:
    """Prepare a dataset from its raw files."""
    from sweep.datasets import prepare

    home = Home(options.home)
    home.create()
    path = prepare(options.dataset, options.source, cache=home.data, progress=say)
    say(f"{options.dataset}: ready ({path.name})")
    return exits.DONE


def submit(options: Namespace) -> int:
    """Hand a sweep to a cluster, follow it to its end and bring the records here."""
    from sweep.remote import fetch as fetching
    from sweep.remote import submit as submitting
    from sweep.remote.jobs import exit_code, job_server
    from sweep.studies.spec import load_spec

    spec = load_spec(options.spec)
    if options.name:
        spec = renamed(spec, options.name)
    try:
        plan(build_parser().parse_args(["plan", options.spec, "--home", options.home]))
    except UserError as error:  # data that only the cluster has; the driver there checks again
        say(f"plan not shown: {error}")
    home = Home(options.home)
    with job_server(options.address, options.cluster) as client:
        job = submitting.submit(client, spec, options.remote_home, say)
        if options.detach:
            return exits.DONE
        if not submitting.attach(client, job, say):
            return exits.INTERRUPTED
        code = exit_code(client, job)
        if code == exits.USER_ERROR:
            return code
        names = fetching.fetch(client, home, options.remote_home)
    fetching.record_in_mlflow(home, names)
    if options.json:
        print_sweep(open_home(options.home)[1], spec.name, as_json=True)
    else:
        say_where_next(options.home, spec.name)
    return code


def fetch(options: Namespace) -> int:
    """Bring a cluster's records into this home."""
    from sweep.remote import fetch as fetching
    from sweep.remote.jobs import job_server

    home = Home(options.home)
    with job_server(options.address, options.cluster) as client:
        names = fetching.fetch(client, home, options.remote_home)
    fetching.record_in_mlflow(home, names)
    say(f"{options.home}: {', '.join(names) or home.ledger_setting}")
    return exits.DONE


def doctor(options: Namespace) -> int:
    """Examine every node of a cluster; exit code 1 if something is wrong."""
    from sweep.remote.doctor import find_problems, look, node_rows
    from sweep.studies.spec import load_spec

    tracking = load_spec(options.spec).tracking.model_dump() if options.spec else {}
    urls = {name: url for name, url in tracking.items() if url and "://" in url}
    nodes = look(options.address, gpus=options.gpus, wait=options.wait, urls=urls)
    problems = [vars(problem) for problem in find_problems(nodes, options.gpus)]
    if options.json:
        print_json({"nodes": [vars(node) for node in nodes], "problems": problems})
    else:
        print_table(node_rows(nodes), title="nodes")
        if problems:
            print_table(problems, title="problems")
        else:
            say("no problems found")
    return exits.FAILED_FITS if problems else exits.DONE
