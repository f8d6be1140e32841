"""The reference page has a line for every key, exit code, score and file, and none for what does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from solvers.scores import SCORES
from sweep import exits
from sweep.datasets.choice import DatasetChoice
from sweep.store.home import FILES
from sweep.studies.spec import MethodEntry, OptunaSearch, Range, SweepSpec
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")


def section(title: str) -> set[str]:
    """The words in code marks that open the rows of a section's table."""
    text = PAGE.split(f"## {title}", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        part = inner(field.annotation)
        if part is not None:
            yield from keys(part, f"{prefix}{name}.")


def inner(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in getattr(annotation, "__args__", ()) if (found := inner(each))), None)


def expected() -> set[str]:
    found = set(keys(SweepSpec))
    # Ranges look alike everywhere: they are described once.
    ranges = {key for key in found if re.match(r"(grid\.rank|methods\.tune)\.", key)}
    return found - ranges


def test_every_key_of_the_sweep_file_has_its_line() -> None:
    described = section("The sweep file")
    missing = {key.replace("search.optuna.optuna", "search.optuna") for key in expected()} - described
    assert missing - {"search.optuna"} == set()


def test_no_line_describes_a_key_that_does_not_exist() -> None:
    assert section("The sweep file") - expected() == set()


def test_scores_exit_codes_and_files_are_all_there() -> None:
    assert section("Scores") == set(SCORES)
    assert section("Files of a home") == {file.path for file in FILES}
    codes = {value for name, value in vars(exits).items() if name.isupper()}
    text = PAGE.split("## Exit codes", 1)[1].split("\n## ", 1)[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)} == codes


@pytest.mark.parametrize("model", [SweepSpec, DatasetChoice, MethodEntry, OptunaSearch, Range])
def test_unknown_keys_are_refused_everywhere(model: type[BaseModel]) -> None:
    assert model.model_config.get("extra") == "forbid"


def test_the_examples_are_sweep_files() -> None:
    from sweep.studies.sweepfile import load_spec

    files = sorted((ROOT / "docs" / "examples").glob("*.yaml"))
    assert {load_spec(str(file)).name for file in files} == {file.stem for file in files} == {"grid", "path"}
