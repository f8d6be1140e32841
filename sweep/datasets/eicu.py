"""eICU: one example per intensive care stay, labelled with its primary diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from sweep.datasets.base import Dataset
from sweep.datasets.catalog import DATASETS
from sweep.datasets.tables import floats, has_table, read_table, rows_of
from sweep.datasets.temporal import TemporalFeatures, temporal_names
from sweep.errors import UserError

STAY = "patientunitstayid"
VITAL_SIGNS = {
    "vitalPeriodic": [
        "temperature",
        "sao2",
        "heartrate",
        "respiration",
        "cvp",
        "etco2",
        "systemicsystolic",
        "systemicdiastolic",
        "systemicmean",
        "pasystolic",
        "padiastolic",
        "pamean",
        "st1",
        "st2",
        "st3",
        "icp",
    ],
    "vitalAperiodic": [
        "noninvasivesystolic",
        "noninvasivediastolic",
        "noninvasivemean",
        "paop",
        "cardiacoutput",
        "cardiacinput",
        "svr",
        "svri",
        "pvr",
        "pvri",
    ],
}


def load_eicu(path: Path, progress: Callable[[str], None]) -> Dataset:
    """Age and gender, temporal features of lab items and vital signs, past diseases as 0 and 1.

    Columns: age in years, gender (1 for male), three per lab item by name, three per vital sign by
    name, one per past disease.
    """
    ids, labels = _primary_diagnoses(path)
    progress(f"eicu: {len(ids):,} stays with a primary diagnosis")
    labs, lab_names = _labs(path, ids, progress)
    vitals, vital_names, absent = _vital_signs(path, ids, progress)
    history, diseases = _past_history(path, ids)
    classes, y = np.unique(labels, return_inverse=True)
    measured = [*(f"lab {name}" for name in lab_names), *(f"vital {name}" for name in vital_names)]
    missing = f"; no table {', '.join(absent)}" if absent else ""
    return Dataset(
        name="eicu",
        X=sp.hstack([sp.csr_matrix(_demographics(path, ids)), labs, vitals, history], format="csr"),
        y=y.astype(np.int64),
        classes=tuple(classes.tolist()),
        feature_names=("age", "gender", *temporal_names(measured), *diseases),
        notes=f"age, gender; {len(lab_names)} lab items; {len(vital_names)} vital signs{missing};"
        f" {len(diseases)} past diseases.",
        **DATASETS["eicu"].defaults(len(ids)),
    )


def _primary_diagnoses(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Stay ids, ascending, and the earliest diagnosis with priority "Primary"."""
    columns = {
        STAY: pa.int64(),
        "diagnosisoffset": pa.int64(),
        "diagnosisid": pa.int64(),
        "diagnosisstring": pa.string(),
        "diagnosispriority": pa.string(),
    }
    earliest: dict[int, tuple[int, int, str]] = {}
    for batch in read_table(path, "diagnosis", columns):
        for stay, offset, number, disease, priority in zip(*(batch[name].to_pylist() for name in columns), strict=True):
            if priority == "Primary" and disease and None not in (stay, offset, number):
                entry = (offset, number, disease)
                earliest[stay] = min(entry, earliest.get(stay, entry))
    if not earliest:
        raise UserError(f"{path}: diagnosis has no row with diagnosispriority Primary, so there is nothing to learn")
    ids = np.array(sorted(earliest), dtype=np.int64)
    return ids, np.array([earliest[stay][2] for stay in ids.tolist()])


def _demographics(path: Path, ids: np.ndarray) -> np.ndarray:
    """Age and gender, (n, 2); 0 where unknown."""
    features = np.zeros((len(ids), 2))
    for batch in read_table(path, "patient", {STAY: pa.int64(), "age": pa.string(), "gender": pa.string()}):
        rows = rows_of(batch[STAY], ids)
        for row, age, gender in zip(rows, batch["age"].to_pylist(), batch["gender"].to_pylist(), strict=True):
            if row >= 0:
                features[row] = _years(age, path), float(gender == "Male")
    return features


def _years(age: str | None, path: Path) -> float:
    if not age:
        return 0.0
    if age == "> 89":
        return 90.0
    try:
        return float(age)
    except ValueError as error:
        raise UserError(f"{path}: patient: expected an age in years or '> 89', got {age!r}") from error


def _labs(path: Path, ids: np.ndarray, progress: Callable[[str], None]) -> tuple[sp.csr_matrix, list[str]]:
    temporal, n_events = TemporalFeatures(len(ids)), 0
    columns = {
        STAY: pa.int64(),
        "labresultoffset": pa.float64(),
        "labname": pa.string(),
        "labresult": pa.float64(),
    }
    for batch in read_table(path, "lab", columns):
        temporal.add(
            rows_of(batch[STAY], ids),
            temporal.codes(batch["labname"].fill_null("")),
            floats(batch["labresultoffset"]),
            floats(batch["labresult"]),
        )
        n_events += len(batch[STAY])
        progress(f"eicu: {n_events:,} lab results")
    return temporal.finish()


def _vital_signs(
    path: Path, ids: np.ndarray, progress: Callable[[str], None]
) -> tuple[sp.csr_matrix, list[str], list[str]]:
    """Features, the names of the signs, and the tables that are not there."""
    temporal, absent = TemporalFeatures(len(ids)), []
    for table, signs in VITAL_SIGNS.items():
        if not has_table(path, table):
            absent.append(table)
            continue
        n_rows = 0
        columns = {STAY: pa.int64(), "observationoffset": pa.float64(), **dict.fromkeys(signs, pa.float64())}
        for batch in read_table(path, table, columns):
            rows, times = rows_of(batch[STAY], ids), floats(batch["observationoffset"])
            for sign in signs:
                codes = np.full(len(rows), temporal.code(sign))
                temporal.add(rows, codes, times, floats(batch[sign]))
            n_rows += len(rows)
            progress(f"eicu: {table}: {n_rows:,} rows")
    features, names = temporal.finish()
    return features, names, absent


def _past_history(path: Path, ids: np.ndarray) -> tuple[sp.csr_matrix, list[str]]:
    found: set[tuple[int, str]] = set()
    for batch in read_table(path, "pastHistory", {STAY: pa.int64(), "pasthistorypath": pa.string()}):
        rows = rows_of(batch[STAY], ids)
        found |= {
            (row, disease)
            for row, disease in zip(rows.tolist(), batch["pasthistorypath"].to_pylist(), strict=True)
            if row >= 0 and disease
        }
    diseases = sorted({disease for _, disease in found})
    column = {disease: place for place, disease in enumerate(diseases)}
    places = [row for row, _ in found], [column[disease] for _, disease in found]
    shape = (len(ids), len(diseases))
    return sp.coo_matrix((np.ones(len(found)), places), shape=shape).tocsr(), diseases
