"""What a fit starts from that continues another one."""

from __future__ import annotations

from typing import Any

from sweep.errors import UserError
from sweep.fits import CHAIN, COLD, FitSpec
from sweep.store.home import Home
from sweep.store.ledger import Ledger


def warm_start(spec: FitSpec, home: Home, ledger: Ledger) -> Any | None:
    """What the fit that this one starts from kept: its dual weights, a path its metric. None for a cold start."""
    if spec.start in (COLD, CHAIN):
        return None
    record = ledger.record(spec.start)
    arrays = home.read_artifact(spec.start, record.artifact) if record and record.artifact else None
    if arrays is None:
        raise UserError(
            f"{spec.label}: the solution it starts from is missing or damaged in {home.folder / 'artifacts'}; "
            "run again to compute that one anew"
        )
    return arrays["weights"] if "weights" in arrays else arrays["components"]
