"""`sweep plan`: what would run, and how long it would take."""

from __future__ import annotations

import os
from argparse import Namespace
from collections import defaultdict
from typing import Any

from sweep import exits
from sweep.commands.options import add_command, add_home, add_json, add_spec, say
from sweep.commands.printing import print_json, print_table
from sweep.errors import UserError

_MOST_ROWS = 40  # of a table with a row per dataset and method


def register(commands: Any) -> None:
    summary = "show what would run, and how long it would take"
    command = add_command(commands, "plan", run, summary, "sweep plan my.yaml --pilot --gpus 1,8,40")
    add_spec(command)
    command.add_argument("--name", help="another name than the sweep file's")
    command.add_argument("--pilot", action="store_true", help="run a few of the fits first, to estimate the time")
    command.add_argument(
        "--seconds", type=float, default=120.0, metavar="S", help="time for the pilot, the cheapest first (default 120)"
    )
    command.add_argument("--gpus", dest="workers", metavar="N,N,...", help="estimate for so many fits at a time")
    command.add_argument("--address", help="where the pilot fits run, as in `sweep run`")
    add_home(command)
    add_json(command)


def run(options: Namespace) -> int:
    """Print the plan, per dataset and method; splits are added up."""
    from sweep.api import look_ahead, read_source, run_pilot
    from sweep.store.home import Home

    workers = numbers(options.workers)
    source = read_source(options.spec, **({"name": options.name} if options.name else {}))
    home = Home(options.home)
    planned = look_ahead(source, home, workers)
    left = sum(row["left"] for row in planned.rows)
    if options.pilot and left:
        run_pilot(source, home, seconds=options.seconds, address=options.address)
        planned = look_ahead(source, home, workers)
    predicted = planned.forecast
    if predicted is not None and home.folder.is_dir():
        home.write_state(f"{source.spec.name}.forecast", {"wall_seconds": predicted.wall_seconds})
    refused = [vars(refusal) for refusal in planned.plan.refused]
    if options.json:
        facts = {"fits": planned.rows, "refused": refused, "notes": planned.plan.notes, "devices": _devices(planned)}
        print_json(facts | {"forecast": vars(predicted) if predicted else None})
        return exits.DONE
    total = sum(row["fits"] for row in planned.rows)
    exact = all(row["exact"] for row in planned.rows)
    names = ["dataset", "method"]
    if len({(row["dataset"], row["method"]) for row in planned.rows}) > _MOST_ROWS:
        names = ["method"]  # --json has each
    print_table(
        _added_up(planned.rows, names), title=f"{source.spec.name}: {'' if exact else 'at most '}{total:,} fits"
    )
    if refused:
        print_table(_together(refused), title="refused")
    for note in planned.plan.notes:
        say(note)
    if source.spec.resources.device == "measured":
        if planned.devices is not None:
            print_table(_devices(planned), title="devices")
        else:
            say("Which device each fit takes is not known yet: --pilot times them, and so does a run")
    if not left:
        say("Everything is there: nothing is left to compute")
        return exits.DONE
    if predicted is None:
        say("How long it takes is not known yet: --pilot runs a few of the fits (they are kept) and estimates it")
        return exits.DONE
    _print_forecast(predicted)
    return exits.DONE


def _added_up(rows: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """One row for all that agree in `names`."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return [
        dict(zip(names, place, strict=True))
        | {
            **({} if "dataset" in names else {"datasets": len({row["dataset"] for row in alike})}),
            "splits": len({row["split"] for row in alike}),
            "tasks": sum(row["tasks"] for row in alike),
            "fits": ("" if all(row["exact"] for row in alike) else "<= ") + f"{sum(r['fits'] for r in alike):,}",
            "there": sum(row["there"] for row in alike),
            "left": sum(row["left"] for row in alike),
            "GB at most": _gigabytes(max((row["bytes"] or 0 for row in alike), default=0)),
        }
        for place, alike in found.items()
    ]


def _together(refused: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per reason: the same value is refused by many methods, or on many datasets."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in refused:
        named = found.setdefault((row["setting"], row["reason"]), {"datasets": [], "methods": []})
        named["datasets"].append(row["dataset"])
        named["methods"].append(row["method"])
    return [
        {kind: ", ".join(dict.fromkeys(names)) for kind, names in named.items()}
        | {"setting": setting, "reason": reason}
        for (setting, reason), named in found.items()
    ]


def _gigabytes(size: int | None) -> str | None:
    return None if not size else f"{size / 1e9:.2g}"


def _devices(planned: Any) -> list[dict[str, Any]]:
    """Where each kind of fit goes, and why: milliseconds of an iteration on a core and on a GPU."""
    from sweep.studies.devices import choose

    if planned.devices is None:
        return []
    return [
        vars(choice.kind)
        | {"device": choice.device, "why": choice.why}
        | {f"{name}, ms": _milliseconds(parts) for name, parts in (("cpu", timed.cpu), ("gpu", timed.gpu))}
        for choice, timed in zip(choose(planned.devices), planned.devices.timed, strict=True)
    ]


def _milliseconds(parts: Any) -> float | None:
    return None if parts is None else round(1000 * sum(parts.values()), 3)


def _print_forecast(predicted: Any) -> None:
    from sweep.engine.progress import duration

    low, expected, high = predicted.busy_hours
    print_table([{"left to compute": f"{expected:.3g} worker-hours", "between": f"{low:.3g}", "and": f"{high:.3g}"}])
    print_table(
        [
            {"workers (GPUs)": n, "wall time": duration(expected), "between": duration(low), "and": duration(high)}
            for n, (low, expected, high) in predicted.wall_seconds.items()
        ]
    )


def numbers(text: str | None) -> list[int]:
    """'1,8,40' as numbers of workers; by default what this machine runs at a time."""
    if text is None:
        return [os.cpu_count() or 1]
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1 or max(found) > 100_000:
        raise UserError(f"--gpus: expected numbers from 1 to 100000 like 1,8,40, got {text!r}")
    return found
