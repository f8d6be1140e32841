"""MDML's regularizers by name: the one place that lists them, beside the class of each."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from solvers.regularizers.entries import ENTRIES
from solvers.regularizers.spectral import SPECTRAL, NoPenalty

REGULARIZERS: dict[str, type] = {**SPECTRAL, **ENTRIES, "drop": NoPenalty}


def make_regularizer(name: str, **options: Any) -> Any:
    """The regularizer of that name, with those of the options that its class has."""
    kind = REGULARIZERS[name]
    known = {field.name for field in fields(kind)}
    return kind(**{option: value for option, value in options.items() if option in known})
