"""What differs between two sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweep.fits.trials import shown
from sweep.store.results import ResultRow


def file_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Keys of the sweep files with different values; the name, which always differs, is left out."""
    flat = [_flat(each) for each in (first, second)]
    keys = sorted((flat[0].keys() | flat[1].keys()) - {"name"})
    return [
        {"key": key, "first": flat[0].get(key), "second": flat[1].get(key)}
        for key in keys
        if flat[0].get(key) != flat[1].get(key)
    ]


def row_differences(first: Sequence[ResultRow], second: Sequence[ResultRow]) -> list[dict[str, Any]]:
    """One row per study that both have: what was chosen, the test score, the seconds."""
    others = {(row.dataset, row.split, row.method): row for row in second}
    found = []
    for row in first:
        other = others.get((row.dataset, row.split, row.method))
        if other is None:
            continue
        change = None
        if row.test_score is not None and other.test_score is not None:
            change = other.test_score - row.test_score
        found.append(
            {
                "dataset": row.dataset,
                "split": row.split,
                "method": row.method,
                "chosen": _change(_params(row), _params(other)),
                "score": row.test_score,
                "change": change,
                "seconds": row.fit_seconds,
                "ratio": other.fit_seconds / row.fit_seconds if row.fit_seconds else None,
            }
        )
    return found


def _params(row: ResultRow) -> str:
    return " ".join(f"{name}={shown(value)}" for name, value in row.params.items())


def _change(first: str, second: str) -> str:
    return first if first == second else f"{first} -> {second}"


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
