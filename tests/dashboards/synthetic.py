"""Records as a sweep would leave them, without running one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from sqlalchemy import text

from solvers.methods import METHODS
from sweep.fits import FitRecord, FitSpec
from sweep.store.home import Home
from sweep.store.ledger import Ledger, _checksum
from sweep.studies.spec import SweepSpec

GAMMAS = (0.001, 0.01, 0.1, 1.0)
RANKS = (50, 100, 200, 300, 400, 500)
CLASSES = 12


def sweep_spec(
    name: str, datasets: Sequence[str], methods: Sequence[str], splits: int, folds: int, **more: Any
) -> dict[str, Any]:
    values = {
        "name": name,
        "datasets": list(datasets),
        "methods": list(methods),
        "splits": splits,
        "folds": folds,
        **more,
    }
    return SweepSpec.model_validate(values).model_dump(mode="json")


def about(datasets: Sequence[str]) -> dict[str, Any]:
    sizes = {
        "n_train": 700,
        "n_test": 300,
        "dimension": 40,
        "n_classes": CLASSES,
        "n_frequent_classes": 4,
        "n_infrequent_classes": 8,
        "n_examples": 1000,
        "n_frequent_examples": 800,
        "n_infrequent_examples": 200,
    }
    return {
        "version": "0",
        "mode": "production",
        "python": "3",
        "machine": "test",
        "data": dict.fromkeys(datasets, "f" * 64),
        "datasets": dict.fromkeys(datasets, sizes),
    }


def study_specs(dataset: str, split: int, method: str, folds: int, restarts: int = 5, **changes: Any) -> list[FitSpec]:
    """Tuning fits of a method and the refit of its second-smallest setting, last."""
    tuned = METHODS[method].tuned
    gammas: Sequence[Any] = GAMMAS if "gamma" in tuned else (None,)
    ranks: Sequence[Any] = RANKS if "rank" in tuned else (None,)
    refit = FitSpec(
        dataset=dataset,
        data="f" * 64,
        scaling="minmax",
        pca=None,
        frequent_above=100,
        split=split,
        folds=folds,
        fold=None,
        method=method,
        gamma=gammas[len(gammas) // 4],
        rank=ranks[len(ranks) // 4],
        restarts=restarts if METHODS[method].restarts else 1,
        algorithm="certified",
        settings=(("tol", 0.001),),
        seed=0,
    )
    refit = replace(refit, **changes)
    if not tuned:
        return [refit]
    grid = itertools.product(gammas, ranks, range(folds))
    return [*(replace(refit, gamma=g, rank=r, fold=f) for g, r, f in grid), refit]


def record_of(spec: FitSpec, chosen: tuple[Any, Any], started: float, rng: np.random.Generator) -> FitRecord:
    """A record whose best setting is `chosen`; convex methods are a little better and much slower per run."""
    method = METHODS[spec.method]
    level = 0.85 + 0.03 * (spec.method in ("mdml-csfn", "mdml-cvnd", "mdml-cldd"))
    best = (spec.gamma, spec.rank) == chosen
    auc = level + 0.02 * best + 0.003 * float(rng.standard_normal())
    solve = (0.4 * spec.restarts if method.family == "pdml" else 4.0) * float(rng.uniform(0.8, 1.2))
    scores: dict[str, Any] = {
        "auc_all": auc,
        "auc_frequent": auc + 0.01,
        "auc_infrequent": auc - 0.02,
        "balance_score": abs((auc - 0.02) / (auc + 0.01) - 1),
        "ap_all": auc - 0.3,
        "ap_frequent": auc - 0.3,
        "ap_infrequent": auc - 0.4,
        "n_skipped": 0,
    }
    fit: dict[str, Any] = {"objective": 0.5, "n_iter": 40, "rank": 20, "exact_rank": 24, "converged": True}
    theory: dict[str, Any] = {}
    if method.certificate:
        fit |= {"dual_objective": 0.4999, "relative_gap": 1e-4, "n_eigh": 60}
    if method.restarts:
        fit["restart_objectives"] = [0.5 + 0.01 * i for i in rng.permutation(spec.restarts)]
        scores["restart_auc"] = [auc - 0.002 * i for i in range(spec.restarts)]
    if spec.gamma is not None and method.family == "mdml":
        theory = {f"theory.{name}": 3.0 - np.log10(spec.gamma) for name in ("sfn", "vnd", "ldd")}
    if spec.fold is None:
        scores |= {
            "train_auc_all": auc + 0.05,
            "train_auc_frequent": auc + 0.05,
            "train_auc_infrequent": auc,
            "npv": 20,
        }
    return FitRecord(
        key=spec.key,
        scores=scores,
        fit=fit,
        seconds={"transfer": 0.01, "solve": solve, "score": 0.05, "startup": 0.0, "queue": 0.2},
        place={
            "host": "node",
            "pid": 1,
            "device": "cuda:0",
            "gpu": "A100",
            "visible_devices": str(hash(spec.method) % 4),
            "python": "3",
            "numpy": "2",
        },
        started=started,
        theory=theory,
    )


def arrays_of(spec: FitSpec, rng: np.random.Generator, n_features: int = 40) -> dict[str, np.ndarray]:
    steps = np.arange(1, 41, dtype=float)
    return {
        "components": rng.standard_normal((20, n_features)),
        "class_codes": np.arange(CLASSES),
        "class_auc": rng.uniform(0.7, 1.0, CLASSES),
        "class_sizes": np.geomspace(5, 500, CLASSES).astype(int),
        "history_n_eigh": steps,
        "history_seconds": steps * 0.1,
        "history_objective": 0.5 + 1 / steps,
        "history_gap": 1 / steps**2,
    }


def fill(
    home: Home,
    name: str,
    *,
    datasets: Sequence[str] = ("digits",),
    methods: Sequence[str] = tuple(METHODS),
    splits: int = 1,
    folds: int = 3,
    keep: float = 1.0,
    **changes: Any,
) -> Ledger:
    """A home with a sweep's records; `keep` is the share of the fits that have finished, tuning first."""
    home.create()
    ledger = Ledger(home.ledger_url)
    settings = {key: changes[key] for key in ("algorithm",) if key in changes}
    ledger.open_sweep(name, sweep_spec(name, datasets, methods, splits, folds, **settings), about(datasets))
    rng = np.random.default_rng(0)
    rows, keys = [], []
    for spec, record in _finished(home, datasets, methods, splits, folds, rng, changes):
        keys.append(spec.key)
        rows.append((spec, record))
    ledger.adopt(name, keys)
    insert(ledger, rows[: round(keep * len(rows))])
    return ledger


def _finished(
    home: Home,
    datasets: Sequence[str],
    methods: Sequence[str],
    splits: int,
    folds: int,
    rng: np.random.Generator,
    changes: dict[str, Any],
) -> Iterator[tuple[FitSpec, FitRecord]]:
    clock = 1.7e9
    for dataset, split, method in itertools.product(datasets, range(splits), methods):
        specs = study_specs(dataset, split, method, folds, **changes)
        chosen = (specs[-1].gamma, specs[-1].rank)
        for spec in specs:
            record = record_of(spec, chosen, clock, rng)
            clock += record.seconds["solve"] / 4
            if spec.fold is None:
                record = replace(record, artifact=home.write_artifact(spec.key, arrays_of(spec, rng)))
            yield spec, record


def insert(ledger: Ledger, rows: Sequence[tuple[FitSpec, FitRecord]]) -> None:
    """Commit many records in one transaction: the ledger's own `commit` waits for the disk at each."""
    values = []
    for spec, record in rows:
        spec_text, record_text = (json.dumps(asdict(part), sort_keys=True) for part in (spec, record))
        values.append(
            {
                "key": spec.key,
                "spec": spec_text,
                "record": record_text,
                "checksum": _checksum(spec.key, spec_text, record_text),
                "committed": record.started,
            }
        )
    if values:
        with ledger._engine.begin() as connection:
            connection.execute(text("INSERT INTO fits VALUES (:key, :spec, :record, :checksum, :committed)"), values)
