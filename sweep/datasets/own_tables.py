"""A user's own table, .csv or .parquet: what it holds, and features and labels from it."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from sweep.datasets.archive import BoundedReader, Budget
from sweep.datasets.arrays import checked_dataset, encode_labels
from sweep.datasets.base import Dataset
from sweep.datasets.columns import Reading, label_column, similar
from sweep.datasets.npz import memory_budget
from sweep.errors import UserError

MOST_COLUMNS = 100_000
_LONGEST_LABEL = 1000
_BEGINNING = 1 << 20
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")


def load_table(path: Path, reading: Reading) -> Dataset:
    """A dataset from a table with numeric columns and a label column."""
    table = read_own_table(path, reading)
    names = [name for name in table.column_names if not name.startswith("__index_level_")]
    unknown = [name for name in reading.drop if name not in names]
    if unknown:
        raise UserError(f"{path}: drop: no column {unknown[0][:80]!r}.{similar(unknown[0], names)}")
    names = [name for name in names if name not in reading.drop]
    if "" in names:
        raise UserError(
            f"{path}: column {table.column_names.index('') + 1} has no name; is it a row number? Name it, or drop: ['']"
        )
    if len(set(names)) < len(names):
        raise UserError(f"{path}: column {max(names, key=names.count)[:80]!r} occurs more than once; rename one")
    label = label_column(names, reading.label, str(path))
    features = [name for name in names if name != label]
    for name in features:
        _refuse_what_is_no_number(path, name, table[name])
    y, classes = encode_label_column(table[label], f"{path}: column {label[:80]!r}")
    single = all(table.schema.field(name).type == pa.float32() for name in features)
    X = np.empty((table.num_rows, len(features)), dtype=np.float32 if single else np.float64)
    columns = {name: table[name] for name in features}
    del table
    for place, name in enumerate(features):
        X[:, place] = numbers(columns.pop(name))
    # Arrow keeps what it has freed; a large table would stay in memory beside the features.
    pa.default_memory_pool().release_unused()
    return checked_dataset(path.name, X, y, classes, features, where=str(path))


def numbers(column: Any) -> np.ndarray:
    """Float64 values of a numeric or boolean column, NaN where there is none."""
    # Through integers: Arrow does not turn true and false into floats.
    values = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy())


def is_number(kind: Any) -> bool:
    """Whether a column of this type can be a feature."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def has_decimal_commas(column: Any) -> bool:
    """Whether a column of text looks like numbers with a comma before the fraction."""
    if not pa.types.is_string(column.type):
        return False
    sample = [text for text in column.slice(0, 100).to_pylist() if text]
    return bool(sample) and all(_DECIMAL_COMMA.fullmatch(text.strip()) or text.strip().isdigit() for text in sample)


def _refuse_what_is_no_number(path: Path, name: str, column: Any) -> None:
    if is_number(column.type):
        return
    if has_decimal_commas(column):
        raise UserError(f"{path}: column {name[:80]!r} has decimal commas; set decimal: ','")
    kind = str(column.type.value_type if pa.types.is_dictionary(column.type) else column.type)[:80]
    raise UserError(
        f"{path}: column {name[:80]!r} is {kind}, expected numbers; encode it, or name it in drop (labels: set label)"
    )


def encode_label_column(column: Any, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Class codes and names of a label column; what cannot be classes is refused."""
    if column.null_count:
        raise UserError(f"{where}: {column.null_count:,} labels are missing; fill them or drop those rows")
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return encode_labels(column.to_numpy(), where)
    encoded = column.combine_chunks()
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    names, codes = encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False)
    if pa.types.is_string(names.type) or pa.types.is_large_string(names.type):
        longest = pc.max(pc.utf8_length(names)).as_py() or 0
        if longest > _LONGEST_LABEL:
            raise UserError(f"{where}: a text of {longest:,} characters; expected names of classes, set another label")
    # Only what occurs is a class, and each once: a dictionary may say more, and the same twice.
    classes, place = encode_labels(np.array(names.to_pylist()), where)[::-1]
    used, y = np.unique(place[codes], return_inverse=True)
    return y.astype(np.int64), tuple(classes[code] for code in used.tolist())


def read_own_table(path: Path, reading: Reading) -> Any:
    """The table of a .csv, .csv.gz or .parquet file, within this machine's memory."""
    try:
        table = _read_parquet(path, reading) if path.suffix.lower() == ".parquet" else _read_csv(path, reading)
        # Arrow reads text that is not UTF-8 as bytes, and names of columns not at all until asked.
        kinds = zip(table.column_names, table.schema.types, strict=True)
        unreadable = [name for name, kind in kinds if pa.types.is_binary(kind) and name not in reading.drop]
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: a column's name is not UTF-8; save the table as UTF-8") from error
    except (pa.ArrowException, OSError, EOFError) as error:
        text = str(error).split("\n", 1)[0][:200]
        raise UserError(f"{path}: not a readable {path.suffix[1:]} table ({text})") from error
    if unreadable:
        raise UserError(f"{path}: column {unreadable[0][:80]!r} is not UTF-8; save the table as UTF-8")
    return table


def _read_parquet(path: Path, reading: Reading) -> Any:
    with parquet.ParquetFile(path) as file:
        meta, most = file.metadata, memory_budget()
        groups = [meta.row_group(index).total_byte_size for index in range(meta.num_row_groups)]
        # A few bytes can stand for any number of equal values, so what they come to counts as well.
        size = max(sum(groups), 8 * meta.num_rows * meta.num_columns)
        if size > most or meta.num_columns > MOST_COLUMNS:
            raise UserError(
                f"{path}: {meta.num_rows:,} rows of {meta.num_columns:,} columns come to {size:,} bytes; expected at"
                f" most {most:,} on this machine, and {MOST_COLUMNS:,} columns; use a part of it"
            )
        texts = [field.name for field in file.schema_arrow if pa.types.is_string(field.type)]
    # Texts once each, with numbers that refer to them: repeating a long one costs nothing in the file.
    table = parquet.ParquetFile(path, read_dictionary=texts).read()
    table.validate(full=True)  # a damaged file may refer to texts that it does not hold
    return table


def _read_csv(path: Path, reading: Reading) -> Any:
    with open_csv(path) as file:
        _check_beginning(file.peek(_BEGINNING), reading, path)  # type: ignore[attr-defined]
        return csv.read_csv(
            file,
            parse_options=csv.ParseOptions(delimiter=reading.sep or ","),
            convert_options=csv.ConvertOptions(decimal_point=reading.decimal or "."),
        )


@contextmanager
def open_csv(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a .csv or .csv.gz file; a bomb ends at this machine's memory."""
    with path.open("rb") as raw:
        unzipped: Any = gzip.GzipFile(fileobj=raw) if path.suffix.lower() == ".gz" else raw
        yield io.BufferedReader(BoundedReader(unzipped, Budget(str(path), memory_budget()), str(path)), _BEGINNING)


def _check_beginning(sample: bytes, reading: Reading, path: Path) -> None:
    """Name what a file is that only looks like a table with commas, in UTF-8."""
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in sample[:1000]:
        raise UserError(f"{path}: UTF-16 text (or no text at all); save the table as UTF-8")
    sep, decimal = sniff(sample)
    header = sample.split(b"\n", 1)[0]
    if sep and sep != (reading.sep or ",") and (reading.sep or ",").encode() not in header:
        more = "" if decimal == (reading.decimal or ".") else f" and decimal: {decimal!r}"
        raise UserError(f"{path}: columns are separated by {sep!r}; set sep: {sep!r}{more}")
    n_columns = header.count((reading.sep or ",").encode()) + 1
    if n_columns > MOST_COLUMNS:
        raise UserError(f"{path}: {n_columns:,} columns, expected at most {MOST_COLUMNS:,}; is it transposed?")


def sniff(sample: bytes) -> tuple[str | None, str]:
    """The separator that a table's first line uses (None if none), and the decimal mark of the next lines."""
    lines = [re.sub(rb'"[^"]*"', b"", line) for line in sample.splitlines()[:20]]
    counts = {sep: lines[0].count(sep.encode()) for sep in (",", ";", "\t", "|")} if lines else {}
    sep = max(counts, key=lambda each: counts[each]) if any(counts.values()) else None
    if sep is None or sep == ",":
        return sep, "."
    cells = [cell.strip().decode("latin-1") for line in lines[1:] for cell in line.split(sep.encode())]
    return sep, "," if any(_DECIMAL_COMMA.fullmatch(cell) for cell in cells) else "."
