"""The sweep file: YAML in, a validated `SweepSpec` out, or one line that says what is wrong where."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from solvers.methods import METHODS
from sweep.datasets.choice import DatasetChoice
from sweep.errors import UserError, nearest
from sweep.urls import has_secret, hide, redacted

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}$"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Grid(_Part):
    gamma: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]] = [0.001, 0.01, 0.1, 1.0]
    rank: list[Annotated[int, Field(ge=1)]] = [50, 100, 200, 300, 400, 500]

    @field_validator("gamma", "rank")
    @classmethod
    def _distinct(cls, values: list[Any]) -> list[Any]:
        if not values:
            raise ValueError("expected at least one value, got an empty list")
        return sorted(set(values))


class Optuna(_Part):
    sampler: Literal["tpe", "gp"] = "tpe"
    trials: Annotated[int, Field(ge=1)] = 40
    prune_folds: bool = True
    pruner: Literal["wilcoxon", "median"] = "wilcoxon"
    storage: str = "journal"


class OptunaSearch(_Part):
    optuna: Optuna


class Resources(_Part):
    gpus_per_fit: Annotated[float, Field(ge=0)] = 1.0
    fit_timeout_seconds: Annotated[float, Field(gt=0)] | None = None


class Budget(_Part):
    gpu_hours: Annotated[float, Field(gt=0)] | None = None
    wall_hours: Annotated[float, Field(gt=0)] | None = None


class Tracking(_Part):
    mlflow: str = "sqlite"
    ledger: str = "sqlite"
    artifacts: str | None = None

    @field_validator("artifacts")
    @classmethod
    def _may_be_stored(cls, place: str | None) -> str | None:
        if place and has_secret(place):
            raise ValueError("MLflow stores and shows this place, so it must not hold a password; use the environment")
        return place


class Settings(_Part):
    """Solver settings, the same for all methods that know them."""

    n_pairs: Annotated[int, Field(ge=1)] = 20_000
    tol: Annotated[float, Field(gt=0)] = 1e-3
    max_iter: Annotated[int, Field(ge=1)] | None = None
    margin: Annotated[float, Field(gt=0)] = 1.0
    epsilon: Annotated[float, Field(gt=0)] = 1e-5
    rank_tol: Annotated[float, Field(ge=0, lt=1)] = 1e-3


class SweepSpec(_Part):
    """A whole sweep file. Field by field in the README."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    datasets: Annotated[list[DatasetChoice], Field(min_length=1)]
    methods: Annotated[list[str], Field(min_length=1)]
    splits: Annotated[int, Field(ge=1)] = 1
    folds: Annotated[int, Field(ge=2)] = 5
    restarts: Annotated[int, Field(ge=1)] = 5
    grid: Grid = Grid()
    search: Literal["grid"] | OptunaSearch = "grid"
    algorithm: Literal["certified", "paper"] = "certified"
    mode: Literal["production", "benchmark"] = "production"
    warm: bool = False
    settings: Settings = Settings()
    resources: Resources = Resources()
    budget: Budget = Budget()
    tracking: Tracking = Tracking()
    seed: int = 0

    @field_validator("methods")
    @classmethod
    def _expand_globs(cls, patterns: list[str]) -> list[str]:
        chosen: list[str] = []
        for index, pattern in enumerate(patterns):
            matches = [name for name in METHODS if fnmatchcase(name, pattern)]
            if not matches:
                raise _PlacedError(index, f"unknown method {pattern!r}.{nearest(pattern, METHODS)}")
            chosen += [name for name in matches if name not in chosen]
        return chosen

    @model_validator(mode="after")
    def _gpu_sharing_is_for_production(self) -> SweepSpec:
        if self.mode == "benchmark" and 0 < self.resources.gpus_per_fit < 1:
            raise ValueError(
                "resources.gpus_per_fit: a benchmark runs one fit per GPU, so expected 1 or more, "
                f"got {self.resources.gpus_per_fit:g}; use mode: production to share GPUs"
            )
        if self.warm and (self.mode == "benchmark" or self.search != "grid"):
            raise ValueError("warm: chains of warm starts go with mode: production and search: grid only; remove it")
        return self

    def without_secrets(self) -> dict[str, Any]:
        """The file as it may be stored and shown: URLs without user names and passwords."""
        values = self.model_dump(mode="json")
        values["tracking"] = {k: v and redacted(v) for k, v in values["tracking"].items()}
        if isinstance(values["search"], dict):
            values["search"]["optuna"]["storage"] = redacted(values["search"]["optuna"]["storage"])
        return values


class _PlacedError(ValueError):
    """A validation error that knows which list item it is about."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


def preset_names() -> list[str]:
    """Names of the sweep files that ship with the package."""
    return sorted(
        entry.name[:-5] for entry in (resources.files("sweep") / "presets").iterdir() if entry.name.endswith(".yaml")
    )


def load_spec(source: str) -> SweepSpec:
    """Sweep file from a preset's name or a path to a YAML file."""
    if re.fullmatch(NAME_PATTERN, source) and source in preset_names():
        return parse_spec((resources.files("sweep") / "presets" / f"{source}.yaml").read_text(), source)
    path = Path(source)
    if not path.is_file():
        raise UserError(f"{source}: no such sweep file, and no preset of that name.{nearest(source, preset_names())}")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{source}: expected UTF-8 text, got a byte that is not (at {error.start})") from None
    return _resolve_paths(parse_spec(text, str(path)), path.parent)


def parse_spec(text: str, where: str) -> SweepSpec:
    """Validated spec from YAML text; `where` opens every error line."""
    try:
        document, values = _parse(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}:{mark.line + 1}" if mark else where
        raise UserError(f"{place}: not valid YAML: {getattr(error, 'problem', error)}") from None
    if not isinstance(values, dict):
        raise UserError(f"{where}: expected a mapping with name, datasets, methods, ..., got {type(values).__name__}")
    hide(values)  # before anything can go wrong with them and be shown
    try:
        return SweepSpec.model_validate(values)
    except ValidationError as error:
        raise UserError(_describe(error, document, where)) from None


def _resolve_paths(spec: SweepSpec, folder: Path) -> SweepSpec:
    """Dataset paths in a file are relative to that file."""
    choices = [choice.located(folder) for choice in spec.datasets]
    return spec.model_copy(update={"datasets": choices})


def _parse(text: str) -> tuple[yaml.Node | None, Any]:
    """The document's nodes, which know their lines, and its values."""
    try:  # ten times as fast, where it was built
        return yaml.compose(text, Loader=yaml.CSafeLoader), yaml.load(text, Loader=yaml.CSafeLoader)
    except (AttributeError, yaml.YAMLError):  # the other loader words its complaints better
        return yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)


def _describe(error: ValidationError, document: yaml.Node | None, where: str) -> str:
    """First validation error as one line: file:line: place: expected, got, nearest."""
    # Of a union's several complaints the deepest one is about what the user meant.
    problem = max(error.errors(), key=lambda e: len(e["loc"]))
    location = [part for part in problem["loc"] if not _is_union_tag(part)]
    cause = (problem.get("ctx") or {}).get("error")
    if isinstance(cause, _PlacedError):
        location.append(cause.index)
    line = _line_of(document, location)
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    start = f"{where}:{line}: {place}".rstrip(": ") if place else f"{where}"
    if cause is not None:
        return f"{start}: {cause}"
    if problem["type"] == "extra_forbidden":
        return f"{start}: unknown key.{nearest(str(location[-1]), _fields_at(location[:-1]))}"
    if problem["type"] == "missing":
        return f"{start}: this key is required"
    message = problem["msg"].replace("Input should be", "expected").replace("String should", "expected text to")
    return f"{start}: {message}, got {problem['input']!r}"


def _is_union_tag(part: Any) -> bool:
    return isinstance(part, str) and (part == "OptunaSearch" or part.startswith(("literal[", "function-")))


def _fields_at(location: list[Any]) -> list[str]:
    """Names of the fields that a part of the sweep file may have."""
    model: Any = SweepSpec
    parts = {
        "grid": Grid,
        "optuna": Optuna,
        "search": OptunaSearch,
        "resources": Resources,
        "budget": Budget,
        "tracking": Tracking,
        "settings": Settings,
        "datasets": DatasetChoice,
    }
    for part in location:
        model = parts.get(part, model)
    return list(model.model_fields)


def _line_of(node: yaml.Node | None, location: list[Any]) -> int:
    """Line (from 1) of the deepest existing node on the way to `location`."""
    line = 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == part), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line
