"""A dataset as a sweep names it: a source and options, and the label that tells it from its siblings."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from sweep.datasets.catalog import DATASETS
from sweep.errors import UserError

if TYPE_CHECKING:
    from sweep.datasets.base import Dataset

OWN_SUFFIXES = (".npz", ".csv", ".csv.gz", ".parquet")

# The options that say how an own table is to be read.
READING = ("label", "sep", "decimal", "drop")

_MEMORY_NAME = re.compile(r"[\w][\w. -]{0,63}")


class DatasetChoice(BaseModel):
    """A dataset by name or path, with what the sweep file says about it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    label: str | None = None
    frequent_above: Annotated[int, Field(ge=1)] | None = None
    scaling: Literal["minmax", "l2", "none"] | None = None
    pca: Annotated[int, Field(ge=0)] | None = None  # 0: no PCA, also where the dataset has one
    sep: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    decimal: Literal[".", ","] | None = None
    drop: tuple[str, ...] | None = None

    # Data that a Python caller handed over; no sweep file can set it, and no dump shows it.
    _memory: Dataset | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _from_string(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @property
    def in_memory(self) -> Dataset | None:
        """The data of `memory_choice`, None for every other choice."""
        return self._memory

    @property
    def is_path(self) -> bool:
        """Whether the name is a file's path, and not a dataset's name."""
        return self._memory is None and self.name not in DATASETS and self.name.lower().endswith(OWN_SUFFIXES)

    def options(self) -> dict[str, Any]:
        """What the sweep file says about the dataset, without what it leaves open."""
        return {key: value for key, value in self if key != "name" and value is not None}

    def located(self, folder: Path) -> DatasetChoice:
        """The same choice with an absolute path; relative ones start at `folder`, and ~ is the user's home."""
        if not self.is_path:
            return self
        return self.model_copy(update={"name": _absolute(folder / expanded(self.name))})

    def _source(self) -> tuple[str, ...]:
        """What the data come from, whatever the options."""
        if self._memory is not None:
            return ("memory", self.name, self._memory.fingerprint)
        return ("path", _absolute(expanded(self.name))) if self.is_path else ("name", self.name)


def expanded(name: str) -> Path:
    """A path with ~ as the user's home folder."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise UserError(f"{name}: no such user's home folder; write the whole path") from error


def _absolute(path: Path) -> str:
    # Not `resolve`: the name of a link is what the user knows, not that of the file behind it.
    return os.path.abspath(path)  # noqa: PTH100


def memory_choice(
    name: str,
    X: Any,
    y: Any,
    *,
    frequent_above: int | None = None,
    scaling: Literal["minmax", "l2", "none"] | None = None,
    pca: int | None = None,
) -> DatasetChoice:
    """A choice that carries its data, checked as a file's would be.

    Parameters
    ----------
    name : how results call it.
    X : (n, D) NumPy array, SciPy sparse matrix or pandas DataFrame; column names are kept. Not copied
        where it is float already: changing it while the sweep runs is noticed and refused.
    y : (n,) labels of any type.
    frequent_above, scaling, pca : as in a sweep file.
    """
    from sweep.datasets.arrays import dataset_from_arrays

    if not _MEMORY_NAME.fullmatch(name) or name in DATASETS or name.lower().endswith(OWN_SUFFIXES):
        raise UserError(
            f"datasets: {name!r} cannot name data in memory; expected letters, digits, spaces, '.', '-' and '_',"
            " and neither a dataset of the catalog nor the name of a file"
        )
    choice = DatasetChoice(name=name, frequent_above=frequent_above, scaling=scaling, pca=pca)
    choice._memory = dataset_from_arrays(name, X, y, where=f"datasets[{name!r}]")
    return choice


def labels(choices: Sequence[DatasetChoice]) -> list[str]:
    """A name for each choice that no other of the sweep has.

    The dataset's or the file's name where that is enough; of files that share a name, the shortest end
    of the path that tells them apart (`a/wine.csv`, `b/wine.csv`); of one source with several options,
    the options in brackets (`digits`, `digits[scaling=l2]`).
    """
    sources = [choice._source() for choice in choices]
    names = _source_names(dict.fromkeys(sources))
    found: list[str] = []
    for index, (choice, source) in enumerate(zip(choices, sources, strict=True)):
        options = ",".join(f"{key}={_short(value)}" for key, value in choice.options().items())
        label = f"{names[source]}[{options}]" if options and sources.count(source) > 1 else names[source]
        if label in found:
            raise UserError(
                f"datasets[{index}]: {choice.name} with the same options is datasets[{found.index(label)}] already;"
                " remove one or change an option"
            )
        found.append(label)
    return found


def _short(value: Any) -> str:
    return "+".join(value) if isinstance(value, tuple) else str(value)


def _source_names(sources: dict[tuple[str, ...], None]) -> dict[tuple[str, ...], str]:
    paths = [PurePath(source[1]).parts for source in sources if source[0] == "path"]
    names = {}
    for source in sources:
        name = source[1]
        if source[0] == "path":
            parts = PurePath(name).parts
            # Names of files may differ in the directory only, or one path may be the end of another.
            depth = next((d for d in range(1, len(parts)) if [p[-d:] for p in paths].count(parts[-d:]) == 1), None)
            name = "/".join(parts[-depth:]) if depth else PurePath(name).as_posix()
        names[source] = name
    return names
