"""The whole path of gamma: one task per fold, whose mean curve over folds picks gamma."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from sweep.fits import CHAIN, Curve, FitSpec, Select, Trial, choose
from sweep.studies.base import Size, Told
from sweep.studies.spec import Range


@dataclass
class PathStudy:
    """One path per fold; while the best gamma lies at an end that may move, one more decade there; then the refit.

    It starts from a fold's metric, which saves a quarter or more of its eigendecompositions (docs/measurements.md).
    """

    template: FitSpec
    range: Range
    select: Select = "best"
    curves: dict[int, dict[tuple[float, float], Curve]] = field(default_factory=dict)
    _spans: list[tuple[float, float]] = field(default_factory=list)
    _failed: bool = False

    @property
    def size(self) -> Size:
        """At most: as many decades are added as the bounds allow."""
        low, high = self.range.bounds
        more = math.ceil(math.log10(self.range.low / low) - 1e-9) + math.ceil(math.log10(high / self.range.high) - 1e-9)
        tasks = (1 + more) * self.template.folds + 1
        return Size(tasks, tasks, exact=more == 0)

    def start(self) -> list[FitSpec]:
        self.curves, self._failed = defaultdict(dict), False
        self._spans = [(self.range.low, self.range.high)]
        return self._paths(self._spans[0])

    def tell(self, spec: FitSpec, told: Told | None) -> list[FitSpec]:
        if spec.fold is None:
            return []
        if told is None or told.curve is None:
            self._failed = True
            return []
        assert spec.gammas is not None
        self.curves[spec.fold][spec.gammas] = told.curve
        whole = sum(len(found) for found in self.curves.values()) == len(self._spans) * self.template.folds
        if not whole or self._failed:
            return []
        gamma = choose_gamma(self.curves, maximize=self.template.maximize, select=self.select)
        span = self._extension()
        if span is not None:
            self._spans.append(span)
            return self._paths(span)
        trial = self.template.trial.with_values(gamma=gamma)
        return [replace(self.template, trial=trial, start=self._nearest(gamma).key)]

    def withdrawn(self) -> list[str]:
        return []

    def _extension(self) -> tuple[float, float] | None:
        """A decade beyond the end at which the mean curve is best, if the bounds leave room."""
        best = choose_gamma(self.curves, maximize=self.template.maximize)
        low, high = min(span[0] for span in self._spans), max(span[1] for span in self._spans)
        least, most = self.range.bounds
        if best <= low and least < low:
            return max(least, float(f"{low / 10:.3g}")), low
        if best >= high and most > high:
            return high, min(most, float(f"{high * 10:.3g}"))
        return None

    def _paths(self, span: tuple[float, float]) -> list[FitSpec]:
        return [self._path(span, fold) for fold in range(self.template.folds)]

    def _path(self, span: tuple[float, float], fold: int) -> FitSpec:
        return replace(self.template, gammas=span, fold=fold, start=CHAIN)

    def _nearest(self, gamma: float) -> FitSpec:
        """The path that the refit starts from: of the metrics that were kept, that of the nearest gamma.

        The curves decide, not the order in which they came: the refit has the same key after any crash.
        """
        kept = [(fold, span, curve.kept) for fold, found in self.curves.items() for span, curve in found.items()]
        distances = [(abs(math.log((own or gamma) / gamma)), fold, span) for fold, span, own in kept]
        _, fold, span = min(distances)
        return self._path(span, fold)


def mean_curve(curves: Mapping[int, Mapping[tuple[float, float], Curve]]) -> tuple[list[float], np.ndarray]:
    """All gammas that some fold scored, ascending, and the scores there, (folds, gammas): linear in log gamma."""
    of_folds = [_joined(curves[fold]) for fold in sorted(curves)]
    gammas = sorted({gamma for found in of_folds for gamma in found})
    rows = []
    for found in of_folds:
        known = sorted(found)
        rows.append(np.interp(np.log(gammas), np.log(known), [found[gamma] for gamma in known]))
    return gammas, np.array(rows)


def choose_gamma(
    curves: Mapping[int, Mapping[tuple[float, float], Curve]], *, maximize: bool = True, select: Select = "best"
) -> float:
    """Gamma by the mean curve over folds, under the same rule as a grid's trials."""
    gammas, rows = mean_curve(curves)
    scores = {
        Trial.of({"gamma": gamma}): {fold: float(rows[fold, k]) for fold in range(len(rows))}
        for k, gamma in enumerate(gammas)
    }
    chosen = choose(scores, len(rows), maximize=maximize, select=select)
    assert chosen is not None
    return float(chosen.get("gamma"))


def _joined(curves: Mapping[tuple[float, float], Curve]) -> dict[float, float]:
    """One fold's scores by gamma, over all ranges that it covered.

    Two ranges share their end, where each has a metric of its own: the higher one counts, whichever came first.
    """
    ordered = (curve for _, curve in sorted(curves.items(), key=lambda item: item[0]))
    return {gamma: score for curve in ordered for gamma, score in zip(curve.gammas, curve.scores, strict=True)}
