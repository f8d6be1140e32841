"""The unit of work: one plain function from a fit's spec and its data to a record.

`fit_and_score` runs the same in a notebook, a test and a Ray worker; Ray is how it is called,
not what it is.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import time
import warnings
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from sweep.seeds import derive_seed, digest

# Raised whenever a change makes the same fit give another result: old records are then not reused.
SOLVER_VERSION = 4

# A fit's own start: on its own, or as the first of a chain of warm starts.
COLD, CHAIN = "cold", "chain"

# The sweep file's word for the solver -> PDML's word for it. MDML uses the sweep file's own.
PDML_ALGORITHM = {"certified": "lbfgs", "paper": "paper"}


@dataclass(frozen=True)
class FitSpec:
    """Everything that determines a fit's result, and nothing else.

    `fold` is the held-out fold of a tuning fit; None is the refit on the whole training part,
    scored on the test part. `start` is "cold", "chain" (cold too, with its solution kept for the next
    of a chain), or the key of the fit whose solution this one starts from. `salt` is empty except in
    benchmark mode, where it keeps results from being reused.
    """

    dataset: str
    data: str  # fingerprint of the dataset's content
    scaling: str
    pca: int | None
    frequent_above: int
    split: int
    folds: int
    fold: int | None
    method: str
    gamma: float | None
    rank: int | None
    restarts: int
    algorithm: str
    settings: tuple[tuple[str, Any], ...]
    seed: int
    start: str = COLD
    salt: str = ""

    @cached_property
    def key(self) -> str:
        """Content address: the same for equal fits, whatever the order or the place they run in."""
        # Not `asdict`, which copies everything first: this runs for every fit of a plan.
        values = {each.name: getattr(self, each.name) for each in fields(self)} | {"solver_version": SOLVER_VERSION}
        if self.fold is None:
            values["folds"] = None  # a refit does not see the folds
        return digest(values)[:32]

    @property
    def label(self) -> str:
        """Short description for people."""
        parts = [study_label(self.dataset, self.split, self.method)]
        if self.gamma is not None:
            parts.append(f"gamma={self.gamma:g}")
        if self.rank is not None:
            parts.append(f"rank={self.rank}")
        parts.append("refit" if self.fold is None else f"fold {self.fold + 1}/{self.folds}")
        return " ".join(parts)

    @classmethod
    def from_dict(cls, values: dict[str, Any], key: str | None = None) -> FitSpec:
        """Inverse of `asdict` after a round trip through JSON; `key` if it is known, to save computing it."""
        spec = cls(**{**values, "settings": tuple((k, v) for k, v in values["settings"])})
        if key is not None:
            vars(spec)["key"] = key  # where `cached_property` looks first
        return spec


def study_label(dataset: str, split: int, method: str) -> str:
    """How the labels of a study's fits begin; failures are charged to their study by it."""
    return " ".join([dataset, *([f"split {split + 1}"] if split else []), method])


@dataclass(frozen=True)
class SplitData:
    """One train/test split after preprocessing, shared read-only by all of its fits."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    fold_of: np.ndarray  # (n_train,) fold number of each training row
    class_sizes: np.ndarray  # (K,) examples per class over the whole dataset


@dataclass(frozen=True)
class FitRecord:
    """What is kept of a finished fit: strings, numbers, booleans and short lists of them."""

    key: str
    scores: dict[str, Any]
    fit: dict[str, Any]
    seconds: dict[str, float]
    place: dict[str, Any]
    started: float  # seconds since the epoch
    theory: dict[str, Any] = field(default_factory=dict)
    attempts: int = 1
    artifact: str | None = None  # SHA-256 of the file that holds the fit's arrays

    @property
    def score(self) -> float:
        """The number that tuning compares: AUC over all queries."""
        return float(self.scores["auc_all"])


@dataclass(frozen=True)
class FitOutcome:
    """A record and the arrays that belong to it (refits only)."""

    record: FitRecord
    arrays: dict[str, np.ndarray]

    def with_seconds(self, **seconds: float) -> FitOutcome:
        return replace(self, record=replace(self.record, seconds=self.record.seconds | seconds))


def fit_and_score(
    spec: FitSpec, data: SplitData, *, device: str = "auto", warm: Any = None, lean: bool = False
) -> FitOutcome:
    """Run one fit and score it on the held-out fold, or on the test part for a refit.

    `warm` are the dual weights of the fit that `spec.start` names. `lean` works in small blocks, with
    less memory and the same result up to rounding.
    """
    from solvers.backend import small_blocks

    with small_blocks() if lean else contextlib.nullcontext():
        return _fit_and_score(spec, data, device, warm)


def _fit_and_score(spec: FitSpec, data: SplitData, device: str, warm: Any) -> FitOutcome:
    from solvers.backend import choose_backend, free_device_memory, synchronize
    from solvers.methods import METHODS

    started = time.time()
    clock = _Clock()
    model = build_model(spec, device)
    backend = choose_backend(data.X_train, "cpu" if METHODS[spec.method].device == "cpu" else device)
    (X_fit, y_fit), (X_eval, y_eval) = _rows(spec, data)
    X_fit, X_eval = backend.asarray(X_fit), backend.asarray(X_eval)
    synchronize(backend.xp)
    clock.lap("transfer")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unreached tolerance is in the record (converged, relative_gap)
        model.fit(X_fit, y_fit, **({} if warm is None else {"init": warm}))
    synchronize(backend.xp)
    clock.lap("solve")
    frequent = np.flatnonzero(data.class_sizes > spec.frequent_above)
    scores, arrays, theory = _score(spec, model, X_fit, y_fit, X_eval, y_eval, frequent, data.class_sizes)
    if spec.start != COLD:
        arrays["weights"] = model.dual_weights_
    free_device_memory(backend.xp)
    clock.lap("score")
    record = FitRecord(
        key=spec.key,
        scores=scores,
        fit=_fit_numbers(model),
        seconds=clock.laps,
        place=_place(backend.device),
        started=started,
        theory=theory,
    )
    return FitOutcome(record, arrays)


def build_model(spec: FitSpec, device: str = "auto") -> Any:
    """The unfitted estimator of a fit."""
    from solvers.methods import METHODS, make_method

    fold = "refit" if spec.fold is None else spec.fold
    settings = dict(spec.settings)
    return make_method(
        spec.method,
        gamma=spec.gamma,
        rank=spec.rank,
        n_restarts=spec.restarts,
        algorithm=PDML_ALGORITHM[spec.algorithm] if METHODS[spec.method].family == "pdml" else spec.algorithm,
        device=device,
        # The method is left out of the seed: all of them face the same pairs and the same starts.
        random_state=derive_seed(spec.seed, spec.dataset, spec.split, fold, "pairs"),
        **settings,
    )


def _rows(spec: FitSpec, data: SplitData) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    if spec.fold is None:
        return (data.X_train, data.y_train), (data.X_test, data.y_test)
    held_out = data.fold_of == spec.fold
    return (data.X_train[~held_out], data.y_train[~held_out]), (
        data.X_train[held_out],
        data.y_train[held_out],
    )


def _score(
    spec: FitSpec,
    model: Any,
    X_fit: Any,
    y_fit: Any,
    X_eval: Any,
    y_eval: Any,
    frequent: Any,
    class_sizes: Any,
) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, Any]]:
    """Scores of the held-out part; for a refit also the training AUC, the theory and the arrays."""
    from solvers.backend import to_numpy
    from solvers.scores.retrieval import query_scores, retrieval_scores

    queries = query_scores(model.transform(X_eval), y_eval)
    scores: dict[str, Any] = dict(queries.summary(frequent))
    restarts = getattr(model, "restart_components_", None)
    if restarts is not None:
        scores["restart_auc"] = [
            retrieval_scores(X_eval @ restarts[i].T, y_eval)["auc_all"] for i in range(restarts.shape[0])
        ]
    theory = _theory(spec, model, X_fit, y_fit)
    if spec.fold is not None:
        return scores, {}, theory
    train = retrieval_scores(model.transform(X_fit), y_fit, frequent=frequent)
    scores |= {f"train_{name}": train[name] for name in ("auc_all", "auc_frequent", "auc_infrequent")}
    scores["npv"] = int(model.rank_)
    classes, _, class_auc = queries.class_auc()
    arrays = {"class_codes": classes, "class_auc": class_auc, "class_sizes": class_sizes[classes]}
    if hasattr(model, "components_"):
        arrays["components"] = to_numpy(model.components_)
    for name, values in _history_columns(model).items():
        arrays[f"history_{name}"] = values
    return scores, arrays, theory


def _theory(spec: FitSpec, model: Any, X: Any, y: Any) -> dict[str, Any]:
    """The paper's bounds at a refit; of a convex tuning fit the values that its figure draws over gamma."""
    from solvers.backend import to_numpy
    from solvers.theory import non_convex_values, theory_report

    if not hasattr(model, "components_"):
        return {}
    L = to_numpy(model.components_)
    regularizer = getattr(model, "regularizer", "none")
    if spec.fold is not None:
        if regularizer not in ("csfn", "cvnd", "cldd"):
            return {}
        values = non_convex_values(np.sum(L * L, axis=1))  # the rows of L are orthogonal
        return {f"theory.{name}": float(value) for name, value in asdict(values).items()}
    settings = dict(spec.settings)
    return theory_report(
        L,
        to_numpy(X),
        y,
        regularizer=regularizer,
        gamma=spec.gamma or 0.0,
        margin=settings["margin"],
        epsilon=settings["epsilon"],
        n_similar=getattr(model, "n_similar_", 0),
        n_dissimilar=getattr(model, "n_dissimilar_", 0),
        M=to_numpy(model.get_mahalanobis_matrix()),
    )


# Attributes of a fitted model that a record keeps, where the model has them.
_KEPT = (
    "objective_", "dual_objective_", "relative_gap_", "n_iter_", "n_eigh_", "rank_", "exact_rank_",
    "converged_", "stationarity_", "best_restart_", "restart_objectives_", "restart_n_iter_", "restarts_run_",
    "n_restarts_saved_", "bound_gap_",
)  # fmt: skip


def _fit_numbers(model: Any) -> dict[str, Any]:
    numbers = {name.rstrip("_"): _plain(getattr(model, name)) for name in _KEPT if hasattr(model, name)}
    params = model.get_params() | getattr(model, "resolved_params_", {})
    numbers["params"] = {k: v for k, v in params.items() if v is None or isinstance(v, str | int | float | bool)}
    return numbers


def _plain(value: Any) -> Any:
    """JSON-able form of a scalar or a small array."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


def _history_columns(model: Any) -> dict[str, np.ndarray]:
    """The fit's history (a list of dicts) as columns."""
    history = getattr(model, "history_", None) or []
    names = history[0].keys() if history else ()
    return {name: np.array([row[name] for row in history], dtype=np.float64) for name in names}


def _place(device: Any) -> dict[str, Any]:
    import scipy

    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "device": str(device),
        "gpu": _gpu_name(device),
        "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def _gpu_name(device: Any) -> str | None:
    if not hasattr(device, "use"):  # only CuPy's devices have it
        return None
    import cupy

    return cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()


class _Clock:
    """Seconds of consecutive phases."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.laps[phase] = now - self._last
        self._last = now
