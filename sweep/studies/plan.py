"""From a sweep file to the studies and fits it asks for, before anything runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from solvers.methods import METHODS
from solvers.scores import SCORES
from sweep.code import entry_points, fingerprint, load
from sweep.datasets.card import DatasetCard, open_cards
from sweep.datasets.choice import DatasetChoice
from sweep.errors import UserError
from sweep.fits import FitRecord, FitSpec, Trial
from sweep.fits.memory import needed_bytes, too_large
from sweep.fits.trials import shown
from sweep.methods import SweepMethod, foreign_method, matching_methods, object_method, our_method, unknown_method
from sweep.studies.base import Size, Study, Told
from sweep.studies.grid import EliminatingGridStudy, GridStudy, WarmGridStudy
from sweep.studies.path import PathStudy
from sweep.studies.spec import DEFAULT_GAMMAS, DEFAULT_PATH, MethodEntry, Range, SweepSpec

Values = Mapping[str, Sequence[Any] | Range]
Like = Callable[[FitSpec], Iterable[tuple[FitSpec, FitRecord]]]


@dataclass(frozen=True)
class Refusal:
    """A combination that cannot run, and why."""

    dataset: str
    method: str
    setting: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """What a sweep will run.

    Attributes
    ----------
    cards, choices : by the datasets' names in this sweep; the data themselves are opened when their first fit is due.
    estimators : objects of methods that were handed over in memory, by name.
    notes : what a user should know before it runs.
    """

    spec: SweepSpec
    cards: Mapping[str, DatasetCard]
    choices: Mapping[str, DatasetChoice]
    methods: Sequence[SweepMethod]
    studies: Sequence[Study]
    refused: Sequence[Refusal]
    notes: Sequence[str] = ()
    pilot: bool = False  # the cheapest first, and nothing is waited for when the time is up
    estimators: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> Size:
        return Size.total(study.size for study in self.studies)


@dataclass(frozen=True)
class Given:
    """Objects that a Python caller handed over beside the sweep file: estimators by the name of their method."""

    estimators: Mapping[str, Any] = field(default_factory=dict)


def make_plan(
    spec: SweepSpec, cache: Path, *, like: Like | None = None, given: Given | None = None, room: int = 0
) -> Plan:
    """Lay out every study; combinations that cannot run are refused here.

    Parameters
    ----------
    cache : folder of prepared datasets.
    like : finished fits that differ from a template in trial and fold only; an adaptive search may start from them.
    room : bytes of a GPU's memory that a fit may take; 0 if that is not known.
    """
    given = given or Given()
    cards = open_cards(spec.datasets, cache)
    names = list(cards)
    choices = dict(zip(names, spec.datasets, strict=True))
    methods = [resolve(entry, f"methods[{i}]", given) for i, entry in enumerate(expand(spec.methods, given))]
    _refuse_twins(methods)
    maker = _Maker(spec, like)
    studies: list[Study] = []
    refused: list[Refusal] = []
    for card in cards.values():
        problem = _unusable(card, spec)
        for entry, method in zip(expand(spec.methods, given), methods, strict=True):
            if problem:
                refused.append(Refusal(card.label, method.name, "all", problem))
                continue
            found, refusals = _values(spec, entry, method, card)
            values: dict[str, Sequence[Any] | Range] | None = found
            refused += refusals
            template = _template(spec, method, card)
            if room and spec.resources.device == "auto" and spec.resources.gpus_per_fit:
                values, refusals = _fitting(found, template, card, room)
                refused += refusals
            if values is not None and all(isinstance(v, Range) or v for v in values.values()):
                studies += [maker(replace(template, split=n), method, values) for n in range(spec.splits)]
    studies.sort(key=lambda study: (names.index(study.template.dataset), study.template.split))
    return Plan(spec, cards, choices, methods, studies, refused, _notes(spec, cards), estimators=given.estimators)


# -- methods ----------------------------------------------------------------------------------------


def expand(entries: Sequence[MethodEntry], given: Given) -> list[MethodEntry]:
    """The entries with globs written out, each name once; an unknown name is refused."""
    installed = entry_points("methods")
    chosen: dict[str, MethodEntry] = {}
    for index, entry in enumerate(entries):
        if entry.estimator is not None:
            if entry.name in METHODS:
                raise UserError(
                    f"methods[{index}]: {entry.name!r} is a method of ours; give the estimator another name"
                )
            matches = [entry.name]
        else:
            matches = matching_methods(entry.name, given.estimators)
        if not matches:
            raise UserError(f"methods[{index}]: {unknown_method(entry.name, given.estimators)}")
        for name in matches:
            path = entry.estimator or (installed.get(name) if name not in METHODS else None)
            chosen.setdefault(name, entry.model_copy(update={"name": name, "estimator": path}))
    return list(chosen.values())


def resolve(entry: MethodEntry, where: str, given: Given) -> SweepMethod:
    """What a sweep needs to know of a method; imports an estimator that is not ours."""
    if entry.name in given.estimators:
        return object_method(entry.name, given.estimators[entry.name], entry.tune)
    if entry.estimator is not None:
        return foreign_method(entry.name, entry.estimator, entry.params, entry.tune, where)
    return our_method(entry.name, entry.params, entry.tune, where)


def _refuse_twins(methods: Sequence[SweepMethod]) -> None:
    names = [method.name for method in methods]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UserError(f"methods: {twice!r} stands there twice; give one of them another name")


# -- hyperparameters ----------------------------------------------------------------------------------


def _values(
    spec: SweepSpec, entry: MethodEntry, method: SweepMethod, card: DatasetCard
) -> tuple[dict[str, Sequence[Any] | Range], list[Refusal]]:
    """The values of every tuned hyperparameter that can run on this dataset, and what cannot."""
    common: dict[str, Any] = {"gamma": spec.grid.gamma, "rank": spec.grid.rank}
    values: dict[str, Sequence[Any] | Range] = {}
    refused: list[Refusal] = []
    for name in method.tuned:
        wanted = entry.tune.get(name, common.get(name))
        if wanted is None:  # only gamma may be left open
            wanted = DEFAULT_PATH if _takes_path(spec, method) or spec.search == "path" else list(DEFAULT_GAMMAS)
        if isinstance(wanted, Range):
            values[name] = _clipped(name, wanted, method, card)
            continue
        values[name] = []
        for value in wanted:
            reason = method.refuses({name: value}, card.dimension)
            if reason is None:
                values[name] = [*values[name], value]
            else:
                refused.append(Refusal(card.label, method.name, f"{name}={shown(value)}", reason))
    return values, refused


def _fitting(
    values: dict[str, Sequence[Any] | Range], template: FitSpec, card: DatasetCard, room: int
) -> tuple[dict[str, Sequence[Any] | Range] | None, list[Refusal]]:
    """The values without the ranks whose fits a GPU has no memory for; None if it has none for any fit."""
    ranks = values.get("rank")
    refused = []
    for rank in [None] if ranks is None or isinstance(ranks, Range) else ranks:
        fit = template if rank is None else replace(template, trial=Trial.of({"rank": rank}))
        needed = needed_bytes(fit, card.train_size, card.n_examples - card.train_size, card.dimension)
        reason = too_large(needed, room, "a GPU")
        if reason:
            refused.append(Refusal(card.label, fit.method, "all" if rank is None else f"rank={rank}", reason))
    left = {refusal.setting for refusal in refused}
    if "all" in left:
        return None, refused
    if ranks is None or isinstance(ranks, Range):
        return values, refused
    return values | {"rank": [rank for rank in ranks if f"rank={rank}" not in left]}, refused


def _clipped(name: str, wanted: Range, method: SweepMethod, card: DatasetCard) -> Range:
    """A range without the part that the method refuses."""
    high = wanted.high
    if method.ours is not None and name in method.ours.below:
        high = min(high, 0.99 * method.ours.below[name])
    if name == "rank" and method.family == "pdml":
        high = min(high, card.dimension)
    most = None if wanted.most is None or high < wanted.high else wanted.most
    return wanted if high == wanted.high else wanted.model_copy(update={"high": high, "most": most})


def _takes_path(spec: SweepSpec, method: SweepMethod) -> bool:
    """Whether a method's gamma is tuned by the whole path."""
    able = method.path and method.tuned == ("gamma",) and spec.algorithm == "certified" and spec.mode == "production"
    return able and spec.search in ("grid", "path") and not spec.warm and not spec.eliminate


# -- studies ------------------------------------------------------------------------------------------


class _Maker:
    """The strategy that the sweep file asks for, as a function of template, method and values."""

    def __init__(self, spec: SweepSpec, like: Like | None) -> None:
        self.spec, self.like = spec, like

    def __call__(self, template: FitSpec, method: SweepMethod, values: Values) -> Study:
        spec, gamma = self.spec, values.get("gamma")
        if _takes_path(spec, method) and (spec.search == "path" or isinstance(gamma, Range)):
            return PathStudy(template, gamma if isinstance(gamma, Range) else _span(gamma or ()), spec.select)
        if spec.search in ("grid", "path"):
            return self._grid(template, method, {name: self._listed(name, v) for name, v in values.items()})
        if all(not isinstance(v, Range) and len(v) == 1 for v in values.values()):
            return self._grid(template, method, values)
        from sweep.studies.adaptive import AdaptiveStudy, search_space

        assert not isinstance(spec.search, str)
        options = spec.search.optuna
        like = self.like if options.reuse else None
        return AdaptiveStudy(
            template,
            search_space(values),
            options,
            select=spec.select,
            observations=lambda: {} if like is None else observed(like(template)),
        )

    def _grid(self, template: FitSpec, method: SweepMethod, values: Mapping[str, Any]) -> Study:
        spec, names = self.spec, sorted(values)
        trials = [Trial.of(dict(zip(names, v, strict=True))) for v in itertools.product(*(values[n] for n in names))]
        # Chains hand dual weights on, which only the dual Newton method has.
        if spec.warm and spec.algorithm == "certified" and method.path:
            return WarmGridStudy(template, trials, spec.select)
        if spec.eliminate:
            best = SCORES[spec.score].upper_bound
            assert best is not None
            return EliminatingGridStudy(template, trials, spec.select, best_possible=best)
        return GridStudy(template, trials, spec.select)

    def _listed(self, name: str, values: Sequence[Any] | Range) -> Sequence[Any]:
        """The values of a grid; beside a path, a range stands for one value per decade."""
        if not isinstance(values, Range):
            return values
        if self.spec.search == "grid":
            raise UserError(f"grid.{name}: a range goes with search: path or optuna; list the values for a grid")
        steps = max(1, round(math.log10(values.high / values.low)))
        found = [values.low * (values.high / values.low) ** (k / steps) for k in range(steps + 1)]
        return sorted({round(v) if name == "rank" else float(f"{v:.3g}") for v in found})


def observed(fits: Iterable[tuple[FitSpec, FitRecord]]) -> dict[Trial, dict[int, float]]:
    """Scores by trial and fold."""
    found: dict[Trial, dict[int, float]] = {}
    for spec, record in fits:
        if spec.fold is not None and record.value is not None:
            found.setdefault(spec.trial, {})[spec.fold] = record.value
    return found


def _span(gammas: Sequence[float]) -> Range:
    """The range that a list of gammas spans; one alone gets a decade around it."""
    low, high = min(gammas), max(gammas)
    return Range(low=low, high=high) if low < high else Range(low=low / math.sqrt(10), high=low * math.sqrt(10))


def _template(spec: SweepSpec, method: SweepMethod, card: DatasetCard) -> FitSpec:
    """The refit of a method on a dataset, with the trial still open."""
    settings = {name: value for name, value in spec.settings.model_dump().items() if value is not None}
    if not _takes_path(spec, method):
        settings.pop("path_tol", None)
    version, maximize = score_facts(spec.score)
    largest = max(card.train_size, card.n_examples - card.train_size)
    return FitSpec(
        dataset=card.label,
        data=card.fingerprint,
        scaling=card.scaling,
        pca=card.pca,
        frequent_above=card.frequent_above,
        split=0,
        folds=spec.folds,
        fold=None,
        method=method.name,
        version=method.version,
        trial=Trial(),
        restarts=spec.restarts if method.restarts else 1,
        algorithm=spec.algorithm,
        settings=() if method.estimator else tuple(sorted(settings.items())),
        seed=spec.seed,
        salt=spec.name if spec.mode == "benchmark" else "",
        estimator=method.estimator,
        fixed=method.fixed,
        score=spec.score,
        score_version=version,
        maximize=maximize,
        # Said only where it matters, so that a limit that is never reached leaves the fits what they are.
        max_queries=spec.max_queries if spec.max_queries is not None and largest > spec.max_queries else None,
    )


def score_facts(score: str) -> tuple[str, bool]:
    """Version of a user's score function, empty for ours, and whether larger is better."""
    if score in SCORES:
        return "", SCORES[score].larger_is_better
    function = load(score, "score")
    if not callable(function):
        raise UserError(f"score: expected a function of embedding and labels, {score} is a {type(function).__name__}")
    return fingerprint(score), bool(getattr(function, "larger_is_better", True))


def _unusable(card: DatasetCard, spec: SweepSpec) -> str | None:
    """Why no method at all can run on a dataset, or None."""
    sizes = [size for size in card.class_sizes if size]
    if len(sizes) < 2:
        return "the dataset has one class only, so no dissimilar pair exists"
    if max(sizes) < 3 * spec.folds:
        return f"no class is large enough for {spec.folds} folds; lower folds"
    if spec.score in ("auc_frequent", "auc_infrequent", "balance_score"):
        frequent = [size > card.frequent_above for size in sizes]
        if all(frequent) or not any(frequent):
            which = "infrequent" if all(frequent) else "frequent"
            return f"score {spec.score} needs frequent and infrequent classes, none is {which}; set frequent_above"
    return None


def _notes(spec: SweepSpec, cards: Mapping[str, DatasetCard]) -> list[str]:
    notes = []
    for card in cards.values():
        largest = max(card.train_size, card.n_examples - card.train_size)
        if spec.max_queries is not None and largest > spec.max_queries:
            notes.append(
                f"{card.label}: scores are taken on a sample of {spec.max_queries:,} queries, with a standard error; "
                "max_queries: null scores all"
            )
    if not isinstance(spec.search, str) and spec.search.optuna.reuse:
        notes.append(
            "reuse: fits of other sweeps in this home count as observations, so the result depends on the home"
        )
    return notes


# -- what is left -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """How far a study is: fits that are there, fits that could run now, and its whole size."""

    study: Study
    done: Sequence[FitSpec]
    waiting: Sequence[FitSpec]
    over: bool

    @property
    def size(self) -> Size:
        """What it took if it is over, else what it takes at most."""
        if not self.over:
            return self.study.size
        return Size(len(self.done), sum(spec.restarts for spec in self.done))


def standing(study: Study, known: Callable[[FitSpec], Told | None]) -> Standing:
    """Replay a study on the fits that are known; nothing runs."""
    done: list[FitSpec] = []
    waiting: dict[str, FitSpec] = {}
    asked = study.start()
    while asked:
        spec = asked.pop()
        told = known(spec)
        if told is None:
            waiting[spec.key] = spec
            continue
        done.append(spec)
        asked += study.tell(spec, told)
        for key in study.withdrawn():
            waiting.pop(key, None)
            asked = [each for each in asked if each.key != key]
    over = not waiting and any(spec.fold is None for spec in done)
    return Standing(study, done, list(waiting.values()), over)
