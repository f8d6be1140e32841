"""The real files, where they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sweep.datasets import DATASETS, Dataset, load_dataset, prepare
from sweep.datasets.base import VOCABULARY
from sweep.datasets.features import split_features
from sweep.datasets.splits import fold_of, train_test_rows

FILES = {
    "reuters": "reuters21578.tar.gz",
    "news": "20news-bydate.tar.gz",
    "act": "har-rebuilt.npz",
    "mimic": "mimic-iii-demo",
    "eicu": "eicu-demo",
}


@pytest.fixture(scope="module", params=FILES)
def real(request: pytest.FixtureRequest, real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    source = real_data / FILES[request.param]
    if not source.exists():
        pytest.skip(f"no file of real data at {source}")
    cache = tmp_path_factory.mktemp("cache")
    prepare(request.param, source, cache=cache)
    return load_dataset(request.param, cache=cache)


# Examples, features before PCA, classes, frequent classes and their examples, training part.
COUNTS = {
    "reuters": (5931, 5000, 48, 2, 4108, 4152),
    "news": (18846, 5000, 20, 0, 0, 11307),
    "act": (10299, 549, 6, 6, 10299, 7352),
    "mimic": (129, 782, 83, 0, 0, 89),
    "eicu": (1711, 570, 468, 0, 0, 986),
}


def test_the_counts_are_those_of_the_documentation(real: Dataset) -> None:
    sizes = np.bincount(real.y)
    frequent = sizes[sizes > real.frequent_above]
    found = (
        real.n_examples,
        real.n_features,
        len(real.classes),
        len(frequent),
        int(frequent.sum()),
        real.train_size,
    )
    assert found == COUNTS[real.name]
    assert sizes.min() >= 1


def test_every_feature_has_a_name_of_its_own(real: Dataset) -> None:
    if real.name == "act":  # the distribution repeats names
        assert real.feature_names is None
    else:
        assert real.feature_names is not None
        assert len(set(real.feature_names)) == len(real.feature_names) == real.X.shape[1]


def test_five_splits_have_the_paper_s_sizes(real: Dataset) -> None:
    parts = [train_test_rows(real, seed=0, split=split) for split in range(5)]
    assert {(len(train), len(test)) for train, test in parts} == {(real.train_size, real.n_examples - real.train_size)}
    assert len({train.tobytes() for train, _ in parts}) == 5
    for split, (train, _) in enumerate(parts):
        assert np.ptp(np.bincount(fold_of(real.y[train], 5, name=real.name, seed=0, split=split))) <= 1


def test_features_come_through_the_whole_pipeline(real: Dataset) -> None:
    train, test = train_test_rows(real, seed=0, split=0)
    if real.n_words:
        # A few documents and dimensions: the full PCA takes half a minute.
        train, test = train[:300], test[:100]
    pca = 50 if real.n_words else real.pca
    X_train, X_test = split_features(real, train, test, scaling="minmax", pca=pca)
    assert X_train.shape[1] == X_test.shape[1] == (pca if real.n_words else real.n_features)
    assert np.isfinite(X_train).all()
    assert np.isfinite(X_test).all()
    assert X_train.std(axis=0).max() > 0


def test_the_kept_words_contain_every_training_part_s_dictionary(real: Dataset) -> None:
    if real.name not in ("reuters", "news"):
        assert real.n_words == 0
        return
    # A word that was not kept is in no more documents than the rarest kept one; so it cannot be
    # among the words of a training part that more documents hold.
    rarest_kept = real.X.getnnz(axis=0).min()
    for split in range(5):
        train, _ = train_test_rows(real, seed=0, split=split)
        in_training = np.sort(real.X[train].getnnz(axis=0))
        assert in_training[-VOCABULARY] > rarest_kept


def test_the_catalog_states_the_sizes_of_the_complete_files(real: Dataset) -> None:
    info = DATASETS[real.name]
    for stated, found in ((info.n_examples, real.n_examples), (info.n_classes, len(real.classes))):
        assert stated in (None, found)
