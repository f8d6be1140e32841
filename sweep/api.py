"""Sweeps from Python: what the command line does, as functions that return objects.

The composition of plan, ledger, driver and recorder exists here once.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep import __version__
from sweep.code import bundle, make_importable
from sweep.engine.driver import Display, Driver, Stop, Tally
from sweep.engine.notify import notify
from sweep.engine.places import executor_maker, known_devices
from sweep.engine.progress import Progress, duration
from sweep.errors import UserError, nearest
from sweep.store.efficiency import Efficiency, efficiency
from sweep.store.home import Home
from sweep.store.ledger import Ledger, holds_ledger, open_ledger, view_ledger
from sweep.store.recording import Recorder
from sweep.store.results import ResultRow, StudyRecords, group_records, result_rows
from sweep.store.rows import Failure
from sweep.studies.base import Told
from sweep.studies.devices import Devices, Work, works
from sweep.studies.forecast import Costs, Forecast, forecast, pilot_studies
from sweep.studies.plan import Given, Plan, Refusal, Standing, make_plan, standing
from sweep.studies.spec import Budget, MethodEntry, SweepSpec
from sweep.studies.sweepfile import folder_of, load_spec, renamed, validated

if TYPE_CHECKING:
    import pandas as pd

PILOT_SECONDS = 120.0


@dataclass(frozen=True)
class Source:
    """A sweep as it was asked for: the validated file, its folder, and objects that came from Python."""

    spec: SweepSpec
    folder: Path
    given: Given = field(default_factory=Given)

    @property
    def code(self) -> dict[str, bytes]:
        """The user's own files that travel with the sweep."""
        return bundle(self.spec.code, self.folder)


def read_source(source: str | os.PathLike[str] | Mapping[str, Any] | None = None, **fields: Any) -> Source:
    """A preset's name, a path, a mapping or keyword arguments as in a sweep file; the latter override the former."""
    if isinstance(source, str | os.PathLike):
        text = os.fspath(source)
        spec, folder = load_spec(text), folder_of(text)
        if set(fields) == {"name"}:
            return Source(renamed(spec, fields["name"]), folder)
        values: dict[str, Any] = {name: getattr(spec, name) for name in spec.model_fields_set}
    else:
        values, folder = dict(source or {}), Path.cwd()
    values |= fields
    estimators: dict[str, Any] = {}
    if isinstance(values.get("datasets"), Mapping):
        from sweep.datasets.choice import memory_choice

        values["datasets"] = [memory_choice(name, *_pair(name, data)) for name, data in values["datasets"].items()]
    if isinstance(values.get("methods"), Sequence) and not isinstance(values["methods"], str):
        values["methods"] = [_method_values(method, estimators) for method in values["methods"]]
    spec = validated(values, "sweep")
    choices = [choice.located(folder) for choice in spec.datasets]
    return Source(spec.model_copy(update={"datasets": choices}), folder, Given(estimators))


def _pair(name: str, data: Any) -> tuple[Any, Any]:
    if not (isinstance(data, tuple | list) and len(data) == 2):
        raise UserError(f"datasets: {name}: expected a pair (X, y), got {type(data).__name__}")
    return data[0], data[1]


def _method_values(method: Any, estimators: dict[str, Any]) -> Any:
    """A method as a sweep file would have it; an estimator object is put aside under its name."""
    if isinstance(method, str):
        return method
    values = dict(method) if isinstance(method, Mapping) else {"estimator": method}
    estimator = values.get("estimator")
    if estimator is None or isinstance(estimator, str) or isinstance(method, MethodEntry):
        return method
    name = values.get("name") or type(estimator).__name__.lower()
    if name in estimators:
        raise UserError(
            f"methods: two estimators are called {name!r}; give one a name: {{'name': ..., 'estimator': ...}}"
        )
    estimators[name] = estimator
    return {key: value for key, value in values.items() if key != "estimator"} | {"name": name}


# -- running ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """How a run of a sweep ended."""

    tally: Tally
    stopped: Stop | None
    failures: Sequence[Failure]
    refused: Sequence[Refusal]

    @property
    def event(self) -> str:
        """done, failed, budget or stopped."""
        return self.stopped.kind if self.stopped else "failed" if self.failures else "done"


class Run:
    """A sweep in a home: its results, fits, comparison and report."""

    def __init__(
        self, home: Home, ledger: Ledger, name: str, outcome: Outcome | None = None, given: Plan | None = None
    ) -> None:
        known = ledger.sweeps()
        if name not in known:
            raise UserError(f"unknown sweep {name!r} in this home.{nearest(name, known)}")
        self.home, self.ledger, self.name, self.outcome = home, ledger, name, outcome
        self._given = given  # data and estimators that only this process has
        self.spec: dict[str, Any] = known[name]

    def __repr__(self) -> str:
        done, asked = self.ledger.count(self.name)
        return f"<sweep {self.name!r} in {self.home.folder}: {done} of {asked} tasks>"

    @property
    def studies(self) -> list[StudyRecords]:
        """Finished fits by (dataset, split, method)."""
        return group_records(self.ledger.records(self.name), self.spec.get("select", "best"))

    @property
    def rows(self) -> list[ResultRow]:
        """One row per (dataset, split, method) whose refit is there."""
        failures = self.ledger.failures(self.name)
        return result_rows(self.ledger.records(self.name), failures, select=self.spec.get("select", "best"))

    @property
    def results(self) -> pd.DataFrame:
        """`rows` as a frame."""
        import pandas as pd

        from sweep.store.results import RESULT_COLUMNS

        return pd.DataFrame([row.to_dict() for row in self.rows], columns=list(RESULT_COLUMNS))

    @property
    def fits(self) -> pd.DataFrame:
        """One row per finished fit: every hyperparameter, fold, score, second and certificate as a column."""
        import pandas as pd

        return pd.DataFrame(self.fit_rows)

    @property
    def fit_rows(self) -> list[dict[str, Any]]:
        """`fits` as plain rows."""
        from sweep.store.fit_rows import fit_row

        return [fit_row(spec, record) for spec, record in self.ledger.records(self.name)]

    def compare(self) -> list[Efficiency]:
        """Convex against non-convex: fits, time, ratios."""
        return efficiency(self.rows)

    def best(self, method: str | None = None, dataset: str | None = None, split: int | None = None) -> Any:
        """The refitted estimator behind its preprocessing, as a scikit-learn pipeline: raw rows go in.

        By default of the method with the best cross-validated score; of several splits, the one with the best.
        """
        from sweep.store.best import best_pipeline

        data, estimators = (self._given.choices, self._given.estimators) if self._given else (None, None)
        return best_pipeline(
            self.home, self.ledger, self.name, method=method, dataset=dataset, split=split,
            data=data, estimators=estimators,
        )  # fmt: skip

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write tables and figures as one HTML file; returns where it is."""
        from dashboards.report import write_report

        return write_report(self.home, self.ledger, self.name, None if path is None else Path(path))[0]


def run(
    source: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    home: str | os.PathLike[str] = "sweep-home",
    address: str | None = None,
    gpus: int = 0,
    display: Display | None = None,
    **fields: Any,
) -> Run:
    """Run a sweep to its end; run again, it goes on where it stopped.

    Parameters
    ----------
    source : a preset's name, the path of a sweep file, or a mapping like one; keyword arguments add to it.
    home : folder for everything the sweep writes.
    address : Ray cluster to use; by default a Ray is started here. "inline" runs the fits in this process.
    gpus : GPUs that an autoscaling cluster may grow to.
    display : who shows progress; by default a live line on a terminal or in a notebook.
    """
    asked = read_source(source, **fields)
    return run_source(asked, Home(os.fspath(home)), address=address, gpus=gpus, display=display)


def run_source(
    source: Source, home: Home, *, address: str | None = None, gpus: int = 0, display: Display | None = None
) -> Run:
    """`run` for a source that was read already."""
    spec = source.spec
    progress = display or Progress(spec.name)
    with home.lock(), terminate_as_interrupt():
        ledger = open_ledger(spec.tracking.ledger, home, progress.note)
        try:
            made, driver = _drive(
                source, home, ledger, progress,
                lambda plan: executor_maker(plan, home, progress, address, gpus, code=source.code),
            )  # fmt: skip
        finally:
            ledger.release()
    tally = driver.tally
    failures = [failure for failure in ledger.failures(spec.name) if failure.final]
    outcome = Outcome(tally, driver.stopped, failures, made.refused)
    facts = {"sweep": spec.name, "done": tally.done, "failed": tally.failed, "left": tally.left}
    notify(spec.notify, outcome.event, facts, progress.note)
    return Run(home, ledger, spec.name, outcome, made)


def _drive(
    source: Source, home: Home, ledger: Ledger, display: Display, executors: Callable[[Plan], Callable[[], Any]]
) -> tuple[Plan, Driver]:
    """Plan, run and record, with the home locked and the ledger open."""
    spec = source.spec
    home.remember_ledger(spec.tracking.ledger)
    home.write_state(f"{spec.name}.stop", {})
    made = plan_source(source, home, ledger)
    _say_before(made, ledger, display)
    ledger.open_sweep(spec.name, spec.without_secrets(), about(made))
    tracking, recorder = spec.tracking, None
    if tracking.mlflow != "none":
        recorder = Recorder(spec.name, tracking.mlflow, tracking.artifacts, home, ledger, display.note, _pictures)
    driver = Driver(
        made,
        home=home,
        ledger=ledger,
        make_executor=executors(made),
        display=display,
        on_commit=recorder.poke if recorder else lambda: None,
    )
    tally = driver.run()
    _say_after(driver, home, display, tally)
    if recorder is not None:
        recorder.finish()
    _mirror(made, home, display)
    for key in dict.fromkeys(ledger.altered):
        display.note(f"damaged record {key} was found and computed again")
    _write_final_state(home, display, driver)
    return made, driver


def open_run(name: str, home: str | os.PathLike[str] = "sweep-home") -> Run:
    """A sweep that a home holds, to look at; nothing is written."""
    folder = Home(os.fspath(home))
    return Run(folder, open_home(folder), name)


def open_home(home: Home, note: Callable[[str], None] = lambda message: None) -> Ledger:
    """The ledger of an existing home, to look at."""
    if not holds_ledger(home):
        raise UserError(
            f"--home: {home.folder} holds no sweep yet; start one with `sweep run quickstart --home {home.folder}`"
        )
    return view_ledger(home.ledger_setting, home, note)


def about(plan: Plan) -> dict[str, Any]:
    """Versions, machine, data fingerprints and counts that go with a sweep's records."""
    from importlib.metadata import version

    packages = ("numpy", "scipy", "scikit-learn", "ray", "mlflow", "optuna")
    return {
        "version": __version__,
        "mode": plan.spec.mode,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        **{name: version(name) for name in packages},
        "data": {name: card.fingerprint for name, card in plan.cards.items()},
        "datasets": {name: card.sizes for name, card in plan.cards.items()},
        "methods": {method.name: method.version for method in plan.methods},
        "studies": [_study_facts(study) for study in plan.studies],
        "refused": [vars(refusal) for refusal in plan.refused],
        "notes": list(plan.notes),
    }


def _study_facts(study: Any) -> dict[str, Any]:
    dataset, split, method = study.template.study
    return {"dataset": dataset, "split": split, "method": method, **asdict(study.size)}


def _pictures(method: str, arrays: Mapping[str, Any], folder: Path) -> list[Path]:
    from dashboards.method_figure import write_method_figure

    return write_method_figure(method, arrays, folder)


def _say_before(plan: Plan, ledger: Ledger, display: Display) -> None:
    for refusal in plan.refused:
        display.note(f"not run: {refusal.dataset} {refusal.method} {refusal.setting}: {refusal.reason}")
    for line in plan.notes:
        display.note(line)
    earlier = ledger.about(plan.spec.name).get("methods", {})
    for method in plan.methods:
        if earlier.get(method.name, method.version) != method.version:
            what = f"the code of {method.estimator}" if method.estimator else "the method"
            display.note(f"{method.name}: {what} has changed since the last run, so its fits are computed again")


def _say_after(driver: Driver, home: Home, display: Display, tally: Tally) -> None:
    if isinstance(display, Progress):
        display.finish(tally)
    if driver.stopped:
        display.note(f"ended early: {driver.stopped.reason}")
    predicted = home.read_state(f"{driver.sweep}.forecast").get("wall_seconds", {}).get(str(driver.workers))
    # Only where the whole of what was predicted ran just now.
    if predicted and not driver.stopped and not tally.cached and driver.seconds > 1:
        low, expected, high = map(duration, predicted)
        took = duration(driver.seconds)
        display.note(f"predicted {expected} ({low} to {high}) on {driver.workers} workers, took {took}")


def _mirror(plan: Plan, home: Home, display: Display) -> None:
    """Copy adaptive studies to where the sweep file wants to see them; the sweep does not depend on the copy."""
    search = plan.spec.search
    if isinstance(search, str) or search.optuna.storage is None:
        return
    from sweep.studies.adaptive import AdaptiveStudy, open_storage

    try:
        storage = open_storage(search.optuna.storage, home.folder / "optuna")
        for study in plan.studies:
            if isinstance(study, AdaptiveStudy):
                study.mirror(storage)
    except (UserError, OSError) as error:
        display.note(f"{error}; the sweep itself is complete without it")


def _write_final_state(home: Home, display: Display, driver: Driver) -> None:
    shown = display if isinstance(display, Progress) else Progress(driver.sweep, live=False)
    home.write_state(driver.sweep, shown.state(driver.tally, [], None))


@contextlib.contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM ends a sweep the way Ctrl-C does: `ray job stop` sends it, with 3 s of grace."""
    if threading.current_thread() is not threading.main_thread():  # only there a handler can be set
        yield
        return

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


# -- planning -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planned:
    """What a sweep would run, and how long it would take where that is known."""

    plan: Plan
    standings: Sequence[Standing]
    forecast: Forecast | None  # None while nothing is known about costs
    works: Sequence[Work] = ()
    devices: Devices | None = None  # None while nothing is known about them

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per study: fits in all (exactly or at most), there already, left."""
        most: dict[tuple[str, str], int] = {}  # memory of a fit
        for work in self.works:
            place = work.kind.dataset, work.kind.method
            most[place] = max(most.get(place, 0), work.needed)
        found = []
        for each in self.standings:
            dataset, split, method = each.study.template.study
            there = sum(spec.restarts for spec in each.done)
            size = each.size
            found.append(
                {
                    "dataset": dataset,
                    "split": split,
                    "method": method,
                    "tasks": size.tasks,
                    "fits": size.fits,
                    "exact": size.exact or each.over,
                    "there": there,
                    "left": size.fits - there,
                    "bytes": most.get((dataset, method)),
                }
            )
        return found


def plan(
    source: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    home: str | os.PathLike[str] = "sweep-home",
    workers: Sequence[int] | None = None,
    **fields: Any,
) -> Planned:
    """What a sweep would run; nothing runs, nothing is written."""
    return look_ahead(read_source(source, **fields), Home(os.fspath(home)), workers)


def plan_source(source: Source, home: Home, ledger: Ledger | None) -> Plan:
    """The plan of a source; imports the user's own code that it names."""
    if source.spec.code:
        bundle(source.spec.code, source.folder)  # refuses what is not there
        make_importable(source.folder)
    like = None if ledger is None else ledger.finished_like
    devices = known_devices(home, source.spec.name)
    return make_plan(source.spec, home.data, like=like, given=source.given, room=devices.room if devices else 0)


def look_ahead(source: Source, home: Home, workers: Sequence[int] | None = None) -> Planned:
    """`plan` for a source that was read already."""
    ledger = view_ledger(source.spec.tracking.ledger, home) if holds_ledger(home) else None
    made = plan_source(source, home, ledger)
    keys = ledger.keys() if ledger is not None else set()

    def known(spec: Any) -> Told | None:
        record = ledger.record(spec.key) if ledger is not None and spec.key in keys else None
        value = None if record is None else record.scores.get(spec.score)
        return None if record is None or value is None else Told(value, record.curve)

    kinds = works(made.studies, made.cards)
    standings = [standing(study, known) for study in made.studies]
    costs = Costs(ledger.all_records() if ledger is not None else ())
    predicted = forecast(standings, costs, workers or [os.cpu_count() or 1]) if costs.known else None
    return Planned(made, standings, predicted, kinds, known_devices(home, source.spec.name))


def run_pilot(
    source: Source, home: Home, *, seconds: float = PILOT_SECONDS, address: str | None = None,
    display: Display | None = None,
) -> None:  # fmt: skip
    """Run a few fits of a plan, the cheapest first, for a limited time; they stay, and are not repeated."""
    name = f"{source.spec.name}.pilot"
    progress = display or Progress(name)
    setting = source.spec.tracking.ledger
    with (
        home.lock(),
        terminate_as_interrupt(),
        contextlib.closing(open_ledger(setting, home, progress.note)) as ledger,
    ):
        made = plan_source(source, home, ledger)
        update = {"name": name, "budget": Budget(wall_hours=seconds / 3600)}
        pilot = replace(
            made,
            spec=source.spec.model_copy(update=update),
            studies=pilot_studies(made.studies),
            pilot=True,
        )
        ledger.open_sweep(name, pilot.spec.without_secrets(), about(pilot) | {"pilot": True})
        driver = Driver(
            pilot,
            home=home,
            ledger=ledger,
            make_executor=executor_maker(made, home, progress, address, 0, code=source.code, name=source.spec.name),
            display=progress,
        )
        tally = driver.run()
    if isinstance(progress, Progress):
        progress.finish(tally)
