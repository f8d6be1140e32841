"""Fit one method in a fresh process and measure it.

fit_alone.py DATA.npz ours|peer METHOD OUT.npz [SETTINGS]

The peers' environment has no package of this project, and ours has no metric-learn.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from typing import Any

import numpy as np


def build(side: str, method: str, settings: dict[str, Any]) -> Any:
    """An unfitted estimator, with its own defaults but for the settings."""
    if side == "ours":
        from solvers.methods import make_method

        return make_method(method, settings={"random_state": 0, "device": "cpu", **settings})
    if method == "nca":
        from sklearn.neighbors import NeighborhoodComponentsAnalysis

        return NeighborhoodComponentsAnalysis(random_state=0)
    import metric_learn

    return {"itml": metric_learn.ITML_Supervised, "lmnn": metric_learn.LMNN}[method](random_state=0)


if __name__ == "__main__":
    data, side, method, out, *settings = sys.argv[1:]
    warnings.simplefilter("ignore")
    with np.load(data) as stored:
        X, y = stored["X"], stored["y"]
    model = build(side, method, json.loads(settings[0]) if settings else {})
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(X, y)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    np.savez(out, components=model.components_)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"wall": wall, "cpu": cpu, "peak_gb": peak / 1e6}))
