"""Distance metric learning: the numerics, with no knowledge of sweeps.

Names are loaded on first use, so that `import solvers` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solvers.convex.mdml import MDML
    from solvers.convex.path import MDMLPath
    from solvers.methods import METHODS, make_method
    from solvers.other.euclidean import EUC
    from solvers.other.gmml import GMML
    from solvers.other.ilhd import ILHD
    from solvers.other.itml import ITML
    from solvers.other.ldml import LDML
    from solvers.other.lmnn import LMNN
    from solvers.other.mlec import MLEC
    from solvers.projection.pdml import PDML
    from solvers.scores.retrieval import retrieval_scores

_HOME = {
    "EUC": "other.euclidean",
    "GMML": "other.gmml",
    "ILHD": "other.ilhd",
    "ITML": "other.itml",
    "LDML": "other.ldml",
    "LMNN": "other.lmnn",
    "MDML": "convex.mdml",
    "MDMLPath": "convex.path",
    "METHODS": "methods",
    "MLEC": "other.mlec",
    "PDML": "projection.pdml",
    "make_method": "methods",
    "retrieval_scores": "scores.retrieval",
}

__all__ = [
    "EUC",
    "GMML",
    "ILHD",
    "ITML",
    "LDML",
    "LMNN",
    "MDML",
    "METHODS",
    "MLEC",
    "PDML",
    "MDMLPath",
    "make_method",
    "retrieval_scores",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'solvers' has no attribute {name!r}")
    return getattr(importlib.import_module(f"solvers.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
