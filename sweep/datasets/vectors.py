"""Word vectors in the two formats of the original word2vec tool."""

from __future__ import annotations

from typing import IO

import numpy as np

from sweep.errors import UserError

# A word and its numbers, with room for every digit.
_MOST_LINE_BYTES = 1 << 20


def read_word_vectors(file: IO[bytes], words: list[str], where: str, *, binary: bool) -> np.ndarray:
    """Vectors (len(words), size) of the given words, zeros for a word without one."""
    place = {word.encode(): index for index, word in enumerate(words)}
    try:
        n_words, size = (int(number) for number in file.readline(100).split())
        if not 1 <= size <= 10_000:
            raise ValueError(f"vectors of dimension {size}")
        vectors = np.zeros((len(words), size))
        for _ in range(n_words):
            if binary:
                word = _up_to_space(file)
                data = file.read(4 * size)
                vector = np.frombuffer(data, dtype="<f4")
            else:
                word, _, data = file.readline(_MOST_LINE_BYTES).partition(b" ")
                vector = np.array(data.split(), dtype=np.float64)
            if len(vector) != size or not np.all(np.isfinite(vector)):
                raise ValueError(f"the vector of {word[:40]!r} is not {size} numbers")
            if word in place:
                vectors[place[word]] = vector
    except ValueError as error:
        raise UserError(f"{where}: expected the output of word2vec, but {error}") from error
    return vectors


def _up_to_space(file: IO[bytes]) -> bytes:
    word = b""
    while (byte := file.read(1)) not in (b" ", b""):
        word += byte
        if len(word) > 10_000:
            raise ValueError("a word has no end")
    return word.lstrip(b"\n")
