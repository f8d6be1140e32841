"""One method on an array library's own device beside NumPy: `python -m tests.solvers.on_device dpnp mdml-cvnd`.

A process for each, as `make test-device` starts them: a device that stalls then costs one method.
"""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from solvers.backend import to_numpy
from solvers.convex.path import MDMLPath
from solvers.methods import METHODS, make_method
from solvers.scores.retrieval import retrieval_scores

NAMES = [*(name for name, method in METHODS.items() if method.device == "array"), "path"]
SETTINGS = {"gamma": 0.05, "rank": 4, "n_pairs": 300, "max_iter": 200, "restarts": 2, "random_state": 0}


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), [40, 40, 20, 20])
    return rng.standard_normal((120, 12)) + 3 * np.eye(12)[y], y


def moved(X: np.ndarray, library: str) -> Any:
    """X on the library's device, never one that NumPy can read."""
    xp = importlib.import_module(library)
    return xp.asarray(X, device=xp.Device("device1")) if library == "array_api_strict" else xp.asarray(X)


@dataclass(frozen=True)
class Found:
    """Squared distances under a learned metric, its scores, and what is proved of it, if anything is."""

    distances: np.ndarray
    scores: dict[str, Any]
    objective: float | None
    bound: float | None


def found(name: str, X: Any, y: np.ndarray) -> Found:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not all converge in so few steps
        if name == "path":
            model: Any = MDMLPath(n_pairs=300, random_state=0).fit(X, y).at(0.05)
        else:
            model = make_method(name, settings=SETTINGS | {"device": "auto"}).fit(X, y)
    Z = model.transform(X)
    points = to_numpy(Z)
    distances = np.sum((points[:, None, :] - points[None, :, :]) ** 2, axis=-1)
    objective, bound = (getattr(model, key, None) for key in ("objective_", "dual_objective_"))
    return Found(distances, retrieval_scores(Z, y), objective, bound)


def agree(one: Found, other: Found, slack: float = 1e-3) -> bool:
    """Whether neither fit's bound forbids the other's objective; without bounds, whether the metrics are alike."""
    if one.bound is not None and other.bound is not None:
        assert one.objective is not None
        assert other.objective is not None
        return one.bound <= other.objective and other.bound <= one.objective
    return apart(one, other) <= slack


def rounding(name: str, X: np.ndarray, y: np.ndarray, expected: Found) -> float:
    """How far NumPy's own distances move when the data change by what single precision rounds away.

    A non-convex fit that ends at its last step, or in a flat valley, is not determined more closely than that.
    """
    rngs = map(np.random.default_rng, range(3))
    return max(apart(expected, found(name, X * (1 + 1e-7 * rng.standard_normal(X.shape)), y)) for rng in rngs)


def apart(one: Found, other: Found) -> float:
    return float(np.max(np.abs(one.distances - other.distances)) / np.max(one.distances))


def main(library: str, name: str) -> int:
    X, y = data()
    expected = found(name, X, y)
    began = time.process_time()
    here = found(name, moved(X, library), y)
    seconds, scores = time.process_time() - began, (expected.scores["auc_all"], here.scores["auc_all"])
    own, off = 0.0 if expected.bound is not None else rounding(name, X, y, expected), apart(expected, here)
    fine = agree(expected, here, slack=max(1e-3, 3 * own))
    print(
        f"{'ok' if fine else 'FAIL'}: {name} on {library}, {seconds:.1f} s of CPU time, distances off by {off:.1e} "
        f"(on NumPy by {own:.1e} for data rounded differently), "
        f"auc {scores[0]:.4f} on NumPy, {scores[1]:.4f} there"
    )
    return int(not fine)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
