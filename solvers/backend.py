"""The one module that knows NumPy from CuPy.

What computes on a device is written against the array API standard and takes its namespace `xp` by
keyword. What the standard lacks (sparse products, the Wright omega function, moving arrays between
host and device) is here. What stays on the host (random draws, pairs, ilhd, theory) uses NumPy.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import array_api_compat
import numpy as np
import scipy.sparse
import scipy.special

Array = Any
Namespace = Any


@dataclass(frozen=True)
class Backend:
    """Where a fit computes: an array namespace, a device of it and a floating-point type."""

    xp: Namespace
    device: Any
    dtype: Any

    def asarray(self, values: Array) -> Array:
        """Floating-point `values` on this backend's device."""
        return self.xp.asarray(values, dtype=self.dtype, device=self.device)

    def indices(self, values: Array) -> Array:
        """Integer `values` (indices) on this backend's device."""
        return self.xp.asarray(values, dtype=self.xp.int64, device=self.device)


def choose_backend(X: Array, device: str = "auto") -> Backend:
    """Backend for data `X`: everything follows X unless `device` says otherwise.

    An array of CuPy, PyTorch or another standard namespace stays where it is. NumPy data go to
    the GPU for `cuda` or `cuda:i`, and for `auto` where CuPy sees a device; `cpu` keeps them.
    """
    dtype_name = "float32" if str(getattr(X, "dtype", "")).endswith("float32") else "float64"
    if is_host_data(X):
        gpu = _gpu_index(device)
        if gpu is None:
            import array_api_compat.numpy as numpy_namespace

            return Backend(numpy_namespace, "cpu", getattr(numpy_namespace, dtype_name))
        import array_api_compat.cupy as cupy_namespace
        import cupy

        _hear_of_failures()
        return Backend(cupy_namespace, cupy.cuda.Device(gpu), getattr(cupy_namespace, dtype_name))
    xp = array_api_compat.array_namespace(X)
    if _is_cupy(xp):
        if device == "cpu":
            raise ValueError("device: 'cpu' was asked for, but X is a CuPy array; pass cupy.asnumpy(X)")
        _hear_of_failures()
    return Backend(xp, array_api_compat.device(X), getattr(xp, dtype_name))


def _hear_of_failures() -> None:
    """Have CuPy raise what cuSOLVER reports, a matrix that is not definite for one: it ignores that otherwise.

    CuPy keeps the setting for each thread, so that it is made where a fit begins.
    """
    import cupyx

    cupyx.seterr(linalg="raise")


def is_host_data(X: Any) -> bool:
    """Whether X is a NumPy array or something NumPy reads (lists, data frames)."""
    return isinstance(X, np.ndarray) or not array_api_compat.is_array_api_obj(X)


def _gpu_index(device: str) -> int | None:
    """GPU number that `device` asks for, None for the CPU."""
    if device == "cpu":
        return None
    if device == "auto":
        return 0 if gpu_count() > 0 else None
    name, _, number = device.partition(":")
    if name != "cuda" or (number and not number.isdecimal()):
        raise ValueError(f"device: expected 'auto', 'cpu', 'cuda' or 'cuda:<number>', got {device!r}")
    index = int(number or 0)
    available = gpu_count()
    if index >= available:
        raise ValueError(
            f"device: {device!r} was asked for, but CuPy sees {available} GPU(s) here; "
            "use device='cpu', or install orthosweep[gpu] on a machine with a GPU"
        )
    return index


def gpu_count() -> int:
    """Number of GPUs that CuPy can use in this process; 0 without CuPy or without a driver."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # CuPy missing, or no CUDA driver: CuPy raises types of its own for the latter
        return 0


def to_numpy(array: Array) -> np.ndarray:
    """Copy of `array` on the host (NumPy arrays are passed through)."""
    if isinstance(array, np.ndarray):
        return array
    if array_api_compat.is_cupy_array(array):
        return np.asarray(array.get())
    if hasattr(array, "asnumpy"):  # dpnp
        return np.asarray(array.asnumpy())
    try:
        return np.asarray(array)
    except (RuntimeError, TypeError):  # off the host: array-api-strict's second device, torch on CUDA
        xp = array_api_compat.array_namespace(array)
        host = xp.Device("CPU_DEVICE") if hasattr(xp, "Device") else "cpu"
        return np.asarray(array_api_compat.to_device(array, host))


def device_bytes(backend: Backend) -> int:
    """Memory of the device in all, whoever uses it: of the GPU, or of this machine."""
    if _is_cupy(backend.xp):
        import cupy

        with backend.device:
            return int(cupy.cuda.runtime.memGetInfo()[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def synchronize(xp: Namespace) -> None:
    """Wait for the device, so that a clock read next is honest."""
    if _is_cupy(xp):
        import cupy

        cupy.cuda.get_current_stream().synchronize()


def free_device_memory(xp: Namespace) -> None:
    """Hand cached device memory back, as the next task on this GPU expects to find it."""
    if _is_cupy(xp):
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()


def _is_cupy(xp: Namespace) -> bool:
    return bool(array_api_compat.is_cupy_namespace(xp))


def _is_numpy(xp: Namespace) -> bool:
    return bool(array_api_compat.is_numpy_namespace(xp))


def block_bytes(xp: Namespace) -> int:
    """How large a temporary array should be where work is cut into blocks.

    With NumPy small enough for its cache, and for malloc to hand out the same pages again: larger ones
    are mapped anew each time, at several times the cost of the work itself. On a device every block is a
    few launches, so few and large.
    """
    return (_HOST_BLOCK_BYTES if _is_numpy(xp) else _DEVICE_BLOCK_BYTES) // _BLOCK_DIVISOR.get()


_DEVICE_BLOCK_BYTES, _HOST_BLOCK_BYTES = 1 << 28, 1 << 20
_BLOCK_DIVISOR: ContextVar[int] = ContextVar("block_divisor", default=1)


@contextlib.contextmanager
def small_blocks() -> Iterator[None]:
    """Inside, temporary arrays are a sixteenth of their usual size: slower, with less memory."""
    token = _BLOCK_DIVISOR.set(16)
    try:
        yield
    finally:
        _BLOCK_DIVISOR.reset(token)


def in_blocks(function: Callable[[slice], Array], length: int, block: int, *, xp: Namespace) -> list[Array]:
    """`function` of every slice of `block` of 0..length, in order; on a CPU as many at once as it has threads.

    What a slice gives must not depend on the others, so that the number of threads changes nothing.
    """
    slices = [slice(start, min(start + block, length)) for start in range(0, length, block)]
    if not _is_numpy(xp) or cpu_threads() == 1 or len(slices) < 2:
        return [function(rows) for rows in slices]
    # Few, long tasks: handing out each block would cost as much as computing it.
    share = -(-len(slices) // cpu_threads())
    parts = [slices[start : start + share] for start in range(0, len(slices), share)]
    results = _thread_pool().map(lambda part: [function(rows) for rows in part], parts)
    return [result for part in results for result in part]


@cache
def cpu_threads() -> int:
    """Threads that a fit may use: what OMP_NUM_THREADS allows (Ray sets it per task), else the CPUs given to us."""
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(int(allowed), available)) if allowed.isdecimal() else available


@cache
def _thread_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cpu_threads(), "pairs")


def symmetrize(M: Array, *, xp: Namespace) -> Array:
    """(M + M') / 2 over the last two axes."""
    return (M + xp.matrix_transpose(M)) / 2


def symmetric_product(A: Array, B: Array, *, xp: Namespace) -> Array:
    """A' B (d, d) where it is known to be symmetric: a large one from its blocks on and above the diagonal."""
    d = A.shape[1]
    width = -(-d // 4) if d >= 256 else d
    bands = [slice(low, min(low + width, d)) for low in range(0, d, width)]
    upper = [xp.matrix_transpose(A[:, : band.stop]) @ B[:, band] for band in bands]
    columns = [
        xp.concat([upper[k], *(xp.matrix_transpose(later[band, :]) for later in upper[k + 1 :])], axis=0)
        for k, band in enumerate(bands)
    ]
    return symmetrize(xp.concat(columns, axis=1), xp=xp)


def eigh(M: Array, *, xp: Namespace) -> tuple[Array, Array]:
    """Eigenvalues (ascending) and eigenvectors (columns) of a symmetric matrix or a stack.

    Symmetrises first: eigh reads one triangle, so drift in the other would go unseen.
    """
    M = symmetrize(M, xp=xp)
    if _is_cupy(xp) and M.ndim > 2 and M.shape[-1] > _LARGEST_STACKED:
        singles = xp.reshape(M, (-1, *M.shape[-2:]))
        values, vectors = zip(*(xp.linalg.eigh(singles[i, ...]) for i in range(singles.shape[0])), strict=True)
        values, vectors = xp.reshape(xp.stack(values), M.shape[:-1]), xp.reshape(xp.stack(vectors), M.shape)
    else:
        values, vectors = xp.linalg.eigh(M)
    _refuse_failure(M, values, vectors, xp=xp)
    return values, vectors


# CuPy hands every stack to cuSOLVER's Jacobi solver, which is made for matrices up to about this size; larger ones go
# one by one to the solver for single matrices.
_LARGEST_STACKED = 32


def eigvalsh(M: Array, *, xp: Namespace) -> Array:
    """Eigenvalues (ascending) of a symmetric matrix, symmetrised first."""
    M = symmetrize(M, xp=xp)
    values = xp.linalg.eigvalsh(M)
    _refuse_failure(M, values, xp=xp)
    return values


def _refuse_failure(M: Array, *results: Array, xp: Namespace) -> None:
    """Raise where a finite matrix has a decomposition that is not: LAPACK says so itself, cuSOLVER may not."""
    if _is_numpy(xp):
        return
    finite = xp.all(xp.isfinite(M))
    if bool(finite & ~xp.all(xp.stack([xp.all(xp.isfinite(result)) for result in results]))):
        raise FloatingPointError(f"eigendecomposition: the device gave no finite result for a matrix {M.shape}")


def wright_omega(x: Array, *, xp: Namespace) -> Array:
    """Solution w > 0 of w + log(w) = x, elementwise (Wright omega on the real line)."""
    if _is_numpy(xp):
        return scipy.special.wrightomega(x)
    # Neither the standard nor CuPy has it: Newton on the convex form in v = log(w), exp(v) + v = x, which cannot
    # overshoot into w <= 0. Starts this near, at most 0.32 off, are exact to the last digits after five steps.
    large = x > 1
    above = xp.where(large, x, xp.ones_like(x))
    below = xp.where(large, xp.ones_like(x), x)
    v = xp.where(large, xp.log(above - xp.log(above)), below - xp.log1p(xp.exp(below)))
    for _ in range(5):
        w = xp.exp(v)
        v = v - (w + v - x) / (1 + w)
    return xp.exp(v)


def laplacian_product(graph: PairGraph, weights: Array, Y: Array, *, xp: Namespace) -> Array:
    """Lap(w) Y for pair weights w: row i gets the sum over its pairs of w (y_i - y_j).

    Parameters
    ----------
    weights : (..., m)
    Y : (..., n, k), same leading axes: a stack (restarts) is one block-diagonal product.
    """
    n, k = Y.shape[-2:]
    flat_weights = xp.reshape(weights, (-1, weights.shape[-1]))
    stack = flat_weights.shape[0]
    flat_Y = xp.reshape(Y, (stack * n, k))
    adjacency = _adjacency(graph, flat_weights, xp=xp)
    degrees = (adjacency @ xp.ones((stack * n,), dtype=Y.dtype, device=graph.device))[:, None]

    def product(columns: slice) -> Array:
        part = flat_Y[:, columns]
        return degrees * part - adjacency @ part

    # By columns: with NumPy so that all rows of a block stay in the cache (neighbours are anywhere), elsewhere so that
    # a product without a sparse library, which has a row for every entry, stays small.
    height = n if _is_numpy(xp) else 2 * weights.shape[-1] * stack
    width = k if _is_cupy(xp) else max(64, block_bytes(xp) // (8 * max(1, height)))
    return xp.reshape(xp.concat(in_blocks(product, k, width, xp=xp), axis=1), Y.shape)


def pair_sums(graph: PairGraph, weights: Array, *, xp: Namespace) -> Array:
    """Sum of the weights (m,) over the pairs of each point, (n,)."""
    ones = xp.ones((graph.n,), dtype=weights.dtype, device=graph.device)
    return _adjacency(graph, weights[None, :], xp=xp) @ ones


def _adjacency(graph: PairGraph, weights: Array, *, xp: Namespace) -> Any:
    """Sparse matrix of the pairs' weights (stack, m), one block on the diagonal for each of the stack."""
    size = weights.shape[0] * graph.n
    _check_sparse_size(max(size, 2 * weights.shape[0] * weights.shape[1]), xp=xp)
    data = xp.reshape(xp.take(weights, graph.slots, axis=1), (-1,))
    return _csr_class(xp)((data, *graph.stacked(weights.shape[0])), (size, size))


def group_sum(codes: Array, n_groups: int, Y: Array, *, xp: Namespace) -> Array:
    """Sum of the rows of Y (n, k) over each of `n_groups` groups given by integer codes (n,)."""
    device = array_api_compat.device(Y)
    _check_sparse_size(codes.shape[0], xp=xp)
    order = xp.argsort(codes, stable=True)
    starts = xp.searchsorted(xp.take(codes, order), xp.arange(n_groups + 1, device=device), side="left")
    ones = xp.ones((codes.shape[0],), dtype=Y.dtype, device=device)
    return _csr_class(xp)((ones, order, starts), (n_groups, codes.shape[0])) @ Y


# CuPy cuts the indices of sparse matrices to 32 bits without a word.
_MOST_SPARSE = 2**31 - 1


def _check_sparse_size(size: int, *, xp: Namespace) -> None:
    if _is_cupy(xp) and size > _MOST_SPARSE:
        raise ValueError(
            f"pairs: CuPy's sparse matrices have at most {_MOST_SPARSE} entries and rows, got {size}; "
            "use fewer pairs, fewer restarts at once, or device='cpu'"
        )


def _csr_class(xp: Namespace) -> Any:
    """The CSR matrix class that goes with the namespace."""
    if _is_cupy(xp):
        import cupyx.scipy.sparse

        return cupyx.scipy.sparse.csr_matrix
    return scipy.sparse.csr_matrix if _is_numpy(xp) else _PlainMatrix


class _PlainMatrix:
    """A CSR matrix for namespaces that have no sparse arrays: its product with Y (n,) or (n, k).

    The sum over a row is the difference of two running sums, so that work and memory are those of the entries. Taken in
    double precision: what stood before a row would eat the digits of its sum.
    """

    def __init__(self, parts: tuple[Array, Array, Array], shape: tuple[int, int]) -> None:
        self._data, self._columns, self._starts = parts

    def __matmul__(self, Y: Array) -> Array:
        xp = array_api_compat.array_namespace(Y)
        data = self._data if Y.ndim == 1 else self._data[:, None]
        entries = xp.astype(data * xp.take(Y, self._columns, axis=0), xp.float64)
        running = xp.cumulative_sum(entries, axis=0, include_initial=True)
        ends, starts = (xp.take(running, part, axis=0) for part in (self._starts[1:], self._starts[:-1]))
        return xp.astype(ends - starts, Y.dtype)


class PairGraph:
    """Sparse structure of a fixed set of pairs among n points; only the weights change later.

    Parameters
    ----------
    first, second : (m,) integer index arrays of the two ends, on the device.
    """

    def __init__(self, first: Array, second: Array, n: int, *, xp: Namespace) -> None:
        self.first, self.second, self.n = first, second, n
        self.device = array_api_compat.device(first)
        self._xp = xp
        self._stacked: dict[int, tuple[Array, Array]] = {}
        self._stacked_ends: dict[int, tuple[Array, Array]] = {}

    @cached_property
    def _order(self) -> Array:
        """Stored entries by row: entry e belongs to pair e mod m, whose second end comes after all first ends."""
        return self._xp.argsort(self._xp.concat([self.first, self.second]), stable=True)

    @cached_property
    def slots(self) -> Array:
        """Which pair's weight stands in each stored entry."""
        return self._order % int(self.first.shape[0])

    def stacked(self, stack: int) -> tuple[Array, Array]:
        """Column indices and row starts of the block-diagonal matrix with `stack` copies."""
        if stack not in self._stacked:
            xp = self._xp
            columns = xp.take(xp.concat([self.second, self.first]), self._order)
            rows = xp.take(xp.concat([self.first, self.second]), self._order)
            row_starts = xp.searchsorted(rows, xp.arange(self.n + 1, device=self.device), side="left")
            entries = int(columns.shape[0])
            # 32-bit indices halve the traffic of the sparse product; they suffice below 2^31.
            kind = xp.int32 if stack * max(entries, self.n) < 2**31 else xp.int64
            offsets = xp.arange(stack, device=self.device)[:, None]
            columns = xp.reshape(columns[None, :] + offsets * self.n, (-1,))
            starts = xp.reshape(row_starts[None, :-1] + offsets * entries, (-1,))
            end = xp.asarray([stack * entries], dtype=starts.dtype, device=self.device)
            self._stacked[stack] = (xp.astype(columns, kind), xp.astype(xp.concat([starts, end]), kind))
        return self._stacked[stack]

    def stacked_ends(self, stack: int) -> tuple[Array, Array]:
        """Both ends of the pairs of `stack` copies, one after the other, as rows of (stack * n, k)."""
        if stack not in self._stacked_ends:
            xp = self._xp
            offsets = xp.arange(stack, device=self.device)[:, None] * self.n
            self._stacked_ends[stack] = (
                xp.reshape(self.first[None, :] + offsets, (-1,)),
                xp.reshape(self.second[None, :] + offsets, (-1,)),
            )
        return self._stacked_ends[stack]
