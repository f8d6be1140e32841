"""The fits behind every number, as one compact JSON in the page; the page's script makes tables of it."""

from __future__ import annotations

import json
from typing import Any

from dashboards.records import SweepRecords, setting_of
from sweep.fits import FitRecord, FitSpec
from sweep.store.results import StudyRecords

MOST_FITS = 5_000


def fit_details(sweep: SweepRecords, command: str = "") -> dict[str, Any]:
    """Every study with its fits; in a large sweep only the fits of the chosen setting.

    `command` computes a fit again, with `{key}` in the place of its key; empty if there is none.
    """
    large = sum(len(study.fits) for study in sweep.studies) > MOST_FITS
    return {
        "score": sweep.score_title,
        "cut": large,
        "command": command,
        "columns": ["key", "setting", "fold", "score", "seconds", "busy", "gap", "converged", "vectors"],
        "studies": [_study(study, chosen_only=large) for study in sweep.studies],
    }


def as_script(details: dict[str, Any]) -> str:
    """JSON that cannot end the script element that holds it."""
    text = json.dumps(details, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _study(study: StudyRecords, *, chosen_only: bool) -> list[Any]:
    chosen = study.chosen
    fits = [fit for fit in study.fits if not chosen_only or fit[0].trial == chosen or fit[0].gammas is not None]
    fits.sort(key=lambda fit: (fit[0].fold is not None, fit[0].trial != chosen, setting_of(fit[0]), fit[0].fold or 0))
    label = chosen.label if chosen is not None else ""
    return [study.dataset, study.split, study.method, label, [_fit(spec, record) for spec, record in fits]]


def _fit(spec: FitSpec, record: FitRecord) -> list[Any]:
    return [
        record.key,
        setting_of(spec),
        spec.fold,
        _rounded(record.scores.get(spec.score) if record.curve is None else record.value, 6),
        _rounded(record.seconds.solve, 4),
        _rounded(record.seconds.busy, 4),
        _rounded(record.fit.relative_gap, 3),
        record.fit.converged,
        record.fit.rank,
    ]


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")
