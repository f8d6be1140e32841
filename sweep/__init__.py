"""Hyperparameter sweeps for distance metric learning: `run`, `plan` and `open` from Python.

    import sweep

    run = sweep.run("my.yaml")
    run.results, run.best("mdml-cvnd"), run.report("report.html")

Names are loaded on first use, so that `import sweep` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from sweep.api import Planned, Run, plan, run
    from sweep.api import open_run as open

_API = {"run": "run", "plan": "plan", "open": "open_run", "Run": "Run", "Planned": "Planned"}

__all__ = ["Planned", "Run", "open", "plan", "run"]


def __getattr__(name: str) -> Any:
    if name not in _API:
        raise AttributeError(f"module 'sweep' has no attribute {name!r}")
    from sweep import api

    return getattr(api, _API[name])


def __dir__() -> list[str]:
    return sorted(__all__)
