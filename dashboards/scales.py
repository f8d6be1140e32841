"""From values to places on an axis, and the ticks in between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high` drawn between the pixels `start` and `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    whole: bool = False  # whole numbers only
    names: tuple[str, ...] = ()  # categories stand at 0, 1, 2, ...

    def place(self, values: object) -> np.ndarray:
        """Pixels of values; NaN where there is none."""
        if self.names:
            at = {name: float(index) for index, name in enumerate(self.names)}
            numbers = np.array([at[str(value)] for value in values])  # type: ignore[attr-defined]
        else:
            numbers = np.asarray(values, dtype=float)
        low, high = self._inner(np.array([self.low, self.high]))
        return self.start + (self._inner(numbers) - low) / (high - low) * (self.end - self.start)

    def _inner(self, values: np.ndarray) -> np.ndarray:
        if not self.log:
            return values
        return np.log10(values, where=values > 0, out=np.full(values.shape, np.nan))

    def ticks(self, most: int = 6) -> list[tuple[float, str]]:
        """Values to mark, with their texts; no text stands twice."""
        if self.names:
            return [(float(index), name) for index, name in enumerate(self.names)]
        values = _powers(self.low, self.high, most) if self.log else _round_steps(self.low, self.high, most, self.whole)
        texts = tick_texts(values)
        return [(value, text) for value, text in zip(values, texts, strict=True)]


def scale_of(
    values: Sequence[object],
    start: float,
    end: float,
    *,
    log: bool = False,
    names: Sequence[str] = (),
    room: float = 0.04,
) -> Scale:
    """A scale that holds all values, with a little room at both ends."""
    if names:
        return Scale(-0.5, len(names) - 0.5, start, end, names=tuple(names))
    arrays = [np.asarray(part, dtype=float).ravel() for part in values]
    numbers = np.concatenate(arrays) if arrays else np.array([])
    numbers = numbers[np.isfinite(numbers) & ((numbers > 0) | (not log))]
    if not numbers.size:
        return Scale(0.1 if log else 0.0, 1.0, start, end, log)
    low, high = float(numbers.min()), float(numbers.max())
    whole = not log and all(np.asarray(part).dtype.kind in "iu" for part in values)
    if log:
        wide = (high / low) ** room if high > low else 1.5
        return Scale(low / wide, high * wide, start, end, log=True)
    wide = room * (high - low) or abs(high) * 0.05 or 0.5
    return Scale(low - wide, high + wide, start, end, whole=whole)


def _round_steps(low: float, high: float, most: int, whole: bool) -> list[float]:
    span = high - low
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * each for each in (1, 2, 5, 10, 20) if span / (power * each) <= most)
    if whole:
        step = max(1.0, float(round(step)))
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _powers(low: float, high: float, most: int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first + 1 >= 2:
        step = max(1, math.ceil((last - first + 1) / most))
        return [10.0**k for k in range(first, last + 1, step)]
    digits = [
        float(f"{lead * 10.0**power:.3g}")
        for power in range(math.floor(math.log10(low)), last + 2)
        for lead in (1, 2, 5)
    ]
    inside = [value for value in digits if low <= value <= high]
    return inside if len(inside) >= 2 else _two_inside(low, high)


def _two_inside(low: float, high: float) -> list[float]:
    """Two values at about a third and two thirds of a short logarithmic axis, with as few digits as they can have."""
    thirds = np.geomspace(low, high, 4)[1:3]
    for digits in range(1, 9):
        first, second = (float(f"{value:.{digits}g}") for value in thirds)
        if low <= first < second <= high:
            return [first, second]
    return [float(value) for value in thirds]


def tick_texts(values: Sequence[float]) -> list[str]:
    """With as many digits as it takes to tell neighbours apart."""
    for digits in range(3, 10):
        texts = [_text(value, digits) for value in values]
        if len(set(texts)) == len(texts):
            return texts
    return [repr(value) for value in values]


def _text(value: float, digits: int) -> str:
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"
    return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"
