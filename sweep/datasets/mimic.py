"""MIMIC-III: one example per hospital admission, labelled with its primary diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from sweep.datasets.archive import base_name, read_files
from sweep.datasets.base import Dataset
from sweep.datasets.catalog import DATASETS
from sweep.datasets.tables import floats, has_table, read_table, rows_of
from sweep.datasets.temporal import TemporalFeatures, temporal_names
from sweep.datasets.text import WordCounter
from sweep.datasets.vectors import read_word_vectors
from sweep.errors import UserError

WORD_VECTOR_SIZE = 300
_SECONDS_PER_YEAR = 365.25 * 24 * 3600
_VECTOR_FILES = ("vectors.bin", "vectors.txt")


def load_mimic(path: Path, progress: Callable[[str], None]) -> Dataset:
    """Age and gender, temporal features of the lab items, word counts of the notes.

    Columns: age in years, gender (1 for male), three per lab item by item id, one per word.
    """
    ids, labels = _primary_diagnoses(path)
    progress(f"mimic: {len(ids):,} admissions with a primary diagnosis")
    demographics = _demographics(path, ids)
    labs, items = _labs(path, ids, progress)
    blocks = [sp.csr_matrix(demographics), labs]
    counts, words, n_notes = _notes(path, ids, progress)
    vectors, made_by = None, ""
    if words:
        blocks.append(counts)
        vectors, made_by = _word_vectors(path, words)
        notes = f"{n_notes:,} clinical notes as tf-idf and averaged word vectors ({made_by})"
    else:
        notes = "no clinical notes in the files, so neither tf-idf nor word vectors"
    classes, y = np.unique(labels, return_inverse=True)
    return Dataset(
        name="mimic",
        X=sp.hstack(blocks, format="csr"),
        y=y.astype(np.int64),
        classes=tuple(classes.tolist()),
        n_words=len(words),
        vector_size=(WORD_VECTOR_SIZE if vectors is None else vectors.shape[1]) if words else 0,
        vectors=vectors,
        feature_names=("age", "gender", *temporal_names([f"lab {item}" for item in items]), *words),
        notes=f"age, gender; {len(items)} lab items; {notes}.",
        **DATASETS["mimic"].defaults(len(ids)),
    )


def _primary_diagnoses(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Admission ids, ascending, and the ICD-9 code of their first diagnosis."""
    columns = {"hadm_id": pa.int64(), "seq_num": pa.int64(), "icd9_code": pa.string()}
    primary = {
        admission: code
        for batch in read_table(path, "DIAGNOSES_ICD", columns)
        for admission, place, code in zip(*(batch[name].to_pylist() for name in columns), strict=True)
        if place == 1 and code and admission is not None
    }
    if not primary:
        raise UserError(f"{path}: DIAGNOSES_ICD has no row with SEQ_NUM 1 and a code, so there is nothing to learn")
    ids = np.array(sorted(primary), dtype=np.int64)
    return ids, np.array([primary[admission] for admission in ids.tolist()])


def _demographics(path: Path, ids: np.ndarray) -> np.ndarray:
    """Age at admission and gender, (n, 2); 0 where unknown."""
    time = pa.timestamp("s")
    born: dict[int, tuple[float, float]] = {}
    for batch in read_table(path, "PATIENTS", {"subject_id": pa.int64(), "gender": pa.string(), "dob": time}):
        seconds = floats(batch["dob"].cast(pa.int64()))
        for patient, gender, birth in zip(
            batch["subject_id"].to_pylist(), batch["gender"].to_pylist(), seconds, strict=True
        ):
            born[patient] = (birth, float(gender == "M"))
    features = np.zeros((len(ids), 2))
    columns = {"hadm_id": pa.int64(), "subject_id": pa.int64(), "admittime": time}
    for batch in read_table(path, "ADMISSIONS", columns):
        rows, admitted = rows_of(batch["hadm_id"], ids), floats(batch["admittime"].cast(pa.int64()))
        for row, patient, moment in zip(rows, batch["subject_id"].to_pylist(), admitted, strict=True):
            if row >= 0 and patient in born:
                birth, gender = born[patient]
                age = (moment - birth) / _SECONDS_PER_YEAR
                # Birth dates of patients above 89 were moved by 300 years to hide their age.
                features[row] = (90.0 if age > 89 else np.nan_to_num(age)), gender
    return features


def _labs(path: Path, ids: np.ndarray, progress: Callable[[str], None]) -> tuple[sp.csr_matrix, list[str]]:
    temporal = TemporalFeatures(len(ids))
    columns = {
        "hadm_id": pa.int64(),
        "itemid": pa.int64(),
        "charttime": pa.timestamp("s"),
        "valuenum": pa.float64(),
    }
    n_events = 0
    for batch in read_table(path, "LABEVENTS", columns):
        temporal.add(
            rows_of(batch["hadm_id"], ids),
            temporal.codes(batch["itemid"]),
            floats(batch["charttime"].cast(pa.int64())),
            floats(batch["valuenum"]),
        )
        n_events += len(batch["itemid"])
        progress(f"mimic: {n_events:,} lab events")
    return temporal.finish()


def _notes(path: Path, ids: np.ndarray, progress: Callable[[str], None]) -> tuple[sp.csr_matrix, list[str], int]:
    """Word counts per admission, the words, and the number of notes read."""
    counter, n_notes = WordCounter(len(ids), str(path)), 0
    if not has_table(path, "NOTEEVENTS"):
        return sp.csr_matrix((len(ids), 0)), [], 0
    columns = {"hadm_id": pa.int64(), "iserror": pa.string(), "text": pa.string()}
    for batch in read_table(path, "NOTEEVENTS", columns, multiline=True):
        rows = rows_of(batch["hadm_id"], ids)
        for row, error, text in zip(rows.tolist(), batch["iserror"].to_pylist(), batch["text"], strict=True):
            # A physician marked these notes as wrong.
            if row >= 0 and error != "1" and text.is_valid:
                counter.add(row, text.as_py())
                n_notes += 1
        progress(f"mimic: {n_notes:,} notes")
    counts, words = counter.finish()
    return counts, words, n_notes


def _word_vectors(path: Path, words: list[str]) -> tuple[np.ndarray | None, str]:
    for name, file in read_files(path, lambda name: base_name(name) in _VECTOR_FILES):
        vectors = read_word_vectors(file, words, f"{path}: {name}", binary=name.endswith(".bin"))
        return vectors, f"read from {base_name(name)}"
    return (
        None,
        f"{WORD_VECTOR_SIZE} dimensions, factorised mutual information of words, not word2vec's own training",
    )
