"""Cars and birds: images with their official annotation files, or features computed elsewhere.

The features are the outputs of the second fully-connected layer of VGG16, after its ReLU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sweep.datasets.base import Dataset
from sweep.datasets.catalog import DATASETS
from sweep.datasets.own import load_own
from sweep.errors import UserError

N_FEATURES = 4096
WEIGHTS = "vgg16*.pth"
_BATCH = 32

# The official files have a few hundred thousand.
_MOST_ANNOTATION_BYTES = 8 << 20

# (image, class number) in the order of the annotation files, and class names by number.
Annotations = tuple[list[tuple[Path, int]], dict[int, str]]


def load_cars(path: Path, progress: Callable[[str], None]) -> Dataset:
    """Stanford Cars from features, or from images with `cars_annos.mat`."""
    return _load("cars", path, _cars_annotations, progress)


def load_birds(path: Path, progress: Callable[[str], None]) -> Dataset:
    """CUB-200-2011 from features, or from images with its text files."""
    return _load("birds", path, _birds_annotations, progress)


def _load(
    name: str, path: Path, annotations: Callable[[Path], Annotations], progress: Callable[[str], None]
) -> Dataset:
    if path.suffix == ".npz":
        given = load_own(path)
        if given.X.shape[1] != N_FEATURES:
            raise UserError(
                f"{path}: X has {given.X.shape[1]} columns, expected the {N_FEATURES} of VGG16's second layer"
            )
        defaults = DATASETS[name].defaults(given.n_examples)
        return replace(given, name=name, notes="features given as a file.", **defaults)
    if not path.is_dir():
        raise UserError(f"{path}: expected {DATASETS[name].files}")
    images, class_names = annotations(path)
    missing = [image for image, _ in images if not image.is_file()]
    if missing or not images:
        raise UserError(f"{path}: {len(missing)} of {len(images)} annotated images are not there: {missing[:1]}")
    numbers, y = np.unique([number for _, number in images], return_inverse=True)
    X = _vgg16_features([image for image, _ in images], path, name, progress)
    return Dataset(
        name=name,
        X=X,
        y=y.astype(np.int64),
        classes=tuple(class_names.get(number, str(number)) for number in numbers.tolist()),
        notes="VGG16 features computed here.",
        **DATASETS[name].defaults(len(X)),
    )


def _cars_annotations(path: Path) -> Annotations:
    from scipy.io import loadmat

    file = path / "cars_annos.mat"
    try:
        if file.stat().st_size > _MOST_ANNOTATION_BYTES:
            raise UserError(f"{file}: {file.stat().st_size:,} bytes, expected annotations of a few hundred thousand")
        content = loadmat(file, squeeze_me=True, struct_as_record=False)
        rows = np.atleast_1d(content["annotations"])
        images = [(_inside(path, str(row.relative_im_path), file), int(getattr(row, "class"))) for row in rows]
        names = [str(name) for name in np.atleast_1d(content["class_names"])]
    except FileNotFoundError as error:
        raise UserError(f"{path}: no cars_annos.mat in it, expected next to car_ims/") from error
    except UserError:
        raise
    except Exception as error:  # loadmat raises many kinds on a file that is none
        raise UserError(f"{file}: expected annotations and class_names in a MATLAB file ({error})") from error
    return images, dict(enumerate(names, start=1))


def _birds_annotations(path: Path) -> Annotations:
    labels = _numbered_lines(path / "image_class_labels.txt")
    images = []
    for number, image in _numbered_lines(path / "images.txt").items():
        if not labels.get(number, "").isdecimal():
            raise UserError(f"{path}: image_class_labels.txt gives no class number for image {number} of images.txt")
        images.append((_inside(path / "images", image, path / "images.txt"), int(labels[number])))
    return images, _numbered_lines(path / "classes.txt")


def _numbered_lines(file: Path) -> dict[int, str]:
    """Lines "number text" of an annotation file."""
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(_MOST_ANNOTATION_BYTES + 1)
        if len(text) > _MOST_ANNOTATION_BYTES:
            raise ValueError(f"it has more than {_MOST_ANNOTATION_BYTES:,} characters")
        pairs = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
        return {int(number): text.strip() for number, text in pairs}
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}; expected the annotation files of CUB-200-2011") from error
    except ValueError as error:
        raise UserError(f"{file}: expected lines 'number text' in UTF-8 ({error})") from error


def _inside(folder: Path, name: str, where: Path) -> Path:
    file = folder / name
    if not file.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{where}: image {name!r} points outside {folder}")
    return file


def _vgg16_features(images: list[Path], path: Path, name: str, progress: Callable[[str], None]) -> np.ndarray:
    """Features (n, 4096) of the images, resized to 256 and cut to the central 224 x 224 pixels."""
    try:
        import torch
        from PIL import Image
        from torchvision import models, transforms
    except (ImportError, RuntimeError) as error:  # RuntimeError: built for another torch
        raise UserError(
            f"{name}: computing features needs torchvision, which cannot be imported ({error});"
            f" install it, or give an .npz with X (n x {N_FEATURES}) and y"
        ) from error
    weights = sorted(path.glob(WEIGHTS))
    if not weights:
        raise UserError(f"{path}: no {WEIGHTS}; put torchvision's ImageNet weights of VGG16 there")
    model = models.vgg16(weights=None)
    try:
        model.load_state_dict(torch.load(weights[0], map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises many kinds on a file that is none
        raise UserError(f"{weights[0]}: not the weights of torchvision's VGG16 ({str(error)[:100]!r})") from error
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # Up to the ReLU of the second fully-connected layer: dropout and the classes are left out.
    model.classifier = model.classifier[:5]
    model.eval().to(device)
    prepare = transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )

    def pixels(image: Path) -> Any:
        try:
            with Image.open(image) as opened:
                return prepare(opened.convert("RGB"))
        except Exception as error:  # Pillow raises many kinds on a damaged image
            raise UserError(f"{image}: not a readable image ({error})") from error

    features = np.empty((len(images), N_FEATURES))
    with torch.inference_mode():
        for start in range(0, len(images), _BATCH):
            batch = torch.stack([pixels(image) for image in images[start : start + _BATCH]])
            features[start : start + len(batch)] = model(batch.to(device)).cpu().numpy()
            progress(f"{name}: {start + len(batch):,} of {len(images):,} images")
    return features
