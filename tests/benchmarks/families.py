"""Synthetic data with known spectra: half of them may set constants, half are for reporting only."""

from __future__ import annotations

import numpy as np
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from tests.benchmarks.conftest import Data

TUNED = ("handwriting-0", "handwriting-2", "words-0", "table-0", "table-2", "table-3", "letters-0", "rotated-0")
HELD_OUT = ("handwriting-1", "handwriting-3", "words-1", "table-1", "table-17", "letters-1", "rotated-1")


def family(name: str) -> Data:
    """The data of a name "kind-seed"."""
    kind, _, number = name.partition("-")
    return {"handwriting": _handwriting, "words": _words, "table": _table, "letters": _letters, "rotated": _rotated}[
        kind
    ](int(number))


def _handwriting(seed: int) -> Data:
    """256 to 784 features whose spectrum falls fast, 10 to 26 classes, scaled to 0..1."""
    rng = np.random.default_rng(seed)
    d, classes = (256, 400, 617, 784)[seed % 4], (10, 26, 20, 10)[seed % 4]
    factors = 40 + 20 * (seed % 3)
    y = rng.integers(classes, size=3000)
    Z = rng.normal(size=(classes, factors))[y] + 0.8 * rng.normal(size=(3000, factors))
    X = (Z / np.arange(1, factors + 1) ** (0.7 + 0.2 * (seed % 3))) @ rng.normal(size=(factors, d)) / np.sqrt(d)
    return MinMaxScaler().fit_transform(X + 0.1 * rng.normal(size=X.shape) / np.sqrt(d)), y


def _words(seed: int) -> Data:
    """Counts of 300 words in short texts on six topics; every second one as logarithms."""
    rng = np.random.default_rng(seed)
    common = rng.dirichlet(np.full(300, 0.1))
    topics = np.stack([0.6 * common + 0.4 * rng.dirichlet(np.full(300, 0.05)) for _ in range(6)])
    y = rng.integers(6, size=2000)
    X = np.stack([rng.multinomial(rng.integers(8, 60), topics[k]) for k in y]).astype(float)
    return (np.log1p(X) if seed % 2 else X), y


def _table(seed: int) -> Data:
    """A raw table: columns over five decades of scale, with offsets."""
    rng = np.random.default_rng(seed)
    d, classes = 12 + 4 * (seed % 3), 3 + seed % 4
    y = rng.integers(classes, size=600)
    X = (0.8 * rng.normal(size=(classes, d))[y] + rng.normal(size=(600, d))) @ rng.normal(size=(d, d)) / np.sqrt(d)
    return X * 10.0 ** rng.uniform(-2, 3, size=d) + 10.0 ** rng.uniform(0, 4, size=d), y


def _letters(seed: int) -> Data:
    """Sixteen integer features, 26 classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(26, size=4000)
    X = 7 + 2.2 * rng.normal(size=(26, 16))[y] + 1.6 * rng.normal(size=(4000, 16))
    return np.clip(np.round(X), 0, 15) / 15, y


def _rotated(seed: int) -> Data:
    """Standardised, then rotated onto the principal axes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(8, size=1500)
    X = rng.normal(size=(8, 50))[y] * np.linspace(2, 0.05, 50) + rng.normal(size=(1500, 50))
    X = StandardScaler().fit_transform(X)
    return X @ np.linalg.svd(X, full_matrices=False)[2].T, y
