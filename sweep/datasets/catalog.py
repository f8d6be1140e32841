"""The datasets there are: sizes, defaults, where the files come from and under which terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Download:
    """A file that may be fetched without asking anyone, and the SHA-256 it must have."""

    url: str
    file_name: str
    sha256: str
    most_bytes: int


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a dataset before any file is read.

    Attributes
    ----------
    title : one line for people.
    loader : "module:function" below this package that reads the raw files; empty for what is embedded.
    n_examples, n_classes, n_features : as the loader gives them on the complete files (features
        before PCA); None where they depend on the version of the files that the user holds.
    train_size : training examples of the paper's splits; used as it is on the complete files.
    train_fraction : the same as a share, used on files of another size.
    frequent_above : a class with more examples than this counts as frequent.
    pca : dimensions after PCA, None for no PCA.
    source : where the files come from.
    files : what `sweep data prepare NAME --from PATH` accepts.
    terms : terms of use.
    scaling : the paper's, see `sweep.datasets.features`.
    embedded : needs no file.
    download : a file that can be fetched, where the terms allow it.
    """

    title: str
    n_examples: int | None
    n_classes: int | None
    n_features: int | None
    train_size: int | None
    train_fraction: float
    frequent_above: int
    pca: int | None
    source: str
    files: str
    terms: str
    scaling: str = "minmax"
    embedded: bool = False
    download: Download | None = None
    loader: str = ""

    def defaults(self, n_examples: int) -> dict[str, Any]:
        """Keyword arguments of `Dataset` that the catalog decides, for `n_examples` loaded examples."""
        size = self.train_size if n_examples == self.n_examples else None
        return {
            "train_size": size or round(self.train_fraction * n_examples),
            "frequent_above": self.frequent_above,
            "pca": self.pca,
            "scaling": self.scaling,
        }


DATASETS: dict[str, DatasetInfo] = {
    "digits": DatasetInfo(
        title="handwritten digits, 8 x 8 pixels",
        n_examples=1797,
        n_classes=10,
        n_features=64,
        train_size=None,
        train_fraction=0.7,
        frequent_above=100,
        pca=None,
        source="part of scikit-learn",
        files="none",
        terms="BSD (scikit-learn); UCI Optical Recognition of Handwritten Digits, CC BY 4.0",
        embedded=True,
    ),
    "digits-imbalanced": DatasetInfo(
        title="handwritten digits cut to a long tail: 170 examples of class 0 down to 10 of classes 8 and 9",
        n_examples=552,
        n_classes=10,
        n_features=64,
        train_size=None,
        train_fraction=0.7,
        frequent_above=50,
        pca=None,
        source="part of scikit-learn",
        files="none",
        terms="BSD (scikit-learn); UCI Optical Recognition of Handwritten Digits, CC BY 4.0",
        embedded=True,
    ),
    "mimic": DatasetInfo(
        loader="mimic:load_mimic",
        title="MIMIC-III hospital admissions by primary diagnosis",
        n_examples=None,
        n_classes=None,
        n_features=None,
        train_size=None,
        train_fraction=40 / 58,
        frequent_above=100,
        pca=1000,
        source="https://physionet.org/content/mimiciii/1.4/ (demo: https://physionet.org/content/mimiciii-demo/1.4/)",
        files="the folder or archive with PATIENTS, ADMISSIONS, DIAGNOSES_ICD, LABEVENTS, NOTEEVENTS"
        " as .csv or .csv.gz",
        terms="PhysioNet credentialed access after training and a data use agreement (demo: ODbL 1.0)",
    ),
    "eicu": DatasetInfo(
        loader="eicu:load_eicu",
        title="eICU intensive care stays by primary diagnosis",
        n_examples=None,
        n_classes=None,
        n_features=None,
        train_size=None,
        train_fraction=53 / 92,
        frequent_above=100,
        pca=1000,
        source="https://physionet.org/content/eicu-crd/ (demo: https://physionet.org/content/eicu-crd-demo/)",
        files="the folder or archive with patient, diagnosis, lab, vitalPeriodic, vitalAperiodic, pastHistory"
        " as .csv or .csv.gz",
        terms="PhysioNet credentialed access after training and a data use agreement (demo: ODbL 1.0)",
    ),
    "reuters": DatasetInfo(
        loader="text:load_reuters",
        title="Reuters-21578 news stories with exactly one topic",
        n_examples=5931,
        n_classes=48,
        n_features=5000,
        train_size=4152,
        train_fraction=0.7,
        frequent_above=1000,
        pca=1000,
        source="http://www.daviddlewis.com/resources/testcollections/reuters21578/",
        files="reuters21578.tar.gz, or the folder with its reut2-000.sgm to reut2-021.sgm",
        terms="research use; cite the Reuters-21578 distribution 1.0",
    ),
    "news": DatasetInfo(
        loader="text:load_news",
        title="20 Newsgroups, sorted by date",
        n_examples=18846,
        n_classes=20,
        n_features=5000,
        train_size=11307,
        train_fraction=0.6,
        frequent_above=1000,
        pca=1000,
        source="http://qwone.com/~jason/20Newsgroups/",
        files="20news-bydate.tar.gz, or the folder with 20news-bydate-train and 20news-bydate-test",
        terms="none stated by the distributor",
        # Address and checksum with which scikit-learn fetches the original archive.
        download=Download(
            url="https://ndownloader.figshare.com/files/5975967",
            file_name="20news-bydate.tar.gz",
            sha256="8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
            most_bytes=100_000_000,
        ),
    ),
    "cars": DatasetInfo(
        loader="images:load_cars",
        title="Stanford Cars by make, model and year",
        n_examples=16185,
        n_classes=196,
        n_features=4096,
        train_size=8144,
        train_fraction=8144 / 16185,
        frequent_above=1000,
        pca=1000,
        source="Krause et al. 2013, 3D Object Representations for Fine-Grained Categorization",
        files="the folder with the images and cars_annos.mat, or an .npz of VGG16 features (X: n x 4096, y)",
        terms="non-commercial research",
    ),
    "birds": DatasetInfo(
        loader="images:load_birds",
        title="Caltech-UCSD Birds (CUB-200-2011) by species",
        n_examples=11788,
        n_classes=200,
        n_features=4096,
        train_size=9000,
        train_fraction=9000 / 11788,
        frequent_above=1000,
        pca=1000,
        source="https://www.vision.caltech.edu/datasets/cub_200_2011/",
        files="the folder with images/, images.txt, image_class_labels.txt and classes.txt,"
        " or an .npz of VGG16 features (X: n x 4096, y)",
        terms="non-commercial research and education",
    ),
    "act": DatasetInfo(
        loader="har:load_act",
        title="six activities from smartphone sensors (UCI HAR)",
        n_examples=10299,
        n_classes=6,
        n_features=561,
        train_size=7352,
        train_fraction=7352 / 10299,
        frequent_above=1000,
        pca=None,
        source="https://archive.ics.uci.edu/dataset/240/human+activity+recognition+using+smartphones",
        files="the official archive, its 'UCI HAR Dataset' folder, or an .npz with X_train, y_train, X_test, y_test",
        terms="cite Anguita et al. 2013; no commercial use",
        # The paper scales the other six; these features lie within -1 and 1 already.
        scaling="none",
    ),
}
