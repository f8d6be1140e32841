"""The most memory that a fit of a sweep takes, and what to say of one that cannot have it."""

from __future__ import annotations

from solvers.memory import ProblemSize, fit_bytes, score_bytes
from sweep.fits.spec import FitSpec
from sweep.methods import known_method

# As in solvers.projection.pdml, where a sweep file names no rank.
_DEFAULT_RANK = 100


class TooLargeError(Exception):
    """A fit that may need more memory than its device has; nothing was computed."""


def problem_size(spec: FitSpec, n: int, dimension: int) -> ProblemSize:
    """What the memory of a fit on n examples depends on."""
    own = dict(spec.settings) | dict(spec.fixed) | dict(spec.trial.values)
    pairs = int(own.get("n_pairs", 0))
    if known_method(spec.method).family != "pdml":
        return ProblemSize(n, dimension, pairs)
    rank = int(own.get("rank") or own.get("n_components") or _DEFAULT_RANK)
    return ProblemSize(n, dimension, pairs, min(rank, dimension), spec.restarts)


def needed_bytes(spec: FitSpec, n: int, n_held_out: int, dimension: int) -> int:
    """Bytes at most of a fit on n examples, scored on others; 0 for what is not computed on arrays of ours."""
    if spec.estimator or known_method(spec.method).device != "array":
        return 0
    size = problem_size(spec, n, dimension)
    fit = fit_bytes(spec.method, size, algorithm=spec.algorithm, path=spec.gammas is not None)
    scored = max(n, n_held_out) if spec.fold is None else n_held_out  # a refit is scored on both parts
    return 8 * n_held_out * dimension + max(fit, 8 * n * dimension + score_bytes(scored, size.rank or dimension))


def too_large(needed: int, available: int, where: str) -> str | None:
    """Why a fit cannot run there, and what to do about it; None if it can."""
    if needed <= available:
        return None
    return (
        f"may need {needed / 1e9:.1f} GB, {where} has {available / 1e9:.1f} GB for a fit; "
        "lower settings.n_pairs, rank or restarts, or raise resources.gpus_per_fit"
    )
