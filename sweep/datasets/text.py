"""News texts: documents, their words, and the counts of the words in them.

Only counts are kept. Which words enter the dictionary and how they are weighted depends on the
training part (see `features`).
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from sweep.datasets.archive import base_name, read_files
from sweep.datasets.base import Dataset
from sweep.datasets.catalog import DATASETS
from sweep.errors import UserError

# Words kept beyond the dictionary, so that every training part can choose its own 5,000 out of them.
CANDIDATES = 20_000

# All of either distribution is below 40 MB.
_MOST_BYTES = 256 << 20
_WORD = re.compile(r"[a-z][a-z]+")

# Longer runs of letters are encoded files and the like; one of them would set the width of all names.
LONGEST_WORD = 100

# All of MIMIC's notes have a fraction of this.
MOST_WORDS = 5_000_000


class WordCounter:
    """Counts of words per document, built in one pass; a document may come in several pieces.

    Memory holds the counts so far and a buffer, never the text.
    """

    _BUFFER = 8_000_000

    def __init__(self, n_rows: int, where: str) -> None:
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        self._n_rows, self._where, self._stop = n_rows, where, ENGLISH_STOP_WORDS
        self._column: dict[str, int] = {}
        self._rows, self._columns, self._counts = array("i"), array("i"), array("i")
        self._total: Any = sp.csr_matrix((n_rows, 0), dtype=np.int32)

    def add(self, row: int, text: str) -> None:
        """Add the words of `text` to document `row`."""
        column = self._column
        for word, count in Counter(_WORD.findall(text.lower())).items():
            if len(word) <= LONGEST_WORD and word not in self._stop:
                self._rows.append(row)
                self._columns.append(column.setdefault(word, len(column)))
                self._counts.append(count)
        if len(column) > MOST_WORDS:
            raise UserError(f"{self._where}: more than {MOST_WORDS:,} different words; expected natural language")
        if len(self._rows) > self._BUFFER:
            self._merge()

    def finish(self) -> tuple[Any, list[str]]:
        """Counts (n_rows, W) as CSR float64, and the W words in alphabetical order.

        A word is kept if at least two documents hold it and it is among the `CANDIDATES` that most
        documents hold.
        """
        self._merge()
        names = np.array(list(self._column), dtype=str)
        frequency = np.bincount(self._total.indices, minlength=len(names))
        # By frequency, then alphabet: the order in which documents came must not matter.
        order = np.lexsort((names, -frequency))[:CANDIDATES]
        kept = order[frequency[order] >= 2]
        kept = kept[np.argsort(names[kept])]
        counts = self._total[:, kept].astype(np.float64)
        counts.sort_indices()
        return counts, names[kept].tolist()

    def _merge(self) -> None:
        shape = (self._n_rows, len(self._column))
        parts = [np.frombuffer(part, dtype=np.int32) for part in (self._counts, self._rows, self._columns)]
        new = sp.coo_matrix((parts[0], (parts[1], parts[2])), shape=shape).tocsr()
        self._total.resize(shape)
        self._total = self._total + new
        self._rows, self._columns, self._counts = array("i"), array("i"), array("i")


def load_reuters(path: Path, progress: Callable[[str], None]) -> Dataset:
    """Reuters-21578 as in the paper: 5,931 documents in 48 classes from the original SGML files.

    Kept are the documents of the Lewis training split with TOPICS="YES", a body and exactly one
    topic, in classes of at least 3.
    """
    documents: dict[str, list[tuple[str, str]]] = {}
    for name, file in read_files(path, lambda name: name.lower().endswith(".sgm"), most_bytes=_MOST_BYTES):
        # The distribution is Latin-1 with control characters in it; every byte is a character there.
        documents[base_name(name)] = _reuters_documents(file.read().decode("latin-1"), f"{path}: {name}")
        progress(f"reuters: {name}: {len(documents[base_name(name)])} documents with one topic")
    if not documents:
        raise UserError(f"{path}: no .sgm file, expected reut2-000.sgm to reut2-021.sgm; is it Reuters-21578?")
    kept = [document for name in sorted(documents) for document in documents[name]]
    sizes = Counter(topic for topic, _ in kept)
    kept = [(topic, text) for topic, text in kept if sizes[topic] >= 3]
    notes = "" if len(documents) == 22 else f"incomplete: {len(documents)} of 22 files. "
    return _text_dataset("reuters", kept, path, notes)


def _reuters_documents(sgml: str, where: str) -> list[tuple[str, str]]:
    """(topic, text) of the documents that qualify."""
    if "<REUTERS" not in sgml:
        raise UserError(f"{where}: no <REUTERS ...> record; expected the original SGML of Reuters-21578")
    if sgml.count("<REUTERS") != sgml.count("</REUTERS>"):
        raise UserError(f"{where}: a <REUTERS> record does not end; the file is truncated, get it again")
    found = []
    for record in re.finditer(r"<REUTERS([^>]*)>(.*?)</REUTERS>", sgml, re.DOTALL):
        attributes, content = record.groups()
        if 'LEWISSPLIT="TRAIN"' not in attributes or 'TOPICS="YES"' not in attributes:
            continue
        topics = re.findall(r"<D>(.*?)</D>", _element("TOPICS", content))
        body = unescape(_element("BODY", content)).strip()
        if len(topics) == 1 and body:
            found.append((topics[0], unescape(_element("TITLE", content)) + "\n" + body))
    return found


def _element(tag: str, content: str) -> str:
    match = re.search(rf"<{tag}>(.*?)</{tag}>", content, re.DOTALL)
    return match.group(1) if match else ""


def load_news(path: Path, progress: Callable[[str], None]) -> Dataset:
    """20 Newsgroups from the bydate archive or folder: 18,846 messages in 20 classes, headers included."""

    def in_group(name: str) -> bool:
        parts = name.split("/")
        return len(parts) >= 3 and parts[-3].startswith("20news-bydate-") and not parts[-1].startswith(".")

    documents: list[tuple[str, str, str]] = []
    for name, file in read_files(path, in_group, most_bytes=_MOST_BYTES):
        text = file.read().decode("latin-1")
        documents.append((name, name.split("/")[-2], text))
        if len(documents) % 5000 == 0:
            progress(f"news: {len(documents):,} messages")
    if not documents:
        raise UserError(f"{path}: no message, expected 20news-bydate-train/GROUP/NUMBER; is it 20 Newsgroups?")
    return _text_dataset("news", [(group, text) for _, group, text in sorted(documents)], path, "")


def _text_dataset(name: str, documents: list[tuple[str, str]], path: Path, notes: str) -> Dataset:
    counter = WordCounter(len(documents), str(path))
    for row, (_, text) in enumerate(documents):
        counter.add(row, text)
    counts, words = counter.finish()
    if len(documents) < 2 or not words:
        raise UserError(f"{path}: {len(documents)} documents with {len(words)} common words; too few to learn from")
    classes, y = np.unique([label for label, _ in documents], return_inverse=True)
    return Dataset(
        name=name,
        X=counts,
        y=y.astype(np.int64),
        classes=tuple(classes.tolist()),
        n_words=len(words),
        feature_names=tuple(words),
        notes=f"{notes}tf-idf rows of unit length over the 5,000 words of largest document frequency.",
        **DATASETS[name].defaults(len(documents)),
    )
