"""From starts to minima of the smoothed objective: coordinates, precision and smoothing of the descent.

The descent runs in coordinates in which the data have unit scatter, in single precision, with the
hinge first roughly and then finely smoothed. What single precision cannot settle goes on in
double; what is reported is measured in double.
"""

from __future__ import annotations

from collections.abc import Callable

import array_api_compat
import numpy as np

from solvers.backend import Array, Namespace, eigh, to_numpy
from solvers.projection import lbfgs
from solvers.projection.objective import ProjectionObjective
from solvers.projection.restarts import OnCheck, StackResult
from solvers.regularizers.rows import NoRowPenalty

# Smoothing of the hinge, as parts of the margin: rough first, so that few pairs decide late.
LEVELS = (0.1, 0.01)
# Ten steps that lower the value by no more than this part of `tol` count as standing.
_STALL = 0.05
# The rough level only prepares the fine one: its tolerances are so much larger.
_ROUGH_TOL, _ROUGH_STALL = 10.0, 60.0
# A tolerance below this is beyond the rounding of single precision, and so are Gram matrices whose
# eigenvalues differ by more than this factor.
_SINGLE_TOL, _SINGLE_SPREAD = 1e-4, 1e5
# Rows that together make up less than this part of the mean distance are left out,
# and come back as this part of it.
_SMALL, _NEGLIGIBLE = 1e-3, 1e-7


def descend(
    objective: ProjectionObjective,
    start: Array,
    *,
    tol: float,
    max_iter: int,
    on_check: OnCheck | None = None,
) -> StackResult:
    """Minimise F smoothed at the last of `LEVELS` from every start (r, k, D), by L-BFGS.

    A restart has converged where its stationarity in coordinates of unit scatter is at most `tol`, or
    where ten steps lowered F by no more than `tol` / 20 of it.
    """
    xp, margin = objective.xp, objective.problem.margin
    whitened, root = objective.whitened()
    double = start.dtype
    single_tol = max(tol, _SINGLE_TOL)
    stages = [(LEVELS[0], xp.float32, single_tol), (LEVELS[1], xp.float32, single_tol)]
    if not _fits_single(objective, start):
        stages = [(LEVELS[0], double, tol), (LEVELS[1], double, tol)]
    elif double != xp.float32:
        stages.append((LEVELS[1], double, tol))

    B = start @ root
    n_iter, converged = np.zeros(start.shape[0], dtype=np.int64), np.zeros(start.shape[0], dtype=bool)
    expand: Callable[[Array], Array] = _same
    for number, (level, dtype, stage_tol) in enumerate(stages):
        polish = number == 2
        rows = np.flatnonzero((n_iter < max_iter) & ~(converged & polish & (tol >= _SINGLE_TOL)))
        if rows.size == 0:
            break
        loop = whitened.single() if dtype != double else whitened
        result = lbfgs.minimize(
            _at_level(loop, level * margin),
            xp.astype(_rows(B, rows, xp=xp), dtype),
            tol=stage_tol * (_ROUGH_TOL if number == 0 else 1.0),
            stall=stage_tol * _STALL * (_ROUGH_STALL if number == 0 else 1.0),
            max_iter=max_iter - n_iter[rows],
            xp=xp,
            on_check=None if on_check is None else _later(on_check, int(n_iter[rows].min())),
        )
        B = _replaced(B, rows, xp.astype(result.points, double), xp=xp)
        n_iter[rows] += result.n_iter
        converged[rows] = result.converged & (level == LEVELS[-1])
        if number == 0 and isinstance(objective.regularizer, NoRowPenalty):
            B, expand = _compressed(B, xp=xp)
    B = expand(B)
    values, gradients = _at_level(whitened, LEVELS[-1] * margin)(B)
    stationarity = to_numpy(lbfgs.stationarity(B, values, gradients, xp=xp))
    return StackResult(B @ whitened.basis, n_iter, converged | (stationarity <= tol), stationarity)


def _at_level(objective: ProjectionObjective, smoothing: float) -> lbfgs.Evaluate:
    def evaluate(B: Array) -> tuple[Array, Array]:
        device = array_api_compat.device(B)
        return objective.smoothed(B, objective.xp.full((B.shape[0],), smoothing, dtype=B.dtype, device=device))

    return evaluate


def _fits_single(objective: ProjectionObjective, start: Array) -> bool:
    """Whether single precision sees all of the starts: logarithms and inverses look at the smallest eigenvalue."""
    xp = objective.xp
    if objective.regularizer.eigendecompositions == 0:
        return True
    values = eigh(start @ xp.matrix_transpose(start), xp=xp)[0]
    return bool(xp.all(values[:, 0] * _SINGLE_SPREAD > values[:, -1]))


def _compressed(B: Array, *, xp: Namespace) -> tuple[Array, Callable[[Array], Array]]:
    """Fewer rows with nearly the same distances; and the way back to all rows.

    Without a penalty the objective does not change when rows are rotated among each other, and most of
    many rows have shrunk to nothing: rotated to principal axes, those can be left out. In coordinates
    of unit scatter a row's square is its part of the mean distance.
    """
    energies, axes = eigh(B @ xp.matrix_transpose(B), xp=xp)  # rising
    total = xp.cumulative_sum(energies, axis=-1)
    kept = (total > _SMALL * total[:, -1:])[..., None]
    width = int(xp.max(xp.sum(xp.astype(kept, xp.int64), axis=-2)))
    rotated = xp.matrix_transpose(axes) @ B
    zeros, k = xp.zeros_like(rotated), B.shape[-2]
    # Rows of zeros would have no direction.
    rest = (_NEGLIGIBLE / _SMALL) ** 0.5 * xp.where(kept, zeros, rotated)

    def expand(few: Array) -> Array:
        return axes @ (rest + xp.concat([zeros[:, : k - width, :], few], axis=-2))

    return xp.where(kept, rotated, zeros)[:, k - width :, :], expand


def _later(on_check: OnCheck, rounds_before: int) -> OnCheck:
    return lambda rounds, values: on_check(rounds_before + rounds, values)


def _same(B: Array) -> Array:
    return B


def _rows(B: Array, rows: np.ndarray, *, xp: Namespace) -> Array:
    return xp.take(B, xp.asarray(rows, device=array_api_compat.device(B)), axis=0)


def _replaced(B: Array, rows: np.ndarray, new: Array, *, xp: Namespace) -> Array:
    """B with some of its matrices replaced."""
    if rows.size == B.shape[0]:
        return new
    place = np.full(B.shape[0], -1)
    place[rows] = np.arange(rows.size)
    return xp.stack([B[i, ...] if at < 0 else new[int(at), ...] for i, at in enumerate(place)])
