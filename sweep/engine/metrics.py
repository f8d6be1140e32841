"""Live metrics for operators, as Ray application metrics; dashboards/grafana.json shows them.

Ray exports them with the prefix `ray_` at every node's metrics port, where Prometheus finds them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweep.engine.executors import Finished

_BOUNDS = [0.01, 0.1, 1, 10, 100, 1000]  # seconds


class FitMetrics:
    """Counts what a Ray executor submits and gets back. Needs a Ray that is up."""

    def __init__(self) -> None:
        from ray.util.metrics import Counter, Gauge, Histogram

        tags = ("dataset", "method")
        self._running = 0
        self._in_flight = Gauge("sweep_fits_running", "Tasks that were submitted and have not ended.")
        self._slots = Gauge("sweep_slots", "Fits that can run at the same time.")
        self._done = Counter("sweep_fits_done", "Tasks that gave a record.", tags)
        self._failed = Counter("sweep_fits_failed", "Attempts that failed.", (*tags, "kind"))
        self._seconds = Counter("sweep_phase_seconds", "Seconds by phase.", (*tags, "phase"))
        self._solve = Histogram("sweep_solve_seconds", "Solver seconds of a task.", _BOUNDS, tags)

    def started(self, slots: int) -> None:
        """A task was submitted to a cluster that runs `slots` at a time."""
        self._running += 1
        self._in_flight.set(self._running)
        self._slots.set(slots)

    def ended(self, finished: Finished) -> None:
        """Count a record or a failure, and the seconds of each phase."""
        self._running -= 1
        self._in_flight.set(self._running)
        tags = {"dataset": finished.spec.dataset, "method": finished.spec.method}
        if finished.outcome is None:
            self._failed.inc(1, {**tags, "kind": finished.kind})
            self._add(tags, "wasted", finished.seconds)
            return
        self._done.inc(1, tags)
        for phase, seconds in asdict(finished.outcome.record.seconds).items():
            self._add(tags, phase, seconds)
        self._solve.observe(finished.outcome.record.seconds.solve, tags)

    def _add(self, tags: dict[str, str], phase: str, seconds: float) -> None:
        if seconds > 0:  # Ray refuses to add nothing
            self._seconds.inc(seconds, {**tags, "phase": phase})
