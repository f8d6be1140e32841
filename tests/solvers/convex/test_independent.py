"""Optima against solvers that share nothing with ours: CVXPY's, qics, and a plain one written out here."""

from __future__ import annotations

from functools import cache
from typing import Any

import array_api_compat.numpy as xp
import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.preprocessing import MinMaxScaler

from solvers.convex.mdml import MDML
from solvers.regularizers.table import make_regularizer

EPSILON = 1e-5
SPECTRAL = ["none", "tr", "csfn", "cvnd", "cldd", "l2", "it"]
ENTRIES = ["l1", "l21"]


@cache
def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Points, similar and dissimilar pairs, the scatter of the former and z of the latter."""
    X, y = load_wine(return_X_y=True)
    X, y = MinMaxScaler().fit_transform(X)[::9, :4], y[::9]
    ends = np.stack(np.triu_indices(len(y), 1), axis=1)
    same = y[ends[:, 0]] == y[ends[:, 1]]
    near, far = (X[each[:, 0]] - X[each[:, 1]] for each in (ends[same], ends[~same]))
    return X, ends[same], ends[~same], near.T @ near / len(near), far


def fitted(regularizer: str, gamma: float) -> MDML:
    X, similar, dissimilar, _, _ = problem()
    return MDML(regularizer, gamma, epsilon=EPSILON, tol=1e-7, random_state=0).fit_pairs(X, similar, dissimilar)


def check(model: MDML, best: float, accuracy: float) -> None:
    """Another solver's value is no lower than the bound, and no higher than ours by more than its accuracy."""
    assert model.converged_
    assert model.dual_objective_ <= best + accuracy * abs(best)
    assert model.objective_ == pytest.approx(best, rel=accuracy)


def penalty_value(regularizer: str, M: np.ndarray) -> float:
    if regularizer == "l1":
        return float(np.abs(M).sum())
    if regularizer == "l21":
        return float(np.linalg.norm(M, axis=1).sum())
    values = np.clip(np.linalg.eigvalsh(M), 1e-300, None)
    return float(make_regularizer(regularizer, epsilon=EPSILON).value(values, xp=xp).sum())


def primal_dual_steps(regularizer: str, gamma: float, steps: int) -> float:
    """The least F of Chambolle and Pock's method: a prox of M, a projection of the two duals, nothing else."""
    _, _, _, C, z = problem()
    D, m = C.shape[0], len(z)
    outer = np.einsum("ka,kb->kab", z, z).reshape(m, -1)
    spectral = make_regularizer("none" if regularizer in ENTRIES else regularizer, epsilon=EPSILON)
    # The hinge's dual in units in which the two operators are alike.
    unit = np.linalg.norm(outer, 2) / m / gamma
    tau = sigma = 0.7 / gamma
    M, alpha, W = np.eye(D), np.zeros(m), np.zeros((D, D))
    least = np.inf
    for step in range(steps):
        slope = C - (alpha @ outer).reshape(D, D) / m + gamma * (W + W.T) / 2
        values, vectors = np.linalg.eigh(M - tau * slope)
        values = spectral.prox(values, tau * gamma, xp=xp) if regularizer not in ENTRIES else np.maximum(values, 0)
        new = (vectors * values) @ vectors.T
        ahead = 2 * new - M
        alpha = np.clip(alpha + sigma / unit**2 * (1 - outer @ ahead.ravel()) / m, 0, 1)
        if regularizer == "l1":
            W = np.clip(W + sigma * gamma * ahead, -1, 1)
        elif regularizer == "l21":
            W = W + sigma * gamma * ahead
            W = W / np.maximum(1, np.linalg.norm(W, axis=1, keepdims=True))
        M = new
        if step % 50 == 49:
            hinge = np.maximum(0, 1 - outer @ M.ravel()).mean()
            least = min(least, float(np.sum(C * M) + hinge + gamma * penalty_value(regularizer, M)))
    return least


@pytest.mark.parametrize("regularizer", [*SPECTRAL, *ENTRIES])
def test_a_plain_primal_dual_method_finds_the_same_optimum(regularizer: str) -> None:
    check(fitted(regularizer, 0.05), primal_dual_steps(regularizer, 0.05, 5000), 2e-4)


@pytest.mark.parametrize("gamma", [1e-3, 0.05])
@pytest.mark.parametrize("regularizer", [name for name in (*SPECTRAL, *ENTRIES) if name != "cvnd"])
def test_cvxpy_finds_the_same_optimum(regularizer: str, gamma: float) -> None:
    cp: Any = pytest.importorskip("cvxpy", reason="cvxpy is in the dev extra")
    _, _, _, C, z = problem()
    D, m = C.shape[0], len(z)
    M = cp.Variable((D, D), PSD=True)
    distances = np.einsum("ka,kb->kab", z, z).reshape(m, -1) @ cp.vec(M, order="C")
    identity = np.eye(D)
    penalty = {
        "none": lambda: 0.0,
        "tr": lambda: cp.trace(M),
        "csfn": lambda: cp.sum_squares(M - identity) + cp.trace(M),
        "cldd": lambda: -cp.log_det(M + EPSILON * identity) - np.log(EPSILON) * cp.trace(M),
        "l2": lambda: cp.sum_squares(M),
        "it": lambda: cp.trace(M) - cp.log_det(M),
        "l1": lambda: cp.sum(cp.abs(M)),
        "l21": lambda: cp.sum(cp.norm(M, 2, axis=1)),
    }[regularizer]()
    loss = cp.trace(C @ M) + cp.sum(cp.pos(1 - distances)) / m
    best = cp.Problem(cp.Minimize(loss + gamma * penalty)).solve(solver=cp.CLARABEL)
    check(fitted(regularizer, gamma), best, 2e-6)


@pytest.mark.parametrize("gamma", [1e-3, 0.05])
def test_qics_finds_the_same_optimum_of_cvnd(gamma: float) -> None:
    """Minimise <C, M> + mean(xi) + gamma t with t at least the negative entropy of M + eps I."""
    qics: Any = pytest.importorskip("qics", reason="qics is in the dev extra")
    _, _, _, C, z = problem()
    D, m = C.shape[0], len(z)
    rows, columns = np.triu_indices(D)
    size = len(rows)
    to_matrix = np.zeros((D * D, size))  # from the upper triangle to all entries
    to_matrix[rows * D + columns, np.arange(size)] = to_matrix[columns * D + rows, np.arange(size)] = 1
    outer = np.einsum("ka,kb->kab", z, z).reshape(m, -1) @ to_matrix
    blank = np.zeros((D * D, m))
    column = np.zeros((D * D, 1))
    entropy = np.zeros((2 + D * D, size + m + 1))
    entropy[0, -1], entropy[2:, :size] = 1, to_matrix
    slope = np.vstack(
        [
            np.hstack([to_matrix, blank, column]),
            np.hstack([np.zeros((m, size)), np.eye(m), np.zeros((m, 1))]),
            np.hstack([outer, np.eye(m), np.zeros((m, 1))]),
            entropy,
        ]
    )
    offset = np.concatenate([np.zeros(D * D + m), -np.ones(m), [0.0, 1.0], EPSILON * np.eye(D).ravel()])
    cones = [
        qics.cones.PosSemidefinite(D),
        qics.cones.NonNegOrthant(m),
        qics.cones.NonNegOrthant(m),
        qics.cones.QuantEntr(D),
    ]
    cost = np.concatenate([C.ravel() @ to_matrix, np.full(m, 1 / m), [gamma]])
    model = qics.Model(c=cost[:, None], G=-slope, h=offset[:, None], cones=cones)
    solved = qics.Solver(model, verbose=0).solve()
    assert solved["sol_status"] == "optimal"
    check(fitted("cvnd", gamma), float(cost @ solved["x_opt"].ravel()), 2e-6)
