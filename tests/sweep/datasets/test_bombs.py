"""Small files that claim, or unfold to, more than any machine has: one line each, and little memory."""

from __future__ import annotations

import gzip
import io
import json
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from sweep.datasets import archive, load_dataset, npz, own_tables, text
from sweep.datasets.archive import read_files
from sweep.datasets.cache import read_dataset, read_description, write_dataset
from sweep.datasets.card import open_card
from sweep.datasets.choice import DatasetChoice
from sweep.datasets.tables import read_table
from sweep.datasets.vectors import read_word_vectors
from sweep.errors import UserError
from tests.sweep.datasets.test_datasets import small_dataset

MIB = 1 << 20


@pytest.fixture
def frugal() -> Iterator[None]:
    """Fails a test in which Python and NumPy held more than 64 MiB at any moment."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * MIB, f"{peak / MIB:.0f} MiB"


def refused(action: Callable[[], object], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        action()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def names_of(path: Path) -> list[str]:
    return [name for name, _ in read_files(path, lambda _: True)]


# Archives


def zeros(path: Path, *parts: tuple[bytes, int]) -> Path:
    """A gzip file of blocks, each followed by so many MiB of zeros."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        for block, size in parts:
            file.write(block)
            for _ in range(size):
                file.write(bytes(MIB))
    return path


def header(kind: bytes, size: int, name: str = "x") -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.usefixtures("frugal")
@pytest.mark.parametrize("kind", [b"L", b"K", b"x", b"g"])
@pytest.mark.parametrize("compressed", [True, False])
def test_names_and_attributes_of_a_tar_are_bounded(kind: bytes, compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / "bomb.tar"
    if compressed:
        zeros(path, (header(kind, 200 * MIB), 200))
    else:
        path.write_bytes(header(kind, 3 << 30))
    refused(lambda: names_of(path), "more than 1,048,576 bytes of names and attributes")


@pytest.mark.usefixtures("frugal")
def test_a_bomb_behind_a_good_member_is_stopped_too(tmp_path: Path) -> None:
    good = header(tarfile.REGTYPE, 5, "a.txt") + b"hello".ljust(512, b"\0")
    path = zeros(tmp_path / "bomb.tar.gz", (good + header(b"L", 200 * MIB), 200))
    refused(lambda: names_of(path), "names and attributes")


@pytest.mark.usefixtures("frugal")
def test_the_map_of_a_sparse_member_is_bounded(tmp_path: Path) -> None:
    attributes = b"".join(f"{len(text) + 3} {text}\n".encode() for text in ("GNU.sparse.major=1", "GNU.sparse.minor=0"))
    start = header(b"x", len(attributes)) + attributes.ljust(512, b"\0") + header(tarfile.REGTYPE, 50 * MIB, "a.txt")
    places = b"9999999\n" + b"1\n" * (4 * MIB)
    path = zeros(tmp_path / "bomb.tar.gz", (start + places, 1))
    refused(lambda: names_of(path), "names and attributes|damaged")


@pytest.mark.usefixtures("frugal")
def test_members_without_end_are_counted_even_if_unwanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_FILES", 1000)
    path = tmp_path / "many.tar.gz"
    with gzip.open(path, "wb") as file:
        file.write(header(tarfile.REGTYPE, 0, "empty") * 2000)
    refused(lambda: list(read_files(path, lambda _: False)), "more than 1,000 files")
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as opened:
        for number in range(1001):
            opened.writestr(str(number), b"")
    refused(lambda: list(read_files(tmp_path / "many.zip", lambda _: False)), "more than 1,000 files")


def test_long_names_that_are_honest_are_read(tmp_path: Path) -> None:
    name = "/".join(["folder" * 10] * 20) + "/a.txt"
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        path = tmp_path / f"{form}.tar.gz"
        with tarfile.open(path, "w:gz", format=form) as opened:
            member = tarfile.TarInfo(name)
            member.size = 5
            opened.addfile(member, io.BytesIO(b"hello"))
        assert [(found, file.read()) for found, file in read_files(path, lambda _: True)] == [(name, b"hello")]


# Arrays


def write_npz(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as opened:
        for name, content in members.items():
            opened.writestr(f"{name}.npy", content)
    return path


def array_header(shape: str, kind: str = "<f8", version: int = 1) -> bytes:
    described = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    length = struct.pack("<H" if version == 1 else "<I", len(described))
    return b"\x93NUMPY" + bytes([version, 0]) + length + described


CLAIMS = {
    "8 TB": array_header("(1000000000000,)"),
    "more than 2**64": array_header("(4294967296, 4294967296, 4294967296)"),
    "wide text": array_header("(1000000,)", "<U100000000"),
    "negative": array_header("(-5,)"),
    "long header": b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 31) + bytes(4 * MIB),
    "deep header": b"\x93NUMPY\x02\x00" + struct.pack("<I", 9000) + b"(" * 9000,
    "deep numbers": b"\x93NUMPY\x02\x00" + struct.pack("<I", 9000) + b"-" * 9000,
    "no array": b"hello",
    "nothing": b"",
}


@pytest.mark.usefixtures("frugal")
@pytest.mark.parametrize("claim", CLAIMS)
def test_what_an_array_claims_is_compared_with_what_there_is(claim: str, tmp_path: Path) -> None:
    path = write_npz(tmp_path / "bomb.npz", X=CLAIMS[claim], y=array_header("(2,)") + bytes(16))
    refused(lambda: load_dataset(path, cache=tmp_path), r"bomb\.npz: not an \.npz file")


@pytest.mark.usefixtures("frugal")
def test_arrays_that_unfold_beyond_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "memory_budget", lambda: 16 * MIB)
    part = array_header("(1310720,)") + bytes(10 * MIB)
    path = write_npz(tmp_path / "bomb.npz", X=part, y=part)
    assert path.stat().st_size < MIB
    refused(lambda: load_dataset(path, cache=tmp_path), "y: takes 10,485,760 bytes, more than the 6,291,456 left")


@pytest.mark.usefixtures("frugal")
def test_a_prepared_file_is_not_believed_either(tmp_path: Path) -> None:
    path = write_dataset(small_dataset(sparse=False), tmp_path, origin="x")
    with np.load(path) as stored:
        meta, y = str(stored["meta"]), stored["y"]
    write_npz(path, meta=_npy(np.array(meta)), y=_npy(y), X=CLAIMS["8 TB"])
    refused(lambda: read_dataset(path), "damaged")
    write_npz(path, meta=_npy(np.array("[" * 100_000)), y=_npy(y))
    refused(lambda: read_dataset(path), "damaged")
    refused(lambda: read_description(path), "damaged")


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def test_a_card_that_was_tampered_with_is_read_anew(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=np.eye(6), y=[0, 1] * 3)
    choice = DatasetChoice(name=str(tmp_path / "t.npz"))
    first = open_card(choice, tmp_path)
    (card,) = (tmp_path / "cards").iterdir()
    for content in ("[" * 100_000, "null", "\udcff", json.dumps({"label": 1}), "9" * 5000):
        card.write_bytes(content.encode("utf-8", "surrogateescape"))
        assert open_card(choice, tmp_path) == first


# Tables


@pytest.mark.usefixtures("frugal")
def test_a_compressed_table_ends_at_the_machine_s_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_tables, "memory_budget", lambda: 8 * MIB)
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb") as file:
        file.write(b"a,label\n" + b"1,x\n" * (4 * MIB))
    refused(lambda: load_dataset(path, cache=tmp_path), "more than 8,388,608 bytes")


@pytest.mark.usefixtures("frugal")
def test_columns_and_lines_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"," * 200_000 + b"\n")
    refused(lambda: load_dataset(path, cache=tmp_path), "200,001 columns, expected at most 100,000")
    path.write_bytes(b"a" * (3 * MIB))
    refused(lambda: load_dataset(path, cache=tmp_path), "t.csv")
    path.write_bytes(b"a" * 100_000 + b",label\n1,x\n2,y\n")
    refused(lambda: load_dataset(path, cache=tmp_path, label="labels"), "Did you mean 'label'")
    refused(lambda: load_dataset(path, cache=tmp_path, label="b" * 100_000), "no label column")


@pytest.mark.usefixtures("frugal")
def test_a_text_is_no_label(tmp_path: Path) -> None:
    """As an array, every label would take as much room as the longest."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,label\n1," + b"x" * 500_000 + b"\n" + b"1,y\n2,z\n" * 1000)
    refused(lambda: load_dataset(path, cache=tmp_path), "a text of 500,000 characters; expected names of classes")


@pytest.mark.usefixtures("frugal")
def test_equal_values_of_a_parquet_file_count_as_often_as_they_stand_for(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    schema = pa.schema({"a": pa.int64(), "label": pa.string()})
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        block = pa.table({"a": np.zeros(1 << 20, dtype=np.int64), "label": ["x"] * (1 << 20)}, schema=schema)
        for _ in range(4):
            writer.write_table(block)
    assert path.stat().st_size < 100_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_tables, "memory_budget", lambda: 32 * MIB)
        refused(lambda: load_dataset(path, cache=tmp_path), "4,194,304 rows of 2 columns come to 67,108,864 bytes")


def test_a_long_text_repeated_in_a_parquet_file_takes_its_room_once(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, dtype=np.int32)), pa.array(["x" * MIB]))
    parquet.write_table(pa.table({"a": np.arange(100_000.0), "note": texts, "label": [0, 1] * 50_000}), path)
    before = pa.total_allocated_bytes()
    refused(lambda: load_dataset(path, cache=tmp_path), "column 'note' is string, expected numbers")
    assert pa.total_allocated_bytes() - before < 64 * MIB
    assert load_dataset(path, cache=tmp_path, drop=["note"]).n_examples == 100_000


def test_nested_columns_are_refused_and_end_no_process(tmp_path: Path) -> None:
    """In a process of its own: a parser that recurses too deep takes its process with it."""
    kind = pa.int64()
    for _ in range(90):
        kind = pa.list_(kind)
    table = pa.table({"a": pa.array([None, None], type=kind), "label": ["x", "y"]})
    parquet.write_table(table, tmp_path / "t.parquet")
    code = (
        "import sys; from sweep.datasets import load_dataset; from sweep.errors import UserError\n"
        "try: load_dataset(sys.argv[1], cache='unused')\n"
        "except UserError as error: print(error)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "t.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "column 'a' is list" in done.stdout
    assert len(done.stdout) < 1000


@pytest.mark.usefixtures("frugal")
def test_a_table_of_one_endless_line_is_refused(tmp_path: Path) -> None:
    zeros(tmp_path / "PATIENTS.csv.gz", (b"subject_id", 200))
    refused(lambda: list(read_table(tmp_path, "PATIENTS", {"subject_id": pa.int64()})), "the first line has no end")


# Texts


def test_one_endless_word_does_not_widen_all_others() -> None:
    counter = text.WordCounter(2, "here")
    for row in range(2):
        counter.add(row, "wheat " + "x" * 100_000 + " " + " ".join(f"word{chr(97 + i)}" for i in range(26)))
    assert max(len(word) for word in counter.finish()[1]) < 10


def test_words_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MOST_WORDS", 100)
    counter = text.WordCounter(1, "here")
    words = " ".join(f"{chr(97 + i // 26)}{chr(97 + i % 26)}q" for i in range(150))
    refused(lambda: counter.add(0, words), "here: more than 100 different words")


@pytest.mark.usefixtures("frugal")
@pytest.mark.parametrize("content", [b"9" * (8 * MIB), b"2 3\nword " + b"1" * (8 * MIB), b"1" * 5000 + b" 3\n"])
@pytest.mark.parametrize("binary", [True, False])
def test_endless_lines_of_word_vectors_are_refused(content: bytes, binary: bool) -> None:
    if binary and content.startswith(b"2 3"):
        content = b"2 3\n" + b"w" * (8 * MIB)
    refused(
        lambda: read_word_vectors(io.BytesIO(content), ["word"], "here", binary=binary), "here: expected the output"
    )
