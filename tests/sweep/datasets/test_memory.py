"""The driver's memory on data of the paper's largest sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Training parts of 39,000 and 53,000 in 58,000 and 92,000 examples of 1,000 features.
SIZES = {"mimic": (58_000, 39_000), "eicu": (92_000, 53_000)}

WRITE = """
import sys
from pathlib import Path
import numpy as np
from sweep.datasets.base import Dataset
from sweep.datasets.cache import write_dataset

name, n, n_train, cache = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
rng = np.random.default_rng(0)
y = np.sort(rng.zipf(1.5, size=n) % 500)
classes = tuple(str(c) for c in range(500))
X = rng.standard_normal((n, 1000))
write_dataset(Dataset(name, X, y, classes, 100, n_train, pca=1000), cache, origin="made")
"""

OPEN = """
import sys
from pathlib import Path
from sweep.datasets.card import open_cards, open_split
from sweep.datasets import DatasetChoice

def peak():  # of this program alone: getrusage begins with what the parent had
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 2**20

cache, choices = Path(sys.argv[1]), [DatasetChoice(name=name) for name in sys.argv[2:]]
cards = open_cards(choices, cache)
planned = peak()
held = {}
for choice in choices:
    for split in range(5):
        held.pop(choice.name, None)
        held[choice.name] = open_split(choice, cache, split, 5, 0, fingerprint=cards[choice.name].fingerprint)
        assert held[choice.name].X_train.shape == (cards[choice.name].train_size, 1000)
print(planned, peak())
"""


@pytest.mark.slow
def test_five_splits_of_mimic_and_eicu_sizes_stay_below_3_gib(tmp_path: Path) -> None:
    for name, (n, n_train) in SIZES.items():
        subprocess.run([sys.executable, "-c", WRITE, name, str(n), str(n_train), str(tmp_path)], check=True)
    run = subprocess.run(
        [sys.executable, "-c", OPEN, str(tmp_path), *SIZES], check=True, capture_output=True, text=True
    )
    planned, peak = (float(number) for number in run.stdout.split())
    assert planned < 0.3, f"planning alone took {planned:.2f} GiB"
    assert peak < 3, f"five splits took {peak:.2f} GiB"
