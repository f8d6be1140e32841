"""One function per command of the command line. Data goes to stdout, messages to stderr."""

from sweep.commands.remote import data, doctor, fetch, submit
from sweep.commands.running import plan, run
from sweep.commands.viewing import compare, datasets, export, methods, report, results, status, ui

__all__ = [
    "compare",
    "data",
    "datasets",
    "doctor",
    "export",
    "fetch",
    "methods",
    "plan",
    "report",
    "results",
    "run",
    "status",
    "submit",
    "ui",
]
