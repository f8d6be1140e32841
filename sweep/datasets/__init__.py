"""Datasets: loading, features, splits. Importing this loads neither NumPy nor scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sweep.datasets.base import Dataset
from sweep.datasets.catalog import DATASETS, DatasetInfo
from sweep.datasets.choice import OWN_SUFFIXES, DatasetChoice, expanded, labels, memory_choice
from sweep.errors import UserError, first_line, nearest

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetChoice",
    "DatasetInfo",
    "describe_datasets",
    "labels",
    "load_dataset",
    "memory_choice",
    "prepare",
]

# Installed packages register datasets under this group: a function that returns (X, y) or a Dataset.
ENTRY_POINTS = "orthosweep.datasets"

Progress = Callable[[str], None]


def load_dataset(
    name_or_path: str | Path,
    *,
    cache: Path,
    label: str | None = None,
    sep: str | None = None,
    decimal: str | None = None,
    drop: Sequence[str] = (),
) -> Dataset:
    """A dataset of the catalog, a user's own file, or a dataset that an installed package registers.

    Parameters
    ----------
    name_or_path : a name in `DATASETS`, the path of an .npz, .csv or .parquet file, or the name of an
        entry point.
    cache : folder that `prepare` writes to.
    label, sep, decimal, drop : how a user's own table is to be read: the label column, what separates
        columns, what precedes fractions, columns that are no features.
    """
    name = str(name_or_path)
    info = DATASETS.get(name)
    if info is None and name.lower().endswith(OWN_SUFFIXES):
        from sweep.datasets.columns import Reading
        from sweep.datasets.own import load_own

        return load_own(expanded(name), Reading(label, sep, decimal, tuple(drop)))
    for key, value in {"label": label, "sep": sep, "decimal": decimal, "drop": drop}.items():
        if value:
            raise UserError(f"dataset {name}: {key!r} is for own tables only; remove it")
    if info is None:
        return _load_registered(name)
    if info.embedded:
        from sweep.datasets.embedded import load_embedded

        return load_embedded(name)
    from sweep.datasets.cache import cache_path, read_dataset

    path = cache_path(cache, name)
    if not path.exists():
        raise UserError(f"dataset {name}: not prepared yet. {how_to_get(name)}")
    return read_dataset(path)


def prepare(
    name: str, source: str | Path | None = None, *, cache: Path, progress: Progress = lambda line: None
) -> Path:
    """Read the raw files of a dataset and store features and labels; the path of the result.

    Parameters
    ----------
    name : a name in `DATASETS` that is not embedded.
    source : folder or archive with the raw files. None takes what was prepared before, else
        downloads where that is allowed, else says where the files come from.
    cache : folder of the results. Files that have not changed are not read again.
    progress : called with one line now and then.
    """
    info = DATASETS.get(name)
    if info is None:
        raise UserError(f"data prepare: unknown dataset {name!r}.{nearest(name, DATASETS)}")
    if info.embedded:
        raise UserError(f"data prepare: {name} is embedded and needs no files")
    from sweep.datasets.cache import cache_path, read_dataset, read_origin, write_dataset

    path = cache_path(cache, name)
    if source is None:
        if path.exists():
            read_dataset(path)
            return path
        if info.download is None:
            raise UserError(f"data prepare {name}: {how_to_get(name)}")
        from sweep.datasets.download import fetch

        progress(f"{name}: {info.source} (terms: {info.terms})")
        source = fetch(info.download, Path(cache) / "downloads", progress)
    source = expanded(str(source))
    origin = _origin(source)
    if read_origin(path) == origin:
        progress(f"{name}: prepared before from the same files")
        read_dataset(path)
        return path
    return write_dataset(_loader(name)(source, progress), cache, origin=origin)


def describe_datasets(cache: Path | None = None) -> list[dict[str, Any]]:
    """One row per dataset of the catalog, for tables and JSON; `prepared` says if it can be used now."""
    from dataclasses import asdict

    from sweep.datasets.cache import cache_path

    rows = []
    for name, info in DATASETS.items():
        row = {"name": name, **asdict(info)}
        row["download"] = info.download is not None
        row["prepared"] = info.embedded or (cache is not None and cache_path(cache, name).exists())
        rows.append(row)
    return rows


def how_to_get(name: str) -> str:
    """Where the files of a dataset come from, under which terms, and the command that reads them."""
    info = DATASETS[name]
    return (
        f"Get the files from {info.source} (terms: {info.terms}), then run"
        f" `sweep data prepare {name} --from PATH`, where PATH is {info.files}."
    )


def _load_registered(name: str) -> Dataset:
    """The dataset of an installed package's entry point; nothing of the package is imported before."""
    from dataclasses import replace
    from importlib.metadata import entry_points

    found = entry_points(group=ENTRY_POINTS)
    if name not in found.names:
        raise UserError(
            f"dataset: unknown name {name!r}.{nearest(name, [*DATASETS, *found.names])}"
            f" Own data: a path that ends in {', '.join(OWN_SUFFIXES)}."
        )
    where = f"dataset {name} ({found[name].value})"
    try:
        data = found[name].load()()
    except Exception as error:  # a user's function may raise anything
        raise UserError(f"{where}: cannot be loaded ({first_line(error)})") from error
    if isinstance(data, Dataset):
        return replace(data, name=name)
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise UserError(f"{where}: expected (X, y) or a Dataset, got {type(data).__name__}")
    from sweep.datasets.arrays import dataset_from_arrays

    return dataset_from_arrays(name, *data, where=where)


def _loader(name: str) -> Callable[[Path, Progress], Dataset]:
    import importlib

    module, _, function = DATASETS[name].loader.partition(":")
    loader: Callable[[Path, Progress], Dataset] = getattr(importlib.import_module(f"sweep.datasets.{module}"), function)
    return loader


def _origin(source: Path) -> str:
    """Names, sizes and times of the raw files: cheap to compare, whatever their size."""
    from sweep.seeds import digest

    if not source.exists():
        raise UserError(f"{source}: no such file or folder; check the path")
    files = sorted(source.rglob("*")) if source.is_dir() else [source]
    return digest([[file.name, (stat := file.lstat()).st_size, stat.st_mtime_ns] for file in files])
