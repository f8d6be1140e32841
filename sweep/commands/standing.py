"""Where a sweep stands, as `status` and its live view show it."""

from __future__ import annotations

import time
from typing import Any


def standing(run: Any) -> dict[str, Any]:
    """Where one sweep stands: what is done by the ledger, what is to come by its driver's last word."""
    done, asked = run.ledger.count(run.name)
    state = run.home.read_state(run.name)
    running = run.home.is_locked() and time.time() - state.get("updated", 0) < 900 and state.get("left", 1) > 0
    studies = run.ledger.about(run.name).get("studies", [])
    tasks = max(asked, sum(study["tasks"] for study in studies if study.get("exact")))
    complete = done >= asked and not state.get("left")
    return {
        "sweep": run.name,
        "state": "running" if running else "complete" if complete else "stopped",
        "tasks_done": done,
        "tasks": tasks if not complete else done,
        "fits_done": run.ledger.count_fits(run.name),
        "fits": state.get("total"),
        "exact": state.get("exact", True),
        "failed": state.get("failed", 0),
        "left": state.get("left"),
        "rate_per_second": state.get("rate_per_second") if running else None,
        "seconds_left": state.get("seconds_left") if running else None,
        "running": state.get("running", []) if running else [],
    }
