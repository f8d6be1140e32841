"""Every loader on tiny files in the format of the real ones, whole and broken."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from sweep.datasets import eicu, har, images, mimic, text
from sweep.datasets.base import Dataset
from sweep.datasets.features import split_features
from sweep.datasets.tables import read_table
from sweep.datasets.temporal import TemporalFeatures
from sweep.datasets.vectors import read_word_vectors
from sweep.errors import UserError


def quiet(line: str) -> None:
    pass


def one_line(caught: pytest.ExceptionInfo[UserError], path: Path) -> None:
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


# Reuters


def story(topics: list[str], body: str, *, lewis: str = "TRAIN", has_topics: str = "YES") -> str:
    named = "".join(f"<D>{topic}</D>" for topic in topics)
    body = f"<BODY>{body}&#3;</BODY>" if body else ""
    return (
        f'<REUTERS TOPICS="{has_topics}" LEWISSPLIT="{lewis}" CGISPLIT="TRAINING-SET" OLDID="1" NEWID="1">\n'
        f"<DATE>26-FEB-1987</DATE>\n<TOPICS>{named}</TOPICS>\n<PLACES><D>usa</D></PLACES>\n"
        f"<TEXT>&#2;\n<TITLE>A TITLE</TITLE>\n<DATELINE> X </DATELINE>{body}"
        "</TEXT>\n</REUTERS>\n"
    )


STORIES = [
    *[story(["earn"], f"profit &lt;rose&gt; shares dividend {'profit ' * i}") for i in range(4)],
    *[story(["grain"], "wheat harvest shares f\xfcr") for _ in range(3)],
    story(["rare"], "wheat"),
    story(["rare"], "wheat"),
    story(["earn", "grain"], "two topics"),
    story([], "no topic"),
    story(["earn"], ""),
    story(["earn"], "profit", lewis="TEST"),
    story(["earn"], "profit", has_topics="BYPASS"),
]


def write_reuters(folder: Path, stories: list[str] = STORIES) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    half = len(stories) // 2
    for number, part in enumerate((stories[:half], stories[half:])):
        content = '<!DOCTYPE lewis SYSTEM "lewis.dtd">\n' + "".join(part)
        (folder / f"reut2-{number:03}.sgm").write_bytes(content.encode("latin-1"))
    return folder


def test_reuters_keeps_what_the_paper_keeps(tmp_path: Path) -> None:
    dataset = text.load_reuters(write_reuters(tmp_path / "r"), quiet)
    assert dataset.classes == ("earn", "grain")
    assert np.bincount(dataset.y).tolist() == [4, 3]
    assert dataset.notes.startswith("incomplete: 2 of 22 files")
    assert dataset.n_words == dataset.X.shape[1]


def test_reuters_archive_and_folder_are_the_same(tmp_path: Path) -> None:
    folder = write_reuters(tmp_path / "r")
    with tarfile.open(tmp_path / "r.tar.gz", "w:gz") as archive:
        # Backwards: the order of members must not matter.
        for file in sorted(folder.iterdir(), reverse=True):
            archive.add(file, file.name)
    prints = {text.load_reuters(source, quiet).fingerprint for source in (folder, tmp_path / "r.tar.gz")}
    assert len(prints) == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"hello", "no <REUTERS"), ("".join(STORIES)[:-20].encode("latin-1"), "truncated")],
)
def test_broken_reuters_files(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "reut2-000.sgm").write_bytes(content)
    with pytest.raises(UserError, match=said) as caught:
        text.load_reuters(tmp_path, quiet)
    one_line(caught, tmp_path)


def test_reuters_without_enough_documents(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="0 documents"):
        text.load_reuters(write_reuters(tmp_path, STORIES[7:9]), quiet)


# News


def test_news_takes_train_and_test_messages(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for group in ("sci.space", "rec.autos"):
            folder = tmp_path / f"20news-bydate-{part}" / group
            folder.mkdir(parents=True)
            for number in range(3):
                (folder / str(number)).write_bytes(
                    f"Subject: engine {group}\n\nthe rocket \xff engine".encode("latin-1")
                )
    (tmp_path / "README").write_text("not a message")
    dataset = text.load_news(tmp_path, quiet)
    assert (dataset.n_examples, dataset.classes) == (12, ("rec.autos", "sci.space"))
    assert dataset.train_size == 7


def test_words_are_counted_over_pieces_and_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text.WordCounter, "_BUFFER", 3)
    counter = text.WordCounter(5, "here")
    for row, piece in [
        (2, "apple Apple pear"),
        (0, "apple the fig fig"),
        (2, "fig 42 x apple"),
        (3, "pear unique"),
    ]:
        counter.add(row, piece)
    counts, words = counter.finish()
    assert words == ["apple", "fig", "pear"]
    np.testing.assert_array_equal(counts.toarray(), [[1, 2, 0], [0, 0, 0], [3, 1, 1], [0, 0, 1], [0, 0, 0]])


def test_the_words_kept_are_those_of_most_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "CANDIDATES", 2)
    counter = text.WordCounter(5, "here")
    for row in range(5):
        counter.add(row, " ".join(["common"] + ["middle"] * (row < 4) + ["seldom seldom seldom"] * (row < 3)))
    assert counter.finish()[1] == ["common", "middle"]


# Act


def write_har(folder: Path, *, columns: int = 561, rows: int = 4) -> Path:
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
        np.savetxt(folder / part / f"X_{part}.txt", rng.normal(size=(rows, columns)), fmt="%16.7e")
        np.savetxt(folder / part / f"y_{part}.txt", 1 + np.arange(rows) % 6, fmt="%d")
    return folder


def zip_folder(folder: Path, target: Path) -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for file in folder.rglob("*"):
            if file.is_file():
                archive.write(file, f"UCI HAR Dataset/{file.relative_to(folder)}")
    return target


def test_act_from_folder_archive_and_archive_in_archive(tmp_path: Path) -> None:
    folder = write_har(tmp_path / "har")
    inner = zip_folder(folder, tmp_path / "UCI HAR Dataset.zip")
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as outer:
        outer.write(inner, "UCI HAR Dataset.zip")
        outer.writestr("UCI HAR Dataset.names", "text")
    loaded = [har.load_act(source, quiet) for source in (folder, inner, tmp_path / "outer.zip")]
    assert len({dataset.fingerprint for dataset in loaded}) == 1
    assert (loaded[0].X.shape, loaded[0].classes[loaded[0].y[3]]) == ((8, 561), "SITTING")


def test_act_from_npz_drops_unreliable_columns(tmp_path: Path) -> None:
    X = np.arange(12.0).reshape(2, 6)
    unreliable = np.array([False, True, False, False, True, False])
    path = tmp_path / "har.npz"
    np.savez(path, X_train=X, y_train=[1, 2], X_test=X, y_test=[6, 1], unreliable_feature=unreliable)
    dataset = har.load_act(path, quiet)
    np.testing.assert_array_equal(dataset.X, np.vstack([X, X])[:, ~unreliable])
    assert "rebuilt" in dataset.notes
    for arrays, said in (
        ({"X_train": X, "y_train": [1, 2]}, "no array 'X_test'"),
        ({"X_train": X, "y_train": [1, 2], "X_test": X[:, :3], "y_test": [1, 2]}, "do not fit"),
        ({"X_train": X, "y_train": [1, 2], "X_test": X, "y_test": [1]}, "4 rows of features but 3 labels"),
        ({"X_train": X, "y_train": [1, 2], "X_test": X, "y_test": [0, 1]}, "labels must be 1 to 6"),
        ({"X_train": X * np.nan, "y_train": [1, 2], "X_test": X, "y_test": [2, 1]}, "NaN"),
    ):
        np.savez(path, **arrays)  # type: ignore[arg-type]
        with pytest.raises(UserError, match=said) as caught:
            har.load_act(path, quiet)
        one_line(caught, path)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("train/X_train.txt", b"1 2 3\n4 5\n", "expected rows of numbers"),
        ("train/X_train.txt", b"1 2 3\n4 5 6\n", "3 columns, expected 561"),
        ("train/X_train.txt", b"1 two 3\n", "expected rows of numbers"),
        ("train/X_train.txt", "1 \xfc 3\n".encode(), "expected rows of numbers"),
        ("test/y_test.txt", b"1\n2\n", "8 rows of features but 6 labels"),
        ("test/y_test.txt", None, "no y_test.txt"),
    ],
)
def test_broken_act_files(file: str, content: bytes | None, said: str, tmp_path: Path) -> None:
    folder = write_har(tmp_path / "har")
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(UserError, match=said) as caught:
        har.load_act(folder, quiet)
    one_line(caught, folder)


# Temporal features


def test_temporal_features_are_the_means_of_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TemporalFeatures, "_BUFFER", 10)
    rng = np.random.default_rng(0)
    n = 400
    rows, codes = rng.integers(-1, 6, size=n), rng.integers(0, 4, size=n)
    times, values = rng.integers(0, 30, size=n).astype(float), rng.normal(size=n)
    values[::17] = np.nan
    temporal = TemporalFeatures(6)
    for name in "dbca":
        temporal.code(name)
    for part in np.array_split(np.arange(n), 37):
        temporal.add(rows[part], codes[part], times[part], values[part])
    features, names = temporal.finish()
    assert names == ["a", "b", "c", "d"]
    for row in range(6):
        for code, name in enumerate("dbca"):
            use = (rows == row) & (codes == code) & np.isfinite(values)
            series = values[use][np.argsort(times[use], kind="stable")]
            expected = [np.diff(series, order).mean() if len(series) > order else 0.0 for order in range(3)]
            place = 3 * names.index(name)
            np.testing.assert_allclose(features.toarray()[row, place : place + 3], expected, atol=1e-12)


def test_items_measured_for_no_example_are_dropped() -> None:
    temporal = TemporalFeatures(2)
    codes = np.array([temporal.code("seen"), temporal.code("unseen")])
    temporal.add(np.array([1, -1]), codes, np.zeros(2), np.array([5.0, 6.0]))
    features, names = temporal.finish()
    assert names == ["seen"]
    np.testing.assert_array_equal(features.toarray(), [[0, 0, 0], [5, 0, 0]])


# MIMIC

MIMIC = {
    "PATIENTS.csv": """\
"ROW_ID","SUBJECT_ID","GENDER","DOB"
1,7,"F",2100-01-01 00:00:00
2,8,"M",1850-01-01 00:00:00
""",
    "ADMISSIONS.csv": """\
"ROW_ID","SUBJECT_ID","HADM_ID","ADMITTIME"
1,7,100,2140-01-01 00:00:00
2,7,101,2150-01-01 00:00:00
3,8,102,2150-06-01 00:00:00
4,8,103,2150-07-01 00:00:00
""",
    "DIAGNOSES_ICD.csv": """\
"ROW_ID","SUBJECT_ID","HADM_ID","SEQ_NUM","ICD9_CODE"
1,7,100,2,"4280"
2,7,100,1,"0389"
3,7,101,1,"0389"
4,8,102,1,"V3000"
5,8,103,1,
""",
    "LABEVENTS.csv": """\
"ROW_ID","SUBJECT_ID","HADM_ID","ITEMID","CHARTTIME","VALUENUM"
1,7,100,50800,2140-01-02 00:00:00,3
2,7,100,50800,2140-01-01 00:00:00,1
3,7,100,50800,2140-01-03 00:00:00,8
4,7,,50800,2140-01-03 00:00:00,99
5,7,101,50900,2150-01-03 00:00:00,
6,8,102,50700,2150-06-03 00:00:00,4
""",
}
NOTES = """\
"ROW_ID","SUBJECT_ID","HADM_ID","CHARTDATE","ISERROR","TEXT"
1,7,100,2140-01-01,,"Fever, chills.
Says ""sepsis"" fever"
2,7,101,2150-01-01,,"fever sepsis"
3,8,102,2150-06-01,1,"wrong chart, chills"
4,8,102,2150-06-01,,"newborn fever chills"
5,8,,2150-06-01,,"lost"
"""
DEMO_NOTES = '"row_id, "subject_id", "hadm_id", "iserror", "text"\n'


def write_tables(folder: Path, tables: dict[str, str], *, compress: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in tables.items():
        data = content.encode()
        (folder / (name + ".gz" if compress else name)).write_bytes(gzip.compress(data) if compress else data)
    return folder


def test_mimic_features_and_labels(tmp_path: Path) -> None:
    dataset = mimic.load_mimic(write_tables(tmp_path / "m", MIMIC), quiet)
    assert dataset.classes == ("0389", "V3000")
    assert dataset.y.tolist() == [0, 0, 1]
    assert "no clinical notes" in dataset.notes
    expected = [  # age, gender, item 50700, item 50800
        [40, 0, 0, 0, 0, 4, 3.5, 3],
        [50, 0, 0, 0, 0, 0, 0, 0],
        [90, 1, 4, 0, 0, 0, 0, 0],
    ]
    np.testing.assert_allclose(dataset.X.toarray(), expected, atol=0.01)


def test_mimic_notes_become_words_and_vectors(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "m", MIMIC | {"NOTEEVENTS.csv": NOTES})
    dataset = mimic.load_mimic(folder, quiet)
    assert (dataset.n_words, dataset.vector_size, dataset.vectors) == (3, 300, None)
    np.testing.assert_array_equal(dataset.X.toarray()[:, -3:], [[1, 2, 1], [0, 1, 1], [1, 1, 0]])
    train, _ = split_features(dataset, np.array([0, 1]), np.array([2]), scaling="minmax", pca=None)
    assert train.shape == (2, dataset.n_features) == (2, 8 + 3 + 300)


def test_mimic_uses_word_vectors_of_the_original_tool(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "m", MIMIC | {"NOTEEVENTS.csv": NOTES})
    (folder / "vectors.txt").write_text("2 2\n</s> 1 1\nfever 0.5 2\n")
    dataset = mimic.load_mimic(folder, quiet)
    np.testing.assert_array_equal(dataset.vectors, [[0, 0], [0.5, 2], [0, 0]])
    assert "vectors.txt" in dataset.notes


def test_both_formats_of_word_vectors_are_read() -> None:
    vectors = np.array([[0.5, 2.0], [1.0, -3.0]])
    plain = b"2 2\nfever 0.5 2\nchills 1 -3\n"
    binary = b"2 2\n" + b"".join(
        word + b" " + row.astype("<f4").tobytes() + b"\n"
        for word, row in zip((b"fever", b"chills"), vectors, strict=True)
    )
    for content, is_binary in ((plain, False), (binary, True)):
        found = read_word_vectors(io.BytesIO(content), ["chills", "other", "fever"], "file", binary=is_binary)
        np.testing.assert_array_equal(found, [vectors[1], [0, 0], vectors[0]])
        for broken in (content[:-5], b"hello\n", b"2 99999999\n", b"2 3\n" + content[4:]):
            with pytest.raises(UserError, match="file: expected the output of word2vec"):
                read_word_vectors(io.BytesIO(broken), ["fever"], "file", binary=is_binary)


def test_the_header_of_the_demo_notes_is_understood(tmp_path: Path) -> None:
    dataset = mimic.load_mimic(write_tables(tmp_path / "m", MIMIC | {"NOTEEVENTS.csv": DEMO_NOTES}), quiet)
    assert dataset.n_words == 0


def test_tables_are_found_in_every_place(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "plain", MIMIC)
    packed = write_tables(tmp_path / "deep" / "mimic-1.4", MIMIC, compress=True)
    with zipfile.ZipFile(tmp_path / "mimic.zip", "w") as archive:
        for file in packed.iterdir():
            archive.write(file, f"mimic-iii-1.4/{file.name.lower()}")
    with tarfile.open(tmp_path / "mimic.tar", "w") as opened:
        opened.add(packed, "mimic")
    sources = (folder, tmp_path / "deep", tmp_path / "mimic.zip", tmp_path / "mimic.tar")
    assert len({mimic.load_mimic(source, quiet).fingerprint for source in sources}) == 1


@pytest.mark.parametrize(
    ("table", "content", "said"),
    [
        ("PATIENTS.csv", "a,b\n1,2\n", "no column 'subject_id', the file has a, b"),
        ("LABEVENTS.csv", MIMIC["LABEVENTS.csv"].replace(",8\n", ",high\n"), "not a readable CSV table"),
        ("LABEVENTS.csv", MIMIC["LABEVENTS.csv"] + "1,2\n", "not a readable CSV table"),
        (
            "ADMISSIONS.csv",
            MIMIC["ADMISSIONS.csv"].replace("2140-01-01 00:00:00", "yesterday"),
            "not a readable CSV",
        ),
        ("DIAGNOSES_ICD.csv", MIMIC["DIAGNOSES_ICD.csv"].split("\n")[0] + "\n", "nothing to learn"),
        ("ADMISSIONS.csv", None, "no ADMISSIONS.csv"),
    ],
)
def test_broken_tables(table: str, content: str | None, said: str, tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "m", MIMIC | ({table: content} if content is not None else {}))
    if content is None:
        (folder / table).unlink()
    with pytest.raises(UserError, match=said) as caught:
        mimic.load_mimic(folder, quiet)
    one_line(caught, folder)


def test_a_truncated_table_is_named(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "m", MIMIC, compress=True)
    file = folder / "LABEVENTS.csv.gz"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"LABEVENTS\.csv\.gz: truncated or damaged") as caught:
        mimic.load_mimic(folder, quiet)
    one_line(caught, folder)


def test_a_table_in_another_encoding_is_named(tmp_path: Path) -> None:
    import pyarrow as pa

    (tmp_path / "t.csv").write_bytes("name\nfi\xe8vre\n".encode("latin-1"))
    with pytest.raises(UserError, match="UTF-8") as caught:
        list(read_table(tmp_path, "t", {"name": pa.string()}))
    one_line(caught, tmp_path)


# eICU

EICU = {
    "patient.csv": """\
patientunitstayid,gender,age
1,Female,> 89
2,Male,54
3,,
4,Male,20
""",
    "diagnosis.csv": """\
diagnosisid,patientunitstayid,diagnosisoffset,diagnosisstring,diagnosispriority
10,1,50,burns,Primary
11,1,5,sepsis,Primary
12,1,1,pain,Other
13,2,7,sepsis,Primary
14,3,7,burns,Primary
15,4,7,burns,Major
""",
    "lab.csv": """\
labid,patientunitstayid,labresultoffset,labname,labresult
1,2,20,BUN,3
2,2,10,BUN,1
3,1,5,glucose,7
""",
    "vitalAperiodic.csv": f"""\
patientunitstayid,observationoffset,{",".join(eicu.VITAL_SIGNS["vitalAperiodic"])}
1,5,120,,,,,,,,,
""",
    "pastHistory.csv": """\
patientunitstayid,pasthistorypath
1,notes/COPD
1,notes/COPD
3,notes/Asthma
4,notes/None
""",
}


def test_eicu_features_and_labels(tmp_path: Path) -> None:
    dataset = eicu.load_eicu(write_tables(tmp_path / "e", EICU), quiet)
    assert dataset.classes == ("burns", "sepsis")
    assert dataset.y.tolist() == [1, 1, 0]
    assert "no table vitalPeriodic" in dataset.notes
    expected = [  # age, gender, BUN, glucose, systolic, asthma, COPD
        [90, 0, 0, 0, 0, 7, 0, 0, 120, 0, 0, 0, 1],
        [54, 1, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0],
    ]
    np.testing.assert_allclose(dataset.X.toarray(), expected)


def test_eicu_reads_periodic_vital_signs_too(tmp_path: Path) -> None:
    signs = eicu.VITAL_SIGNS["vitalPeriodic"]
    values = ",".join(str(i) for i in range(1, 17))
    table = f"patientunitstayid,observationoffset,{','.join(signs)}\n2,5,{values}\n"
    dataset = eicu.load_eicu(write_tables(tmp_path / "e", EICU | {"vitalPeriodic.csv": table}), quiet)
    assert "17 vital signs;" in dataset.notes


@pytest.mark.parametrize(
    ("table", "content", "said"),
    [
        ("patient.csv", EICU["patient.csv"].replace("54", "old"), "expected an age"),
        ("diagnosis.csv", EICU["diagnosis.csv"].replace("Primary", "Major"), "nothing to learn"),
        ("lab.csv", "labid\n1\n", "no column 'patientunitstayid'"),
    ],
)
def test_broken_eicu_tables(table: str, content: str, said: str, tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "e", EICU | {table: content})
    with pytest.raises(UserError, match=said) as caught:
        eicu.load_eicu(folder, quiet)
    one_line(caught, folder)


# Cars and birds


@pytest.mark.parametrize(("load", "train_share"), [(images.load_cars, 8144 / 16185), (images.load_birds, 9000 / 11788)])
def test_precomputed_image_features(load: object, train_share: float, tmp_path: Path) -> None:
    path = tmp_path / "features.npz"
    np.savez(path, X=np.ones((20, 4096), dtype=np.float32), y=["b", "a"] * 10)
    dataset: Dataset = load(path, quiet)  # type: ignore[operator]
    assert (dataset.X.shape, dataset.classes, dataset.pca) == ((20, 4096), ("a", "b"), 1000)
    assert dataset.train_size == round(20 * train_share)
    np.savez(path, X=np.ones((20, 100)), y=[0, 1] * 10)
    with pytest.raises(UserError, match="100 columns, expected the 4096"):
        load(path, quiet)  # type: ignore[operator]


def write_birds(folder: Path, **changes: str) -> Path:
    files = {
        "images": "1 001.A/x.jpg\n2 002.B/y.jpg\n",
        "image_class_labels": "1 1\n2 2\n",
        "classes": "1 001.A\n2 002.B\n",
    } | changes
    for name, content in files.items():
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.txt").write_text(content)
    for image in ("001.A/x.jpg", "002.B/y.jpg"):
        (folder / "images" / image).parent.mkdir(parents=True, exist_ok=True)
        (folder / "images" / image).write_bytes(b"no image")
    return folder


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"images": "1 001.A/x.jpg\n2 gone.jpg\n"}, "1 of 2 annotated images are not there"),
        ({"images": "1 ../../x.jpg\n"}, "points outside"),
        ({"images": "one x.jpg\n"}, "expected lines 'number text'"),
        ({"image_class_labels": "1 1\n"}, "no class number for image 2"),
        ({"image_class_labels": "1 1\n2 two\n"}, "no class number for image 2"),
        ({}, "torchvision|vgg16"),
    ],
)
def test_broken_bird_folders(changes: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said) as caught:
        images.load_birds(write_birds(tmp_path / "birds", **changes), quiet)
    assert "\n" not in str(caught.value)


def test_car_annotations_are_read(tmp_path: Path) -> None:
    kinds = [("relative_im_path", "O"), ("class", "O"), ("test", "O")]
    rows = np.array([[("car_ims/1.jpg", 2, 0), ("car_ims/2.jpg", 1, 1)]], dtype=kinds)
    names = np.array([["Acura", "BMW"]], dtype=object)
    scipy.io.savemat(tmp_path / "cars_annos.mat", {"annotations": rows, "class_names": names})
    found, classes = images._cars_annotations(tmp_path)
    assert [(file.name, number) for file, number in found] == [("1.jpg", 2), ("2.jpg", 1)]
    assert classes == {1: "Acura", 2: "BMW"}
    (tmp_path / "cars_annos.mat").write_bytes(b"no MATLAB file")
    with pytest.raises(UserError, match="expected annotations"):
        images.load_cars(tmp_path, quiet)


def test_vgg16_features_are_those_of_the_second_layer(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'orthosweep[images]'")
    models = pytest.importorskip("torchvision.models", reason="needs PyTorch: pip install 'orthosweep[images]'")
    from PIL import Image

    folder = write_birds(tmp_path / "birds")
    rng = np.random.default_rng(0)
    for image in folder.glob("images/*/*.jpg"):
        Image.fromarray(rng.integers(0, 255, (256, 256, 3), dtype=np.uint8)).save(image)
    model = models.vgg16(weights=None).eval()
    torch.save(model.state_dict(), folder / "vgg16-test.pth")
    dataset = images.load_birds(folder, quiet)
    assert (dataset.X.shape, dataset.classes) == ((2, 4096), ("001.A", "002.B"))
    # The same by hand: the whole network, listened to behind its second fully-connected layer.
    pixels = np.asarray(Image.open(folder / "images/002.B/y.jpg"))[16:240, 16:240] / 255
    scaled = ((pixels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).transpose(2, 0, 1)[None]
    heard = []
    model.classifier[3].register_forward_hook(lambda module, given, output: heard.append(output.detach().clone()))
    model(torch.tensor(scaled, dtype=torch.float32))
    np.testing.assert_allclose(dataset.X[1], np.maximum(heard[0][0].numpy(), 0), atol=1e-5)


def test_sparse_results_are_canonical(tmp_path: Path) -> None:
    for dataset in (
        mimic.load_mimic(write_tables(tmp_path / "m", MIMIC), quiet),
        eicu.load_eicu(write_tables(tmp_path / "e", EICU), quiet),
    ):
        assert sp.issparse(dataset.X)
        assert dataset.X.has_canonical_format
