"""What an own file holds, before any sweep: columns, classes, what would be dropped, a sweep file to start from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sweep.datasets.arrays import mean_class_size
from sweep.datasets.choice import OWN_SUFFIXES, expanded
from sweep.datasets.columns import LABEL_NAMES, Reading, label_column
from sweep.datasets.own import load_own
from sweep.errors import UserError

FEATURE, LABEL, DROP = "feature", "label", "drop"


@dataclass(frozen=True)
class Column:
    """A column of a table and its part in a sweep: "feature", "label" or "drop", with the reason if any."""

    name: str
    kind: str
    role: str = FEATURE
    note: str = ""


@dataclass(frozen=True)
class OwnFile:
    """What an own file holds.

    Attributes
    ----------
    label : the label column, None if there is none to be found; `guessed` if its name is no usual one.
    classes : names and sizes, largest first.
    frequent_above : above this size, a class counts as frequent unless the sweep file says otherwise.
    problems : what stands in the way of a sweep, one line each.
    sweep_file : text of a sweep file to start from.
    """

    path: str
    n_rows: int
    columns: tuple[Column, ...]
    label: str | None
    guessed: bool
    classes: tuple[tuple[str, int], ...]
    frequent_above: int | None
    problems: tuple[str, ...]
    sweep_file: str

    @property
    def dropped(self) -> tuple[str, ...]:
        """Columns that the sweep file has to name in `drop`."""
        return tuple(column.name for column in self.columns if column.role == DROP)


def describe_own(path: str | Path, *, label: str | None = None) -> OwnFile:
    """Describe an .npz, .csv or .parquet file; what sweeps would refuse is said, not raised.

    Parameters
    ----------
    label : the label column, if it is known.
    """
    file = expanded(str(path))
    if not file.name.lower().endswith(OWN_SUFFIXES):
        raise UserError(f"{path}: expected a file that ends in {', '.join(OWN_SUFFIXES)}")
    if not file.is_file():
        raise UserError(f"{path}: no such file; check the path")
    return _describe_arrays(str(path), file, label) if file.suffix.lower() == ".npz" else _describe_table(path, label)


def _describe_arrays(path: str, file: Path, label: str | None) -> OwnFile:
    dataset = load_own(file, Reading(label=label))
    n, D = dataset.X.shape
    sizes = np.bincount(dataset.y)
    columns = (
        tuple(Column(name, str(dataset.X.dtype)) for name in dataset.feature_names)
        if dataset.feature_names
        else (Column("X", f"{dataset.X.dtype}, {n:,} x {D:,}"),)
    )
    return _described(path, n, D, columns, label, False, dict(zip(dataset.classes, sizes.tolist(), strict=True)), {})


def _describe_table(path: str | Path, label: str | None) -> OwnFile:
    from sweep.datasets.own_tables import encode_label_column, has_decimal_commas, open_csv, read_own_table, sniff

    file = expanded(str(path))
    reading: dict[str, Any] = {}
    if file.suffix.lower() != ".parquet":
        with open_csv(file) as opened:
            sep, decimal = sniff(opened.peek(1 << 20))  # type: ignore[attr-defined]
        reading = {k: v for k, v, usual in (("sep", sep, ","), ("decimal", decimal, ".")) if v not in (None, usual)}
    table = read_own_table(file, Reading(**reading))
    if any(has_decimal_commas(column) for column in table.columns):
        reading["decimal"] = ","
        table = read_own_table(file, Reading(**reading))
    columns = [_column(name, table.column(place)) for place, name in enumerate(table.column_names)]
    label, guessed = _label(columns, table, label, str(path))
    columns = [replace(c, role=LABEL, note="") if c.name == label else c for c in columns]
    classes: dict[str, int] = {}
    problems: list[str] = []
    if label is not None:
        try:
            y, names = encode_label_column(table[label], f"column {label[:80]!r}")
            classes = dict(zip(names, np.bincount(y).tolist(), strict=True))
        except (UserError, KeyError) as error:
            problems.append(str(error))
    n_features = sum(column.role == FEATURE for column in columns)
    return _described(str(path), table.num_rows, n_features, columns, label, guessed, classes, reading, problems)


def _column(name: str, values: Any) -> Column:
    """A column, and what speaks against it as a feature."""
    import pyarrow as pa

    from sweep.datasets.own_tables import is_number, numbers

    kind = str(values.type.value_type if pa.types.is_dictionary(values.type) else values.type)[:80]
    if name.startswith("__index_level_"):
        return Column(name, kind, "index", "the row index of pandas, never a feature")
    if not is_number(values.type):
        return Column(name, kind, DROP, "not numbers")
    found = numbers(values)
    n_missing = int(np.count_nonzero(~np.isfinite(found)))
    if n_missing:
        return Column(name, kind, DROP, f"{n_missing:,} missing or infinite: fill to keep")
    if len(found) > 2 and np.array_equal(found - found[0], np.arange(len(found))):
        return Column(name, kind, DROP, "counts the rows")
    if name == "":
        return Column(name, kind, DROP, "has no name")
    return Column(name, kind, FEATURE, "constant" if len(found) and np.ptp(found) == 0 else "")


def _label(columns: Sequence[Column], table: Any, label: str | None, where: str) -> tuple[str | None, bool]:
    """The label column, and whether it is only a guess."""
    names = [column.name for column in columns]
    if label is not None or sum(name in LABEL_NAMES for name in names) == 1:
        return label_column(names, label, where), False
    # The last column of few values, text before numbers.
    few = min(100, table.num_rows // 2)
    by_place = [(c, table.column(place)) for place, c in enumerate(columns) if names.count(c.name) == 1]
    fitting = [c for c, values in by_place if not values.null_count and 2 <= len(values.unique()) <= few and c.name]
    texts = [c for c in fitting if c.kind in ("string", "large_string", "bool")]
    return next(((c.name, True) for c in reversed(texts or fitting)), (None, False))


def _described(
    path: str,
    n_rows: int,
    n_features: int,
    columns: Sequence[Column],
    label: str | None,
    guessed: bool,
    classes: dict[str, int],
    reading: dict[str, Any],
    problems: Sequence[str] = (),
) -> OwnFile:
    said = list(problems)
    if label is None and not classes:
        said.append("no column looks like classes; set label to the one that holds them")
    if n_features == 0:
        said.append("no column is left as a feature")
    names = [column.name for column in columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        said.append(f"column {twice[:80]!r} occurs more than once; rename one")
    single = sum(size == 1 for size in classes.values())
    if single:
        said.append(f"{single:,} of {len(classes):,} classes have one example, so nothing is similar to it")
    frequent = mean_class_size(np.repeat(np.arange(len(classes)), list(classes.values()))) if classes else None
    options = {
        "label": label,
        **reading,
        "drop": [c.name for c in columns if c.role == DROP],
        "frequent_above": frequent,
    }
    return OwnFile(
        path=path,
        n_rows=n_rows,
        columns=tuple(columns),
        label=label,
        guessed=guessed,
        classes=tuple(sorted(classes.items(), key=lambda item: -item[1])),
        frequent_above=frequent,
        problems=tuple(said),
        sweep_file=_sweep_file(path, n_features, max(classes.values(), default=0), options),
    )


def _sweep_file(path: str, n_features: int, largest: int, options: dict[str, Any]) -> str:
    """A sweep over a few methods that the data are large enough for."""
    name = re.sub(r"[^a-z0-9._-]+", "-", Path(path).name.split(".")[0].lower()).strip("-._") or "mine"
    folds = max(2, min(5, largest // 3))
    content = {
        "name": name[:64],
        "datasets": [{"name": path, **{key: value for key, value in options.items() if value not in (None, [])}}],
        "methods": ["euc", "mdml-cvnd", "pdml-vnd"],
        "grid": {
            "gamma": [0.001, 0.01, 0.1, 1.0],
            "rank": [rank for rank in (5, 10, 20, 50, 100) if rank <= n_features][-3:] or [max(1, n_features)],
        },
        "splits": 3,
        "folds": folds,
    }
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None)
