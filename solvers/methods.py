"""All 31 methods under one table, and the one way to make an estimator from a name.

The table names classes by strings: listing the methods imports no numerics.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

_GAMMA = ("gamma",)
_RANK = ("rank",)
_BOTH = ("gamma", "rank")

# What people call a parameter elsewhere.
_ALSO_CALLED = {"k": "n_neighbors", "lambda": "gamma", "alpha": "gamma", "dim": "rank", "dimension": "rank"}


@dataclass(frozen=True)
class Method:
    """A method by its name in the paper's tables, with everything that others need to know about it.

    Attributes
    ----------
    family : "mdml", "pdml" or "other".
    title : what it is, in a few words.
    factory : "module:Class" of the estimator.
    params : what is fixed, by the estimator's parameter names.
    tuned : which parameters a sweep tunes, in its vocabulary; the number of fits follows from it.
    called : the estimator's own names for words of that vocabulary.
    algorithms : a sweep file's word for the solver -> the estimator's.
    convex : every local optimum is global, so one start is enough.
    restarts : keeps the best of several random starts.
    certificate : a fit by the certified algorithm reports a lower bound on its objective.
    path : optima of one gamma start those of the next, and a whole range of gammas can be certified at once.
    counterpart : the non-convex method that this one is the convex relaxation of.
    below : parameters that must stay below a number.
    device : "array" where the fit is array code, "cpu" where it leans on a CPU library.
    version : raised whenever the method gives another result for the same input: older fits are then not reused.
    reference : where it was published.
    note : what a user should know before choosing it.
    """

    name: str
    family: str
    title: str
    factory: str
    params: Mapping[str, Any] = field(default_factory=dict)
    tuned: tuple[str, ...] = ()
    called: Mapping[str, str] = field(default_factory=dict)
    algorithms: Mapping[str, str] = field(default_factory=dict)
    convex: bool = True
    restarts: bool = False
    certificate: bool = False
    path: bool = False
    counterpart: str | None = None
    below: Mapping[str, float] = field(default_factory=dict)
    device: str = "array"
    version: int = 4
    reference: str = ""
    note: str = ""

    def load(self) -> Any:
        """The estimator class, imported now."""
        module, _, name = self.factory.partition(":")
        return getattr(importlib.import_module(module), name)

    def refuses(self, values: Mapping[str, Any], n_features: int) -> str | None:
        """Why these hyperparameters cannot be run on data with so many features; None if they can."""
        for name, limit in self.below.items():
            if name in values and values[name] >= limit:
                return f"{name} must be below {limit:g} here, got {values[name]:g}: {self.note}"
        rank = values.get("rank")
        if self.family == "pdml" and rank is not None and rank > n_features:
            return f"rank {rank} is above the {n_features} features; lower it"
        return None


def _other(name: str, title: str, reference: str, **more: Any) -> Method:
    module = "euclidean" if name == "euc" else name
    return Method(
        name,
        "other",
        title,
        f"solvers.other.{module}:{name.upper()}",
        reference=reference,
        **more,
    )


def _mdml(
    name: str,
    title: str,
    reference: str,
    *,
    regularizer: str = "none",
    oversample: bool = False,
    certificate: bool = True,
    **more: Any,
) -> Method:
    params = {"regularizer": regularizer} | ({"oversample": True} if oversample else {})
    tuned = () if regularizer == "none" else _GAMMA
    return Method(
        name,
        "mdml",
        title,
        "solvers.convex.mdml:MDML",
        params,
        tuned,
        algorithms={"certified": "certified", "paper": "paper"},
        certificate=certificate,
        reference=reference,
        **{"version": 11 if more.get("path") else 5} | more,
    )


def _pdml(
    name: str,
    title: str,
    reference: str,
    *,
    regularizer: str = "none",
    oversample: bool = False,
    note: str = "",
) -> Method:
    params = {"regularizer": regularizer} | ({"oversample": True} if oversample else {})
    tuned = _RANK if regularizer in ("none", "oc") else _BOTH
    return Method(
        name,
        "pdml",
        title,
        "solvers.projection.pdml:PDML",
        params,
        tuned,
        called={"rank": "n_components", "restarts": "n_restarts"},
        algorithms={"certified": "lbfgs", "paper": "paper"},
        convex=False,
        restarts=True,
        version=5,
        reference=reference,
        note=note,
    )


_XIE = "Xie, Wu, Zhu, Xing, ICML 2018"
_XING = "Xing et al., NIPS 2002; in M as in " + _XIE
_WEINBERGER = "Weinberger et al., NIPS 2005; in A as in " + _XIE

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        method.name: method
        for method in (
            _other("euc", "Euclidean distance", "-"),
            _other("lmnn", "large margin nearest neighbours, convex form", "Weinberger, Saul, JMLR 2009", version=5),
            _other(
                "itml",
                "log-determinant divergence under distance bounds",
                "Davis et al., ICML 2007",
                certificate=True,
            ),
            _other("ldml", "logistic discriminant with bias", "Guillaumin et al., ICCV 2009"),
            _other("mlec", "KISSME: difference of inverse covariances", "Koestinger et al., CVPR 2012"),
            _other("gmml", "geometric mean of two scatter matrices", "Zadeh et al., ICML 2016"),
            _other(
                "ilhd",
                "one-bit Laplacian hashing with diversity",
                "Carreira-Perpinan, Raziperchikolaei, NIPS 2016",
                tuned=_RANK,
                called={"rank": "n_bits"},
                convex=False,
                device="cpu",
                note="rank is the number of bits; hash functions are scikit-learn SVMs, so no GPU is used",
            ),
            _mdml("mdml", "convex hinge on pairs, no regularizer", _XING),
            _mdml("mdml-l2", "squared Frobenius norm", _XIE, regularizer="l2", path=True),
            _mdml("mdml-l1", "entrywise l1 norm", "Qi et al., ICML 2009", regularizer="l1"),
            _mdml("mdml-l21", "sum of row norms", "Ying et al., NIPS 2009", regularizer="l21"),
            _mdml("mdml-tr", "trace norm", "Liu et al., AISTATS 2015", regularizer="tr"),
            _mdml("mdml-it", "log-determinant divergence to I", "Davis et al., ICML 2007", regularizer="it", path=True),
            _mdml(
                "mdml-drop",
                "dropout on M",
                "Qian et al., KDD 2014",
                regularizer="drop",
                certificate=False,
                version=4,
                below={"gamma": 1.0},
                note="gamma is the probability of dropping an entry",
            ),
            _mdml("mdml-os", "over-sampling of small classes", "Galar et al., 2012", oversample=True),
            _pdml("pdml", "projection matrix A, no regularizer", _WEINBERGER),
            _pdml("pdml-dc", "determinant of covariance", "Malkin, Bilmes, ICASSP 2008", regularizer="dc"),
            _pdml("pdml-cs", "cosine similarity", "Yu et al., IJCAI 2011", regularizer="cs"),
            _pdml("pdml-dpp", "determinantal point process", "Zou, Adams, NIPS 2012", regularizer="dpp"),
            _pdml("pdml-ic", "incoherence", "Bao et al., 2013", regularizer="ic"),
            _pdml(
                "pdml-dec",
                "decorrelation of projected examples",
                "Cogswell et al., ICLR 2016",
                regularizer="dec",
            ),
            _pdml("pdml-vgf", "variational Gram function", "Jalali et al., 2015", regularizer="vgf"),
            _pdml("pdml-ma", "mutual angles", "Xie et al., KDD 2015", regularizer="ma"),
            _pdml("pdml-oc", "orthonormal rows as a constraint", "Wen, Yin, 2013", regularizer="oc"),
            _pdml("pdml-os", "over-sampling of small classes", "Galar et al., 2012", oversample=True),
            _pdml("pdml-sfn", "squared Frobenius norm of AA' - I", "Wang et al., 2012", regularizer="sfn"),
            _pdml(
                "pdml-vnd",
                "von Neumann divergence of AA' to I",
                "Xie, Poczos, Xing, UAI 2017",
                regularizer="vnd",
            ),
            _pdml(
                "pdml-ldd",
                "log-determinant divergence of AA' to I",
                "Xie, Poczos, Xing, UAI 2017",
                regularizer="ldd",
            ),
            _mdml(
                "mdml-csfn",
                "convex squared Frobenius norm",
                _XIE,
                regularizer="csfn",
                path=True,
                counterpart="pdml-sfn",
            ),
            _mdml(
                "mdml-cvnd",
                "convex von Neumann divergence",
                _XIE,
                regularizer="cvnd",
                path=True,
                counterpart="pdml-vnd",
            ),
            _mdml(
                "mdml-cldd",
                "convex log-determinant divergence",
                _XIE,
                regularizer="cldd",
                path=True,
                counterpart="pdml-ldd",
            ),
        )
    }
)


# Convex relaxations with the non-convex methods they stand for.
PAIRS = tuple((method.name, method.counterpart) for method in METHODS.values() if method.counterpart is not None)


def make_method(name: str, *, settings: Mapping[str, Any] | None = None, **params: Any) -> Any:
    """Unfitted estimator of one of the 31 methods.

    Parameters
    ----------
    name : a key of `METHODS`.
    settings : parameters for methods in general (`n_pairs`, `max_iter`, `tol`, `device`, `random_state`, ...); those
        that this one has no use for are left out, so that one call serves all methods.
    params : parameters for this method: `gamma`, `rank` (projection vectors or bits), `restarts`, or any name that
        its estimator has. One that it has no use for is an error, and so is one that the name already fixes.
    """
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}.{_nearest(name, METHODS)}")
    method = METHODS[name]
    factory = method.load()
    accepted = set(factory._get_param_names())
    given = {}
    for key, value in (settings or {}).items():
        known = method.called.get(key, key)
        if known in accepted and not (key == "gamma" and "gamma" not in method.tuned):
            given[known] = value
        elif known not in accepted:
            _refuse_unknown(key)
    for key, value in params.items():
        known = method.called.get(key, key)
        if known not in accepted or (key == "gamma" and "gamma" not in method.tuned):
            usable = sorted((accepted | set(method.called)) - set(method.params) - ({"gamma"} - set(method.tuned)))
            raise ValueError(f"{name}: has no use for {key!r}.{_nearest(_ALSO_CALLED.get(key, key), usable)}")
        given[known] = value
    for key, value in method.params.items():
        if given.setdefault(key, value) != value:
            raise ValueError(f"{name}: {key} is {value!r} by name, got {given[key]!r}; choose another method")
    refusal = method.refuses({key: value for key, value in params.items() if key in method.below}, 0)
    if refusal:
        raise ValueError(f"{name}: {refusal}")
    return factory(**given)


def _refuse_unknown(name: str) -> None:
    """Error for a setting that no estimator has. Loads all of them, so it is asked only when in doubt."""
    classes = {method.factory: method for method in METHODS.values()}
    known = {key for method in classes.values() for key in method.load()._get_param_names()}
    known |= {key for method in classes.values() for key in method.called}
    if name not in known:
        raise ValueError(f"unknown setting {name!r}: no method has it.{_nearest(name, known)}")


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    if name in names:
        return f" Did you mean {name!r}?"
    matches = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f" Did you mean {matches[0]!r}?" if matches else f" It has {', '.join(names)}."
