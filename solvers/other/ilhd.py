"""Hash codes learned one bit at a time, made different by chance: independent Laplacian hashing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted

from solvers.backend import Array, choose_backend, is_host_data, to_numpy
from solvers.base import MetricLearner

_MAX_SWEEPS = 20


class ILHD(MetricLearner):
    """Independent Laplacian hashing with diversity (Carreira-Perpinan and Raziperchikolaei, NIPS 2016).

    Each bit is learned alone. Codes z in {-1, 1} of its training subset make the sum of
    w_nm (z_n - z_m)^2 small, w = 1 for sampled pairs of one class and -1 for sampled pairs of two; an
    SVM with Gaussian kernel then maps points to that code. Bits differ by their random start, their
    subset of examples and their subset of features.

    Points are compared by Hamming distance: `transform` gives bits 0 and 1, so that the squared
    Euclidean distance of two codes is their Hamming distance. There is no matrix M.

    The paper gives the kernel's scale 0.1 and leaves open the neighbour counts (100 and 500, those of a
    public implementation), both subset sizes, the SVM's C and how codes are found (flips of single
    codes in random order until none helps). The SVMs are scikit-learn's: a fit runs on the CPU, and
    data on a GPU are copied.

    Parameters
    ----------
    n_bits, rank : int, length of the code, under its own name and the sweep file's; `rank` counts where it is given.
    kernel_scale : float, s in exp(-s ||x - c||^2).
    C : float, penalty of the SVMs.
    n_same, n_other : int, sampled pairs of each example within and across classes.
    max_samples : int, examples per bit; at most half of all.
    feature_share : float in (0, 1], features per bit.
    random_state : int, Generator or None.

    Attributes
    ----------
    rank_ : int, number of bits.
    n_iter_ : int, sweeps of flips over all bits; n_eigh_ : int, 0.
    converged_ : bool, whether every bit's code came to rest.
    """

    def __init__(
        self,
        n_bits: int = 50,
        kernel_scale: float = 0.1,
        C: float = 1.0,
        n_same: int = 100,
        n_other: int = 500,
        max_samples: int = 2_000,
        feature_share: float = 0.5,
        random_state: Any = None,
        rank: int | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.rank = rank
        self.kernel_scale = kernel_scale
        self.C = C
        self.n_same = n_same
        self.n_other = n_other
        self.max_samples = max_samples
        self.feature_share = feature_share
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> ILHD:
        """Learn from points X (n, D) and labels y (n,)."""
        n_bits = self.n_bits if self.rank is None else self.rank
        if n_bits < 1:
            raise ValueError(f"n_bits: expected at least 1, got {n_bits}")
        if not 0 < self.feature_share <= 1:
            raise ValueError(f"feature_share: expected a number above 0 and at most 1, got {self.feature_share}")
        points, labels, _ = self._validate_fit(_on_host(X), _on_host(y))
        if self.classes_.size < 2:
            raise ValueError("ilhd: y has one class only, so no code can tell classes apart; give at least two")
        # Kernel values do not depend on the origin; their rounding errors do.
        self._origin = np.mean(points, axis=0)
        self._points = points - self._origin
        rng = np.random.default_rng(self.random_state)
        self.n_iter_, self.n_eigh_, self.converged_ = 0, 0, True
        self._bits = [self._fit_bit(labels, rng) for _ in range(n_bits)]
        self.rank_ = n_bits
        return self

    def _fit_bit(self, labels: np.ndarray, rng: np.random.Generator) -> _Bit:
        n, D = self._points.shape
        # One example of each of two classes first: a subset of one class could not be split.
        two = rng.permutation(self.classes_.size)[:2]
        apart = np.asarray([rng.choice(np.flatnonzero(labels == code)) for code in two])
        size = max(2, min(self.max_samples, n // 2))
        order = rng.permutation(n)
        rows = np.sort(np.concatenate([apart, order[~np.isin(order, apart)][: size - 2]]))
        features = np.sort(rng.permutation(D)[: max(1, round(self.feature_share * D))])
        W = affinity(labels[rows], self.n_same, self.n_other, rng)
        codes, sweeps, at_rest = flip_codes(W, rng)
        self.n_iter_ += sweeps
        self.converged_ = self.converged_ and at_rest
        if abs(codes.sum()) == codes.size:  # one value only: there is nothing to learn
            return _Bit(rows[:0], features, np.zeros(0), float(codes[0]))
        svm = SVC(C=self.C, kernel="rbf", gamma=self.kernel_scale)
        svm.fit(self._points[np.ix_(rows, features)], codes)
        return _Bit(rows[svm.support_], features, svm.dual_coef_[0], float(svm.intercept_[0]))

    def transform(self, X: Any) -> Array:
        """Codes (n, bits) of 0 and 1: squared Euclidean distance is Hamming distance."""
        check_is_fitted(self, "rank_")
        points, _ = self._validate_points(_on_host(X), reset=False)
        codes = self._codes(points)
        return codes if is_host_data(X) else choose_backend(X).asarray(codes)

    def _codes(self, points: np.ndarray) -> np.ndarray:
        codes = np.empty((points.shape[0], self.rank_), dtype=self._points.dtype)
        points = points - self._origin
        for b, bit in enumerate(self._bits):
            codes[:, b] = bit.decide(points, self._points, self.kernel_scale) > 0
        return codes

    def pair_distance(self, pairs: Any) -> np.ndarray:
        """Square root of the Hamming distance of each pair, (m,), for pairs (m, 2, D)."""
        check_is_fitted(self, "rank_")
        points = to_numpy(pairs)
        if points.ndim != 3 or points.shape[1:] != (2, self.n_features_in_):
            raise ValueError(f"pairs: expected shape (m, 2, {self.n_features_in_}), got {points.shape}")
        return np.sqrt(np.sum(self._codes(points[:, 0]) != self._codes(points[:, 1]), axis=1))

    def get_metric(self) -> Callable[..., float]:
        """Function metric(u, v, squared=False): with squared the Hamming distance, else its root."""
        check_is_fitted(self, "rank_")

        def metric(u: Any, v: Any, squared: bool = False) -> float:
            distance = float(self.pair_distance(np.stack([u, v])[None])[0])
            return distance * distance if squared else distance

        return metric

    def get_mahalanobis_matrix(self) -> Array:
        """Hash codes have no such matrix: always an error."""
        raise ValueError("ilhd: hash codes have no Mahalanobis matrix; use transform or pair_distance")


@dataclass(frozen=True)
class _Bit:
    """One hash function: a kernel expansion over training rows, on some features."""

    rows: np.ndarray
    features: np.ndarray
    coefficients: np.ndarray
    intercept: float

    def decide(self, points: np.ndarray, training: np.ndarray, scale: float) -> np.ndarray:
        """Values (n,) whose sign is the bit."""
        A, B = points[:, self.features], training[np.ix_(self.rows, self.features)]
        squared = np.sum(A * A, axis=1)[:, None] + np.sum(B * B, axis=1)[None, :] - 2 * (A @ B.T)
        return np.exp(-scale * np.maximum(squared, 0)) @ self.coefficients + self.intercept


def _on_host(data: Any) -> Any:
    return data if is_host_data(data) else to_numpy(data)


def affinity(labels: np.ndarray, n_same: int, n_other: int, rng: np.random.Generator) -> np.ndarray:
    """Symmetric W (n, n): 1 on sampled pairs of one class, -1 on sampled pairs of two, else 0."""
    n = labels.size
    same = labels[:, None] == labels[None, :]
    np.fill_diagonal(same, False)
    other = labels[:, None] != labels[None, :]
    # Keep each entry with the probability that gives the wanted number per row on average.
    draw = rng.random((n, n), dtype=np.float32)
    chosen = np.zeros((n, n), dtype=np.float32)
    for kind, wanted, sign in ((same, n_same, 1.0), (other, n_other, -1.0)):
        available = np.maximum(kind.sum(axis=1), 1)
        chosen[kind & (draw < (wanted / available)[:, None])] = sign
    return chosen + chosen.T


def flip_codes(W: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, int, bool]:
    """Codes z in {-1, 1} at which no single flip raises z'Wz, from a random start; sweeps; at rest?"""
    n = W.shape[0]
    codes = rng.choice(np.asarray([-1.0, 1.0], dtype=np.float32), size=n)
    field = W @ codes
    for sweep in range(1, _MAX_SWEEPS + 1):
        flipped = False
        for i in rng.permutation(n):
            if field[i] * codes[i] < 0:
                codes[i] = -codes[i]
                field += 2 * codes[i] * W[i]
                flipped = True
        if not flipped:
            return codes, sweep, True
    return codes, _MAX_SWEEPS, False
