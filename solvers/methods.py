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

# What each class calls the two parameters that sweeps tune.
_RANK_PARAMETER = {"solvers.projection.pdml:PDML": "n_components", "solvers.other.ilhd:ILHD": "n_bits"}
_GAMMA = ("gamma",)
_RANK = ("rank",)
_BOTH = ("gamma", "rank")


@dataclass(frozen=True)
class Method:
    """A method by its name in the paper's tables.

    Attributes
    ----------
    family : "mdml", "pdml" or "other".
    title : what it is, in a few words.
    factory : "module:Class" of the estimator.
    params : what is fixed, by the estimator's parameter names.
    tuned : which of "gamma" and "rank" a sweep tunes; the number of fits follows from it.
    convex : every local optimum is global, so one start is enough.
    restarts : keeps the best of several random starts.
    certificate : a fit reports a lower bound on its objective.
    device : "array" where the fit is array code, "cpu" where it leans on a CPU library.
    reference : where it was published.
    note : what a user should know before choosing it.
    """

    name: str
    family: str
    title: str
    factory: str
    params: Mapping[str, Any] = field(default_factory=dict)
    tuned: tuple[str, ...] = ()
    convex: bool = True
    restarts: bool = False
    certificate: bool = False
    device: str = "array"
    reference: str = ""
    note: str = ""

    def load(self) -> Any:
        """The estimator class, imported now."""
        module, _, name = self.factory.partition(":")
        return getattr(importlib.import_module(module), name)


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
    note: str = "",
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
        certificate=certificate,
        reference=reference,
        note=note,
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
        convex=False,
        restarts=True,
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
            _other("lmnn", "large margin nearest neighbours, convex form", "Weinberger, Saul, JMLR 2009"),
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
                convex=False,
                device="cpu",
                note="rank is the number of bits; hash functions are scikit-learn SVMs, so no GPU is used",
            ),
            _mdml("mdml", "convex hinge on pairs, no regularizer", _XING),
            _mdml("mdml-l2", "squared Frobenius norm", _XIE, regularizer="l2"),
            _mdml("mdml-l1", "entrywise l1 norm", "Qi et al., ICML 2009", regularizer="l1"),
            _mdml("mdml-l21", "sum of row norms", "Ying et al., NIPS 2009", regularizer="l21"),
            _mdml("mdml-tr", "trace norm", "Liu et al., AISTATS 2015", regularizer="tr"),
            _mdml("mdml-it", "log-determinant divergence to I", "Davis et al., ICML 2007", regularizer="it"),
            _mdml(
                "mdml-drop",
                "dropout on M",
                "Qian et al., KDD 2014",
                regularizer="drop",
                certificate=False,
                note="gamma is the probability of dropping an entry and must be below 1",
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
            _mdml("mdml-csfn", "convex squared Frobenius norm", _XIE, regularizer="csfn"),
            _mdml("mdml-cvnd", "convex von Neumann divergence", _XIE, regularizer="cvnd"),
            _mdml("mdml-cldd", "convex log-determinant divergence", _XIE, regularizer="cldd"),
        )
    }
)


def make_method(name: str, gamma: float | None = None, rank: int | None = None, **settings: Any) -> Any:
    """Unfitted estimator of one of the 31 methods.

    Parameters
    ----------
    name : a key of `METHODS`.
    gamma : strength of the regularizer (mdml-drop: the drop probability, below 1).
    rank : projection vectors of the pdml methods, bits of ilhd.
    settings : parameters of any method (`n_pairs`, `max_iter`, `tol`, `device`, `random_state`, ...).

    gamma, rank and settings that the method has no use for are left out, so that one call serves all
    methods. A setting that no method knows is an error, and so is one that the name already fixes.
    """
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}.{_nearest(name, METHODS)}")
    method = METHODS[name]
    factory = method.load()
    accepted = set(factory._get_param_names())
    given = {key: value for key, value in settings.items() if key in accepted}
    if len(given) < len(settings):
        _refuse_unknown(settings.keys() - accepted)
    for key, value in method.params.items():
        if given.setdefault(key, value) != value:
            raise ValueError(f"{name}: {key} is {value!r} by name, got {given[key]!r}; choose another method")
    if gamma is not None and "gamma" in method.tuned:
        if method.params.get("regularizer") == "drop" and not 0 <= gamma < 1:
            raise ValueError(f"{name}: gamma is the probability of dropping an entry, below 1; got {gamma}")
        given["gamma"] = gamma
    if rank is not None and "rank" in method.tuned:
        given[_RANK_PARAMETER[method.factory]] = rank
    return factory(**given)


def _refuse_unknown(names: Iterable[str]) -> None:
    """Error for a setting that no estimator has. Loads all of them, so it is asked only when in doubt."""
    classes = {method.factory: method for method in METHODS.values()}
    known = {key for method in classes.values() for key in method.load()._get_param_names()}
    for name in sorted(names):
        if name not in known:
            raise ValueError(f"unknown setting {name!r}: no method has it.{_nearest(name, known)}")


def _nearest(name: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    return f" Did you mean {matches[0]!r}?" if matches else ""
