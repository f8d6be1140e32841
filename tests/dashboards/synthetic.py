"""Records as a sweep would leave them, without running one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from solvers.methods import METHODS, PAIRS
from sweep.fits import Curve, FitRecord, FitSpec, Place, Scores, Seconds, Solved, Trial
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.studies.spec import SweepSpec

GAMMAS = (0.001, 0.01, 0.1, 1.0)
RANKS = (50, 100, 200, 300, 400, 500)
COMPONENTS = (8, 16, 32)  # what an estimator that is not ours tunes
SPAN = (1e-4, 1.0)  # of a path
CLASSES = 12


def sweep_spec(
    name: str, datasets: Sequence[str], methods: Sequence[str], splits: int, folds: int, **more: Any
) -> dict[str, Any]:
    values = {
        "name": name,
        "datasets": list(datasets),
        "methods": [m if m in METHODS else {"name": m, "estimator": "mypkg.nca:NCA"} for m in methods],
        "splits": splits,
        "folds": folds,
        **more,
    }
    return SweepSpec.model_validate(values).without_secrets()


def about(datasets: Sequence[str], n_examples: int = 1000) -> dict[str, Any]:
    sizes = {
        "n_train": int(0.7 * n_examples),
        "n_test": int(0.3 * n_examples),
        "dimension": 40,
        "n_classes": CLASSES,
        "n_frequent_classes": 4,
        "n_infrequent_classes": 8,
        "n_examples": n_examples,
        "n_frequent_examples": int(0.8 * n_examples),
        "n_infrequent_examples": int(0.2 * n_examples),
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
    ours = METHODS.get(method)
    grids: dict[str, Sequence[Any]] = {"n_components": COMPONENTS}
    if ours is not None:
        known = {"gamma": GAMMAS, "rank": RANKS}
        grids = {name: known[name] for name in ours.tuned}
    on_path = changes.pop("search", "grid") == "path" and ours is not None and ours.path
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
        version=str(ours.version) if ours is not None else "abc",
        estimator="" if ours is not None else "mypkg.nca:NCA",
        trial=Trial.of({name: values[len(values) // 4] for name, values in grids.items()}),
        restarts=restarts if ours is not None and ours.restarts else 1,
        algorithm="certified",
        settings=(("tol", 0.001),),
        seed=0,
    )
    refit = replace(refit, **changes)
    if on_path:
        paths = [replace(refit, trial=Trial(), gammas=SPAN, fold=fold) for fold in range(folds)]
        return [*paths, replace(refit, trial=Trial.of({"gamma": 0.01}))]
    if not grids:
        return [refit]
    trials = [Trial.of(dict(zip(grids, values, strict=True))) for values in itertools.product(*grids.values())]
    return [*(replace(refit, trial=t, fold=f) for t in trials for f in range(folds)), refit]


def record_of(spec: FitSpec, chosen: Trial, started: float, rng: np.random.Generator) -> FitRecord:
    """A record whose best setting is `chosen`; convex methods are a little better and much slower per run."""
    method = METHODS.get(spec.method)
    family = method.family if method is not None else "own"
    level = 0.85 + 0.03 * (spec.method in [convex for convex, _ in PAIRS])
    auc = level + 0.02 * (spec.trial == chosen) + 0.003 * float(rng.standard_normal())
    solve = (0.4 * spec.restarts if family == "pdml" else 4.0) * float(rng.uniform(0.8, 1.2))
    scores = Scores(
        auc_all=auc,
        auc_frequent=auc + 0.01,
        auc_infrequent=auc - 0.02,
        balance_score=abs((auc - 0.02) / (auc + 0.01) - 1),
        ap_all=auc - 0.3,
        recall_at_1=auc - 0.1,
        knn_accuracy=auc - 0.05,
        n_queries=300,
    )
    fit = Solved(objective=0.5, n_iter=40, rank=20, exact_rank=24, converged=True)
    theory: dict[str, Any] = {}
    curve = None
    if method is not None and method.certificate:
        fit = replace(fit, dual_objective=0.4999, relative_gap=1e-4, n_eigh=60)
    if method is not None and method.restarts:
        fit = replace(fit, restart_objectives=tuple(0.5 + 0.01 * int(i) for i in rng.permutation(spec.restarts)))
        scores = replace(scores, restart_auc=tuple(auc - 0.002 * i for i in range(spec.restarts)))
    gamma = spec.trial.get("gamma")
    if gamma is not None and family == "mdml":
        theory = {f"theory.{name}": 3.0 - float(np.log10(gamma)) for name in ("sfn", "vnd", "ldd")}
    if spec.gammas is not None:
        curve = curve_of(spec.gammas, auc)
    if spec.fold is None:
        scores = replace(
            scores, train_auc_all=auc + 0.05, train_auc_frequent=auc + 0.05, train_auc_infrequent=auc, npv=20
        )
    value = max(curve.scores) if curve is not None else scores.get(spec.score)
    return FitRecord(
        key=spec.key,
        scores=scores,
        fit=fit,
        seconds=Seconds(transfer=0.01, solve=solve, score=0.05, startup=0.0, queue=0.2),
        place=Place(
            host="node",
            pid=1,
            device="cuda:0",
            gpu="A100",
            visible_devices=str(sum(spec.method.encode()) % 4),
            python="3",
            numpy="2",
        ),
        started=started,
        value=value,
        theory=theory,
        curve=curve,
    )


def curve_of(span: tuple[float, float], level: float) -> Curve:
    """A curve that is best at gamma = 0.01, with more vectors where gamma is small."""
    low, high = span
    gammas = tuple(float(f"{g:.3g}") for g in np.geomspace(low, high, 9))
    return Curve(
        gammas=gammas,
        scores=tuple(level - 0.01 * abs(float(np.log10(g)) + 2) for g in gammas),
        gaps=tuple(1e-4 * (1 + k % 3) for k in range(9)),
        ranks=tuple(40 - 3 * k for k in range(9)),
        objectives=tuple(0.3 + 0.05 * k for k in range(9)),
        knots=(low, 0.01, high),
        sfn=tuple(9.0 - k for k in range(9)),
        vnd=tuple(8.0 - 0.5 * k for k in range(9)),
        ldd=(None, *(7.0 - 0.25 * k for k in range(1, 9))),
        places=(1, 2, 5, 10, 20),
        spectra=tuple(tuple(2.0 / n**0.5 for n in (1, 2, 5, 10, 20) if n <= 40 - 3 * k) for k in range(9)),
        n_coarse=9,
        n_scored=9,
        kept=0.01,
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
    n_examples: int = 1000,
    **changes: Any,
) -> Ledger:
    """A home with a sweep's records; `keep` is the share of the fits that have finished, tuning first."""
    home.create()
    ledger = Ledger(home.ledger_url)
    settings = {key: changes[key] for key in ("algorithm", "search", "score") if key in changes}
    ledger.open_sweep(name, sweep_spec(name, datasets, methods, splits, folds, **settings), about(datasets, n_examples))
    rng = np.random.default_rng(0)
    rows = list(_finished(home, datasets, methods, splits, folds, rng, changes))
    ledger.adopt(name, [spec.key for spec, _ in rows])
    ledger.commit_all(rows[: round(keep * len(rows))])
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
        for spec in specs:
            record = record_of(spec, specs[-1].trial, clock, rng)
            clock += record.seconds.solve / 4
            if spec.fold is None:
                record = replace(record, artifact=home.write_artifact(spec.key, arrays_of(spec, rng)))
            yield spec, record
