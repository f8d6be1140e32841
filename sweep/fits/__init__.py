"""The unit of work: one plain function from a fit's spec and its data to a record.

`fit_and_score` runs the same in a notebook, a test and a Ray worker; Ray is how it is called,
not what it is.
"""

from sweep.fits.record import Curve, FitRecord, Place, Scores, Seconds, Solved
from sweep.fits.run import build_model, fit_and_score
from sweep.fits.spec import CHAIN, COLD, FitOutcome, FitSpec, Help, SplitData
from sweep.fits.trials import FoldScores, Select, Trial, Value, choose, mean, standard_error

__all__ = [
    "CHAIN",
    "COLD",
    "Curve",
    "FitOutcome",
    "FitRecord",
    "FitSpec",
    "FoldScores",
    "Help",
    "Place",
    "Scores",
    "Seconds",
    "Select",
    "Solved",
    "SplitData",
    "Trial",
    "Value",
    "build_model",
    "choose",
    "fit_and_score",
    "mean",
    "standard_error",
]
