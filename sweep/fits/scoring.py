"""The score that tuning compares: a built-in by name, or a function of the user's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sweep.code import load
from sweep.fits.record import Scores
from sweep.fits.spec import FitSpec
from sweep.methods import parameters_of


class ScoreError(FloatingPointError):
    """The score that tuning compares is not a number: a failure of this fit."""


def sampling(spec: FitSpec) -> dict[str, Any]:
    """How many queries are scored, and by which seed they are drawn: all methods face the same ones."""
    return {"max_queries": spec.max_queries, "seed": spec.seed_for("queries")}


def own_score(spec: FitSpec, Z: np.ndarray, y: np.ndarray, frequent: np.ndarray) -> float:
    """A user's score function: the embedding, the labels and, by keyword, what it asks for."""
    function = load(spec.score, "score")
    asked = parameters_of(function)
    more = {"frequent": frequent} if asked is not None and "frequent" in asked else {}
    return float(function(Z, y, **more))


def tuning_score(spec: FitSpec, Z: Any, y: Any, frequent: np.ndarray) -> float:
    """The one number for an embedding, without the others."""
    from solvers.backend import to_numpy
    from solvers.scores.retrieval import retrieval_scores

    if ":" in spec.score:
        value: Any = own_score(spec, to_numpy(Z), np.asarray(y), frequent)
    else:
        value = retrieval_scores(Z, y, frequent=frequent, only=(spec.score,), **sampling(spec))[spec.score]
    return checked(spec.score, value)


def value_of(spec: FitSpec, scores: Scores) -> float:
    """The one number among a fit's scores."""
    return checked(spec.score, scores.get(spec.score))


def checked(name: str, value: float | None) -> float:
    if value is None or not math.isfinite(value):
        raise ScoreError(f"score {name} is {value}: no query of the held-out part can tell")
    return float(value)
