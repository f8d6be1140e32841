"""The tables of a ledger, the same in SQLite and PostgreSQL.

A fit's `spec` and `record` are its truth, as JSON text; the typed columns beside them repeat what is asked for, and
the checksum covers all of them. `migrations` brings a ledger of an older version to this one.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, MetaData, PrimaryKeyConstraint, Table, Text
from sqlalchemy.dialects import postgresql, sqlite

# Raised with every change of the tables, or of what stands in `spec` and `record`, that older code cannot read.
SCHEMA = 2

metadata = MetaData(naming_convention={"pk": "pk_%(table_name)s"})

meta = Table(
    "ledger_meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

sweeps = Table(
    "sweeps",
    metadata,
    Column("name", Text, primary_key=True),
    Column("spec", Text, nullable=False),
    Column("about", Text, nullable=False),
    Column("origin", Text, nullable=False),  # id of the home it was fetched from; empty for a sweep that ran here
    Column("fence", BigInteger, nullable=False),  # number of the driver that may write
    Column("driver_home", Text, nullable=False),
    Column("driver_host", Text, nullable=False),
    Column("driver_pid", BigInteger, nullable=False),
    Column("heartbeat", Double),  # when that driver was last heard of, seconds since the epoch; NULL when it has ended
)

fits = Table(
    "fits",
    metadata,
    Column("key", Text, primary_key=True),
    Column("spec", Text, nullable=False),
    Column("record", Text, nullable=False),
    Column("dataset", Text, nullable=False),
    Column("data", Text, nullable=False),  # fingerprint of the dataset's content
    Column("split", Integer, nullable=False),
    Column("fold", Integer),
    Column("method", Text, nullable=False),
    Column("gamma", Double),
    Column("rank", Integer),
    Column("params", Text, nullable=False),  # JSON of the whole trial
    Column("restarts", Integer, nullable=False),
    Column("value", Double),
    Column("solve_seconds", Double, nullable=False),
    Column("busy_seconds", Double, nullable=False),
    Column("relative_gap", Double),
    Column("converged", Boolean),
    Column("artifact", Text),  # SHA-256 of the file that holds the fit's arrays
    Column("checksum", Text, nullable=False),
    Column("artifact_home", Text, nullable=False),  # id of the home that holds the file; empty where nobody knows
    Column("committed", Double, nullable=False),
    Index("ix_fits_study", "data", "method", "split"),
    Index("ix_fits_dataset", "dataset"),
)

members = Table(
    "members",
    metadata,
    Column("sweep", Text, nullable=False),
    Column("key", Text, nullable=False),
    PrimaryKeyConstraint("sweep", "key"),
)

failures = Table(
    "failures",
    metadata,
    Column("sweep", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("dataset", Text, nullable=False),
    Column("split", Integer, nullable=False),
    Column("method", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("traceback", Text, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("final", Boolean, nullable=False),
    Column("happened", Double, nullable=False),
    # What a write that is repeated after a lost answer must not double.
    PrimaryKeyConstraint("sweep", "key", "attempt", "happened"),
)

mlflow_runs = Table(
    "mlflow_runs",
    metadata,
    Column("store", Text, nullable=False),
    Column("run_key", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("content", Text, nullable=False),
    PrimaryKeyConstraint("store", "run_key"),
)

# The columns that a fit's checksum covers.
SEALED = tuple(
    column.name for column in fits.columns if column.name not in ("checksum", "artifact_home", "committed")
)  # fmt: skip

_DIALECTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


@cache
def insert_new(dialect: str, table: Table) -> Any:
    """INSERT that leaves rows alone that are there already."""
    return _DIALECTS[dialect](table).on_conflict_do_nothing()


def insert_or_update(dialect: str, table: Table, columns: tuple[str, ...]) -> Any:
    """INSERT that replaces `columns` of a row that is there already."""
    statement = _DIALECTS[dialect](table)
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key.columns), set_={name: statement.excluded[name] for name in columns}
    )
