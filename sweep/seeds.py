"""Seeds from names: the same coordinates give the same seed, on every machine, in any order."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any


def digest(value: Any) -> str:
    """Hex SHA-256 of a JSON-able value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def derive_seed(*coordinates: Any) -> int:
    """32-bit seed from named coordinates (sweep seed, dataset, split, fold, purpose)."""
    return int(digest(list(coordinates))[:8], 16)


def source_of(label: str) -> str:
    """A dataset's label without its options: what the seeds of its splits and folds come from.

    `digits` and `digits[scaling=l2]` are the same examples, so they are split alike.
    """
    return re.sub(r"\[[a-z_]+=.*\]$", "", label)
