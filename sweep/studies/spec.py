"""The sweep file as a type: what may stand in it, and what it means. `sweep.studies.sweepfile` reads the YAML."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from solvers.scores import SCORES
from sweep.code import entry_points
from sweep.datasets.choice import DatasetChoice
from sweep.errors import nearest
from sweep.fits.trials import Select, Value
from sweep.urls import has_secret, origin, redacted

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}$"

# No sweep needs more, and a plan of a thousand million splits would never end.
_MOST_SPLITS, _MOST_FOLDS, _MOST_RESTARTS, _MOST_TRIALS, _MOST_VALUES = 1000, 100, 1000, 100_000, 1000

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10**9)]


class Part(BaseModel):
    """A part of a sweep file: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Range(Part):
    """All values from `low` to `high`: for a path, or for Optuna.

    A path extends itself down to `least` and up to `most` while the score still rises at its end.
    """

    low: Positive
    high: Positive
    log: bool = True
    least: Positive | None = None
    most: Positive | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if not self.low < self.high:
            raise ValueError(f"expected low below high, got {self.low:g} and {self.high:g}")
        if (self.least or self.low) > self.low or (self.most or self.high) < self.high:
            raise ValueError("expected least at most low, and most at least high")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        return self.least or self.low, self.most or self.high


Values = list[Value] | Range

# Where a sweep file names no gamma: held-out data have their best one far below the paper's grid.
DEFAULT_GAMMAS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
DEFAULT_PATH = Range(low=1e-4, high=1.0, least=1e-6, most=10.0)


class Grid(Part):
    """Values of the two hyperparameters that most methods share."""

    gamma: list[Positive] | Range | None = None
    rank: list[Count] | Range = [50, 100, 200, 300, 400, 500]

    @field_validator("gamma", "rank")
    @classmethod
    def _distinct(cls, values: Any) -> Any:
        return sorted(set(_listed(values))) if isinstance(values, list) else values


class MethodEntry(Part):
    """A line of `methods`: a name, or a mapping with parameters, own grids, or an estimator that is not ours."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    estimator: str | None = None
    params: dict[str, Value] = {}
    tune: dict[str, Values] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_string(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("tune")
    @classmethod
    def _not_empty(cls, tune: dict[str, Any]) -> dict[str, Any]:
        return {name: list(dict.fromkeys(_listed(v))) if isinstance(v, list) else v for name, v in tune.items()}

    @model_serializer(mode="wrap")
    def _short(self, handler: Any) -> Any:
        values = {key: value for key, value in handler(self).items() if value}
        return self.name if set(values) == {"name"} else values


class Optuna(Part):
    """Adaptive search. `reuse` takes fits of other sweeps in the home as observations; `patience` ends a study after
    so many trials that improve on the best by less than `improvement`."""

    sampler: Literal["tpe", "gp"] = "tpe"
    trials: Annotated[int, Field(ge=1, le=_MOST_TRIALS)] = 40
    prune_folds: bool = True
    pruner: Literal["wilcoxon", "median"] = "wilcoxon"
    storage: str | None = None
    reuse: bool = False
    patience: Count | None = None
    improvement: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-3


class OptunaSearch(Part):
    """`search: {optuna: {...}}`."""

    optuna: Optuna


class Resources(Part):
    """What one fit is given: `measured` sends each kind of fit where timed kernels say that it is better off."""

    device: Literal["auto", "measured"] = "auto"
    gpus_per_fit: Annotated[float, Field(ge=0, le=64, allow_inf_nan=False)] = 1.0
    fit_timeout_seconds: Positive | None = None


class Budget(Part):
    """Where the sweep ends, finished or not. Without GPUs, `gpu_hours` are core-hours."""

    gpu_hours: Positive | None = None
    wall_hours: Positive | None = None


class Tracking(Part):
    """Where records go: `sqlite` is under the home, `none` records nothing in MLflow, else URLs."""

    mlflow: str = "sqlite"
    ledger: str = "sqlite"
    artifacts: str | None = None

    @field_validator("artifacts")
    @classmethod
    def _may_be_stored(cls, place: str | None) -> str | None:
        if place and has_secret(place):
            raise ValueError("MLflow stores and shows this place, so it must not hold a password; use the environment")
        return place


class Notify(Part):
    """One POST of a small JSON when the sweep ends."""

    url: str
    on: list[Literal["done", "failed", "budget", "stopped"]] = ["done", "failed", "budget"]


class Settings(Part):
    """Solver settings, the same for all methods that know them."""

    n_pairs: Count = 20_000
    tol: Positive = 1e-3
    path_tol: Positive | None = None
    max_iter: Count | None = None
    margin: Positive = 1.0
    epsilon: Positive = 1e-5
    rank_tol: Annotated[float, Field(ge=0, lt=1)] = 1e-3
    agree_tol: Positive | None = None


class SweepSpec(Part):
    """A whole sweep file; docs/reference.md has a line for every key."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    datasets: Annotated[list[DatasetChoice], Field(min_length=1, max_length=_MOST_VALUES)]
    methods: Annotated[list[MethodEntry], Field(min_length=1, max_length=_MOST_VALUES)]
    splits: Annotated[int, Field(ge=1, le=_MOST_SPLITS)] = 1
    folds: Annotated[int, Field(ge=2, le=_MOST_FOLDS)] = 5
    restarts: Annotated[int, Field(ge=1, le=_MOST_RESTARTS)] = 5
    grid: Grid = Grid()
    search: Literal["grid", "path"] | OptunaSearch = "grid"
    score: str = "auc_all"
    select: Select = "best"
    max_queries: Count | None = 5000
    eliminate: bool = False
    algorithm: Literal["certified", "paper"] = "certified"
    mode: Literal["production", "benchmark"] = "production"
    warm: bool = False
    settings: Settings = Settings()
    resources: Resources = Resources()
    budget: Budget = Budget()
    tracking: Tracking = Tracking()
    notify: Notify | None = None
    code: Annotated[list[str], Field(max_length=_MOST_VALUES)] = []
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = 0

    @field_validator("score")
    @classmethod
    def _known_score(cls, score: str) -> str:
        installed = entry_points("scores")
        if score in SCORES or ":" in score:
            return score
        if score not in installed:
            known = [*SCORES, *installed]
            raise ValueError(f"unknown score {score!r}.{nearest(score, known)} An own one: mypkg.module:function.")
        return installed[score]

    @model_validator(mode="after")
    def _fits_together(self) -> SweepSpec:
        if self.mode == "benchmark" and 0 < self.resources.gpus_per_fit < 1:
            raise ValueError(
                "resources.gpus_per_fit: a benchmark runs one fit per GPU, so expected 1 or more, "
                f"got {self.resources.gpus_per_fit:g}; use mode: production to share GPUs"
            )
        if self.mode == "benchmark" and self.resources.device == "measured":
            raise ValueError(
                "resources.device: a benchmark never mixes devices, so expected auto, got measured; "
                "remove it, or use mode: production"
            )
        if self.warm and (self.mode == "benchmark" or self.search != "grid"):
            raise ValueError("warm: chains of warm starts go with mode: production and search: grid only; remove it")
        if self.mode == "benchmark" and self.settings.agree_tol is not None:
            raise ValueError("settings.agree_tol: a benchmark runs all restarts; remove it, or use mode: production")
        if self.eliminate:
            self._check_elimination()
        if self.search == "path" and self.algorithm != "certified":
            raise ValueError("search: a path needs algorithm: certified, which alone proves it")
        return self

    def _check_elimination(self) -> None:
        if self.mode == "benchmark" or self.search != "grid" or self.select != "best":
            raise ValueError("eliminate: goes with mode: production, search: grid and select: best only; remove it")
        known = SCORES.get(self.score)
        if known is None or not known.larger_is_better or known.upper_bound is None:
            raise ValueError(
                f"eliminate: score {self.score} has no bound, so no trial can be ruled out early; remove it"
            )

    @field_serializer("grid")
    def _named_grid(self, grid: Grid) -> dict[str, Any]:
        return grid.model_dump(mode="json", exclude_none=True)

    def without_secrets(self) -> dict[str, Any]:
        """The file as it may be stored and shown: URLs without user names, passwords and tokens."""
        values = self.model_dump(mode="json")
        values["tracking"] = {key: value and redacted(value) for key, value in values["tracking"].items()}
        if isinstance(values["search"], dict):
            storage = values["search"]["optuna"]["storage"]
            values["search"]["optuna"]["storage"] = storage and redacted(storage)
        if values["notify"]:
            values["notify"]["url"] = origin(values["notify"]["url"])  # the path is the secret of a webhook
        return values


def _listed(values: list[Any]) -> list[Any]:
    if not values:
        raise ValueError("expected at least one value, got an empty list")
    if len(values) > _MOST_VALUES:
        raise ValueError(f"expected at most {_MOST_VALUES} values, got {len(values)}")
    return values
