"""A method as a sweep uses it: one of ours by name, or an estimator that the user brings.

A sweep sees both through `SweepMethod`, so that whatever works for ours works for theirs.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from solvers.methods import METHODS, Method
from sweep.code import entry_points, fingerprint, load
from sweep.errors import UserError, nearest

if TYPE_CHECKING:
    from sweep.fits.trials import Value

IN_MEMORY = "in memory"
FOREIGN = "own"


@dataclass(frozen=True)
class SweepMethod:
    """A method with what a sweep needs to know before it runs.

    Attributes
    ----------
    name : as in results.
    family, convex, restarts, path, counterpart, device, tuned : as in `solvers.methods.Method`; of an estimator that is
        not ours, `convex` is None: nobody knows.
    estimator : dotted path of an estimator that is not ours, `IN_MEMORY` for an object; empty for ours.
    version : changes whenever the same fit may give another result.
    fixed : parameters that the sweep file sets for this method.
    """

    name: str
    family: str
    version: str
    tuned: tuple[str, ...] = ()
    convex: bool | None = None
    restarts: bool = False
    certificate: bool = False
    path: bool = False
    device: str = "cpu"
    estimator: str = ""
    fixed: tuple[tuple[str, Value], ...] = ()
    ours: Method | None = field(default=None, compare=False)

    def refuses(self, values: Mapping[str, Any], n_features: int) -> str | None:
        """Why these hyperparameters cannot be run; None if they can, as far as is known."""
        return None if self.ours is None else self.ours.refuses(values, n_features)


def matching_methods(pattern: str, others: Iterable[str] = ()) -> list[str]:
    """Names that a line of `methods` stands for, in the order of the table: ours, installed ones, `others`."""
    return [name for name in dict.fromkeys([*METHODS, *entry_points("methods"), *others]) if fnmatchcase(name, pattern)]


def unknown_method(name: str, others: Iterable[str] = ()) -> str:
    """What to say of a name that stands for no method."""
    return f"unknown method {name!r}.{nearest(name, matching_methods('*', others))}"


def known_method(name: str) -> SweepMethod:
    """What can be said of a method by its name alone, also of one that is not installed here."""
    ours = METHODS.get(name)
    return SweepMethod(name, FOREIGN, "") if ours is None else _of_ours(ours, ())


def our_method(name: str, params: Mapping[str, Value], tune: Mapping[str, Any], where: str) -> SweepMethod:
    """One of the 31, with parameters that the sweep file fixes or tunes beyond the usual ones."""
    ours = METHODS[name]
    if not params and not tune:
        return _of_ours(ours, ())  # without importing the class, and scikit-learn with it
    accepted = set(ours.load()._get_param_names()) | set(ours.called)
    usable = sorted(accepted - set(ours.params) - {"device", "random_state"})
    for kind, names in (("params", params), ("tune", tune)):
        for parameter in names:
            if parameter not in usable or (parameter == "gamma" and "gamma" not in ours.tuned):
                raise UserError(f"{where}.{kind}: {name} has no {parameter!r}.{nearest(parameter, usable)}")
    extra = tuple(parameter for parameter in tune if parameter not in ours.tuned)
    return _of_ours(ours, tuple(sorted(params.items())), extra)


def _of_ours(ours: Method, fixed: tuple[tuple[str, Value], ...], extra: tuple[str, ...] = ()) -> SweepMethod:
    named = {name for name, _ in fixed}
    return SweepMethod(
        name=ours.name,
        family=ours.family,
        version=str(ours.version),
        tuned=tuple(name for name in (*ours.tuned, *extra) if name not in named),
        convex=ours.convex,
        restarts=ours.restarts,
        certificate=ours.certificate,
        path=ours.path,
        device=ours.device,
        fixed=fixed,
        ours=ours,
    )


def foreign_method(
    name: str, path: str, params: Mapping[str, Value], tune: Mapping[str, Any], where: str
) -> SweepMethod:
    """An estimator by dotted path: anything with fit(X, y) and transform(X)."""
    factory = load(path, f"{where}.estimator")
    _check_estimator(factory, path, f"{where}.estimator")
    accepted = parameters_of(factory)
    for kind, names in (("params", params), ("tune", tune)):
        for parameter in names:
            if accepted is not None and parameter not in accepted:
                raise UserError(f"{where}.{kind}: {path} has no parameter {parameter!r}.{nearest(parameter, accepted)}")
    return SweepMethod(
        name=name,
        family=FOREIGN,
        version=fingerprint(path),
        tuned=tuple(tune),
        restarts=accepted is not None and "n_restarts" in accepted,
        estimator=path,
        fixed=tuple(sorted(params.items())),
    )


def object_method(name: str, estimator: Any, tune: Mapping[str, Any]) -> SweepMethod:
    """An estimator that was handed over as an object, from Python or a notebook."""
    _check_estimator(estimator, name, f"methods: {name}")
    params = {key: value for key, value in estimator.get_params(deep=False).items() if _is_plain(value)}
    for parameter in tune:
        if parameter not in estimator.get_params():
            raise UserError(
                f"methods: {name}: no parameter {parameter!r} to tune.{nearest(parameter, estimator.get_params())}"
            )
    return SweepMethod(
        name=name,
        family=FOREIGN,
        version=_object_version(estimator),
        tuned=tuple(tune),
        restarts="n_restarts" in params,
        estimator=IN_MEMORY,
        fixed=tuple(sorted((key, value) for key, value in params.items() if key not in tune)),
    )


def parameters_of(factory: Any) -> tuple[str, ...] | None:
    """Names of the constructor's parameters; None if it takes any."""
    parameters = inspect.signature(factory).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return tuple(p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY))


def _check_estimator(estimator: Any, shown: str, where: str) -> None:
    missing = [name for name in ("fit", "transform") if not callable(getattr(estimator, name, None))]
    if missing:
        raise UserError(f"{where}: expected an estimator with fit(X, y) and transform(X), {shown} has no {missing[0]}")


def _object_version(estimator: Any) -> str:
    """Source of the object's class and of those of its parts, and the parts' own parameters."""
    parts = [estimator, *(part for part in estimator.get_params().values() if hasattr(part, "get_params"))]
    versions = [_class_version(type(part)) for part in parts]
    nested = [f"{name}={value!r}" for name, value in sorted(estimator.get_params().items()) if "__" in name]
    return versions[0] if len(parts) == 1 else hashlib.sha256(" ".join(versions + nested).encode()).hexdigest()[:16]


def _class_version(kind: type) -> str:
    if kind.__module__ != "__main__":
        return fingerprint(f"{kind.__module__}:{kind.__qualname__}")
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):  # typed into a plain prompt: little tells one version from another
        source = f"{kind.__qualname__} {sorted(vars(kind))}"
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
