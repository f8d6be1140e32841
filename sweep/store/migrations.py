"""A ledger's version: created, brought up to date in one transaction, or refused because it is newer."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import sqlalchemy
from sqlalchemy import Column, Connection, Double, Integer, MetaData, RowMapping, Table, Text, func, select

from sweep.errors import UserError
from sweep.fits import FitRecord, FitSpec
from sweep.store.database import Database
from sweep.store.rows import fit_row_of_texts, without_bad_characters
from sweep.store.tables import SCHEMA, failures, fits, insert_new, members, meta, metadata, mlflow_runs, sweeps

_BATCH = 1000
_UPGRADE_LOCK = 0x5EE9  # any number, the same for all who upgrade
# Version 1 had one version for all methods, raised from 1 to this.
_LAST_SOLVER_VERSION = 4


def schema_of(connection: Connection) -> int:
    """Version of a ledger's tables; 0 if there are none."""
    tables = set(sqlalchemy.inspect(connection).get_table_names())
    if meta.name not in tables:
        return 1 if {"fits", "sweeps"} <= tables else 0
    found = connection.execute(select(meta.c.value).where(meta.c.name == "schema")).scalar()
    return int(found) if found and found.isascii() and found.isdigit() else SCHEMA


def check_known(version: int, shown: str) -> None:
    """Refuse a ledger that newer code has written."""
    if version > SCHEMA:
        raise UserError(
            f"ledger at {shown}: written by a newer version of orthosweep (schema {version}, this one knows {SCHEMA}); "
            "upgrade orthosweep, or use another --home"
        )


def bring_up_to_date(database: Database, home: str) -> int:
    """Create what is missing, or upgrade what is old, all or nothing; returns the version that was found.

    `home` is the id of the home that the artifacts of old rows are in; of a database that homes share, nobody knows.
    """
    version = database.try_read(schema_of)
    check_known(version, database.shown)
    if version < SCHEMA:
        version = database.try_write(lambda connection: _upgrade(connection, "" if database.shared else home))
    return version


def meta_rows() -> list[dict[str, str]]:
    """What a new ledger says of itself: its version, and a name by which others know it."""
    return [{"name": "schema", "value": str(SCHEMA)}, {"name": "id", "value": uuid.uuid4().hex}]


def _upgrade(connection: Connection, home: str) -> int:
    if connection.dialect.name == "postgresql":
        # Two may come at once; the lock goes with the transaction.
        connection.execute(select(func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
    version = schema_of(connection)
    if version >= SCHEMA:
        return version
    old = _set_old_tables_aside(connection) if version == 1 else {}
    metadata.create_all(connection)
    for table, convert in _CONVERTERS.items():
        if table.name in old:
            _copy(connection, old[table.name], table, partial(_converted, convert, home))
            old[table.name].drop(connection)
    connection.execute(meta.insert(), meta_rows())
    return version


def _set_old_tables_aside(connection: Connection) -> dict[str, Table]:
    old: dict[str, Table] = {}
    present = set(sqlalchemy.inspect(connection).get_table_names())
    for name, table in V1.tables.items():
        if name in present:
            connection.exec_driver_sql(f"ALTER TABLE {name} RENAME TO {name}_v1")  # SQLAlchemy has no word for it
            old[name] = table.to_metadata(MetaData(), name=f"{name}_v1")
    return old


def _converted(
    convert: Callable[[Mapping[str, Any], str], dict[str, Any]], home: str, row: Mapping[str, Any]
) -> dict[str, Any] | None:
    """A row in its new form; None for one that says nothing any more."""
    try:
        new = convert(row, home)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return {name: without_bad_characters(value) if isinstance(value, str) else value for name, value in new.items()}


def _copy(
    connection: Connection, source: Table, target: Table, convert: Callable[[RowMapping], dict[str, Any] | None]
) -> None:
    statement = insert_new(connection.dialect.name, target)
    for batch in connection.execute(select(source)).mappings().partitions(_BATCH):
        rows = [row for row in map(convert, batch) if row is not None]
        if rows:
            connection.execute(statement, rows)


# -- version 1 -------------------------------------------------------------------------------------

_V1_NUMBERS = {"committed": Double, "seconds": Double, "happened": Double, "attempt": Integer, "final": Integer}
V1 = MetaData()
for _table, _keys, _rest in (
    ("sweeps", ("name",), ("spec", "about")),
    ("fits", ("key",), ("spec", "record", "checksum", "committed")),
    ("members", ("sweep", "key"), ()),
    ("failures", (), (
        "sweep", "key", "attempt", "label", "method", "kind", "message", "traceback", "seconds", "final", "happened",
    )),
    ("mlflow_runs", ("store", "run_key"), ("run_id", "content")),
):  # fmt: skip
    Table(
        _table,
        V1,
        *(Column(name, Text, primary_key=True) for name in _keys),
        *(Column(name, _V1_NUMBERS.get(name, Text), nullable=False) for name in _rest),
    )


def _sweep_from_v1(row: Mapping[str, Any], _: str) -> dict[str, Any]:
    return dict(row) | {
        "origin": "", "fence": 0, "driver_home": "", "driver_host": "", "driver_pid": 0, "heartbeat": None,
    }  # fmt: skip


def _fit_from_v1(row: Mapping[str, Any], home: str) -> dict[str, Any]:
    try:
        if _v1_checksum(row) != row["checksum"]:
            raise ValueError("altered")
        spec = spec_from_v1(json.loads(row["spec"]), row["key"])
        record = FitRecord.from_dict(json.loads(row["record"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        # What was altered before the upgrade stays so: found, said and computed again.
        blank = {c.name: None if c.nullable else "" if isinstance(c.type, Text) else 0 for c in fits.columns}
        return blank | {"key": row["key"], "checksum": "altered"}
    text = json.dumps(spec.to_dict(), sort_keys=True)
    return fit_row_of_texts(spec, record, spec=text, record=row["record"], home=home, committed=row["committed"])


def spec_from_v1(values: dict[str, Any], key: str) -> FitSpec:
    """Version 1 knew two hyperparameters by name, and one version for all methods that was not written down."""
    trial = {name: values.pop(name) for name in ("gamma", "rank")}
    for version in range(_LAST_SOLVER_VERSION, 0, -1):
        spec = FitSpec.from_dict({**values, "trial": trial, "version": str(version)})
        if spec.key == key:
            return spec
    return FitSpec.from_dict({**values, "trial": trial, "version": "0"}, key)


def _v1_checksum(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(f"{row['key']}\n{row['spec']}\n{row['record']}".encode()).hexdigest()


def _failure_from_v1(row: Mapping[str, Any], _: str) -> dict[str, Any]:
    """Version 1 charged failures by their label: `dataset [split N] method setting fold`, N from 2 on."""
    study = row["label"].split(f" {row['method']} ")[0]
    numbered = re.fullmatch(r"(.*) split (\d{1,9})", study, re.DOTALL)
    dataset, split = (numbered[1], int(numbered[2]) - 1) if numbered else (study, 0)
    return dict(row) | {"dataset": dataset, "split": split, "final": bool(row["final"])}


def _as_it_is(row: Mapping[str, Any], _: str) -> dict[str, Any]:
    return dict(row)


_CONVERTERS: dict[Table, Callable[[Mapping[str, Any], str], dict[str, Any]]] = {
    sweeps: _sweep_from_v1,
    fits: _fit_from_v1,
    members: _as_it_is,
    failures: _failure_from_v1,
    mlflow_runs: _as_it_is,
}
