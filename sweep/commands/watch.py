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

from sweep.api import Run
from sweep.commands.standing import standing
from sweep.engine.progress import clock_time, duration, rate_text
from sweep.store.results import result_row
from sweep.store.rows import Failure

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


def take_snapshot(run: Run) -> Snapshot:
    """Read a sweep's records."""
    start = time.monotonic()
    snapshot = Snapshot(failures=run.ledger.failures(run.name))
    for study in run.studies:
        snapshot.done[study.method] += len(study.fits)
        seconds = sum(record.seconds.solve for _, record in study.fits)
        snapshot.seconds[study.method] = snapshot.seconds.get(study.method, 0.0) + seconds
        row = result_row(study)
        if row is not None and row.test_score is not None:
            snapshot.best[study.method] = max(row.test_score, snapshot.best.get(study.method, row.test_score))
    snapshot.taken = time.monotonic()
    snapshot.cost = snapshot.taken - start
    return snapshot


def watch(runs: Sequence[Run]) -> int:
    """Show the sweeps until Ctrl-C; where stdout is no terminal, once."""
    snapshots: dict[str, Snapshot] = {}

    def view() -> RenderableType:
        for run in runs:
            if run.name not in snapshots or snapshots[run.name].is_old:
                snapshots[run.name] = take_snapshot(run)
        return Group(*(sweep_view(run, snapshots[run.name]) for run in runs))

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


def sweep_view(run: Run, snapshot: Snapshot) -> RenderableType:
    """One sweep as a panel."""
    state, found = run.home.read_state(run.name), standing(run)
    parts: list[RenderableType] = [_totals(found), _methods(run, snapshot)]
    if found["state"] == "running":
        parts.append(_devices(state))
    if snapshot.failures:
        parts.append(_failures(snapshot.failures))
    return Panel(Group(*parts), title=f"{run.name}: {found['state']}", title_align="left")


def _totals(found: Mapping[str, Any]) -> Text:
    most = "" if found["exact"] else "at most "
    fits = f"{found['fits_done'] or 0} of {most}{found['fits'] or 0} fits, {found['failed']} failed"
    line = f"{found['tasks_done']} of {found['tasks']} tasks, {fits}"
    left, rate = found["seconds_left"], found["rate_per_second"]
    if rate:
        line += f"; {rate_text(rate)}"
    if left is not None:
        line += f", ends about {clock_time(time.time() + left)} (in {duration(left)})"
    return Text(line)


def _methods(run: Run, snapshot: Snapshot) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("method")
    table.add_column("tasks", width=24)
    for heading in ("done", "solver time", f"best {run.spec.get('score', 'auc_all')}"):
        table.add_column(heading, justify="right")
    leader = max(snapshot.best.values(), default=None)
    planned: Counter[str] = Counter()
    for study in run.ledger.about(run.name).get("studies", []):
        planned[study["method"]] += study["tasks"]
    for method in dict.fromkeys([*planned, *snapshot.done]):
        total = max(planned[method], snapshot.done[method])
        best = snapshot.best.get(method)
        table.add_row(
            method,
            ProgressBar(total=max(1, total), completed=snapshot.done[method], width=24),
            f"{snapshot.done[method]}/{total}",
            duration(snapshot.seconds.get(method, 0.0)),
            Text("-" if best is None else f"{best:.4f}", style="bold" if best == leader else ""),
        )
    return table


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
