"""What each command of the command line does. Data goes to stdout, messages to stderr."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from sweep import __version__
from sweep.cli import EXIT_DONE, EXIT_FAILED_FITS, EXIT_INTERRUPTED, EXIT_USER_ERROR, build_parser
from sweep.errors import UserError, nearest
from sweep.home import Home
from sweep.progress import duration as _duration
from sweep.tables import print_json, print_table, write_csv


def run(options: Namespace) -> int:
    """Run a sweep to its end and print the efficiency table."""
    from sweep.driver import Driver
    from sweep.ledger import open_ledger
    from sweep.plan import make_plan
    from sweep.progress import Progress
    from sweep.recording import Recorder
    from sweep.spec import load_spec

    spec = load_spec(options.spec)
    if options.name:
        spec = _renamed(spec, options.name)
    home = Home(options.home)
    progress = Progress(spec.name)
    with home.lock(), _terminate_as_interrupt():
        ledger = open_ledger(spec.tracking.ledger, home, progress.note)
        home.remember_ledger(spec.tracking.ledger)
        with ledger.exclusive(spec.name):
            plan = make_plan(spec, home, ledger)
            for refusal in plan.refused:
                progress.note(f"not run: {refusal.dataset} {refusal.method} {refusal.setting}: {refusal.reason}")
            ledger.open_sweep(spec.name, spec.without_secrets(), _about(plan))
            recorder = Recorder(spec.name, spec.tracking.mlflow, spec.tracking.artifacts, home, ledger, progress.note)
            driver = Driver(
                plan,
                home=home,
                ledger=ledger,
                make_executor=lambda: _executor(options.address, options.gpus, spec),
                recorder=recorder,
                progress=progress,
            )
            tally = driver.run()
            progress.finish(tally)
            if driver.stopped:
                progress.note(f"stopped: {driver.stopped}")
            _say_prediction(home, spec.name, driver, progress)
            recorder.finish()
            for key in ledger.altered:
                progress.note(f"damaged record {key} was found and computed again")
            home.write_state(spec.name, progress.state(tally, []))
        _print_sweep(ledger, spec.name, as_json=options.json)
        failures = [f for f in ledger.failures(spec.name) if f.final]
    for failure in failures:
        _say(f"failed: {failure.label}: {failure.kind}: {failure.message}")
    if not options.json:
        _say_where_next(options.home, spec.name)
    return EXIT_FAILED_FITS if failures else EXIT_DONE


def plan(options: Namespace) -> int:
    """Print what a sweep would run, and how long it would take where that is known."""
    from sweep.forecast import forecast
    from sweep.ledger import open_ledger
    from sweep.plan import make_plan, n_fits
    from sweep.spec import load_spec

    spec = load_spec(options.spec)
    home = Home(options.home)
    made = make_plan(spec, home)
    if options.pilot:
        _run_pilot(options, spec, home, made)
    ledger = open_ledger(spec.tracking.ledger, home) if home.folder.exists() else None
    finished = ledger.keys() if ledger else set()
    rows: list[dict[str, Any]] = []
    for study in made.studies:
        fits = study.start()
        rows.append(
            {
                "dataset": study.template.dataset,
                "split": study.template.split,
                "method": study.template.method,
                "fits": sum(map(n_fits, fits)),
                "refits": n_fits(study.template) if len(fits) > 1 else 0,
                "there already": sum(n_fits(fit) for fit in fits if fit.key in finished),
            }
        )
    refused = [vars(refusal) for refusal in made.refused]
    known = list(ledger.records_of(made.data)) if ledger else []
    estimate = forecast(made.studies, known, finished, _numbers(options.workers))
    if known:
        home.write_state(f"{spec.name}.forecast", {"wall_seconds": estimate.wall_seconds})
    if options.json:
        print_json({"fits": rows, "refused": refused, "forecast": vars(estimate) if known else None})
        return EXIT_DONE
    print_table(rows, title=f"{spec.name}: {sum(r['fits'] + r['refits'] for r in rows)} fits")
    if refused:
        print_table(refused, title="refused")
    if not known:
        _say("How long it takes is not known yet: --pilot runs a few of the fits (they are kept) and estimates it")
        return EXIT_DONE
    low, expected, high = estimate.busy_hours
    print_table([{"left to compute": f"{expected:.3g} worker-hours", "between": f"{low:.3g}", "and": f"{high:.3g}"}])
    print_table(
        [
            {"workers (GPUs)": n, "wall time": _duration(expected), "between": _duration(low), "and": _duration(high)}
            for n, (low, expected, high) in estimate.wall_seconds.items()
        ]
    )
    return EXIT_DONE


def _run_pilot(options: Namespace, spec: Any, home: Home, made: Any) -> None:
    """Run the pilot fits of a plan; they stay in the ledger, so the sweep itself will not repeat them."""
    from dataclasses import replace

    from sweep.driver import Driver
    from sweep.forecast import pilot_studies
    from sweep.ledger import open_ledger
    from sweep.progress import Progress

    name = f"{spec.name}.pilot"
    progress = Progress(name)
    with home.lock(), _terminate_as_interrupt():
        ledger = open_ledger(spec.tracking.ledger, home, progress.note)
        pilot = replace(made, spec=_renamed(spec, name), studies=pilot_studies(made.studies))
        driver = Driver(
            pilot,
            home=home,
            ledger=ledger,
            make_executor=lambda: _executor(options.address, 0, spec),
            recorder=None,
            progress=progress,
        )
        progress.finish(driver.run())


def _numbers(text: str | None) -> list[int]:
    """'1,8,40' as numbers of workers; by default what this machine runs at a time."""
    if text is None:
        return [os.cpu_count() or 1]
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise UserError(f"--gpus: expected numbers above 0 like 1,8,40, got {text!r}")
    return numbers


def status(options: Namespace) -> int:
    """Print where the sweeps of a home, or the jobs of a cluster, stand."""
    if options.address or options.cluster:
        from sweep.jobs import job_rows, job_server

        with job_server(options.address, options.cluster) as client:
            _print(job_rows(client, options.name), options.json)
        return EXIT_DONE
    home, ledger = _open(options.home)
    names = [options.name] if options.name else list(ledger.sweeps())
    if options.watch:
        from sweep.watch import watch

        for name in names:
            _check_name(ledger, name)
        return watch(home, ledger, names)
    rows = []
    for name in names:
        _check_name(ledger, name)
        done, total = ledger.count(name)
        state = home.read_state(name)
        running = home.is_locked() and time.time() - state.get("updated", 0) < 60
        rows.append(
            {
                "sweep": name,
                "state": "running" if running else "complete" if done == total else "stopped",
                "tasks done": done,
                "tasks": total,
                "fits done": state.get("done"),
                "fits": state.get("total"),
                "failed": state.get("failed", 0),
                "left": state.get("left"),
                "fits/s": state.get("rate_per_second") if running else None,
                "seconds left": state.get("seconds_left") if running else None,
                "running": "; ".join(state.get("running", [])) if running else "",
            }
        )
    _print(rows, options.json)
    return EXIT_DONE


def results(options: Namespace) -> int:
    """Print one row per (dataset, split, method)."""
    from sweep.results import result_rows

    _, ledger = _open(options.home)
    _check_name(ledger, options.name)
    rows = result_rows(ledger.records(options.name))
    if ledger.sweeps()[options.name]["search"] != "grid":
        _add_fits_to_match_grid(ledger, options.name, rows)
    if options.format == "json":
        print_json(rows)
    elif options.format == "csv":
        write_csv(rows)
    else:
        print_table(rows)
    return EXIT_DONE


def _add_fits_to_match_grid(ledger: Any, name: str, rows: list[dict[str, Any]]) -> None:
    """How many fits a search needed to be as good as the best grid sweep of the same studies in this home."""
    from sweep.results import group_records

    best: dict[tuple[str, int, str], float] = {}
    for other, spec in ledger.sweeps().items():
        for study in group_records(ledger.records(other)) if spec["search"] == "grid" else ():
            place, score = (study.dataset, study.split, study.method), study.best_score()
            if score is not None:
                best[place] = max(score, best.get(place, score))
    for study in group_records(ledger.records(name)):
        place = (study.dataset, study.split, study.method)
        for row in rows:
            if (row["dataset"], row["split"], row["method"]) == place:
                row["grid_cv_auc"] = best.get(place)
                row["fits_to_match_grid"] = study.fits_until(best[place]) if place in best else None


def compare(options: Namespace) -> int:
    """Print the efficiency comparison."""
    _, ledger = _open(options.home)
    _check_name(ledger, options.name)
    _print_sweep(ledger, options.name, as_json=options.json)
    return EXIT_DONE


def methods(options: Namespace) -> int:
    """Print the table of methods."""
    from solvers.methods import METHODS

    rows = [
        {
            "method": method.name,
            "family": method.family,
            "tuned": ", ".join(method.tuned) or "nothing",
            "convex": method.convex,
            "restarts": method.restarts,
            "certificate": method.certificate,
            "what": method.title,
            "reference": method.reference,
        }
        for method in METHODS.values()
    ]
    _print(rows, options.json)
    return EXIT_DONE


def datasets(options: Namespace) -> int:
    """Print the table of datasets."""
    from sweep.datasets import describe_datasets

    _print(describe_datasets(cache=Home(options.home).data), options.json)
    return EXIT_DONE


def data(options: Namespace) -> int:
    """Prepare a dataset from its raw files."""
    from sweep.datasets import prepare

    home = Home(options.home)
    home.create()
    path = prepare(options.dataset, options.source, cache=home.data, progress=_say)
    _say(f"{options.dataset}: ready ({path.name})")
    return EXIT_DONE


def ui(options: Namespace) -> int:
    """Serve the MLflow UI on loopback."""
    from sweep.ui import serve

    home, ledger = _open(options.home)
    if options.name:
        _check_name(ledger, options.name)
    return serve(home, ledger, options.name, port=options.port, open_browser=options.open)


def report(options: Namespace) -> int:
    """Write the HTML report and the files beside it; prints where the page is."""
    from pathlib import Path

    from dashboards.report import write_report

    home, ledger = _open(options.home)
    _check_name(ledger, options.name)
    paths = write_report(
        home, ledger, options.name, Path(options.output) if options.output else None, price=options.price
    )
    _say(f"{options.name}: {len(paths) - 1} tables and figures in {paths[1].parent}")
    print(paths[0])  # noqa: T201
    return EXIT_DONE


def export(options: Namespace) -> int:
    """Write a learned metric as an MLflow model; prints where it is."""
    from sweep.export import export_metric

    home, ledger = _open(options.home)
    _check_name(ledger, options.name)
    folder = export_metric(
        home, ledger, options.name, method=options.method, dataset=options.dataset, output=options.output,
        register=options.register, note=_say,
    )  # fmt: skip
    print(folder)  # noqa: T201
    return EXIT_DONE


def submit(options: Namespace) -> int:
    """Hand a sweep to a cluster, follow it to its end and bring the records here."""
    from sweep import fetch as fetching
    from sweep import submit as submitting
    from sweep.jobs import exit_code, job_server
    from sweep.spec import load_spec

    spec = load_spec(options.spec)
    if options.name:
        spec = _renamed(spec, options.name)
    try:
        plan(build_parser().parse_args(["plan", options.spec, "--home", options.home]))
    except UserError as error:  # data that only the cluster has; the driver there checks again
        _say(f"plan not shown: {error}")
    home = Home(options.home)
    with job_server(options.address, options.cluster) as client:
        job = submitting.submit(client, spec, options.remote_home, _say)
        if options.detach:
            return EXIT_DONE
        if not submitting.attach(client, job, _say):
            return EXIT_INTERRUPTED
        code = exit_code(client, job)
        if code == EXIT_USER_ERROR:
            return code
        names = fetching.fetch(client, home, options.remote_home)
    fetching.record_in_mlflow(home, names)
    if options.json:
        _print_sweep(_open(options.home)[1], spec.name, as_json=True)
    else:
        _say_where_next(options.home, spec.name)
    return code


def fetch(options: Namespace) -> int:
    """Bring a cluster's records into this home."""
    from sweep import fetch as fetching
    from sweep.jobs import job_server

    home = Home(options.home)
    with job_server(options.address, options.cluster) as client:
        names = fetching.fetch(client, home, options.remote_home)
    fetching.record_in_mlflow(home, names)
    _say(f"{options.home}: {', '.join(names) or home.ledger_setting}")
    return EXIT_DONE


def doctor(options: Namespace) -> int:
    """Examine every node of a cluster; exit code 1 if something is wrong."""
    from sweep.doctor import find_problems, look, node_rows
    from sweep.spec import load_spec

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
            _say("no problems found")
    return EXIT_FAILED_FITS if problems else EXIT_DONE


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
    else:
        print_table(rows)


def _print_sweep(ledger: Any, name: str, *, as_json: bool) -> None:
    """The efficiency table, the ratios and the sentence that sums them up."""
    from sweep.results import efficiency, result_rows, verdict

    rows = result_rows(ledger.records(name))
    comparisons = efficiency(rows)
    ratios = [
        {
            "convex": e.convex,
            "non-convex": e.nonconvex,
            "fits": f"{e.nonconvex_fits} / {e.convex_fits}",
            "runs ratio": e.runs_ratio,
            "time-per-run ratio": e.time_per_run_ratio,
            "total ratio": e.total_ratio,
        }
        for e in comparisons
    ]
    if as_json:
        print_json({"results": rows, "comparison": ratios, "verdict": verdict(comparisons)})
        return
    several = len({(r["dataset"], r["split"]) for r in rows}) > 1
    table = [
        {
            **({"dataset": r["dataset"], "split": r["split"]} if several else {}),
            "method": r["method"],
            "fits": f"{r['n_fits']}+{r['n_refits']}" if r["n_refits"] else str(r["n_fits"]),
            "fit seconds": r["fit_seconds"],
            "AUC all": r["auc_all"],
            "frequent": r["auc_frequent"],
            "infrequent": r["auc_infrequent"],
            "balance": r["balance_score"],
            "vectors": r["npv"],
            "worst gap": r["relative_gap"],
        }
        for r in rows
    ]
    print_table(table, title=f"{name}: fits are tuning + refit; AUC on the test part")
    if ratios:
        print_table(ratios, title="non-convex over convex, tuning only")
    print(verdict(comparisons), flush=True)  # noqa: T201


def _say_prediction(home: Home, name: str, driver: Any, progress: Any) -> None:
    """What `sweep plan` had predicted beside what it was, if the whole of it ran just now."""
    predicted = home.read_state(f"{name}.forecast").get("wall_seconds", {}).get(str(driver.workers))
    if predicted and driver.tally.done == driver.tally.total and driver.seconds > 1:
        low, expected, high = map(_duration, predicted)
        took = _duration(driver.seconds)
        progress.note(f"predicted {expected} ({low} to {high}) on {driver.workers} workers, took {took}")


def _say_where_next(home: str, name: str) -> None:
    suffix = "" if home == "sweep-home" else f" --home {home}"
    _say("Where to look next:")
    _say(f"  sweep ui {name}{suffix}        compare the runs in MLflow")
    _say(f"  sweep report {name}{suffix}    tables and figures in one HTML file")
    _say(f"  sweep run my.yaml{suffix}      a sweep of your own; the README explains the file")


def _executor(address: str | None, gpus: int, spec: Any) -> Any:
    if address == "inline":
        from sweep.executors import InlineExecutor

        return InlineExecutor()
    from sweep.ray_executor import RayExecutor

    return RayExecutor(
        address,
        gpus_per_fit=spec.resources.gpus_per_fit,
        gpus=gpus,
        timeout=spec.resources.fit_timeout_seconds,
    )


def _about(plan: Any) -> dict[str, Any]:
    """Versions, machine and data fingerprints that go with a sweep's records."""
    from importlib.metadata import version

    packages = ("numpy", "scipy", "scikit-learn", "ray", "mlflow", "optuna")
    return {
        "version": __version__,
        "mode": plan.spec.mode,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        **{name: version(name) for name in packages},
        "data": {name: source.dataset.fingerprint for name, source in plan.data.items()},
        "datasets": {name: source.sizes for name, source in plan.data.items()},
        "refused": [vars(refusal) for refusal in plan.refused],
    }


def _renamed(spec: Any, name: str) -> Any:
    from pydantic import ValidationError

    try:
        return type(spec).model_validate(spec.model_dump() | {"name": name})
    except ValidationError:
        raise UserError(f"--name: expected lower-case letters, digits, '.', '_' or '-', got {name!r}") from None


def _open(folder: str) -> tuple[Home, Any]:
    """An existing home and its ledger."""
    from sweep.ledger import open_ledger

    home = Home(folder)
    if not (home.ledger_path.exists() or home.ledger_setting != "sqlite"):
        raise UserError(f"--home: {folder} holds no sweep yet; start one with `sweep run quickstart --home {folder}`")
    return home, open_ledger(home.ledger_setting, home, _say)


def _check_name(ledger: Any, name: str) -> None:
    known = ledger.sweeps()
    if name not in known:
        raise UserError(f"unknown sweep {name!r} in this home.{nearest(name, known)}")


@contextlib.contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM ends a sweep the way Ctrl-C does: `ray job stop` sends it, with 3 s of grace."""
    import signal

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _say(message: str) -> None:
    sys.stderr.write(message + "\n")
