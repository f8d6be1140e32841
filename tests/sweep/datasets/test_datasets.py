"""The catalog, the embedded datasets, preparing, caching and downloading."""

from __future__ import annotations

import hashlib
import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import sweep.datasets
from sweep.datasets import DATASETS, Dataset, describe_datasets, load_dataset, prepare
from sweep.datasets.cache import cache_path, read_dataset, write_dataset
from sweep.datasets.catalog import Download
from sweep.datasets.download import fetch
from sweep.datasets.splits import train_test_rows
from sweep.errors import UserError

EMBEDDED = [name for name, info in DATASETS.items() if info.embedded]
FROM_FILES = [name for name, info in DATASETS.items() if not info.embedded]


def quiet(line: str) -> None:
    pass


def small_dataset(*, sparse: bool) -> Dataset:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 5)) * (rng.random((12, 5)) < 0.5)
    return Dataset(
        name="act",
        X=sp.csr_matrix(X) if sparse else X,
        y=np.arange(12) % 3,
        classes=("a", "b", "ü"),
        frequent_above=4,
        train_size=8,
        n_words=2,
        vector_size=3,
        vectors=rng.normal(size=(2, 3)),
        notes="a note",
    )


def test_importing_the_package_loads_no_numerical_library() -> None:
    code = "import sys, sweep.datasets; print({'numpy', 'scipy', 'sklearn', 'pyarrow'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_datasets_match_the_catalog(name: str, tmp_path: Path) -> None:
    dataset, info = load_dataset(name, cache=tmp_path), DATASETS[name]
    assert (dataset.n_examples, len(dataset.classes), dataset.n_features) == (
        info.n_examples,
        info.n_classes,
        info.n_features,
    )
    assert dataset.X.dtype == np.float64
    assert dataset.y.dtype == np.int64
    assert dataset.train_size == round(0.7 * dataset.n_examples)


def test_the_imbalanced_digits_are_the_first_of_each_class(tmp_path: Path) -> None:
    cut, full = load_dataset("digits-imbalanced", cache=tmp_path), load_dataset("digits", cache=tmp_path)
    sizes = np.bincount(cut.y)
    assert sizes.tolist() == [170, 119, 83, 58, 40, 28, 20, 14, 10, 10]
    assert int((sizes > cut.frequent_above).sum()) == 4
    np.testing.assert_array_equal(cut.X[cut.y == 3], full.X[full.y == 3][:58])


@pytest.mark.parametrize("name", FROM_FILES)
def test_a_dataset_that_is_not_prepared_says_where_its_files_are(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(DATASETS[name].source)) as caught:
        load_dataset(name, cache=tmp_path)
    assert DATASETS[name].terms in str(caught.value)
    assert f"sweep data prepare {name} --from" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in FROM_FILES if DATASETS[name].download is None])
def test_prepare_without_files_names_source_and_terms(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(DATASETS[name].terms)):
        prepare(name, cache=tmp_path)


@pytest.mark.parametrize("name", FROM_FILES)
def test_prepare_refuses_what_is_not_the_dataset(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "junk.tar.gz").write_bytes(b"not an archive")
    for source in ("empty", "junk.tar.gz", "absent"):
        with pytest.raises(UserError, match=source) as caught:
            prepare(name, tmp_path / source, cache=tmp_path / "cache")
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_unknown_and_embedded_names_are_answered(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Did you mean 'reuters'"):
        load_dataset("reuter", cache=tmp_path)
    with pytest.raises(UserError, match="Did you mean 'mimic'"):
        prepare("mimmic", cache=tmp_path)
    with pytest.raises(UserError, match="embedded"):
        prepare("digits", cache=tmp_path)
    with pytest.raises(UserError, match="label"):
        load_dataset("digits", cache=tmp_path, label="y")


def test_descriptions_cover_the_catalog(tmp_path: Path) -> None:
    write_dataset(small_dataset(sparse=False), tmp_path, origin="x")
    rows = {row["name"]: row for row in describe_datasets(tmp_path)}
    assert list(rows) == list(DATASETS)
    assert {name for name, row in rows.items() if row["prepared"]} == {*EMBEDDED, "act"}


@pytest.mark.parametrize("sparse", [False, True])
def test_the_cache_returns_what_was_stored(sparse: bool, tmp_path: Path) -> None:
    dataset = small_dataset(sparse=sparse)
    read = read_dataset(write_dataset(dataset, tmp_path, origin="x"))
    assert read.fingerprint == dataset.fingerprint
    for name in (
        "name",
        "classes",
        "frequent_above",
        "train_size",
        "scaling",
        "pca",
        "n_words",
        "vector_size",
        "notes",
    ):
        assert getattr(read, name) == getattr(dataset, name)
    dense = [X.toarray() if sparse else X for X in (read.X, dataset.X)]
    np.testing.assert_array_equal(*dense)
    np.testing.assert_array_equal(read.vectors, dataset.vectors)
    assert [file.name for file in tmp_path.iterdir()] == [cache_path(tmp_path, "act").name]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot be written"):
        write_dataset(small_dataset(sparse=False), tmp_path / "file" / "cache", origin="x")


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.95])
def test_a_truncated_cache_file_is_named(keep: float, tmp_path: Path) -> None:
    path = write_dataset(small_dataset(sparse=True), tmp_path, origin="x")
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(UserError, match="delete it and prepare"):
        load_dataset("act", cache=tmp_path)


def test_a_changed_cache_file_is_not_believed(tmp_path: Path) -> None:
    path = write_dataset(small_dataset(sparse=False), tmp_path, origin="x")
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays["X"][3, 2] += 1e-12
    np.savez(path, **arrays)
    with pytest.raises(UserError, match="fingerprint"):
        load_dataset("act", cache=tmp_path)


def test_the_fingerprint_sees_every_part() -> None:
    def variants() -> Iterator[Dataset]:
        for change in ("nothing", "X", "y", "classes", "vectors", "n_words"):
            dataset = small_dataset(sparse=False)
            if change == "X":
                dataset.X[-1, -1] += 1.0
            elif change == "y":
                dataset.y[-1] = 0
            elif change == "vectors" and dataset.vectors is not None:
                dataset.vectors[0, 0] += 1.0
            elif change == "classes":
                object.__setattr__(dataset, "classes", ("a", "b", "c"))
            elif change == "n_words":
                object.__setattr__(dataset, "n_words", 1)
            yield dataset

    assert len({dataset.fingerprint for dataset in variants()}) == 6


def test_the_fingerprint_of_a_sparse_matrix_does_not_depend_on_its_storage() -> None:
    dataset = small_dataset(sparse=True)
    shuffled = small_dataset(sparse=True)
    object.__setattr__(shuffled, "X", sp.csr_matrix(shuffled.X[:, ::-1])[:, ::-1])
    assert shuffled.fingerprint == dataset.fingerprint


def write_har(folder: Path, n: int = 6) -> None:
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        np.savetxt(folder / part / f"X_{part}.txt", rng.normal(size=(n, 561)))
        np.savetxt(folder / part / f"y_{part}.txt", 1 + np.arange(n) % 6, fmt="%d")


def test_prepare_reads_unchanged_files_only_once(tmp_path: Path) -> None:
    source, lines = tmp_path / "UCI HAR Dataset", list[str]()
    write_har(source)
    first = prepare("act", source, cache=tmp_path / "cache", progress=lines.append)
    assert any("X_train.txt" in line for line in lines)
    changed = first.stat().st_mtime_ns
    lines.clear()
    assert prepare("act", source, cache=tmp_path / "cache", progress=lines.append) == first
    assert lines == ["act: prepared before from the same files"]
    assert first.stat().st_mtime_ns == changed
    assert prepare("act", cache=tmp_path / "cache") == first
    before = load_dataset("act", cache=tmp_path / "cache").n_examples
    write_har(source, n=9)
    prepare("act", source, cache=tmp_path / "cache")
    assert (before, load_dataset("act", cache=tmp_path / "cache").n_examples) == (12, 18)


def test_prepared_data_of_another_size_is_split_by_share(tmp_path: Path) -> None:
    write_har(tmp_path / "har")
    prepare("act", tmp_path / "har", cache=tmp_path)
    train, test = train_test_rows(load_dataset("act", cache=tmp_path), seed=0, split=0)
    assert (len(train), len(test)) == (9, 3)


CONTENT = b"the archive" * 1000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    served = tmp_path / "served"
    served.mkdir()
    (served / "file.tar.gz").write_bytes(CONTENT)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(served))  # type: ignore[arg-type]

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


def download_of(url: str, *, content: bytes = CONTENT, most_bytes: int = 10**6) -> Download:
    return Download(url, "file.tar.gz", hashlib.sha256(content).hexdigest(), most_bytes)


def test_a_download_is_kept_if_its_checksum_is_right(server: str, tmp_path: Path) -> None:
    path = fetch(download_of(f"{server}/file.tar.gz"), tmp_path / "downloads", quiet)
    assert path.read_bytes() == CONTENT
    # A second call needs no server.
    assert fetch(download_of("http://127.0.0.1:9/gone"), tmp_path / "downloads", quiet) == path


@pytest.mark.parametrize(
    ("route", "changes", "said"),
    [
        ("file.tar.gz", {"content": b"other"}, "SHA-256"),
        ("file.tar.gz", {"most_bytes": 100}, "more than 100 bytes"),
        ("absent", {}, "404"),
    ],
)
def test_a_wrong_download_leaves_nothing_behind(
    server: str, tmp_path: Path, route: str, changes: dict[str, int], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        fetch(download_of(f"{server}/{route}", **changes), tmp_path / "downloads", quiet)  # type: ignore[arg-type]
    assert list((tmp_path / "downloads").iterdir()) == []


def test_without_network_the_answer_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="by hand"):
        fetch(download_of("http://127.0.0.1:9/file"), tmp_path, quiet)


def test_prepare_downloads_where_the_catalog_allows_it(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    info = replace(DATASETS["news"], download=download_of(f"{server}/file.tar.gz"))
    monkeypatch.setitem(sweep.datasets.DATASETS, "news", info)
    # The right bytes arrive, and only then does it show that they are no archive.
    with pytest.raises(UserError, match=r"file\.tar\.gz: expected a folder, a tar or a zip"):
        prepare("news", cache=tmp_path / "cache")
    assert (tmp_path / "cache" / "downloads" / "file.tar.gz").read_bytes() == CONTENT
