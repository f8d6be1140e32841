"""One small picture per fitted metric, for the page of its MLflow run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dashboards.charts import Chart, Panel, Series, series_style, thinned
from dashboards.metric_figures import binned_classes, metric_spectrum
from dashboards.printed import write_files


def write_method_figure(method: str, arrays: Mapping[str, np.ndarray], folder: Path) -> list[Path]:
    """Convergence, spectrum and classes of a refit's arrays as `metric.svg` and `metric.png`."""
    style = series_style(method)
    convergence, spectrum, classes = [], [], []
    x, gap = arrays.get("history_n_eigh"), arrays.get("history_gap")
    if x is not None and gap is not None and (usable := np.flatnonzero((x > 0) & (gap > 0))).size:
        kept = usable[thinned(usable.size)]
        convergence.append(Series(method, x[kept], gap[kept], **style))
    if "components" in arrays and arrays["components"].size:
        values = metric_spectrum(arrays["components"])
        spectrum.append(Series(method, np.arange(1, len(values) + 1), values, **style))
    if "class_auc" in arrays:
        sizes, auc = binned_classes(arrays["class_sizes"], arrays["class_auc"])
        classes.append(Series(method, sizes, auc, kind="points", **style))
    missing = "not recorded for this method"
    panels = [
        Panel(
            "convergence",
            "eigendecompositions",
            "relative gap",
            convergence,
            x_log=True,
            y_log=True,
            missing=missing,
        ),
        Panel("spectrum of M", "eigenvalue number", "eigenvalue", spectrum, y_log=True, missing=missing),
        Panel("classes", "examples of the class", "AUC of its queries", classes, x_log=True, missing=missing),
    ]
    return write_files(Chart("metric", method, "", panels), folder)
