"""Records that travel from one ledger to another, as plain dicts with a version.

What arrives was written by somebody else: every row is checked for what it claims to be, and nothing that is here
already is replaced by it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Table, Text, delete, select, update

from sweep.errors import UserError
from sweep.fits import FitRecord, FitSpec
from sweep.store.database import Database
from sweep.store.home import Home
from sweep.store.rows import Failure, failure_row, fit_row_of_texts, is_intact
from sweep.store.tables import SCHEMA, SEALED, failures, fits, insert_new, insert_or_update, members, sweeps

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,80}")
_KEY = re.compile(r"[0-9a-f]{32}")
_BATCH = 200
_TEXT_LIMIT = 16 * 2**20  # characters of one field


@dataclass
class Imported:
    """What came: sweeps by name, fits that are new, fits that were here, and what was refused with its reason."""

    sweeps: list[str] = field(default_factory=list)
    fits: int = 0
    known: int = 0
    refused: list[str] = field(default_factory=list)


def export_rows(database: Database, home: str, sweep: str | None) -> Iterator[dict[str, Any]]:
    """A first row with the version, then the rows of sweeps, members, failures and fits."""
    yield {"table": "ledger", "schema": SCHEMA, "home": home}
    described = select(sweeps.c.name, sweeps.c.spec, sweeps.c.about)
    parts = [(sweeps, described, sweeps.c.name), (members, select(members), members.c.sweep)]
    parts.append((failures, select(failures), failures.c.sweep))
    for table, query, column in parts:
        chosen = query if sweep is None else query.where(column == sweep)
        for row in database.rows(chosen):
            yield {"table": table.name, **row}
    asked_for = select(members.c.key).where(members.c.key == fits.c.key)
    wanted = asked_for if sweep is None else asked_for.where(members.c.sweep == sweep)
    last = ""
    while True:
        page = select(fits).where(fits.c.key > last, wanted.exists()).order_by(fits.c.key).limit(_BATCH)
        rows = database.rows(page)
        yield from ({"table": fits.name, **row} for row in rows if is_intact(row))
        if len(rows) < _BATCH:
            return
        last = max((row["key"] for row in rows if isinstance(row["key"], str)), default="~")


def import_rows(
    database: Database, home: Home, rows: Iterable[Mapping[str, Any]], read_artifact: Callable[[str], bytes | None]
) -> Imported:
    """Fits first, each with its artifact before its row; then the sweeps that ask for them, all at once."""
    arriving = iter(rows)
    origin = _check_header(next(arriving, {}))
    done = Imported()
    described: dict[str, dict[str, Any]] = {}
    asked_for: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    while batch := list(islice(arriving, _BATCH)):
        finished: list[dict[str, Any]] = []
        for row in batch:
            try:
                table, values = _sound(row)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                done.refused.append(f"{str(row.get('table'))[:20]} {str(row.get('key'))[:40]}: {str(error)[:100]}")
                continue
            if table is sweeps:
                _check_same(database, values, origin)
                described[values["name"]] = values
            else:
                {members: asked_for, failures: failed, fits: finished}[table].append(values)
        _add_fits(database, home, finished, origin, read_artifact, done)
    _add_sweeps(database, described, asked_for, failed, origin)
    done.sweeps = sorted(described)
    return done


def _check_header(row: Mapping[str, Any]) -> str:
    if row.get("table") != "ledger" or not isinstance(row.get("schema"), int):
        raise UserError("these are no records of a ledger")
    if row["schema"] != SCHEMA:
        raise UserError(
            f"these records have schema {row['schema']}, this version knows {SCHEMA}; "
            "use the same version of orthosweep there and here"
        )
    home = row.get("home")
    return home if isinstance(home, str) and _KEY.fullmatch(home) else ""


# -- one row ---------------------------------------------------------------------------------------


def _sound(row: Mapping[str, Any]) -> tuple[Table, dict[str, Any]]:
    """A row's table and values, if it is what it claims to be; ValueError says why not."""
    values = {name: value for name, value in row.items() if name != "table"}
    if any(isinstance(value, str) and len(value) > _TEXT_LIMIT for value in values.values()):
        raise ValueError("too long")
    if row["table"] == fits.name:
        return fits, _sound_fit(values)
    if not _NAME.fullmatch(values["name" if row["table"] == sweeps.name else "sweep"]):
        raise ValueError("no name of a sweep")
    if row["table"] == sweeps.name:
        if not all(isinstance(json.loads(values[name]), dict) for name in ("spec", "about")):
            raise ValueError("no sweep file")
        return sweeps, {name: values[name] for name in ("name", "spec", "about")}
    if not _KEY.fullmatch(values["key"]):
        raise ValueError("no key of a fit")
    if row["table"] == members.name:
        return members, {"sweep": values["sweep"], "key": values["key"]}
    if row["table"] == failures.name:
        sweep = values.pop("sweep")
        _check_types(failures, values)
        return failures, failure_row(sweep, Failure(**values))
    raise ValueError("unknown table")


def _sound_fit(values: dict[str, Any]) -> dict[str, Any]:
    if set(values) != set(fits.columns.keys()):
        raise ValueError("other columns than this version has")
    _check_types(fits, values)
    if not _KEY.fullmatch(values["key"]) or not is_intact(values):
        raise ValueError("altered on the way")
    spec = FitSpec.from_dict(json.loads(values["spec"]))
    record = FitRecord.from_dict(json.loads(values["record"]))
    if not values["key"] == spec.key == record.key:
        raise ValueError("the key is not that of the fit")
    if (defect := record.defect()) is not None:
        raise ValueError(defect)
    made = fit_row_of_texts(spec, record, spec=values["spec"], record=values["record"], home="", committed=0.0)
    if any(made[name] != values[name] for name in SEALED):
        raise ValueError("its columns are not those of the fit")
    return values


def _check_types(table: Table, values: Mapping[str, Any]) -> None:
    for column in table.columns:
        value = values.get(column.name)
        expected: Any = column.type.python_type if not isinstance(column.type, Text) else str
        if column.name == "sweep" or (value is None and column.nullable):
            continue
        if not isinstance(value, (int, float) if expected is float else expected):
            raise ValueError(f"{column.name} is no {expected.__name__}")


# -- writing ---------------------------------------------------------------------------------------


def _check_same(database: Database, arrived: Mapping[str, Any], origin: str) -> None:
    """Refuse to mix two sweeps of one name; one that came from the same place before is brought up to date."""
    query = select(sweeps.c.spec, sweeps.c.origin).where(sweeps.c.name == arrived["name"])
    here = next(iter(database.rows(query)), None)
    if here is None or (here["origin"] == origin != "") or _same_json(here["spec"], arrived["spec"]):
        return
    raise UserError(
        f"{arrived['name']}: another sweep of this name is in this home; fetch into another --home, or run it there "
        "under another --name"
    )


def _same_json(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except (ValueError, TypeError):
        return False


def _add_fits(
    database: Database,
    home: Home,
    rows: list[dict[str, Any]],
    origin: str,
    read_artifact: Callable[[str], bytes | None],
    done: Imported,
) -> None:
    keys = [row["key"] for row in rows]
    query = select(fits.c.key, fits.c.checksum).where(fits.c.key.in_(keys))
    here = {row["key"]: row["checksum"] for row in database.rows(query)} if rows else {}
    new, brought = [], []
    for row in rows:
        # The file of a fit that is here as another record is left alone: that record names its checksum.
        same = here.get(row["key"], row["checksum"]) == row["checksum"]
        whole = bool(row["artifact"]) and same and _bring(home, row["key"], row["artifact"], read_artifact)
        if row["key"] in here:
            done.known += 1
            brought += [row["key"]] if whole else []
        else:
            elsewhere = row["artifact_home"] if row["artifact_home"] not in ("", home.id) else origin
            new.append(row | {"artifact_home": "" if not row["artifact"] else home.id if whole else elsewhere})

    def work(connection: Connection) -> None:
        if new:
            connection.execute(insert_new(database.dialect, fits), new)
        if brought:
            connection.execute(update(fits).where(fits.c.key.in_(brought)).values(artifact_home=home.id))

    if new or brought:
        database.write(work)
    done.fits += len(new)


def _bring(home: Home, key: str, checksum: str, read_artifact: Callable[[str], bytes | None]) -> bool:
    """Whether a fit's artifact is in this home, now at the latest."""
    if home.has_artifact(key, checksum):
        return True
    content = read_artifact(key)
    if content is None or hashlib.sha256(content).hexdigest() != checksum:
        return False
    home.write_artifact_bytes(key, content)
    return True


def _add_sweeps(
    database: Database,
    described: dict[str, dict[str, Any]],
    asked_for: list[dict[str, Any]],
    failed: list[dict[str, Any]],
    origin: str,
) -> None:
    blank = {"fence": 0, "driver_home": "", "driver_host": "", "driver_pid": 0, "heartbeat": None}

    def work(connection: Connection) -> None:
        for name, values in described.items():
            here = connection.execute(select(sweeps.c.origin).where(sweeps.c.name == name)).scalar()
            if here is None or here == origin != "":
                # It all came from there: what is asked for and what failed is what they say now.
                statement = insert_or_update(database.dialect, sweeps, ("spec", "about"))
                connection.execute(statement, {**values, **blank, "origin": origin})
                connection.execute(delete(members).where(members.c.sweep == name))
                connection.execute(delete(failures).where(failures.c.sweep == name))
        for table, rows in ((members, asked_for), (failures, failed)):
            known = [row for row in rows if row["sweep"] in described]
            if known:
                connection.execute(insert_new(database.dialect, table), known)

    database.write(work)
