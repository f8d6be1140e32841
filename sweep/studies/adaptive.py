"""Adaptive search with Optuna behind the same interface as the grid.

Up to `window` trials run at a time. Trial n is asked for when trial n - window has ended, and the sampler, seeded by n,
knows exactly the trials up to that one: what is asked next depends on scores alone, never on which fit happened
to finish first. So the records in the ledger determine the study, which is kept nowhere else: a killed one ends like an
undisturbed one.

With `prune_folds` a trial's folds run one after the other and a pruner may end it early; a method
with restarts is screened on one restart per fold first and gets all of them only if it survives.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from sweep.errors import UserError
from sweep.fits import FitSpec, Select, Trial, choose, mean
from sweep.seeds import derive_seed
from sweep.studies.base import Size, Told
from sweep.studies.spec import Optuna, Range
from sweep.urls import expanded

Observations = Mapping[Trial, Mapping[int, float]]


@dataclass
class _Running:
    """A trial that was asked for, by its number."""

    number: int
    trial: Trial
    screened: dict[int, float | None] = field(default_factory=dict)
    scores: dict[int, float | None] = field(default_factory=dict)
    state: TrialState | None = None  # how it ended
    same_as: _Running | None = None  # an earlier trial with the same values, up to rounding

    @property
    def ended(self) -> _Running | None:
        """What decided its end; None while it runs."""
        origin = self.same_as or self
        return origin if origin.state is not None else None

    def seen(self) -> dict[int, float]:
        """Scores by fold as the pruner sees them."""
        return {fold: score for fold, score in (self.screened or self.scores).items() if score is not None}


class AdaptiveStudy:
    """One method on one split, tuned by Optuna.

    Parameters
    ----------
    template : the refit, with the trial still open.
    space : distribution of each hyperparameter.
    observations : finished trials of the same method and split that another sweep computed.
    """

    def __init__(
        self,
        template: FitSpec,
        space: Mapping[str, BaseDistribution],
        options: Optuna,
        *,
        select: Select = "best",
        observations: Callable[[], Observations] = dict,
    ) -> None:
        self.template, self.options, self.select = template, options, select
        self.space = dict(space)
        self._observations = observations
        self._window = min(16, max(4, options.trials // 4))
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    @property
    def size(self) -> Size:
        folds, restarts = self.template.folds, self.template.restarts
        screens = self.options.trials * folds if self._screens and restarts > 1 else 0
        tasks = self.options.trials * folds + screens + 1
        return Size(tasks, (self.options.trials * folds + 1) * restarts + screens, exact=False)

    def start(self) -> list[FitSpec]:
        self._study = _new_study(self.template.maximize)
        self._asked: list[_Running] = []
        self._told = 0  # trials whose end Optuna knows: always the first ones
        self._refitted = False
        known = self._observe()
        return [self._fit(trial, fold) for trial in known for fold in range(self.template.folds)] + self._ask_more()

    def tell(self, spec: FitSpec, told: Told | None) -> list[FitSpec]:
        running = next((r for r in self._asked if r.trial == spec.trial and r.same_as is None), None)
        if spec.fold is None or running is None or running.state is not None:  # the refit, or an observation
            return []
        score = None if told is None else told.value
        screening = self._screens and spec.restarts == self._screening_restarts
        (running.screened if screening else running.scores)[spec.fold] = score
        return self._advance(running, spec.fold, score, screening) + self._ask_more()

    def withdrawn(self) -> list[str]:
        return []

    # -- a trial's course -----------------------------------------------------------------------

    @property
    def _screens(self) -> bool:
        return self.options.prune_folds

    @property
    def _screening_restarts(self) -> int:
        return 1 if self.template.restarts > 1 else self.template.restarts

    def _begin(self, running: _Running) -> list[FitSpec]:
        if self._screens:
            return [self._fit(running.trial, 0, self._screening_restarts)]
        return [self._fit(running.trial, fold) for fold in range(self.template.folds)]

    def _advance(self, running: _Running, fold: int, score: float | None, screening: bool) -> list[FitSpec]:
        """What follows in a trial after one of its folds."""
        if score is None:
            running.state = TrialState.FAIL
            return []
        if screening:
            if self._is_pruned(running):
                running.state = TrialState.PRUNED
                return []
            if fold + 1 < self.template.folds:
                return [self._fit(running.trial, fold + 1, self._screening_restarts)]
            if self.template.restarts > 1:
                return [self._fit(running.trial, f) for f in range(self.template.folds)]
            running.scores = dict(running.screened)
        if len(running.scores) == self.template.folds:
            running.state = TrialState.COMPLETE
        return []

    def _is_pruned(self, running: _Running) -> bool:
        """The pruner's word, given the trials that were known when this one was asked for."""
        known = [t for t in self._asked[: self._known_to(running.number)] if _completed(t)]
        if self.options.pruner == "wilcoxon":  # it looks at the best one only
            known = sorted(known, key=self._mean, reverse=self.template.maximize)[:1]
        study = _new_study(self.template.maximize, _pruner(self.options))
        study.add_trials([self._frozen(t) for t in known])
        trial = study.ask(self.space)
        for fold, score in sorted(running.seen().items()):
            trial.report(score, fold)
        return bool(trial.should_prune())

    # -- asking ---------------------------------------------------------------------------------

    def _known_to(self, number: int) -> int:
        """How many trials have ended, as far as trial `number` may know."""
        return max(0, number - self._window + 1)

    def _ask_more(self) -> list[FitSpec]:
        """Ask for as many trials as may run; for the refit when all have ended."""
        fits: list[FitSpec] = []
        while not self._over and all(t.ended for t in self._asked[: self._known_to(len(self._asked))]):
            running = self._ask(len(self._asked))
            self._asked.append(running)
            if running.same_as is None:
                fits += self._begin(running)
        if not fits and self._over and not self._refitted and all(t.ended for t in self._asked):
            self._refitted = True
            return self._refit()
        return fits

    @property
    def _over(self) -> bool:
        """Whether no further trial is asked for."""
        asked = len(self._asked)
        if asked >= self.options.trials:
            return True
        patience, known = self.options.patience, self._asked[: self._known_to(asked)]
        if patience is None or len(known) <= patience or not all(t.ended for t in known):
            return False
        sign = 1.0 if self.template.maximize else -1.0
        best = [max((sign * self._mean(t) for t in part if _completed(t)), default=float("-inf"))
                for part in (known[:-patience], known)]  # fmt: skip
        return best[1] - best[0] < self.options.improvement

    def _ask(self, number: int) -> _Running:
        for ended in self._asked[self._told : self._known_to(number)]:
            self._tell(ended)
        self._study.sampler = _sampler(
            self.options.sampler, derive_seed(self.template.seed, *self.template.study, number)
        )
        trial = _readable(self._study.ask(self.space).params)
        twin = next((r for r in self._asked if r.trial == trial and r.same_as is None), None)
        return _Running(number, trial, same_as=twin)

    def _tell(self, running: _Running) -> None:
        ended = running.ended
        assert ended is not None
        value = self._mean(ended) if ended.state == TrialState.COMPLETE else None
        self._study.tell(self._observed + running.number, value, state=ended.state)
        self._told += 1

    def _refit(self) -> list[FitSpec]:
        scores: dict[Trial, Mapping[int, float | None]] = {t.trial: t.scores for t in self._asked if _completed(t)}
        scores |= self._known
        best = choose(scores, self.template.folds, maximize=self.template.maximize, select=self.select)
        return [] if best is None else [self._fit(best, None)]

    def _observe(self) -> list[Trial]:
        """Hand finished trials of other sweeps to the study."""
        self._known: dict[Trial, Mapping[int, float]] = {}
        for trial, scores in sorted(self._observations().items(), key=lambda entry: entry[0].label):
            values = dict(trial.values)
            inside = set(values) == set(self.space) and all(
                self.space[n]._contains(cast(Any, v)) for n, v in values.items()
            )
            if inside and len(scores) == self.template.folds:
                self._known[trial] = scores
                self._study.add_trial(self._frozen(_Running(0, trial, scores=dict(scores), state=TrialState.COMPLETE)))
        self._observed = len(self._known)
        return list(self._known)

    def _mean(self, running: _Running) -> float:
        return mean(score for score in running.scores.values() if score is not None)

    def _frozen(self, running: _Running) -> FrozenTrial:
        return optuna.trial.create_trial(
            params=dict(running.trial.values),
            distributions=self.space,
            value=self._mean(running),
            intermediate_values=running.seen(),
        )

    def _fit(self, trial: Trial, fold: int | None, restarts: int | None = None) -> FitSpec:
        return replace(self.template, trial=trial, fold=fold, restarts=restarts or self.template.restarts)

    def mirror(self, storage: Any) -> None:
        """Write the study as it stands into an Optuna storage or its URL, for optuna-dashboard and the like."""
        name = "/".join(map(str, self.template.study))
        try:
            with_name = [s.study_name for s in optuna.get_all_study_summaries(storage)]
            if name in with_name:
                optuna.delete_study(study_name=name, storage=storage)
            kept = optuna.create_study(study_name=name, storage=storage, direction=self._study.direction)
            kept.add_trials([t for t in self._study.trials if t.state.is_finished()])
        except Exception as error:  # whatever the storage's driver raises: the sweep does not depend on it
            raise UserError(f"search.optuna.storage: cannot write the study: {type(error).__name__}") from None


def open_storage(setting: str, folder: Path) -> Any:
    """Where studies are mirrored: a journal file in a folder, or a database by URL."""
    if setting != "journal":
        return expanded(setting)
    from optuna.storages.journal import JournalFileBackend

    folder.mkdir(parents=True, exist_ok=True)
    return optuna.storages.JournalStorage(JournalFileBackend(str(folder / "studies.journal")))


def search_space(values: Mapping[str, Sequence[Any] | Range]) -> dict[str, BaseDistribution]:
    """Optuna's distributions: ranges as they are, numbers from their smallest to their largest, the rest as choices."""
    return {name: _distribution(name, given) for name, given in values.items()}


def _distribution(name: str, given: Sequence[Any] | Range) -> BaseDistribution:
    if isinstance(given, Range):
        if name == "rank" or (float(given.low).is_integer() and float(given.high).is_integer() and given.low >= 2):
            return IntDistribution(int(given.low), int(given.high), log=given.log)
        return FloatDistribution(given.low, given.high, log=given.log)
    if name == "gamma":
        return FloatDistribution(min(given), max(given), log=True)
    if name == "rank":
        return IntDistribution(min(given), max(given), log=True)
    return CategoricalDistribution(list(given))


def _new_study(maximize: bool, pruner: optuna.pruners.BasePruner | None = None) -> optuna.Study:
    return optuna.create_study(direction="maximize" if maximize else "minimize", pruner=pruner)


def _completed(running: _Running) -> bool:
    return running.state == TrialState.COMPLETE


def _readable(params: Mapping[str, Any]) -> Trial:
    """Three digits are more than the score can tell apart, and people can read them."""
    return Trial.of({n: float(f"{v:.3g}") if isinstance(v, float) else v for n, v in params.items()})


def _sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    if name == "gp":
        if importlib.util.find_spec("torch") is None:
            raise UserError("search.optuna.sampler: 'gp' needs PyTorch; install orthosweep[gp], or use 'tpe'")
        return optuna.samplers.GPSampler(seed=seed)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=8)


def _pruner(options: Optuna) -> optuna.pruners.BasePruner:
    if options.pruner == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=4)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.pruners.WilcoxonPruner(p_threshold=0.2, n_startup_steps=2)
