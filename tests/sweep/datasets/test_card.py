"""Cards and splits: what planning knows without the data, and what fits get."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sweep.datasets import DatasetChoice, load_dataset, memory_choice
from sweep.datasets.cache import write_dataset
from sweep.datasets.card import DatasetCard, open_card, open_cards, open_preprocessing, open_split
from sweep.datasets.features import split_features
from sweep.datasets.splits import fold_of, train_test_rows
from sweep.errors import UserError
from tests.sweep.datasets.test_datasets import small_dataset

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = np.repeat([0, 1, 2], [30, 20, 10])


def choice(**values: object) -> DatasetChoice:
    return DatasetChoice.model_validate(values)


def write(path: Path, features: np.ndarray = X) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, X=features, y=Y)
    return path


def test_a_card_states_what_a_plan_needs(tmp_path: Path) -> None:
    card = open_card(choice(name="digits-imbalanced", pca=20, frequent_above=100), tmp_path)
    assert (card.label, card.name, card.scaling, card.pca) == ("digits-imbalanced", "digits-imbalanced", "minmax", 20)
    assert card.fingerprint == load_dataset("digits-imbalanced", cache=tmp_path).fingerprint
    assert card.class_sizes == (170, 119, 83, 58, 40, 28, 20, 14, 10, 10)
    assert card.sizes == {
        "n_train": 386,
        "n_test": 166,
        "dimension": 20,
        "n_classes": 10,
        "n_frequent_classes": 2,
        "n_infrequent_classes": 8,
        "n_examples": 552,
        "n_frequent_examples": 289,
        "n_infrequent_examples": 263,
    }


def test_the_card_of_a_prepared_dataset_needs_no_features(tmp_path: Path) -> None:
    dataset = small_dataset(sparse=True)
    path = write_dataset(dataset, tmp_path, origin="x")
    whole = open_card(choice(name="act"), tmp_path)
    assert (whole.fingerprint, whole.n_features, whole.class_sizes) == (dataset.fingerprint, 8, (4, 4, 4))
    with np.load(path) as stored:
        kept = {name: stored[name] for name in ("meta", "y")}
    np.savez(path, **kept)
    assert open_card(choice(name="act"), tmp_path) == whole


def test_an_own_file_is_read_once_and_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "mine.npz")
    reads: list[Path] = []
    from sweep.datasets import own

    real = own.load_own
    monkeypatch.setattr(own, "load_own", lambda path, reading: reads.append(path) or real(path, reading))
    first = open_card(choice(name=str(path)), tmp_path / "cache")
    assert open_card(choice(name=str(path)), tmp_path / "cache") == first
    scaled = open_card(choice(name=str(path), scaling="l2"), tmp_path / "cache")
    assert (len(reads), scaled.scaling, scaled.fingerprint) == (1, "l2", first.fingerprint)
    for card in (tmp_path / "cache" / "cards").iterdir():
        card.write_text("{}")
    assert open_card(choice(name=str(path)), tmp_path / "cache") == first
    write(path, X[:, :3])
    assert open_card(choice(name=str(path)), tmp_path / "cache").n_features == 3
    assert len(reads) == 3


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    assert open_card(choice(name=str(write(tmp_path / "mine.npz"))), tmp_path / "cache").n_examples == 60


def test_files_of_one_name_and_one_file_with_two_options_are_different_datasets(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a" / "wine.npz"), write(tmp_path / "b" / "wine.npz", X + 1)
    cards = open_cards([choice(name=str(p), **o) for p, o in ((one, {}), (two, {}), (one, {"pca": 2}))], tmp_path)
    assert list(cards) == ["a/wine.npz", "b/wine.npz", "a/wine.npz[pca=2]"]
    assert [card.label for card in cards.values()] == list(cards)
    assert len({card.fingerprint for card in cards.values()}) == 2


def test_an_option_that_repeats_the_default_is_no_second_dataset(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"datasets\[1\]: digits\[scaling=minmax\] and digits are the same"):
        open_cards([choice(name="digits"), choice(name="digits", scaling="minmax")], tmp_path)


@pytest.mark.parametrize("name", ["digits-imbalanced", "mine.npz"])
def test_a_split_is_what_the_name_and_the_seed_say(name: str, tmp_path: Path) -> None:
    source = str(write(tmp_path / name)) if name.endswith("npz") else name
    data = open_split(choice(name=source, pca=3), tmp_path, 1, 4, 7)
    dataset = load_dataset(source, cache=tmp_path)
    train, test = train_test_rows(dataset, seed=7, split=1)
    X_train, X_test = split_features(dataset, train, test, scaling="minmax", pca=3)
    np.testing.assert_array_equal(data.X_train, X_train)
    np.testing.assert_array_equal(data.X_test, X_test)
    np.testing.assert_array_equal(data.y_test, dataset.y[test])
    np.testing.assert_array_equal(data.fold_of, fold_of(dataset.y[train], 4, name=name, seed=7, split=1))
    np.testing.assert_array_equal(data.class_sizes, np.bincount(dataset.y))


def test_options_do_not_change_the_split_and_another_folder_does(tmp_path: Path) -> None:
    def rows(label: str, **options: object) -> bytes:
        data = open_split(choice(name="digits", **options), tmp_path, 0, 3, 0, label=label)
        return data.y_train.tobytes() + data.fold_of.tobytes()

    assert rows("digits") == rows("digits[scaling=l2]", scaling="l2")
    assert rows("digits") != rows("a/digits")


def test_the_preprocessing_is_the_one_of_the_split(tmp_path: Path) -> None:
    source = choice(name=str(write(tmp_path / "mine.npz")), pca=2)
    steps = open_preprocessing(source, tmp_path, 1, 3)
    train, test = train_test_rows(load_dataset(source.name, cache=tmp_path), seed=3, split=1)
    data = open_split(source, tmp_path, 1, 2, 3)
    np.testing.assert_array_equal(steps.transform(X[train]), data.X_train)
    np.testing.assert_array_equal(steps.transform(X[test]), data.X_test)


def test_data_that_changed_after_the_plan_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.npz")
    memory = memory_choice("mine", X.copy(), Y)
    assert memory.in_memory is not None
    for source in (choice(name=str(path)), memory):
        card = open_card(source, tmp_path)
        assert open_split(source, tmp_path, 0, 2, 0, fingerprint=card.fingerprint).X_train.shape == (42, 4)
        write(path, X + 1)
        memory.in_memory.X[0, 0] += 1
        with pytest.raises(UserError, match="changed since the sweep was planned"):
            open_split(source, tmp_path, 0, 2, 0, fingerprint=card.fingerprint)


def test_single_precision_gives_the_features_of_double(tmp_path: Path) -> None:
    single = X.astype(np.float32)
    for scaling in ("minmax", "l2", "none"):
        splits = [
            open_split(memory_choice("m", features, Y, scaling=scaling, pca=3), tmp_path, 0, 2, 0)  # type: ignore[arg-type]
            for features in (single, single.astype(np.float64))
        ]
        assert splits[0].X_train.dtype == np.float64
        np.testing.assert_array_equal(splits[0].X_train, splits[1].X_train)


def test_a_card_is_small(tmp_path: Path) -> None:
    card = open_card(memory_choice("mine", X, Y), tmp_path)
    assert isinstance(card, DatasetCard)
    assert not [value for value in vars(card).values() if isinstance(value, np.ndarray)]
