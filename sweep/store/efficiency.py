"""The efficiency comparison: what tuning a convex method costs, against its non-convex counterpart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from solvers.methods import PAIRS
from sweep.errors import UserError
from sweep.store.results import GPUS, ResultRow


@dataclass(frozen=True)
class Efficiency:
    """Non-convex over convex: how many runs, how long each, both together."""

    convex: str
    nonconvex: str
    convex_fits: int
    nonconvex_fits: int
    convex_seconds: float
    nonconvex_seconds: float
    search: str = "grid"  # how the convex side was tuned

    @property
    def runs_ratio(self) -> float:
        return self.nonconvex_fits / self.convex_fits

    @property
    def time_per_run_ratio(self) -> float:
        return (self.nonconvex_seconds / self.nonconvex_fits) / (self.convex_seconds / self.convex_fits)

    @property
    def total_ratio(self) -> float:
        return self.nonconvex_seconds / self.convex_seconds


def efficiency(rows: Sequence[ResultRow]) -> list[Efficiency]:
    """Tuning cost of each pair that was run on the same datasets and splits, then of all together.

    Paths of gamma are an arm of their own, never added to grids. Times of different solvers, modes or GPU
    models are not comparable: a mixture is refused.
    """
    # Only the pairs are compared: another method may well have run elsewhere, as ilhd does on the CPU.
    rows = [row for row in rows if any(row.method in pair for pair in PAIRS)]
    for column in ("algorithm", "mode", "gpu"):
        # A row may name several GPU models itself, all rows the same ones: that is a mixture, too.
        values = {part for row in rows for part in str(getattr(row, column)).split(GPUS)}
        if len(values) > 1:
            raise UserError(
                f"compare: these fits differ in {column} ({', '.join(sorted(values))}), "
                "so their times cannot be compared; compare sweeps that agree in it"
            )
    found: list[Efficiency] = []
    for search in ("grid", "path"):
        of_search = [_pair(rows, convex, nonconvex, search) for convex, nonconvex in PAIRS]
        listed = [each for each in of_search if each is not None]
        found += listed
        if len(listed) > 1:
            found.append(_together(listed, search))
    return found


def _pair(rows: Sequence[ResultRow], convex: str, nonconvex: str, search: str) -> Efficiency | None:
    """One pair on the datasets and splits that both have, the convex side tuned by `search`."""
    kinds = ("path",) if search == "path" else ("grid", "none")
    places = [
        {(r.dataset, r.split) for r in rows if r.method == method and (method == nonconvex or r.search in kinds)}
        for method in (convex, nonconvex)
    ]
    common = places[0] & places[1]
    if not common:
        return None
    chosen = {m: [r for r in rows if r.method == m and (r.dataset, r.split) in common] for m in (convex, nonconvex)}
    return Efficiency(
        convex, nonconvex,
        sum(r.n_fits for r in chosen[convex]), sum(r.n_fits for r in chosen[nonconvex]),
        sum(r.tuning_seconds for r in chosen[convex]), sum(r.tuning_seconds for r in chosen[nonconvex]),
        search,
    )  # fmt: skip


def _together(pairs: Sequence[Efficiency], search: str) -> Efficiency:
    return Efficiency(
        "all convex",
        "all non-convex",
        sum(e.convex_fits for e in pairs),
        sum(e.nonconvex_fits for e in pairs),
        sum(e.convex_seconds for e in pairs),
        sum(e.nonconvex_seconds for e in pairs),
        search,
    )


def verdict(comparisons: Sequence[Efficiency]) -> str:
    """The measured ratios in one sentence per arm."""
    if not comparisons:
        return "No convex method and its non-convex counterpart have both finished, so there is nothing to compare."
    arms = {e.search: e for e in comparisons}  # the last of each arm is all of it together
    return " ".join(_sentence(e) for e in arms.values())


def _sentence(e: Efficiency) -> str:
    by_path = " by the path of gamma" if e.search == "path" else ""
    return (
        f"Tuning {e.nonconvex} took {e.total_ratio:.2f} x the time of {e.convex}{by_path}: "
        f"{e.runs_ratio:.0f} x as many fits ({e.nonconvex_fits} against {e.convex_fits}) "
        f"x {e.time_per_run_ratio:.3g} of the time per fit."
    )
