"""Large tables in bounded memory: batches of columns from .csv or .csv.gz files, wherever they lie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
from pyarrow import csv

from sweep.datasets.archive import base_name, gunzip, read_files
from sweep.errors import UserError

_BLOCK_BYTES = 32 << 20
_MOST_HEADER_BYTES = 1 << 20


def has_table(path: Path, table: str) -> bool:
    """Whether the folder or archive holds the table."""
    return any(True for _ in read_files(path, lambda name: _is_table(name, table)))


def read_table(
    path: Path, table: str, columns: dict[str, pa.DataType], *, multiline: bool = False
) -> Iterator[dict[str, pa.Array]]:
    """Batches of the wanted columns, by lower-case name.

    Parameters
    ----------
    path : folder or archive.
    table : file name without .csv or .csv.gz, in any case.
    columns : wanted columns and their types; empty cells are null.
    multiline : cells may hold line ends (slower).
    """
    with _open_table(path, table) as (file, where):
        header = file.readline(_MOST_HEADER_BYTES)
        if not header.endswith(b"\n") and len(header) >= _MOST_HEADER_BYTES:
            raise UserError(
                f"{where}: the first line has no end within {len(header):,} bytes; expected names of columns"
            )
        names = _header(header, where)
        missing = [column for column in columns if column not in names]
        if missing:
            raise UserError(
                f"{where}: no column {missing[0]!r}, the file has {', '.join(names)[:500]}; is it the right table?"
            )
        if not file.peek(1):  # type: ignore[attr-defined]
            return
        try:
            reader = csv.open_csv(
                pa.PythonFile(file, mode="r"),
                read_options=csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES, use_threads=False),
                parse_options=csv.ParseOptions(newlines_in_values=multiline),
                convert_options=csv.ConvertOptions(
                    column_types=columns, include_columns=list(columns), strings_can_be_null=True
                ),
            )
            for batch in reader:
                yield {name: batch.column(name) for name in columns}
        except pa.ArrowInvalid as error:
            text = str(error).split("\n", 1)[0][:200]
            raise UserError(f"{where}: not a readable CSV table in UTF-8 ({text}); get the file again") from error


def _header(line: bytes, where: str) -> list[str]:
    try:
        # Split by hand: the demo's NOTEEVENTS has a header whose quotes do not match.
        return [name.strip(' "\r\n').lower() for name in line.decode("utf-8-sig").split(",")]
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: the header is not UTF-8 text; expected a CSV table") from error


def _is_table(name: str, table: str) -> bool:
    return base_name(name).lower() in (f"{table}.csv".lower(), f"{table}.csv.gz".lower())


@contextmanager
def _open_table(path: Path, table: str) -> Iterator[tuple[IO[bytes], str]]:
    with closing(read_files(path, lambda name: _is_table(name, table))) as files:
        for name, file in files:
            where = f"{path}: {name}"
            yield (gunzip(file, where) if name.lower().endswith(".gz") else file), where
            return
    raise UserError(f"{path}: no {table}.csv or {table}.csv.gz in it (links are not followed)")


def rows_of(ids: pa.Array, known: np.ndarray) -> np.ndarray:
    """Place of every id in the ascending array `known`, -1 where it is null or not there."""
    values = ids.fill_null(-1).to_numpy(zero_copy_only=False)
    place = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return np.where(known[place] == values, place, -1)


def floats(values: pa.Array) -> np.ndarray:
    """Float64 values, NaN for null."""
    return values.cast(pa.float64()).to_numpy(zero_copy_only=False)
