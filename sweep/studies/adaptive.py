"""Adaptive search with Optuna behind the same interface as the grid.

Trials are asked in batches of a fixed size and told in the order of their numbers once a whole
batch is in, with a sampler seeded by the trial's number: what is asked next depends on scores
alone, never on which fit happened to finish first, so a killed study ends like an undisturbed one.

With `prune_folds` a trial's folds run one after the other and a pruner may end it early; a method
with restarts is screened on one restart per fold first and gets all of them only if it survives.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from sweep.errors import UserError
from sweep.fits import FitSpec
from sweep.seeds import derive_seed
from sweep.studies.grid import Trial
from sweep.studies.spec import Grid, Optuna

BATCH = 4

Scores = Mapping[Trial, Mapping[int, float]]


@dataclass
class _Running:
    """A trial that is being evaluated."""

    number: int
    trial: Trial
    screened: dict[int, float | None] = field(default_factory=dict)
    scores: dict[int, float | None] = field(default_factory=dict)
    state: TrialState | None = None  # how it ended


class OptunaStudy:
    """One method on one split, tuned by an Optuna study that lives in `storage`.

    Parameters
    ----------
    template : the refit, with gamma and rank still open.
    grid : its smallest and largest values bound the search; what is not tuned has one value, None.
    observations : finished trials of the same method and split, known at no cost.
    """

    def __init__(
        self,
        template: FitSpec,
        grid: Grid,
        tuned: tuple[str, ...],
        options: Optuna,
        storage: Any,
        observations: Callable[[], Scores],
        sweep: str,
    ) -> None:
        self.template, self.options = template, options
        self._space: dict[str, Any] = {}
        if "gamma" in tuned:
            self._space["gamma"] = optuna.distributions.FloatDistribution(grid.gamma[0], grid.gamma[-1], log=True)
        if "rank" in tuned:
            self._space["rank"] = optuna.distributions.IntDistribution(grid.rank[0], grid.rank[-1], log=True)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(
            study_name=f"{sweep}/{template.dataset}/{template.split}/{template.method}",
            storage=storage,
            direction="maximize",
            load_if_exists=True,
            pruner=_pruner(options),
        )
        self._observations = observations
        self._asked = 0
        self._batch: dict[Trial, _Running] = {}
        self._finished: dict[Trial, float] = {}

    @property
    def planned(self) -> int:
        return 0  # what it asks for depends on what it finds

    def start(self) -> list[FitSpec]:
        if not self._study.trials:
            self._observe()
        self._finished = {
            _trial_of(t.params): t.value
            for t in self._study.trials
            if t.user_attrs.get("observed") and t.value is not None
        }
        known = [Trial(t.gamma, t.rank) for t in self._finished]
        return [self._fit(trial, fold) for trial in known for fold in range(self.template.folds)] + self._next_batch()

    def tell(self, spec: FitSpec, score: float | None) -> list[FitSpec]:
        running = self._batch.get(Trial(spec.gamma, spec.rank))
        if spec.fold is None or running is None:  # the refit, or a trial that was known before
            return []
        screening = self._screens and spec.restarts == self._screening_restarts
        (running.screened if screening else running.scores)[spec.fold] = score
        following = self._advance(running, spec.fold, score, screening)
        if all(r.state is not None for r in self._batch.values()):
            self._tell_batch()
            following += self._next_batch()
        return following

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
            if self._is_pruned(running, fold, score):
                running.state = TrialState.PRUNED
                return []
            if fold + 1 < self.template.folds:
                return [self._fit(running.trial, fold + 1, self._screening_restarts)]
            if self.template.restarts > 1:
                return [self._fit(running.trial, f) for f in range(self.template.folds)]
            running.scores = dict(running.screened)
        if len(running.scores) == self.template.folds:
            failed = any(value is None for value in running.scores.values())
            running.state = TrialState.FAIL if failed else TrialState.COMPLETE
        return []

    def _is_pruned(self, running: _Running, fold: int, score: float) -> bool:
        """The pruner's word on a fold, kept in the study: a replay must not ask again."""
        stored = self._study.trials[running.number]
        decided = stored.user_attrs.get("decided_folds", 0)
        if fold >= decided:
            trial = optuna.trial.Trial(self._study, stored._trial_id)
            trial.report(score, fold)
            if trial.should_prune():
                trial.set_user_attr("pruned_at", fold)
            trial.set_user_attr("decided_folds", fold + 1)
            stored = self._study.trials[running.number]
        return bool(stored.user_attrs.get("pruned_at") == fold)

    # -- batches --------------------------------------------------------------------------------

    def _next_batch(self) -> list[FitSpec]:
        """Ask for the next trials, or for the refit when there are enough."""
        observed = sum(1 for t in self._study.trials if t.user_attrs.get("observed"))
        self._batch = {}
        fits: list[FitSpec] = []
        while not fits and self._asked < self.options.trials:
            for _ in range(min(BATCH, self.options.trials - self._asked)):
                number = observed + self._asked
                self._asked += 1
                trial = self._ask(number)
                if trial in self._finished or trial in self._batch:  # asked before, up to rounding
                    known = self._finished.get(trial)
                    state = TrialState.FAIL if known is None else TrialState.COMPLETE
                    self._study.tell(number, known, state=state, skip_if_finished=True)
                    continue
                running = self._batch[trial] = _Running(number, trial)
                fits += self._begin(running)
        return fits or self._refit()

    def _ask(self, number: int) -> Trial:
        trials = self._study.trials
        if number < len(trials):  # asked before a crash, or by an earlier run
            return _trial_of(trials[number].params)
        seed = derive_seed(self.template.seed, self._study.study_name, number)
        self._study.sampler = _sampler(self.options.sampler, seed)
        return _trial_of(self._study.ask(self._space).params)

    def _tell_batch(self) -> None:
        for running in sorted(self._batch.values(), key=lambda r: r.number):
            value = None
            if running.state == TrialState.COMPLETE:
                value = sum(score for score in running.scores.values() if score is not None) / self.template.folds
                self._finished[running.trial] = value
            self._study.tell(running.number, value, state=running.state, skip_if_finished=True)

    def _refit(self) -> list[FitSpec]:
        if not self._finished:
            return []
        best = max(self._finished, key=lambda t: (self._finished[t], -(t.rank or 0), t.gamma or 0.0))
        return [self._fit(best, None)]

    def _observe(self) -> None:
        """Hand finished trials of earlier sweeps to the study."""
        for trial, scores in sorted(self._observations().items()):
            params = {
                name: value for name, value in (("gamma", trial.gamma), ("rank", trial.rank)) if name in self._space
            }
            inside = all(self._space[name]._contains(value) for name, value in params.items())
            if inside and len(scores) == self.template.folds:
                self._study.add_trial(
                    optuna.trial.create_trial(
                        params=params,
                        distributions=self._space,
                        value=sum(scores.values()) / len(scores),
                        intermediate_values=dict(scores),
                        user_attrs={"observed": True},
                    )
                )

    def _fit(self, trial: Trial, fold: int | None, restarts: int | None = None) -> FitSpec:
        return replace(
            self.template,
            gamma=trial.gamma,
            rank=trial.rank,
            fold=fold,
            restarts=restarts or self.template.restarts,
        )


def open_storage(setting: str, folder: Path) -> Any:
    """Where studies live: a journal file under the home, or a database by URL."""
    if setting != "journal":
        return optuna.storages.RDBStorage(setting)
    folder.mkdir(parents=True, exist_ok=True)
    from optuna.storages.journal import JournalFileBackend

    backend = JournalFileBackend(str(folder / "studies.journal"))
    return optuna.storages.JournalStorage(backend)


def _trial_of(params: Mapping[str, Any]) -> Trial:
    gamma = params.get("gamma")
    # Three digits are more than the score can tell apart, and people can read them.
    return Trial(None if gamma is None else float(f"{gamma:.3g}"), params.get("rank"))


def _sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    if name == "gp":
        if importlib.util.find_spec("torch") is None:
            raise UserError("search.optuna.sampler: 'gp' needs PyTorch; install orthosweep[gp], or use 'tpe'")
        return optuna.samplers.GPSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=8)


def _pruner(options: Optuna) -> optuna.pruners.BasePruner:
    if not options.prune_folds:
        return optuna.pruners.NopPruner()
    if options.pruner == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=4)
    return optuna.pruners.WilcoxonPruner(p_threshold=0.2, n_startup_steps=2)
