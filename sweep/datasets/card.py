"""What planning needs to know of a dataset, and the splits that fits need of it.

A card holds no data, so a plan over many datasets stays small; a split is opened when its first fit
is due, from the source that the card describes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.datasets.choice import READING, DatasetChoice, expanded, labels
from sweep.errors import UserError
from sweep.seeds import digest, source_of

if TYPE_CHECKING:
    from sweep.datasets.base import Dataset
    from sweep.datasets.features import Preprocessing
    from sweep.fits import SplitData

# Raised whenever own files are read in another way: older cards are then not believed.
_CARD_VERSION = 2


@dataclass(frozen=True)
class DatasetCard:
    """A dataset without its data, the sweep file's choices resolved against its defaults.

    Attributes
    ----------
    label : what tells it from the other datasets of the sweep.
    name : the name in the catalog, of the file or of the data in memory.
    fingerprint : hex SHA-256 of the content.
    n_features : number of features before PCA.
    dimension : number of features that a fit sees.
    train_size : number of training examples in each split.
    class_sizes : examples per class over the whole dataset.
    frequent_above, scaling, pca : as fits use them; pca is None for no PCA.
    notes : what a reader of results must know about the features.
    """

    label: str
    name: str
    fingerprint: str
    n_examples: int
    n_features: int
    dimension: int
    train_size: int
    class_sizes: tuple[int, ...]
    frequent_above: int
    scaling: str
    pca: int | None
    notes: str

    @property
    def sizes(self) -> dict[str, int]:
        """What the paper's tables of datasets list, of the data as it is fitted."""
        counts = [size for size in self.class_sizes if size]
        frequent = [size for size in counts if size > self.frequent_above]
        return {
            "n_train": self.train_size,
            "n_test": self.n_examples - self.train_size,
            "dimension": self.dimension,
            "n_classes": len(counts),
            "n_frequent_classes": len(frequent),
            "n_infrequent_classes": len(counts) - len(frequent),
            "n_examples": self.n_examples,
            "n_frequent_examples": sum(frequent),
            "n_infrequent_examples": self.n_examples - sum(frequent),
        }


def open_cards(choices: Sequence[DatasetChoice], cache: Path) -> dict[str, DatasetCard]:
    """The cards of a sweep's datasets by label; two that come to the same are refused."""
    cards: dict[str, DatasetCard] = {}
    for index, (choice, label) in enumerate(zip(choices, labels(choices), strict=True)):
        card = open_card(choice, cache, label=label)
        for other in cards.values():
            if source_of(label) == source_of(other.label) and replace(card, label=other.label) == other:
                raise UserError(
                    f"datasets[{index}]: {label} and {other.label} are the same, the options are the dataset's"
                    " defaults; remove one"
                )
        cards[label] = card
    return cards


def open_card(choice: DatasetChoice, cache: Path, *, label: str | None = None) -> DatasetCard:
    """The card of one choice; no data stay in memory.

    Of a prepared dataset only the description and the labels are read. A file of the user's own is read
    once; its card is kept in `cache` until path, size, time or options change.
    """
    facts = _known_facts(choice, cache)
    if facts is None:
        from sweep.datasets.base import facts_of

        facts = facts_of(load_choice(choice, cache))
        _remember(choice, cache, facts)
    return _card(choice, facts, source_label(choice) if label is None else label)


def open_split(
    choice: DatasetChoice,
    cache: Path,
    split: int,
    folds: int,
    seed: int,
    *,
    label: str | None = None,
    fingerprint: str | None = None,
) -> SplitData:
    """Training and test part of one random split, preprocessing fitted on the training part.

    Parameters
    ----------
    label : the choice's label in its sweep, if it is not the source's name.
    fingerprint : of the card; data that have changed since are refused.
    """
    import numpy as np

    from sweep.datasets.splits import fold_of, train_test_rows
    from sweep.fits import SplitData

    dataset = _seeded(choice, cache, label, fingerprint)
    train, test = train_test_rows(dataset, seed=seed, split=split)
    steps = _fit(choice, dataset, train)
    y = dataset.y
    return SplitData(
        X_train=steps.transform(dataset.X, train),
        y_train=y[train],
        X_test=steps.transform(dataset.X, test),
        y_test=y[test],
        fold_of=fold_of(y[train], folds, name=dataset.name, seed=seed, split=split),
        class_sizes=np.bincount(y),
    )


def open_preprocessing(
    choice: DatasetChoice,
    cache: Path,
    split: int,
    seed: int,
    *,
    label: str | None = None,
    fingerprint: str | None = None,
) -> Preprocessing:
    """The steps that `open_split` applies, fitted on the same training part in the same way."""
    from sweep.datasets.arrays import whole_columns
    from sweep.datasets.splits import train_test_rows

    dataset = _seeded(choice, cache, label, fingerprint)
    train, _ = train_test_rows(dataset, seed=seed, split=split)
    n_numbers = dataset.X.shape[1] - dataset.n_words
    return replace(_fit(choice, dataset, train), whole=whole_columns(dataset.X)[:n_numbers])


def load_choice(choice: DatasetChoice, cache: Path) -> Dataset:
    """The data of a choice."""
    from sweep.datasets import load_dataset

    if choice.in_memory is not None:
        return choice.in_memory
    reading = choice.model_dump(include=set(READING))
    return load_dataset(choice.name, cache=cache, **reading | {"drop": choice.drop or ()})


def source_label(choice: DatasetChoice) -> str:
    """The label of a choice that is the only one of its sweep."""
    return labels([choice])[0]


def _seeded(choice: DatasetChoice, cache: Path, label: str | None, fingerprint: str | None) -> Dataset:
    """The data under the name that its seeds come from, if they are still what the card says."""
    # `replace` forgets the fingerprint, so data in memory that were changed meanwhile are noticed, too.
    dataset = replace(load_choice(choice, cache), name=source_of(label or source_label(choice)))
    if fingerprint is not None and dataset.fingerprint != fingerprint:
        raise UserError(f"{choice.name}: the data have changed since the sweep was planned; run it again")
    return dataset


def _fit(choice: DatasetChoice, dataset: Dataset, train: Any) -> Preprocessing:
    from sweep.datasets.features import fit_preprocessing

    scaling, pca = _resolved(choice, {"scaling": dataset.scaling, "pca": dataset.pca})
    return fit_preprocessing(dataset, train, scaling=scaling, pca=pca)


def _resolved(choice: DatasetChoice, defaults: dict[str, Any]) -> tuple[str, int | None]:
    return choice.scaling or defaults["scaling"], defaults["pca"] if choice.pca is None else choice.pca or None


def _card(choice: DatasetChoice, facts: dict[str, Any], label: str) -> DatasetCard:
    scaling, pca = _resolved(choice, facts)
    # Centred training points span one dimension less than there are of them.
    dimension = min(facts["n_features"], pca, facts["train_size"] - 1) if pca else facts["n_features"]
    resolved = {
        "label": label,
        "dimension": dimension,
        "scaling": scaling,
        "pca": pca,
        "frequent_above": choice.frequent_above or facts["frequent_above"],
        "class_sizes": tuple(facts["class_sizes"]),
    }
    return DatasetCard(**{**facts, **resolved})


def _known_facts(choice: DatasetChoice, cache: Path) -> dict[str, Any] | None:
    """The facts of a prepared dataset, or of a file that was read before; None if the data must be read."""
    from sweep.datasets.cache import cache_path, read_description
    from sweep.datasets.catalog import DATASETS

    info = DATASETS.get(choice.name)
    if info is not None and not info.embedded and not any(getattr(choice, key) for key in READING):
        path = cache_path(cache, choice.name)
        if path.exists():
            return read_description(path)
    if not choice.is_path:
        return None
    try:
        facts = json.loads(_card_path(choice, cache).read_text(encoding="utf-8"))
        DatasetCard(**facts, label="", dimension=0)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return dict(facts)


def _remember(choice: DatasetChoice, cache: Path, facts: dict[str, Any]) -> None:
    # Without a card the file is read again, so a folder that cannot be written costs time only.
    if choice.is_path:
        with suppress(OSError):
            path = _card_path(choice, cache)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".{os.getpid()}.tmp")
            temporary.write_text(json.dumps(facts), encoding="utf-8")
            temporary.replace(path)


def _card_path(choice: DatasetChoice, cache: Path) -> Path:
    file = expanded(choice.name).absolute()
    stat = file.stat()
    reading = choice.model_dump(include=set(READING))
    known = [_CARD_VERSION, str(file), stat.st_size, stat.st_mtime_ns, stat.st_ino, reading]
    return Path(cache) / "cards" / f"{digest(known)[:32]}.json"
