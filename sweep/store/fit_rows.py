"""One flat row per finished fit: what `sweep results --fits` writes and reports draw."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sweep.fits import CHAIN, COLD, FitRecord, FitSpec

_LISTS = ("errors", "more", "restart_auc", "restart_objectives", "restart_n_iter", "params")


def fit_row(spec: FitSpec, record: FitRecord) -> dict[str, Any]:
    """Every hyperparameter, fold, score, second and certificate of a fit as a column."""
    scores = {k: v for k, v in asdict(record.scores).items() if k not in _LISTS}
    solved = {k: v for k, v in asdict(record.fit).items() if k not in _LISTS}
    return {
        "key": record.key,
        "dataset": spec.dataset,
        "split": spec.split,
        "fold": spec.fold,
        "method": spec.method,
        "version": spec.version,
        "gamma": spec.trial.get("gamma"),
        "rank": spec.trial.get("rank"),
        **{f"param_{name}": value for name, value in spec.trial.values if name not in ("gamma", "rank")},
        "gamma_low": spec.gammas[0] if spec.gammas else None,
        "gamma_high": spec.gammas[1] if spec.gammas else None,
        "restarts": spec.restarts,
        "algorithm": spec.algorithm,
        "score": spec.score,
        "value": record.value,
        **scores,
        **record.scores.more,
        **solved | {"vectors": solved.pop("rank")},
        "restart_spread": record.fit.restart_spread,
        **{f"{phase}_seconds": seconds for phase, seconds in asdict(record.seconds).items()},
        "busy_seconds": record.seconds.busy,
        **{k: v for k, v in asdict(record.place).items() if k in ("host", "pid", "device", "gpu")},
        "lane": record.place.lane,
        "started": record.started,
        "ended": record.ended,
        "attempts": record.attempts,
        "warm": spec.start not in (COLD, CHAIN),
        **{name.replace("theory.", "theory_"): value for name, value in record.theory.items()},
    }
