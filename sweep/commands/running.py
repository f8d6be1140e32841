"""Commands that run fits, or say what would run."""

from __future__ import annotations

import contextlib
import os
import platform
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from sweep import __version__, exits
from sweep.commands.printing import print_json, print_table
from sweep.commands.shared import print_sweep, say
from sweep.engine.progress import duration
from sweep.errors import UserError
from sweep.store.home import Home


def run(options: Namespace) -> int:
    """Run a sweep to its end and print the efficiency table."""
    from sweep.engine.driver import Driver
    from sweep.engine.progress import Progress
    from sweep.store.ledger import open_ledger
    from sweep.store.recording import Recorder
    from sweep.studies.plan import make_plan
    from sweep.studies.spec import load_spec

    spec = load_spec(options.spec)
    if options.name:
        spec = renamed(spec, options.name)
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
        print_sweep(ledger, spec.name, as_json=options.json)
        failures = [f for f in ledger.failures(spec.name) if f.final]
    for failure in failures:
        say(f"failed: {failure.label}: {failure.kind}: {failure.message}")
    if not options.json:
        say_where_next(options.home, spec.name)
    return exits.FAILED_FITS if failures else exits.DONE


def _say_prediction(home: Home, name: str, driver: Any, progress: Any) -> None:
    """What `sweep plan` had predicted beside what it was, if the whole of it ran just now."""
    predicted = home.read_state(f"{name}.forecast").get("wall_seconds", {}).get(str(driver.workers))
    if predicted and driver.tally.done == driver.tally.total and driver.seconds > 1:
        low, expected, high = map(duration, predicted)
        took = duration(driver.seconds)
        progress.note(f"predicted {expected} ({low} to {high}) on {driver.workers} workers, took {took}")


def say_where_next(home: str, name: str) -> None:
    suffix = "" if home == "sweep-home" else f" --home {home}"
    say("Where to look next:")
    say(f"  sweep ui {name}{suffix}        compare the runs in MLflow")
    say(f"  sweep report {name}{suffix}    tables and figures in one HTML file")
    say(f"  sweep run my.yaml{suffix}      a sweep of your own; the README explains the file")


def plan(options: Namespace) -> int:
    """Print what a sweep would run, and how long it would take where that is known."""
    from sweep.store.ledger import open_ledger
    from sweep.studies.forecast import forecast
    from sweep.studies.plan import make_plan, n_fits
    from sweep.studies.spec import load_spec

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
        return exits.DONE
    print_table(rows, title=f"{spec.name}: {sum(r['fits'] + r['refits'] for r in rows)} fits")
    if refused:
        print_table(refused, title="refused")
    if not known:
        say("How long it takes is not known yet: --pilot runs a few of the fits (they are kept) and estimates it")
        return exits.DONE
    low, expected, high = estimate.busy_hours
    print_table([{"left to compute": f"{expected:.3g} worker-hours", "between": f"{low:.3g}", "and": f"{high:.3g}"}])
    print_table(
        [
            {"workers (GPUs)": n, "wall time": duration(expected), "between": duration(low), "and": duration(high)}
            for n, (low, expected, high) in estimate.wall_seconds.items()
        ]
    )
    return exits.DONE


def _run_pilot(options: Namespace, spec: Any, home: Home, made: Any) -> None:
    """Run the pilot fits of a plan; they stay in the ledger, so the sweep itself will not repeat them."""
    from dataclasses import replace

    from sweep.engine.driver import Driver
    from sweep.engine.progress import Progress
    from sweep.store.ledger import open_ledger
    from sweep.studies.forecast import pilot_studies

    name = f"{spec.name}.pilot"
    progress = Progress(name)
    with home.lock(), _terminate_as_interrupt():
        ledger = open_ledger(spec.tracking.ledger, home, progress.note)
        pilot = replace(made, spec=renamed(spec, name), studies=pilot_studies(made.studies))
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


def _executor(address: str | None, gpus: int, spec: Any) -> Any:
    if address == "inline":
        from sweep.engine.executors import InlineExecutor

        return InlineExecutor()
    from sweep.engine.ray_executor import RayExecutor

    return RayExecutor(
        address,
        gpus_per_fit=spec.resources.gpus_per_fit,
        gpus=gpus,
        timeout=spec.resources.fit_timeout_seconds,
        one_gpu_model=spec.mode == "benchmark",
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


def renamed(spec: Any, name: str) -> Any:
    from pydantic import ValidationError

    try:
        return type(spec).model_validate(spec.model_dump() | {"name": name})
    except ValidationError:
        raise UserError(f"--name: expected lower-case letters, digits, '.', '_' or '-', got {name!r}") from None


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
