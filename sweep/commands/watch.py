"""`sweep status --watch`: how far each method is, what runs where, what failed, the best so far."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from solvers.methods import METHODS
from sweep.engine.progress import duration
from sweep.store.home import Home
from sweep.store.ledger import Failure, Ledger
from sweep.store.results import group_records, result_row

_REFRESH_SECONDS = 1.0
_SHOWN_FAILURES = 5


@dataclass
class Snapshot:
    """What the ledger says of one sweep; reading all of it takes a while for a large one."""

    done: Counter[str] = field(default_factory=Counter)  # tasks by method
    best: dict[str, float] = field(default_factory=dict)  # best test AUC by method
    seconds: dict[str, float] = field(default_factory=dict)  # in the solver, by method
    failures: list[Failure] = field(default_factory=list)
    taken: float = 0.0
    cost: float = 0.0

    @property
    def is_old(self) -> bool:
        """Reading again is kept to a tenth of the time."""
        return time.monotonic() - self.taken > max(2.0, 10 * self.cost)


def take_snapshot(ledger: Ledger, name: str) -> Snapshot:
    """Read a sweep's records."""
    start = time.monotonic()
    snapshot = Snapshot(failures=ledger.failures(name))
    for study in group_records(ledger.records(name)):
        snapshot.done[study.method] += len(study.fits)
        seconds = sum(record.seconds["solve"] for _, record in study.fits)
        snapshot.seconds[study.method] = snapshot.seconds.get(study.method, 0.0) + seconds
        row = result_row(study)
        if row is not None:
            snapshot.best[study.method] = max(row["auc_all"], snapshot.best.get(study.method, 0.0))
    snapshot.taken = time.monotonic()
    snapshot.cost = snapshot.taken - start
    return snapshot


def watch(home: Home, ledger: Ledger, names: Sequence[str]) -> int:
    """Show the sweeps until Ctrl-C; where stdout is no terminal, once."""
    snapshots: dict[str, Snapshot] = {}

    def view() -> RenderableType:
        for name in names:
            if name not in snapshots or snapshots[name].is_old:
                snapshots[name] = take_snapshot(ledger, name)
        specs = ledger.sweeps()
        return Group(*(sweep_view(home, ledger, name, specs[name], snapshots[name]) for name in names))

    if not sys.stdout.isatty():
        Console(width=120).print(view())
        return 0
    try:
        with Live(view(), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(_REFRESH_SECONDS)
                live.update(view(), refresh=True)
    except KeyboardInterrupt:
        return 0


def sweep_view(home: Home, ledger: Ledger, name: str, spec: Mapping[str, Any], snapshot: Snapshot) -> RenderableType:
    """One sweep as a panel."""
    state = home.read_state(name)
    running = home.is_locked() and time.time() - state.get("updated", 0) < 60
    done, asked = ledger.count(name)
    title = f"{name}: {'running' if running else 'complete' if done == asked else 'stopped'}"
    parts: list[RenderableType] = [_totals(state, done, asked, running), _methods(spec, snapshot)]
    if running:
        parts.append(_devices(state))
    if snapshot.failures:
        parts.append(_failures(snapshot.failures))
    return Panel(Group(*parts), title=title, title_align="left")


def _totals(state: Mapping[str, Any], done: int, asked: int, running: bool) -> Text:
    fits = f"{state.get('done', 0)} of {state.get('total', 0)} fits, {state.get('failed', 0)} failed"
    line = f"{done} of {asked} tasks, {fits}"
    left = state.get("seconds_left")
    if running and left is not None:
        end = time.strftime("%H:%M:%S", time.localtime(state["updated"] + left))
        line += f"; {state['rate_per_second']:.1f} fits/s, ends about {end} (in {duration(left)})"
    return Text(line)


def _methods(spec: Mapping[str, Any], snapshot: Snapshot) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("method")
    table.add_column("tasks", width=24)
    for heading in ("done", "solver time", "best test AUC"):
        table.add_column(heading, justify="right")
    leader = max(snapshot.best.values(), default=None)
    for method in spec["methods"]:
        total = max(expected_tasks(spec, method), snapshot.done[method])
        best = snapshot.best.get(method)
        table.add_row(
            method,
            ProgressBar(total=total, completed=snapshot.done[method], width=24),
            f"{snapshot.done[method]}/{total}",
            duration(snapshot.seconds.get(method, 0.0)),
            Text("-" if best is None else f"{best:.4f}", style="bold" if best == leader else ""),
        )
    return table


def expected_tasks(spec: Mapping[str, Any], method: str) -> int:
    """Tasks of a method if nothing is refused or pruned: each trial on each fold, then the refit."""
    tuned, grid = METHODS[method].tuned, spec["grid"]
    trials = 1
    for name in ("gamma", "rank"):
        trials *= len(grid[name]) if name in tuned else 1
    if trials > 1 and spec["search"] != "grid":
        trials = min(trials, spec["search"]["optuna"]["trials"])
    per_split = trials * spec["folds"] + 1 if trials > 1 else 1
    return per_split * int(spec["splits"]) * len(spec["datasets"])


def _devices(state: Mapping[str, Any]) -> Table:
    """What runs where; without word from the workers, what runs."""
    table = Table(box=None, pad_edge=False)
    table.add_column("device")
    table.add_column("runs")
    table.add_column("for", justify="right")
    devices = state.get("devices") or []
    for entry in devices:
        table.add_row(entry["device"], entry["label"], duration(max(0.0, time.time() - entry["since"])))
    if not devices:
        for label in state.get("running", []):
            table.add_row("-", label, "")
    return table


def _failures(failures: Sequence[Failure]) -> Table:
    table = Table(box=None, pad_edge=False, style="red")
    table.add_column(f"{len(failures)} failed attempts, the last ones")
    table.add_column("kind")
    table.add_column("first line", overflow="ellipsis", no_wrap=True)
    for failure in failures[-_SHOWN_FAILURES:]:
        table.add_row(failure.label, failure.kind, failure.message)
    return table
