"""From a sweep file to the studies and fits it asks for, before anything runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solvers.methods import METHODS
from sweep.fits import FitSpec
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.studies.data import SweepData, open_data
from sweep.studies.grid import GridStudy, Study, Trial, WarmGridStudy
from sweep.studies.spec import Grid, SweepSpec


@dataclass(frozen=True)
class Refusal:
    """A combination that cannot run, and why."""

    dataset: str
    method: str
    setting: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """What a sweep will run."""

    spec: SweepSpec
    data: dict[str, SweepData]
    studies: list[Study]
    refused: list[Refusal]


def make_plan(spec: SweepSpec, home: Home, ledger: Ledger | None = None) -> Plan:
    """Load the datasets and lay out every study; combinations that cannot run are refused here.

    An Optuna search needs the `ledger`: finished fits of earlier sweeps are its first observations.
    """
    cache = home.data
    make_study = _study_maker(spec, home, ledger)
    data = {}
    for choice in spec.datasets:
        opened = open_data(choice, cache)
        data[opened.name] = opened
    studies: list[Study] = []
    refused: list[Refusal] = []
    for source in data.values():
        problem = _unusable(source, spec)
        for method in spec.methods:
            if problem:
                refused.append(Refusal(source.name, method, "all", problem))
                continue
            trials, refusals = _trials(spec, method, source)
            refused += refusals
            if trials:
                templates = [_template(spec, method, source, split) for split in range(spec.splits)]
                studies += [make_study(template, trials) for template in templates]
    return Plan(spec, data, studies, refused)


def _study_maker(spec: SweepSpec, home: Home, ledger: Ledger | None) -> Callable[[FitSpec, list[Trial]], Study]:
    """The strategy that the sweep file asks for, as a function of template and grid."""
    if spec.search == "grid" or ledger is None:
        return lambda template, trials: _grid_study(spec, template, trials)
    from sweep.studies.adaptive import OptunaStudy, open_storage

    options = spec.search.optuna
    storage = open_storage(options.storage, home.folder / "optuna")

    def make(template: FitSpec, trials: list[Trial]) -> Study:
        tuned = METHODS[template.method].tuned
        if len(trials) == 1:
            return _grid_study(spec, template, trials)
        grid = Grid(
            gamma=[t.gamma for t in trials if t.gamma is not None] or spec.grid.gamma,
            rank=[t.rank for t in trials if t.rank is not None] or spec.grid.rank,
        )
        return OptunaStudy(template, grid, tuned, options, storage, lambda: ledger.observations(template), spec.name)

    return make


CHAINABLE = ("mdml-csfn", "mdml-cvnd", "mdml-cldd", "mdml-l2", "mdml-it")


def _grid_study(spec: SweepSpec, template: FitSpec, trials: list[Trial]) -> Study:
    # Chains hand dual weights on, which only the dual Newton method has.
    chained = spec.warm and spec.algorithm == "certified" and template.method in CHAINABLE
    return (WarmGridStudy if chained else GridStudy)(template, trials)


def n_fits(spec: FitSpec) -> int:
    """Fits as the paper counts its runs: each restart is one."""
    return spec.restarts


def expected_cost(spec: FitSpec, dimension: int) -> float:
    """Relative cost of a fit, for ordering only: the longest start first."""
    if spec.rank is None:
        return float(dimension) ** 2
    return float(spec.rank * spec.restarts * dimension)


def _template(spec: SweepSpec, method: str, source: SweepData, split: int) -> FitSpec:
    settings = {name: value for name, value in spec.settings.model_dump().items() if value is not None}
    return FitSpec(
        dataset=source.name,
        data=source.dataset.fingerprint,
        scaling=source.scaling,
        pca=source.pca,
        frequent_above=source.frequent_above,
        split=split,
        folds=spec.folds,
        fold=None,
        method=method,
        gamma=None,
        rank=None,
        restarts=spec.restarts if METHODS[method].restarts else 1,
        algorithm=spec.algorithm,
        settings=tuple(sorted(settings.items())),
        seed=spec.seed,
        salt=spec.name if spec.mode == "benchmark" else "",
    )


def _trials(spec: SweepSpec, method: str, source: SweepData) -> tuple[list[Trial], list[Refusal]]:
    """The grid of a method, and what of it cannot run on this dataset."""
    tuned = METHODS[method].tuned
    gammas = spec.grid.gamma if "gamma" in tuned else [None]
    ranks = spec.grid.rank if "rank" in tuned else [None]
    trials, refused = [], []
    for gamma, rank in itertools.product(gammas, ranks):
        reason = _impossible(method, gamma, rank, source)
        if reason is None:
            trials.append(Trial(gamma, rank))
        else:
            setting = ", ".join(f"{k}={v:g}" for k, v in (("gamma", gamma), ("rank", rank)) if v is not None)
            refused.append(Refusal(source.name, method, setting, reason))
    return trials, refused


def _impossible(method: str, gamma: float | None, rank: int | None, source: SweepData) -> str | None:
    if rank is not None and METHODS[method].family == "pdml" and rank > source.dimension:
        return f"rank {rank} is above the {source.dimension} features; lower grid.rank"
    if method == "mdml-drop" and gamma is not None and gamma >= 1:
        return f"gamma is the drop probability here, and {gamma:g} would drop everything; it must be below 1"
    return None


def _unusable(source: SweepData, spec: SweepSpec) -> str | None:
    """Why no method at all can run on a dataset, or None."""
    sizes = np.bincount(source.dataset.y)
    if np.count_nonzero(sizes) < 2:
        return "the dataset has one class only, so no dissimilar pair exists"
    if np.max(sizes) < 3 * spec.folds:
        return f"no class is large enough for {spec.folds} folds; lower folds"
    return None
