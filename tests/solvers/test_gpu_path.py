"""The GPU path, as far as a machine without a GPU can vouch for it; and the real thing where there is one.

CuPy imports without a GPU. So every function that the code calls through `xp`, and every name of CuPy
that it uses directly, can be looked up in the installed CuPy and called by signature.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solvers.backend import gpu_count, to_numpy
from solvers.methods import METHODS, make_method
from tests.conftest import ROOT

cupy = pytest.importorskip("cupy", reason="CuPy is not installed: pip install orthosweep[gpu]")

SOURCES = sorted((ROOT / "solvers").rglob("*.py"))
DIRECT = [*SOURCES, *sorted((ROOT / "sweep").glob("*.py"))]
# array-api-strict's own, asked for with hasattr.
GUARDED = {"array_api_compat.cupy.Device"}
GPU_ARRAYS = [name for name, method in METHODS.items() if method.device == "array"]


@dataclass(frozen=True)
class Use:
    """A dotted name of a namespace in the source; with the shape of its arguments if it is called."""

    name: str
    where: str
    positional: int | None = None  # None: not called, or with *arguments
    keywords: tuple[str, ...] = ()


def uses(path: Path, roots: dict[str, str]) -> Iterator[Use]:
    """All uses of names that start at one of `roots` (name in the source -> dotted name it stands for)."""
    tree = ast.parse(path.read_text())
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        name = dotted(node)
        root = next((r for r in sorted(roots, key=len, reverse=True) if name.startswith(f"{r}.")), None)
        if root is None:
            continue
        call = calls.get(id(node))
        where = f"{path.relative_to(ROOT)}:{node.lineno}"
        full = roots[root] + name[len(root) :]
        if (
            call is None
            or any(isinstance(a, ast.Starred) for a in call.args)
            or any(k.arg is None for k in call.keywords)
        ):
            yield Use(full, where)
        else:
            yield Use(full, where, len(call.args), tuple(str(k.arg) for k in call.keywords))


def dotted(node: ast.expr) -> str:
    """`self.xp.linalg.eigh` as text; '?' for what is no plain name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def problem(use: Use) -> str:
    """Why the installed CuPy would not take this use; empty if it would."""
    found: Any = importlib.import_module(use.name.split(".")[0])
    for depth, part in enumerate(use.name.split(".")[1:], start=2):
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(".".join(use.name.split(".")[:depth]))
            except ImportError:
                return f"{use.where}: CuPy has no {use.name}"
        if inspect.isclass(found) and depth < len(use.name.split(".")):
            continue
        if depth < len(use.name.split(".")) and not (inspect.ismodule(found) or inspect.isclass(found)):
            return ""  # an attribute of a value: nothing to look up
    if use.positional is None or isinstance(found, cupy.ufunc):
        unknown = set(use.keywords) - {"out", "dtype"} if isinstance(found, cupy.ufunc) else set()
        return f"{use.where}: {use.name} takes no {unknown}" if unknown else ""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # compiled code without a signature
        return ""
    try:
        signature.bind(*[None] * use.positional, **dict.fromkeys(use.keywords))
    except TypeError as error:
        return f"{use.where}: {use.name}: {error}"
    return ""


def array_api_uses() -> list[Use]:
    names = ("xp", "self.xp", "self._xp", "backend.xp", "self.backend.xp")
    roots = dict.fromkeys(names, "array_api_compat.cupy")
    return [use for path in SOURCES for use in uses(path, roots) if use.name not in GUARDED]


def direct_uses() -> list[Use]:
    return [use for path in DIRECT for use in uses(path, {"cupy": "cupy", "cupyx": "cupyx"})]


def test_every_array_function_exists_in_cupy_with_the_arguments_used() -> None:
    found = array_api_uses()
    assert len({use.name for use in found}) > 40  # the scan sees what it should
    assert [p for use in found if (p := problem(use))] == []


def test_every_direct_use_of_cupy_exists() -> None:
    found = direct_uses()
    assert {"cupy.cuda.Device", "cupyx.scipy.sparse.csr_matrix"} <= {use.name for use in found}
    assert [p for use in found if (p := problem(use))] == []


@pytest.mark.parametrize(
    ("use", "complaint"),
    [
        (Use("array_api_compat.cupy.wrightomega", "x.py:1", 1), "CuPy has no"),
        (Use("array_api_compat.cupy.linalg.lu", "x.py:1", 1), "CuPy has no"),
        (Use("array_api_compat.cupy.sum", "x.py:1", 1, ("axes",)), "unexpected keyword"),
        (Use("array_api_compat.cupy.take", "x.py:1", 7), "too many positional"),
        (Use("array_api_compat.cupy.exp", "x.py:1", 1, ("device",)), "takes no"),
        (Use("cupyx.scipy.special.wrightomega", "x.py:1", 1), "CuPy has no"),
    ],
)
def test_the_check_notices_what_cupy_lacks(use: Use, complaint: str) -> None:
    assert complaint in problem(use)


def test_there_is_no_kernel_that_nobody_compiled() -> None:
    """Whoever adds a kernel compiles it here with NVRTC, which needs no GPU."""
    kernels = ("RawKernel", "RawModule", "ElementwiseKernel", "ReductionKernel", "cupy.fuse")
    assert [path.name for path in DIRECT for kernel in kernels if kernel in path.read_text()] == []


# -- where there is a GPU -----------------------------------------------------------------------------


@pytest.fixture
def device() -> str:
    if gpu_count() == 0:
        pytest.skip("no GPU that CuPy can use here")
    return "cuda"


def problem_data(dtype: str = "float64") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), [40, 40, 20, 20])
    return (rng.standard_normal((120, 12)) + np.eye(12)[y] * 3).astype(dtype), y


def fitted(name: str, X: Any, y: np.ndarray, device: str) -> Any:
    settings = {"gamma": 0.05, "rank": 4, "n_pairs": 300, "max_iter": 200, "restarts": 2}
    model = make_method(name, settings=settings | {"random_state": 0, "device": device})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not all converge in so few steps
        return model.fit(X, y)


@pytest.mark.gpu
@pytest.mark.parametrize("name", GPU_ARRAYS)
def test_the_gpu_finds_what_the_cpu_finds(name: str, device: str) -> None:
    X, y = problem_data()
    cpu, gpu = fitted(name, X, y, "cpu"), fitted(name, X, y, device)
    if hasattr(cpu, "objective_"):
        np.testing.assert_allclose(gpu.objective_, cpu.objective_, rtol=1e-5)
    expected, found = cpu.transform(X), to_numpy(gpu.transform(X))
    # Eigenvectors come with either sign: compare distances, which is what a metric is for.
    np.testing.assert_allclose(distances(found), distances(expected), rtol=1e-3, atol=1e-3)


def distances(Z: np.ndarray) -> np.ndarray:
    return np.sum((Z[:, None, :] - Z[None, :, :]) ** 2, axis=-1)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["mdml-cvnd", "pdml-vnd"])
def test_cupy_data_stay_on_the_gpu(name: str, device: str) -> None:
    X, y = problem_data("float32")
    model = fitted(name, cupy.asarray(X), y, "auto")
    assert isinstance(model.transform(cupy.asarray(X)), cupy.ndarray)


@pytest.mark.gpu
def test_a_fit_gives_its_memory_back(device: str) -> None:
    from solvers.backend import choose_backend, free_device_memory

    X, y = problem_data()
    fitted("mdml-csfn", X, y, device)
    free_device_memory(choose_backend(X, device).xp)
    assert cupy.get_default_memory_pool().used_bytes() == 0
