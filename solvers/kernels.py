"""How long the parts of an iteration take on a device, at the size of a problem: what to choose a device by.

The numbers are random, the code is that of the fits: `eigh`, the two passes over the pairs, the products with the
data, and the waits for single numbers. How many iterations a fit takes does not depend on the device, so that the ratio
of two devices is about that of fits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solvers.backend import Backend, choose_backend, eigh, free_device_memory, synchronize
from solvers.memory import ProblemSize
from solvers.methods import METHODS
from solvers.pairs import PairSet
from solvers.projection.objective import project, pull_back
from solvers.regularizers.rows import ROWS

# The best of so many counts: what else runs on the machine only ever adds.
_TIMES = 3
# How often an iteration waits for a number, as tests/solvers/test_waits.py counts it: of a fit by the dual Newton
# method, of the others of one matrix, and of a stack of restarts.
_WAITS_NEWTON, _WAITS_SINGLE, _WAITS_STACK = 300, 15, 4


@dataclass(frozen=True)
class KernelSeconds:
    """Seconds of an iteration's eigendecompositions, passes over the pairs, products with the data, and waits."""

    eigh: float
    pairs: float
    products: float
    waits: float

    @property
    def total(self) -> float:
        return self.eigh + self.pairs + self.products + self.waits


def kernels_of(name: str) -> str:
    """Which kernels a method's iteration runs; methods with equal ones need not all be timed."""
    method = METHODS[name]
    if method.family == "pdml":
        regularizer = ROWS.get(method.params["regularizer"])
        return "stack, eigh" if regularizer is not None and regularizer.eigendecompositions else "stack"
    return "newton" if method.path else "single"


def time_kernels(kernels: str, size: ProblemSize, device: str = "auto") -> KernelSeconds:
    """Time what an iteration does, on problems of a size.

    Parameters
    ----------
    kernels : what `kernels_of` says.
    device : as in a fit.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((size.n, size.D))
    backend = choose_backend(X, device)
    points = backend.asarray(X)
    first, second = (backend.indices(rng.integers(size.n, size=size.pairs)) for _ in range(2))
    pairs = PairSet(points, first, second, xp=backend.xp)
    parts = (_stacked if kernels.startswith("stack") else _single)(kernels, size, pairs, rng, backend)
    waits = _WAITS_NEWTON if kernels == "newton" else _WAITS_SINGLE if kernels == "single" else _WAITS_STACK
    try:
        eigh_, passes, products = (_best(part, backend) for part in parts)
        wait = _best(lambda: float(backend.xp.sum(points[0, :])), backend)
        return KernelSeconds(eigh_, passes, products, waits * wait)
    finally:
        free_device_memory(backend.xp)


Kernel = Callable[[], object]


def _single(
    kernels: str, size: ProblemSize, pairs: PairSet, rng: np.random.Generator, backend: Backend
) -> tuple[Kernel, Kernel, Kernel]:
    """Of a fit of one matrix M (D, D)."""
    xp = backend.xp
    M = backend.asarray(rng.standard_normal((size.D, size.D)))
    weights = backend.asarray(rng.random(size.pairs))
    return (
        lambda: eigh(M, xp=xp),
        lambda: (pairs.projected_distances(pairs.X), pairs.laplacian(weights, pairs.X)),
        lambda: xp.matrix_transpose(pairs.X) @ (pairs.X @ M),
    )


def _stacked(
    kernels: str, size: ProblemSize, pairs: PairSet, rng: np.random.Generator, backend: Backend
) -> tuple[Kernel, Kernel, Kernel]:
    """Of a stack of restarts, each a matrix A (k, D); with decompositions (k, k) where the regularizer has them."""
    xp, r, k = backend.xp, size.restarts, size.rank
    A = backend.asarray(rng.standard_normal((r, k, size.D)))
    Y = project(pairs.X, A, xp=xp)
    weights = backend.asarray(rng.random((r, size.pairs)))
    return (
        lambda: eigh(A @ xp.matrix_transpose(A), xp=xp) if kernels == "stack, eigh" else None,
        lambda: (pairs.projected_distances(Y), pairs.laplacian(weights, Y)),
        lambda: (project(pairs.X, A, xp=xp), pull_back(pairs.X, Y, xp=xp)),
    )


def _best(kernel: Kernel, backend: Backend) -> float:
    kernel()  # loads libraries, compiles kernels, fills pools
    found = []
    for _ in range(_TIMES):
        synchronize(backend.xp)
        began = time.perf_counter()
        kernel()
        synchronize(backend.xp)
        found.append(time.perf_counter() - began)
    return min(found)
