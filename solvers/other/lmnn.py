"""Large margin nearest neighbours in its convex form, with bounded memory."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from solvers.backend import Array, Backend, Namespace, group_sum, to_numpy
from solvers.convex.accelerated import minimize_psd, scaled_identity
from solvers.mahalanobis import MahalanobisLearner
from solvers.pairs import PairSet

# Distances to all other points are formed for this many bytes of anchors at a time.
_BLOCK_BYTES = 1 << 25
# Steps between two searches for impostors.
_STEPS_PER_SEARCH = 15
# Pairs of an example and an impostor that are watched at most, unless `max_impostors` says otherwise.
_MOST_WATCHED = 1 << 22
# Impostors this far outside the margin are watched, too: the next steps may let them in.
_WATCH = 0.5
_SCALE_SAMPLE = 200


class LMNN(MahalanobisLearner):
    """Large margin nearest neighbours (Weinberger and Saul), convex in M.

    With targets j of i (its nearest neighbours of the same class, by Euclidean distance),

        min over psd M of  1/n sum_i [ (1 - push) sum_j d_ij + push sum_{j, l} max(0, 1 + d_ij - d_il) ] ,

    d squared distances under M, l over examples of other classes. Impostors (i, l) are searched every
    few steps, in blocks, and all within reach of the margin are watched until the next search. Triplets
    act on M only through one weight per pair, so that no array of size triplets x D exists.

    The paper gives push (its mu) 0.5 and leaves open the number of targets (3 here) and the optimiser
    (accelerated proximal gradient on a hinge rounded off over `smoothing`). Classes with fewer than
    n_neighbors + 1 examples have fewer targets, classes of one none.

    Parameters
    ----------
    n_neighbors : int, targets of each example.
    push : float in (0, 1).
    max_impostors : int or None, watched per example, nearest first, to bound memory; None for all, as long as
        those of all examples are no more than four million. Where active ones are left out at the end, the
        optimum is another one: the fit has not converged, and says so.
    smoothing : float > 0, share of the margin over which the hinge is rounded off at the start. It shrinks where
        it makes more than `tol` of the objective.
    max_iter : int, proximal steps.
    tol : float, relative decrease of the objective at which to stop, in each of two searches running.
    rank_tol : float, eigenvalues of M below this share of the largest count as zero.
    device : "auto", "cpu", "cuda" or "cuda:<number>".

    Attributes
    ----------
    components_ : (k, D) array, L.
    rank_ : int, k.
    objective_ : float, the objective above over all triplets, hinge not rounded.
    n_active_ : int, triplets inside the margin.
    n_left_out_ : int, impostors inside the margin that were not watched, see `max_impostors`.
    n_iter_, n_eigh_ : int.
    converged_ : bool, whether the decrease reached `tol` and no impostor was left out.
    """

    def __init__(
        self,
        n_neighbors: int = 3,
        push: float = 0.5,
        max_impostors: int | None = None,
        smoothing: float = 0.1,
        max_iter: int = 500,
        tol: float = 5e-3,
        rank_tol: float = 1e-3,
        device: str = "auto",
    ) -> None:
        self.n_neighbors = n_neighbors
        self.push = push
        self.max_impostors = max_impostors
        self.smoothing = smoothing
        self.max_iter = max_iter
        self.tol = tol
        self.rank_tol = rank_tol
        self.device = device

    def fit(self, X: Any, y: Any = None) -> LMNN:
        """Learn from points X (n, D) and labels y (n,)."""
        if self.n_neighbors < 1:
            raise ValueError(f"n_neighbors: expected at least 1, got {self.n_neighbors}")
        if not 0 < self.push < 1:
            raise ValueError(f"push: expected a number between 0 and 1, got {self.push}")
        if self.max_impostors is not None and self.max_impostors < 1:
            raise ValueError(f"max_impostors: expected at least 1, or None for all, got {self.max_impostors}")
        if not self.smoothing > 0:
            raise ValueError(f"smoothing: expected a number above 0, got {self.smoothing}")
        points, labels, backend = self._validate_fit(X, y)
        counts = np.bincount(labels)
        if counts.size < 2:
            raise ValueError("lmnn: y has one class only, so there are no impostors; give at least two classes")
        if counts.max() < 2:
            raise ValueError("lmnn: every class has one example, so no example has a target; give a class two")
        triplets = _Triplets(points, labels, self.n_neighbors, self.push, backend)
        limit = self.max_impostors or max(1, _MOST_WATCHED // labels.size)
        scale = triplets.best_scale()
        found = triplets.search(math.sqrt(scale) * points, limit)
        current = scaled_identity(scale, found.pairs, backend)
        best, best_found = current, found
        smoothing, quiet = self.smoothing, 0
        while current.n_iter < self.max_iter and quiet < 2:
            current, _ = minimize_psd(
                partial(triplets.loss, found=found, smoothing=smoothing),
                found.pairs,
                replace(current, distances=found.pairs.distances(current.L)),
                max_iter=min(_STEPS_PER_SEARCH, self.max_iter - current.n_iter),
                tol=0.0,
                backend=backend,
            )
            rounded = current.value
            found = triplets.search(points @ backend.xp.matrix_transpose(current.L), limit)
            decrease = best_found.objective - found.objective
            quiet = quiet + 1 if abs(decrease) <= self.tol * best_found.objective else 0
            if quiet and not found.n_left_out and found.objective - rounded > self.tol * found.objective:
                smoothing, quiet = smoothing / 2, 0
            if decrease > 0:
                best, best_found = current, found
        self.n_left_out_ = best_found.n_left_out
        self.converged_ = quiet == 2 and self.n_left_out_ == 0
        if self.n_left_out_:
            self._warn(
                f"{self.n_left_out_} impostors inside the margin were left out; raise max_impostors from {limit}"
            )
        elif quiet < 2:
            self._warn(f"the objective still changed after {current.n_iter} steps; raise max_iter or tol")
        self._set_metric(best.M, backend, like=X)
        self.objective_, self.n_active_ = best_found.objective, best_found.n_active
        self.n_iter_, self.n_eigh_ = current.n_iter, current.n_eigh + 1
        return self

    @staticmethod
    def _warn(message: str) -> None:
        warnings.warn(f"lmnn: {message}", ConvergenceWarning, stacklevel=3)


@dataclass(frozen=True)
class _Found:
    """What a search found: watched impostors, and the exact objective over all triplets."""

    pairs: PairSet  # all targets, n x n_neighbors, then the watched impostors
    anchors: Array  # (p,) sorted rows, the first end of each impostor
    objective: float
    n_active: int
    n_left_out: int  # impostors inside the margin that are not watched


class _Triplets:
    """Targets, fixed, and the impostors that a metric leaves inside their margin."""

    def __init__(self, X: Array, labels: np.ndarray, n_neighbors: int, push: float, backend: Backend) -> None:
        self.X, self.push, self.backend = X, push, backend
        self.labels = backend.indices(labels)
        self.targets, valid = _targets(X, labels, n_neighbors, backend)
        self.valid = backend.asarray(valid.astype(np.float64))
        self.has_target = valid[:, 0]

    def target_distances(self, Y: Array) -> Array:
        """Squared distances (n, k) of each row of Y (n, r) to its targets; 0 where there is none."""
        first, second = self._target_ends()
        pairs = PairSet(Y, first, second, xp=self.backend.xp)
        return self.backend.xp.reshape(pairs.projected_distances(Y), self.targets.shape)

    def best_scale(self) -> float:
        """c of smallest objective for M = c I, on some anchors: where the search starts."""
        xp = self.backend.xp
        rows = np.flatnonzero(self.has_target)
        rows = self.backend.indices(rows[:: max(1, rows.size // _SCALE_SAMPLE)])
        Y = _centred(self.X, xp=xp)
        near = xp.take(self.target_distances(Y), rows, axis=0)
        valid = xp.take(self.valid, rows, axis=0)
        far = self._distances(Y, rows)
        other = xp.astype(xp.take(self.labels, rows)[:, None] != self.labels[None, :], far.dtype)
        mean = float(xp.mean(far))
        if mean == 0:
            return 1.0

        def objective(scale: float) -> float:
            value = (1 - self.push) * scale * float(xp.sum(near * valid))
            for j in range(near.shape[1]):
                hinge = xp.clip(1 + scale * (near[:, j : j + 1] - far), 0.0, None)
                value += self.push * float(xp.sum(hinge * other * valid[:, j : j + 1]))
            return value

        return min((float(scale) for scale in np.logspace(-2, 4, 13) / mean), key=objective)

    def search(self, Y: Array, max_impostors: int) -> _Found:
        """All impostors of the projected points Y (n, r), in blocks; the nearest of them are watched."""
        xp, backend = self.backend.xp, self.backend
        Y = _centred(Y, xp=xp)
        near = self.target_distances(Y)
        # Anchors without a target reach nothing.
        reach = xp.where(self.valid[:, 0] > 0, xp.max(near, axis=1) + 1 + _WATCH, xp.zeros_like(near[:, 0]))
        block = max(1, _BLOCK_BYTES // (8 * Y.shape[0]))
        hinge_sum, n_active, n_left_out, anchors, impostors = 0.0, 0, 0, [], []
        for start in range(0, Y.shape[0], block):
            rows = backend.indices(np.arange(start, min(start + block, Y.shape[0])))
            far = self._distances(Y, rows)
            inside = far < xp.take(reach, rows)[:, None]
            inside = inside & (xp.take(self.labels, rows)[:, None] != self.labels[None, :])
            local, other = xp.nonzero(inside)
            if local.shape[0] == 0:
                continue
            distance = xp.take(xp.reshape(far, (-1,)), local * Y.shape[0] + other)
            anchor = local + start
            slack = self._slack(near, anchor, distance)
            hinge_sum += float(xp.sum(xp.clip(slack, 0.0, None)))
            n_active += int(xp.sum(xp.astype(slack > 0, xp.int64)))
            kept = _nearest(local, distance, rows.shape[0], max_impostors, backend=backend)
            inner = xp.astype(xp.max(slack, axis=1) > 0, xp.int64)
            n_left_out += int(xp.sum(inner)) - int(xp.sum(xp.take(inner, kept)))
            anchors.append(xp.take(anchor, kept))
            impostors.append(xp.take(other, kept))
        none = backend.indices(np.zeros(0))
        anchor, impostor = xp.concat([none, *anchors]), xp.concat([none, *impostors])
        first, second = self._target_ends()
        pairs = PairSet(self.X, xp.concat([first, anchor]), xp.concat([second, impostor]), xp=xp)
        pull = float(xp.sum(near * self.valid))
        objective = ((1 - self.push) * pull + self.push * hinge_sum) / Y.shape[0]
        return _Found(pairs, anchor, objective, n_active, n_left_out)

    def loss(self, distances: Array, found: _Found, smoothing: float) -> tuple[float, Array]:
        """The objective on the watched triplets with a rounded hinge, and its slope by each distance."""
        xp = self.backend.xp
        n, k = self.targets.shape
        near = xp.reshape(distances[: n * k], (n, k))
        slack = self._slack(near, found.anchors, distances[n * k :])
        slope = xp.clip(slack / smoothing, 0.0, 1.0)
        # slope (slack - smoothing slope / 2) is the hinge, with a parabola on [0, smoothing].
        push = self.push / n
        pull = (1 - self.push) / n
        value = pull * float(xp.sum(near * self.valid)) + push * float(xp.sum(slope * (slack - smoothing * slope / 2)))
        near_weights = pull * self.valid + push * group_sum(found.anchors, n, slope, xp=xp)
        return value, xp.concat([xp.reshape(near_weights, (-1,)), -push * xp.sum(slope, axis=1)])

    def _slack(self, near: Array, anchors: Array, far: Array) -> Array:
        """1 + d_ij - d_il (p, k) for each impostor and each target of its anchor; -1 where there is none."""
        xp = self.backend.xp
        slack = 1 + xp.take(near, anchors, axis=0) - far[:, None]
        return xp.where(xp.take(self.valid, anchors, axis=0) > 0, slack, -xp.ones_like(slack))

    def _target_ends(self) -> tuple[Array, Array]:
        n, k = self.targets.shape
        first = self.backend.indices(np.repeat(np.arange(n), k))
        return first, self.backend.xp.reshape(self.targets, (-1,))

    def _distances(self, Y: Array, rows: Array) -> Array:
        """Squared distances of some rows of Y to all, (b, n)."""
        xp = self.backend.xp
        return _squared_distances(xp.take(Y, rows, axis=0), Y, xp=xp)


def _centred(Y: Array, *, xp: Namespace) -> Array:
    """Y minus its mean: the expanded square below then loses fewer digits."""
    return Y - xp.mean(Y, axis=0, keepdims=True)


def _squared_distances(A: Array, B: Array, *, xp: Namespace) -> Array:
    squares = xp.sum(A * A, axis=1)[:, None] + xp.sum(B * B, axis=1)[None, :]
    return xp.clip(squares - 2 * (A @ xp.matrix_transpose(B)), 0.0, None)


def _targets(X: Array, labels: np.ndarray, k: int, backend: Backend) -> tuple[Array, np.ndarray]:
    """Rows of the k nearest examples of the same class (n, k), itself where there are fewer; which exist."""
    xp = backend.xp
    Y = _centred(X, xp=xp)
    k = min(k, max(1, int(np.bincount(labels).max()) - 1))
    targets = np.repeat(np.arange(labels.size)[:, None], k, axis=1)
    for code in range(int(labels.max()) + 1):
        members = np.flatnonzero(labels == code)
        available = min(k, members.size - 1)
        if available < 1:
            continue
        own = xp.take(Y, backend.indices(members), axis=0)
        block = max(1, _BLOCK_BYTES // (8 * members.size))
        for start in range(0, members.size, block):
            rows = backend.indices(np.arange(start, min(start + block, members.size)))
            distances = _squared_distances(xp.take(own, rows, axis=0), own, xp=xp)
            itself = rows[:, None] == backend.indices(np.arange(members.size))[None, :]
            order = xp.argsort(xp.where(itself, -xp.ones_like(distances), distances), axis=1)
            nearest = to_numpy(order[:, 1 : 1 + available])
            targets[members[start : start + block], :available] = members[nearest]
    return backend.indices(targets), targets != np.arange(labels.size)[:, None]


def _nearest(rows: Array, distances: Array, n_rows: int, limit: int, *, backend: Backend) -> Array:
    """Positions of the `limit` smallest distances of each row, rows ascending; `rows` (p,) is sorted."""
    xp = backend.xp
    order = xp.argsort(distances)
    order = xp.take(order, xp.argsort(xp.take(rows, order)))  # stable: by row, then by distance
    starts = xp.searchsorted(rows, backend.indices(np.arange(n_rows)))
    place = backend.indices(np.arange(rows.shape[0])) - xp.take(starts, xp.take(rows, order))
    return xp.take(order, xp.nonzero(place < limit)[0])
