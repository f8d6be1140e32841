"""What runs on a cluster's head for a client: print the records of a home, or ask its driver to stop."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from sweep import exits
from sweep.errors import UserError, one_line
from sweep.remote.parcel import print_parcel
from sweep.store.home import Home
from sweep.store.ledger import Ledger, holds_ledger, view_ledger

ASKED = "#sweep-stop asked"
_START_SECONDS = 60
_TIMES = 15


def main(arguments: list[str] | None = None) -> int:
    """Entry point of the small jobs that `sweep fetch` and `sweep stop` submit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=("pack", "stop"))
    parser.add_argument("home")
    parser.add_argument("--name")
    parser.add_argument("--known", type=Path, help="keys of artifacts that need not be sent, one per line")
    options = parser.parse_args(arguments)
    home = Home(options.home)
    try:
        if options.action == "stop":
            ask_to_stop(home, options.name)
            sys.stdout.write(f"{ASKED}\n")
        else:
            if not holds_ledger(home):
                raise UserError(f"{home.folder}: holds no sweep")
            known = set(options.known.read_text().split()) if options.known else set()
            ledger = view_ledger(home.ledger_setting, home)
            print_parcel(_artifacts(home, ledger, known), ledger.export_rows(), sys.stdout.write)
    except UserError as error:
        sys.stderr.write(one_line(f"sweep: {error}") + "\n")
        return exits.USER_ERROR
    return exits.DONE


def ask_to_stop(home: Home, name: str) -> None:
    """Leave word for the driver of a home, which may be starting up."""
    deadline = time.monotonic() + _START_SECONDS
    while not home.is_locked():
        if time.monotonic() > deadline:
            raise UserError(f"{home.folder}: no sweep is running there")
        time.sleep(0.2)
    for _ in range(_TIMES):  # a driver that has just begun clears what was left from before
        if not home.read_state(f"{name}.stop"):
            home.write_state(f"{name}.stop", {"asked": time.time()})
        time.sleep(0.2)


def _artifacts(home: Home, ledger: Ledger, known: set[str]) -> Iterator[tuple[str, bytes]]:
    for key in sorted(ledger.artifacts().keys() - known):
        try:
            yield key, home.artifact_path(key).read_bytes()
        except (OSError, ValueError):  # damaged, or it lies in another home: the row travels without it
            continue


if __name__ == "__main__":
    sys.exit(main())
