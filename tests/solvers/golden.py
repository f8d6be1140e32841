"""Results of every method on small data, kept in `golden.json` with the method's version.

python -m tests.solvers.golden        # writes the results anew, after a version was raised
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from solvers import METHODS, make_method

FILE = Path(__file__).with_name("golden.json")
SETTINGS = {"n_pairs": 300, "max_iter": 60, "restarts": 2, "random_state": 0, "device": "cpu"}
# Descents in single precision: another machine's rounding soon leads them to another local optimum.
FIRST_STEPS = {"max_iter": 12}


def small_data() -> tuple[np.ndarray, np.ndarray]:
    """Four classes in six features, uneven in size and scale."""
    rng = np.random.default_rng(7)
    y = np.repeat(np.arange(4), [40, 25, 10, 5])
    X = 0.3 * rng.standard_normal((80, 6)) + rng.standard_normal((4, 6))[y]
    return X * np.array([1.0, 1.0, 0.5, 0.5, 0.1, 0.1]), y


def result(name: str) -> dict[str, Any]:
    """What a method gives: distances between a few points, and its objective where it has one."""
    X, y = small_data()
    method = METHODS[name]
    settings = SETTINGS | {"gamma": 0.05, "rank": 4} | (FIRST_STEPS if method.restarts else {})
    model = make_method(name, settings=settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Z = np.asarray(model.fit(X, y).transform(X))
    few = Z[::9]
    distances = np.sum((few[:, None] - few[None]) ** 2, axis=-1)[np.triu_indices(len(few), 1)]
    return {
        "version": method.version,
        "objective": getattr(model, "objective_", None),
        "distances": [float(f"{d:.6g}") for d in distances],
    }


def stored() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text())
    return found


def differs(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether two results differ by more than another machine's rounding may."""
    if old["objective"] is not None and not np.isclose(old["objective"], new["objective"], rtol=1e-4, atol=1e-8):
        return True
    scale = max(np.abs(old["distances"]).max(), 1e-12)
    return bool(np.abs(np.subtract(old["distances"], new["distances"])).max() > 1e-2 * scale)


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: result(name) for name in METHODS}, indent=1) + "\n")
