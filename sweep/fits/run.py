"""One fit, from data to scores. The numerics are loaded when it runs, not when it is planned."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import time
import warnings
from dataclasses import asdict
from typing import Any

import numpy as np

from sweep.code import load
from sweep.fits.path import fit_path, path_tolerance
from sweep.fits.record import FitRecord, Place, Scores, Seconds, Solved
from sweep.fits.scoring import own_score, sampling, value_of
from sweep.fits.spec import COLD, FitOutcome, FitSpec, Help, SplitData
from sweep.methods import IN_MEMORY, parameters_of


def fit_and_score(spec: FitSpec, data: SplitData, help: Help | None = None) -> FitOutcome:
    """Run one fit and score it on the held-out fold, or on the test part for a refit."""
    from solvers.backend import small_blocks

    given = help or Help()
    with small_blocks() if given.lean else contextlib.nullcontext():
        return _fit_and_score(spec, data, given)


def _fit_and_score(spec: FitSpec, data: SplitData, help: Help) -> FitOutcome:
    from solvers.backend import choose_backend, free_device_memory, synchronize
    from solvers.methods import METHODS

    started, clock = time.time(), _Clock()
    on_array = not spec.estimator and METHODS[spec.method].device == "array"
    backend = choose_backend(data.X_train, help.device if on_array else "cpu")
    model = build_model(spec, help)
    (X_fit, y_fit), (X_eval, y_eval) = rows(spec, data)
    X_fit, X_eval = backend.asarray(X_fit), backend.asarray(X_eval)
    synchronize(backend.xp)
    clock.lap("transfer")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unreached tolerance is in the record (converged, relative_gap)
        model.fit(X_fit, y_fit, **({} if help.warm is None else {"init": help.warm}))
    synchronize(backend.xp)
    clock.lap("solve")
    frequent = np.flatnonzero(data.class_sizes > spec.frequent_above)
    if spec.gammas is not None:
        curve, model = fit_path(spec, model, X_eval, y_eval, frequent)
    else:
        curve = None
    scores, arrays = _score(spec, model, (X_fit, y_fit), (X_eval, y_eval), frequent, data.class_sizes)
    theory = _theory(spec, model, X_fit, y_fit)
    if spec.is_tuning and spec.start != COLD:
        arrays |= kept_solution(spec, model)
    free_device_memory(backend.xp)
    clock.lap("score")
    record = FitRecord(
        key=spec.key,
        scores=scores,
        fit=solved(model),
        seconds=Seconds(**clock.laps),
        place=_place(backend.device),
        started=started,
        value=value_of(spec, scores),
        theory=theory,
        curve=curve,
    )
    return FitOutcome(record, arrays)


def kept_solution(spec: FitSpec, model: Any) -> dict[str, np.ndarray]:
    """What the next fit starts from: dual weights on the same pairs, or a metric where the next one has others."""
    from solvers.backend import to_numpy

    if spec.gammas is None:
        return {"weights": model.dual_weights_}
    return {"components": to_numpy(model.components_).astype(np.float32)}  # a start needs no more digits


def build_model(spec: FitSpec, help: Help | None = None) -> Any:
    """The unfitted estimator of a fit."""
    given = help or Help()
    if spec.estimator:
        return _foreign_model(spec, given)
    from solvers.methods import METHODS, make_method

    method = METHODS[spec.method]
    common = dict(spec.settings) | {"device": given.device, "random_state": spec.seed_for("pairs")}
    if method.restarts:
        common["restarts"] = spec.restarts
    if method.algorithms:
        common["algorithm"] = method.algorithms[spec.algorithm]
    own = dict(spec.fixed) | dict(spec.trial.values)
    settings = {name: value for name, value in common.items() if name not in own}
    if spec.gammas is not None:
        from solvers import MDMLPath

        accepted = parameters_of(MDMLPath) or ()
        low, high = spec.gammas
        chosen = {k: v for k, v in (settings | own | dict(method.params)).items() if k in accepted}
        return MDMLPath(**chosen | {"gamma_min": low, "gamma_max": high, "tol": path_tolerance(spec)})
    settings.pop("path_tol", None)
    return make_method(spec.method, settings=settings, **own)


def _foreign_model(spec: FitSpec, help: Help) -> Any:
    """A user's estimator: its own parameters, and a seed and a number of restarts where it takes them."""
    own = dict(spec.fixed) | dict(spec.trial.values)
    if spec.estimator == IN_MEMORY:
        from sklearn.base import clone

        model = clone(help.estimator)
        accepted = tuple(model.get_params())
    else:
        factory = load(spec.estimator, spec.method)
        accepted = parameters_of(factory) or ()
        model = factory(**{k: v for k, v in own.items() if "__" not in k})
        own = {k: v for k, v in own.items() if "__" in k}  # of a part, as in a pipeline
    offered = {"random_state": spec.seed_for("pairs"), "n_restarts": spec.restarts}
    taken = {k: v for k, v in offered.items() if k in accepted and k not in dict(spec.fixed)}
    if spec.restarts == 1:
        taken.pop("n_restarts", None)
    return model.set_params(**own, **taken) if own or taken else model


def rows(spec: FitSpec, data: SplitData) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """What the fit learns from, and what it is scored on."""
    if spec.fold is None:
        return (data.X_train, data.y_train), (data.X_test, data.y_test)
    held_out = data.fold_of == spec.fold
    return (data.X_train[~held_out], data.y_train[~held_out]), (
        data.X_train[held_out],
        data.y_train[held_out],
    )


def _score(
    spec: FitSpec, model: Any, fitted: tuple[Any, Any], held_out: tuple[Any, Any], frequent: Any, class_sizes: Any
) -> tuple[Scores, dict[str, np.ndarray]]:
    """Scores of the held-out part; for a refit also those of the training part, and the arrays."""
    from solvers.backend import to_numpy
    from solvers.scores.retrieval import query_scores, retrieval_scores

    (X_fit, y_fit), (X_eval, y_eval) = fitted, held_out
    sample = sampling(spec)
    Z = model.transform(X_eval)
    queries = query_scores(Z, y_eval, **sample)
    values: dict[str, Any] = dict(queries.summary(frequent))
    values["errors"] = {n.removesuffix("_se"): v for n, v in values.items() if n.endswith("_se") and v is not None}
    if ":" in spec.score:
        values["own"] = own_score(spec, to_numpy(Z), np.asarray(y_eval), frequent)
    restarts = getattr(model, "restart_components_", None)
    if restarts is not None:
        each = (retrieval_scores(X_eval @ L.T, y_eval, only=("auc_all",), **sample) for L in restarts)
        values["restart_auc"] = tuple(score["auc_all"] for score in each)
    if spec.fold is not None:
        return Scores.from_dict(values), {}
    compared = ("auc_all", "auc_frequent", "auc_infrequent")
    train = retrieval_scores(model.transform(X_fit), y_fit, frequent=frequent, only=compared, **sample)
    values |= {f"train_{name}": train[name] for name in compared}
    values["npv"] = int(getattr(model, "rank_", Z.shape[1]))
    classes, _, class_auc = queries.class_auc()
    arrays = {"class_codes": classes, "class_auc": class_auc, "class_sizes": class_sizes[classes]}
    arrays |= _linear_map(model, X_eval, Z)
    return Scores.from_dict(values), arrays | _history_columns(model)


def _linear_map(model: Any, X: Any, Z: Any) -> dict[str, np.ndarray]:
    """`components` (and an `offset`) where transform is X @ components.T + offset, as it is for ours."""
    from solvers.backend import to_numpy

    L = getattr(model, "components_", None)
    if L is None or L.ndim != 2 or L.shape != (Z.shape[1], X.shape[1]):
        return {}
    L = to_numpy(L)
    few = slice(0, 64)
    rest = to_numpy(Z[few]) - to_numpy(X[few]) @ L.T
    offset = rest.mean(axis=0)
    scale = max(float(np.abs(to_numpy(Z[few])).max(initial=0.0)), 1e-300)
    if np.abs(rest - offset).max(initial=0.0) > 1e-5 * scale:
        return {}
    return {"components": L} | ({"offset": offset} if np.abs(offset).max(initial=0.0) > 1e-5 * scale else {})


def _theory(spec: FitSpec, model: Any, X: Any, y: Any) -> dict[str, Any]:
    """The paper's bounds at a refit; of a convex tuning fit the values that its figure draws over gamma."""
    from solvers.backend import to_numpy
    from solvers.theory import non_convex_values, theory_report

    if spec.estimator or not hasattr(model, "components_"):
        return {}
    L = to_numpy(model.components_)
    regularizer = getattr(model, "regularizer", "none")
    if spec.fold is not None:
        if regularizer not in ("csfn", "cvnd", "cldd"):
            return {}
        values = non_convex_values(np.sum(L * L, axis=1))  # the rows of L are orthogonal
        return {f"theory.{name}": float(value) for name, value in asdict(values).items()}
    params = model.get_params()
    return theory_report(
        L,
        to_numpy(X),
        y,
        regularizer=regularizer,
        gamma=params.get("gamma") or 0.0,
        margin=params.get("margin", dict(spec.settings).get("margin", 1.0)),
        epsilon=params.get("epsilon", dict(spec.settings).get("epsilon", 1e-5)),
        n_similar=getattr(model, "n_similar_", 0),
        n_dissimilar=getattr(model, "n_dissimilar_", 0),
        M=to_numpy(model.get_mahalanobis_matrix()),
    )


# Attributes of a fitted model that a record keeps, where the model has them.
_KEPT = (
    "objective", "dual_objective", "relative_gap", "n_iter", "n_eigh", "rank", "exact_rank", "converged",
    "stationarity", "best_restart", "restart_objectives", "restart_n_iter", "restarts_run",
    "n_restarts_saved", "bound_gap",
)  # fmt: skip


def solved(model: Any) -> Solved:
    """What a fitted model says of itself, as plain numbers."""
    found = {name: plain(getattr(model, f"{name}_", None)) for name in _KEPT}
    params = model.get_params() | getattr(model, "resolved_params_", {}) if hasattr(model, "get_params") else {}
    kept = {k: plain(v) for k, v in params.items() if v is None or isinstance(v, str | int | float | bool)}
    return Solved(**found, params=kept)


def plain(value: Any) -> Any:
    """A scalar or a small array as Python's own numbers; None for anything else."""
    if isinstance(value, np.ndarray | list | tuple):
        return tuple(np.asarray(value).tolist())
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, str | int | float | bool) else None


def _history_columns(model: Any) -> dict[str, np.ndarray]:
    """The fit's history (a list of dicts) as columns."""
    history = getattr(model, "history_", None) or []
    names = history[0].keys() if history and isinstance(history[0], dict) else ()
    return {f"history_{name}": np.array([row[name] for row in history], dtype=np.float64) for name in names}


def _place(device: Any) -> Place:
    import scipy

    return Place(
        host=socket.gethostname(),
        pid=os.getpid(),
        device=str(device),
        gpu=gpu_name(device),
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        python=platform.python_version(),
        numpy=np.__version__,
        scipy=scipy.__version__,
    )


def gpu_name(device: Any) -> str | None:
    """The model of one of CuPy's devices; None for all others."""
    if not hasattr(device, "use"):  # only CuPy's devices have it
        return None
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode())


class _Clock:
    """Seconds of consecutive phases."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.laps[phase] = now - self._last
        self._last = now
