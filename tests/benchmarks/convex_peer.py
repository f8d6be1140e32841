"""One convex problem for every solver, the certificate that judges them all, and the solvers.

python -m tests.benchmarks.convex_peer SOLVER REGULARIZER D PAIRS ACCURACY OUT.npz

The problem is  min over psd M of  <C, M> + mean hinge(1 - z'Mz) + gamma sum_j h(lambda_j(M)).  Any psd M gives an upper
bound, and any weights a in [0, 1] of the pairs give a lower one by weak duality,

    mean(a) - gamma sum_j h*(y_j),    y the eigenvalues of (mean(a z z') - C) / gamma,

written out here on its own, so that no line of it is shared with our solver's certificate.
"""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.preprocessing import MinMaxScaler

from tests.benchmarks.families import family

GAMMA, EPSILON = 0.01, 1e-5
TILT = -math.log(EPSILON)
CONVEXITY = {"csfn": 2.0, "cvnd": 0.1, "cldd": 0.0}  # of the penalties: what their curvature is at least


@dataclass(frozen=True)
class Problem:
    """Points, pairs (as rows of points), the scatter C of the similar ones and z of the dissimilar ones."""

    X: np.ndarray
    similar: np.ndarray
    dissimilar: np.ndarray
    C: np.ndarray
    z: np.ndarray


def problem(D: int, pairs: int) -> Problem:
    X, y = family("handwriting-1")
    X = MinMaxScaler().fit_transform(PCA(D, random_state=0).fit_transform(X))
    rng = np.random.default_rng(0)
    ends = rng.integers(len(y), size=(40 * pairs, 2))
    same = y[ends[:, 0]] == y[ends[:, 1]]
    similar = ends[same & (ends[:, 0] != ends[:, 1])][:pairs]
    dissimilar = ends[~same][:pairs]
    near, z = (X[each[:, 0]] - X[each[:, 1]] for each in (similar, dissimilar))
    return Problem(X, similar, dissimilar, near.T @ near / len(near), z)


def penalty(regularizer: str, x: np.ndarray) -> float:
    return float(
        {
            "csfn": lambda: (x - 1) ** 2 + x,
            "cldd": lambda: TILT * x - np.log(x + EPSILON),
            "cvnd": lambda: (x + EPSILON) * np.log(x + EPSILON),
        }[regularizer]().sum()
    )


def best_eigenvalues(regularizer: str, y: np.ndarray) -> np.ndarray:
    """argmax over x >= 0 of x y - h(x)."""
    found: np.ndarray = {
        "csfn": lambda: (y + 1) / 2,
        "cldd": lambda: 1 / (TILT - y) - EPSILON,
        "cvnd": lambda: np.exp(np.minimum(y, 700) - 1) - EPSILON,
    }[regularizer]()
    return np.maximum(found, 0)


def upper(p: Problem, regularizer: str, M: np.ndarray) -> float:
    values, vectors = np.linalg.eigh((M + M.T) / 2)
    values = np.maximum(values, 0)  # whoever leaves the cone a little is brought back, and judged there
    M = (vectors * values) @ vectors.T
    hinge = np.maximum(0, 1 - np.einsum("ka,ab,kb->k", p.z, M, p.z)).mean()
    return float(np.sum(p.C * M) + hinge) + GAMMA * penalty(regularizer, values)


def lower(p: Problem, regularizer: str, weights: np.ndarray) -> float:
    a = np.clip(weights, 0, 1)
    y = np.linalg.eigvalsh((p.z.T * a) @ p.z / len(a) - p.C) / GAMMA
    if regularizer == "cldd" and y.max() >= TILT:
        return -math.inf
    x = best_eigenvalues(regularizer, y)
    return float(a.mean()) - GAMMA * (float(x @ y) - penalty(regularizer, x))


# -- solvers: M and the weights of the pairs ----------------------------------------------------------------------


def ours(p: Problem, regularizer: str, accuracy: float) -> tuple[np.ndarray, np.ndarray]:
    from solvers.convex.mdml import MDML

    model = MDML(regularizer, GAMMA, epsilon=EPSILON, tol=accuracy, random_state=0, device="cpu")
    model.fit_pairs(p.X, p.similar, p.dissimilar)
    return model.get_mahalanobis_matrix(), model.dual_weights_


def _cvxpy(p: Problem, regularizer: str, solver: str, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    import cvxpy as cp

    D, m = len(p.C), len(p.z)
    M = cp.Variable((D, D), PSD=True)
    slack = cp.Variable(m, nonneg=True)
    outer = np.einsum("ka,kb->kab", p.z, p.z).reshape(m, -1)
    far = outer @ cp.vec(M, order="C") + slack >= 1
    identity = np.eye(D)
    omega = {
        "csfn": lambda: cp.sum_squares(M - identity) + cp.trace(M),
        "cldd": lambda: -cp.log_det(M + EPSILON * identity) + TILT * cp.trace(M),
    }[regularizer]()
    objective = cp.trace(p.C @ M) + cp.sum(slack) / m + GAMMA * omega
    cp.Problem(cp.Minimize(objective), [far]).solve(solver=solver, **options)
    return M.value, m * far.dual_value


def scs(p: Problem, regularizer: str, accuracy: float) -> tuple[np.ndarray, np.ndarray]:
    return _cvxpy(p, regularizer, "SCS", {"eps": accuracy, "max_iters": 10**7})


def clarabel(p: Problem, regularizer: str, accuracy: float) -> tuple[np.ndarray, np.ndarray]:
    names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
    return _cvxpy(p, regularizer, "CLARABEL", dict.fromkeys(names, accuracy))


def qics(p: Problem, regularizer: str, accuracy: float) -> tuple[np.ndarray, np.ndarray]:
    """With the cone of the von Neumann entropy: minimise <C, M> + mean(slack) + gamma t."""
    import qics as package

    D, m = len(p.C), len(p.z)
    rows, columns = np.triu_indices(D)
    size = len(rows)
    whole = np.zeros((D * D, size))  # from the upper triangle to all entries
    whole[rows * D + columns, np.arange(size)] = whole[columns * D + rows, np.arange(size)] = 1
    slope = np.zeros((D * D + 2 * m + 2 + D * D, size + m + 1))
    slope[: D * D, :size] = whole
    slope[D * D : D * D + m, size : size + m] = np.eye(m)
    slope[D * D + m : D * D + 2 * m, :size] = np.einsum("ka,kb->kab", p.z, p.z).reshape(m, -1) @ whole
    slope[D * D + m : D * D + 2 * m, size : size + m] = np.eye(m)
    slope[D * D + 2 * m, -1] = 1
    slope[D * D + 2 * m + 2 :, :size] = whole
    offset = np.concatenate([np.zeros(D * D + m), -np.ones(m), [0.0, 1.0], EPSILON * np.eye(D).ravel()])
    cones = [
        package.cones.PosSemidefinite(D),
        package.cones.NonNegOrthant(m),
        package.cones.NonNegOrthant(m),
        package.cones.QuantEntr(D),
    ]
    cost = np.concatenate([p.C.ravel() @ whole, np.full(m, 1 / m), [GAMMA]])
    model = package.Model(c=cost[:, None], G=-slope, h=offset[:, None], cones=cones)
    solved = package.Solver(model, verbose=0, tol_gap=accuracy, tol_feas=accuracy).solve()
    M = (whole @ solved["x_opt"].ravel()[:size]).reshape(D, D)
    return M, m * np.asarray(solved["z_opt"][2]).ravel()


def plain(p: Problem, regularizer: str, accuracy: float) -> tuple[np.ndarray, np.ndarray]:
    """Chambolle and Pock's steps until the certificate above says so: the reference, no solver to compare with.

    Step sizes change as they advise for strongly convex functions: csfn is one, and cvnd for eigenvalues up to 10.
    After BENCH_REFERENCE seconds it gives the best it has: any bound is one.
    """
    until = time.perf_counter() + float(os.environ.get("BENCH_REFERENCE", "300"))
    D, m = len(p.C), len(p.z)
    norm = np.linalg.norm(np.einsum("ka,kb->kab", p.z, p.z).reshape(m, -1), 2) / m
    tau, sigma = 0.99 / norm, 0.99 / norm
    balance = math.sqrt(m) * 10
    tau, sigma = tau * balance, sigma / balance
    M, a = np.eye(D), np.full(m, 0.5)
    best_M, best_a, low, high = M, a, -math.inf, math.inf
    step = 0
    while True:
        values, vectors = np.linalg.eigh(M - tau * (p.C - (p.z.T * a) @ p.z / m))
        new = (vectors * _prox(regularizer, values, tau * GAMMA)) @ vectors.T
        shrink = 1 / math.sqrt(1 + 2 * CONVEXITY[regularizer] * GAMMA * tau)
        ahead = new + shrink * (new - M)
        tau, sigma = shrink * tau, sigma / shrink
        a = np.clip(a + sigma * (1 - np.einsum("ka,ka->k", p.z @ ahead, p.z)) / m, 0, 1)
        M = new
        step += 1
        if step % 50 == 0:
            if (bound := lower(p, regularizer, a)) > low:
                low, best_a = bound, a
            if (value := upper(p, regularizer, M)) < high:
                high, best_M = value, M
            if high - low <= accuracy * abs(high) or time.perf_counter() > until:
                return best_M, best_a


def _prox(regularizer: str, l: np.ndarray, step: float) -> np.ndarray:
    """argmin over x >= 0 of step h(x) + (x - l)^2 / 2."""
    if regularizer == "csfn":
        return np.maximum((l + step) / (1 + 2 * step), 0)
    if regularizer == "cldd":
        shifted = l - step * TILT + EPSILON
        return np.maximum((shifted + np.sqrt(shifted**2 + 4 * step)) / 2 - EPSILON, 0)
    low, high = np.zeros_like(l), np.maximum(l, 0) + 40 * step + 1
    for _ in range(80):  # the derivative step (log(x + eps) + 1) + x - l rises with x
        middle = (low + high) / 2
        above = step * (np.log(middle + EPSILON) + 1) + middle - l > 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2


SOLVERS = {"ours": ours, "SCS": scs, "Clarabel": clarabel, "qics": qics, "plain": plain}

if __name__ == "__main__":
    solver, regularizer, D, pairs, accuracy, out = sys.argv[1:]
    given = problem(int(D), int(pairs))
    began = time.perf_counter()
    M, weights = SOLVERS[solver](given, regularizer, float(accuracy))
    seconds = time.perf_counter() - began
    np.savez(out, M=M, weights=weights, seconds=seconds)
