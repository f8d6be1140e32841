"""What the sweep file says about an own file's columns, and which of them is the label."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from sweep.errors import UserError

LABEL_NAMES = ("label", "y", "class", "target")


@dataclass(frozen=True)
class Reading:
    """How a sweep file says that a table is to be read.

    Attributes
    ----------
    label : the label column (or array), None for the one of `LABEL_NAMES` that is there.
    sep, decimal : between columns and before fractions in a .csv, None for comma and point.
    drop : columns of a table that are no features.
    """

    label: str | None = None
    sep: str | None = None
    decimal: str | None = None
    drop: tuple[str, ...] = ()


def label_column(names: Sequence[str], label: str | None, where: str) -> str:
    """The label column that was asked for, or the only one with a usual name."""
    if label is not None:
        if label not in names:
            raise UserError(f"{where}: no label column {label[:80]!r}.{similar(label, names)}")
        return label
    usual = [name for name in LABEL_NAMES if name in names]
    if len(usual) != 1:
        what = f"both {usual[0]!r} and {usual[1]!r} could be the label" if usual else "no label column"
        raise UserError(f"{where}: {what}; set label to one of {shown(names)}")
    return usual[0]


def similar(name: str, names: Sequence[str]) -> str:
    """' Did you mean ...?' over all names, else the first of them."""
    # Whatever the case: 'Species' and 'species' are the commonest of all mistakes.
    by_lower = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f" Did you mean {by_lower[close[0]][:80]!r}?" if close else f" It has {shown(names)}."


def shown(names: Sequence[str]) -> str:
    """The first names of many, on one line."""
    return ", ".join(repr(name[:80])[1:-1] for name in names[:20]) + (", ..." if len(names) > 20 else "")
