"""YAML in, a validated `SweepSpec` out, or one line that says what is wrong where."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from sweep.errors import UserError, nearest
from sweep.methods import matching_methods, unknown_method
from sweep.studies.spec import NAME_PATTERN, SweepSpec
from sweep.urls import hide

_MOST_BYTES = 2**20
_DEEPEST = 20
_MOST_NODES = 100_000
_LONGEST = 160  # characters of a value that an error line shows


def preset_names() -> list[str]:
    """Names of the sweep files that ship with the package."""
    return sorted(
        entry.name[:-5] for entry in (resources.files("sweep") / "presets").iterdir() if entry.name.endswith(".yaml")
    )


def load_spec(source: str) -> SweepSpec:
    """Sweep file from a preset's name or a path to a YAML file."""
    if re.fullmatch(NAME_PATTERN, source) and source in preset_names():
        return parse_spec((resources.files("sweep") / "presets" / f"{source}.yaml").read_text(), source)
    path = Path(source).expanduser()
    if not path.is_file():
        raise UserError(f"{source}: no such sweep file, and no preset of that name.{nearest(source, preset_names())}")
    if path.stat().st_size > _MOST_BYTES:
        raise UserError(f"{source}: {path.stat().st_size:,} bytes, expected a sweep file of at most {_MOST_BYTES:,}")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{source}: expected UTF-8 text, got a byte that is not (at {error.start})") from None
    return located(parse_spec(text, str(path)), path.parent)


def folder_of(source: str) -> Path:
    """The folder that a sweep file's paths and code start from; of a preset, the current one."""
    path = Path(source).expanduser()
    return path.resolve().parent if path.is_file() else Path.cwd()


def parse_spec(text: str, where: str) -> SweepSpec:
    """Validated spec from YAML text; `where` opens every error line."""
    try:
        document = yaml.compose(text, Loader=yaml.SafeLoader)
        _check_nodes(document, where)
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}:{mark.line + 1}" if mark else where
        problem = str(getattr(error, "problem", error)).splitlines()[0]
        raise UserError(f"{place}: not valid YAML: {problem}") from None
    except RecursionError:
        raise UserError(_too_deep(where)) from None
    except UserError:
        raise
    except ValueError as error:  # a date or a number that cannot be
        what = "a number with thousands of digits" if "digits" in str(error) else str(error)[:_LONGEST]
        raise UserError(f"{where}: not a sweep file: {what}") from None
    if not isinstance(values, dict):
        raise UserError(f"{where}: expected a mapping with name, datasets, methods, ..., got {type(values).__name__}")
    spec = validated(values, where, document)
    for index, entry in enumerate(spec.methods):
        if entry.estimator is None and not matching_methods(entry.name):
            line = _line_of(document, ["methods", index])
            raise UserError(f"{where}:{line}: methods[{index}]: {unknown_method(entry.name)}")
    return spec


def validated(values: Mapping[Any, Any], where: str, document: yaml.Node | None = None) -> SweepSpec:
    """A spec from plain values, as a sweep file or a Python caller gives them."""
    hide(dict(values))  # before anything can go wrong with them and be shown
    try:
        return SweepSpec.model_validate(values)
    except ValidationError as error:
        raise UserError(_describe(error, document, where)) from None


def located(spec: SweepSpec, folder: Path) -> SweepSpec:
    """Dataset paths in a file are relative to that file."""
    return spec.model_copy(update={"datasets": [choice.located(folder) for choice in spec.datasets]})


def renamed(spec: SweepSpec, name: str) -> SweepSpec:
    """The same sweep under another name."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise UserError(f"--name: expected lower-case letters, digits, '.', '_' or '-', got {name!r}")
    return spec.model_copy(update={"name": name})


def _check_nodes(node: yaml.Node | None, where: str, depth: int = 0, seen_before: int = 0) -> int:
    """Refuse what YAML would take without a word: a key given twice, aliases that multiply, endless nesting.

    Returns the number of nodes, those behind an alias once for each of its uses.
    """
    if depth > _DEEPEST:
        raise UserError(_too_deep(where))
    count = seen_before + 1
    if count > _MOST_NODES:
        raise UserError(
            f"{where}: more than {_MOST_NODES:,} values, aliases (*name) written out; a sweep file needs fewer"
        )
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if isinstance(key.value, str):
                if key.value in seen:
                    raise UserError(f"{where}:{line}: {key.value} stands here and in line {seen[key.value]}; keep one")
                seen[key.value] = line
            count = _check_nodes(value, where, depth + 1, count)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            count = _check_nodes(value, where, depth + 1, count)
    return count


def _too_deep(where: str) -> str:
    return f"{where}: nested more than {_DEEPEST} levels deep; a sweep file needs fewer"


def _describe(error: ValidationError, document: yaml.Node | None, where: str) -> str:
    """First validation error as one line: file:line: place: expected, got, nearest."""
    # Of a union's several complaints the deepest one is about what the user meant; a key that is misspelt is also
    # missing under its right name.
    told = ("missing", "other", "value_error", "extra_forbidden")
    problem = max(
        error.errors(), key=lambda e: (len(e["loc"]), told.index(e["type"] if e["type"] in told else "other"))
    )
    location = [part for part in problem["loc"] if not _is_union_tag(part)]
    cause = (problem.get("ctx") or {}).get("error")
    line = _line_of(document, location)
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    start = f"{where}:{line}" if document is not None else where
    start = f"{start}: {place}" if place else where
    if cause is not None:
        return f"{start}: {cause}"
    if problem["type"] == "extra_forbidden":
        return f"{start}: unknown key.{nearest(str(location[-1]), _fields_at(location[:-1]))}"
    if problem["type"] == "missing":
        return f"{start}: this key is required"
    if problem["type"] == "too_short":
        return f"{start}: expected at least one, got an empty list"
    message = problem["msg"].replace("Input should be", "expected").replace("String should", "expected text to")
    message = re.sub(r"a valid dictionary( or instance of \w+)?", "a mapping", message).replace(
        "a valid list", "a list"
    )
    return f"{start}: {message[0].lower()}{message[1:]}, got {_short(problem['input'])}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _is_union_tag(part: Any) -> bool:
    """Pydantic's own words for which member of a union it tried."""
    return isinstance(part, str) and (
        part in ("OptunaSearch", "Range", "float", "int", "str", "bool")
        or part.startswith(("literal[", "function-", "list[", "constrained-"))
    )


def _fields_at(location: list[Any]) -> list[str]:
    """Names of the fields that a part of the sweep file may have."""
    model: Any = SweepSpec
    for part in location:
        if isinstance(part, str) and part in getattr(model, "model_fields", {}):
            model = _part_of(model.model_fields[part].annotation)
    return list(getattr(model, "model_fields", ()))


def _part_of(annotation: Any) -> Any:
    """The model inside an annotation like list[Part] or Literal[...] | Part."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in getattr(annotation, "__args__", ()) if (found := _part_of(each))), None)


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
