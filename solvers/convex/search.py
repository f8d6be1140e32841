"""Searches along a line, with nothing but values of the function."""

from __future__ import annotations

import math
from collections.abc import Callable

_RATIO = (math.sqrt(5) - 1) / 2


def golden_section(function: Callable[[float], float], low: float, high: float, steps: int) -> float:
    """About where a function with one valley is least."""
    inner = [high - _RATIO * (high - low), low + _RATIO * (high - low)]
    values = [function(inner[0]), function(inner[1])]
    for _ in range(steps):
        if values[0] < values[1]:
            high, inner[1], values[1] = inner[1], inner[0], values[0]
            inner[0] = high - _RATIO * (high - low)
            values[0] = function(inner[0])
        else:
            low, inner[0], values[0] = inner[0], inner[1], values[1]
            inner[1] = low + _RATIO * (high - low)
            values[1] = function(inner[1])
    return inner[0] if values[0] < values[1] else inner[1]


def best_scale(function: Callable[[float], float], steps: int) -> float:
    """The logarithm of the scale at which a function with one valley is least, wherever that lies."""
    low, high = -3.0, 1.0
    for _ in range(12):
        best = golden_section(function, low, high, steps)
        if low + 0.1 < best < high - 0.1:
            break
        low, high = (low - 4, low + 0.5) if best <= low + 0.1 else (high - 0.5, high + 4)
    return min((0.0, best), key=function)
