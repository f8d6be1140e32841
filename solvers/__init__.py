"""Distance metric learning: the numerics, with no knowledge of sweeps.

Names are loaded on first use, so that `import solvers` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solvers.euclidean import EUC
    from solvers.gmml import GMML
    from solvers.ilhd import ILHD
    from solvers.itml import ITML
    from solvers.ldml import LDML
    from solvers.lmnn import LMNN
    from solvers.mdml import MDML
    from solvers.methods import METHODS, make_method
    from solvers.mlec import MLEC
    from solvers.pdml import PDML
    from solvers.retrieval import retrieval_scores

_HOME = {
    "EUC": "euclidean",
    "GMML": "gmml",
    "ILHD": "ilhd",
    "ITML": "itml",
    "LDML": "ldml",
    "LMNN": "lmnn",
    "MDML": "mdml",
    "METHODS": "methods",
    "MLEC": "mlec",
    "PDML": "pdml",
    "make_method": "methods",
    "retrieval_scores": "retrieval",
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
    "make_method",
    "retrieval_scores",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'solvers' has no attribute {name!r}")
    return getattr(importlib.import_module(f"solvers.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
