"""A stand-in for CuPy on a machine without a GPU: NumPy's numbers under CuPy's rules.

Its arrays refuse what CuPy's refuse (implicit conversion to NumPy, arithmetic with NumPy arrays), wrap indices that are
out of range as CuPy does, and count whatever would make the host wait for the device. `installed` puts it in the place
of `cupy`, `cupyx` and `array_api_compat.cupy`, so that the solvers take the very branches that CuPy takes.
"""

from __future__ import annotations

import inspect
import operator
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import array_api_compat
import array_api_compat.numpy as host
import numpy as np
import scipy.sparse

# What was called, by name: "float", "bool", "int", "get" and "nonzero" wait for a device.
CALLS: Counter[str] = Counter()
WAITS = ("float", "bool", "int", "get", "nonzero")
# Shapes that `eigh` was called with.
DECOMPOSED: list[tuple[int, ...]] = []


def waits() -> int:
    """How often the host has had to wait for the device."""
    return sum(CALLS[name] for name in WAITS)


@dataclass(frozen=True)
class Device:
    id: int = 0

    def __enter__(self) -> Device:
        CALLS[f"device {self.id} entered"] += 1
        return self

    def __exit__(self, *_: object) -> None: ...


class DeviceArray:
    """An array that NumPy cannot see into."""

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: np.ndarray, device: Device) -> None:
        self._values, self.device = values, device

    def get(self) -> np.ndarray:
        CALLS["get"] += 1
        return self._values.copy()

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __float__(self) -> float:
        CALLS["float"] += 1
        return float(self._values)

    def __bool__(self) -> bool:
        CALLS["bool"] += 1
        return bool(self._values)

    def __int__(self) -> int:
        CALLS["int"] += 1
        return int(self._values)

    __index__ = __int__

    def __getitem__(self, key: Any) -> DeviceArray:
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, DeviceArray) and part.dtype == bool for part in parts):
            CALLS["nonzero"] += 1  # how many there are decides the shape
        return _device_array(self._values[tuple(_plain(part) for part in parts)], self.device)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._values[_plain(key)] = _plain(value)

    def __len__(self) -> int:
        return len(self._values)

    dtype = property(lambda self: self._values.dtype)
    shape = property(lambda self: self._values.shape)
    ndim = property(lambda self: self._values.ndim)
    size = property(lambda self: self._values.size)
    T = property(lambda self: _device_array(self._values.T, self.device))


def _operator(function: Callable[..., Any], *, swapped: bool = False) -> Callable[..., Any]:
    def method(self: DeviceArray, *others: Any) -> Any:
        if any(isinstance(other, np.ndarray) for other in others):
            raise TypeError(f"Unsupported type {np.ndarray}")
        if any(not isinstance(other, DeviceArray | np.generic | bool | int | float) for other in others):
            return NotImplemented
        operands = [self._values, *(_plain(other) for other in others)]
        return _device_array(function(*(reversed(operands) if swapped else operands)), self.device)

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    _function = getattr(operator, f"__{_name}__")
    setattr(DeviceArray, f"__{_name}__", _operator(_function))
    setattr(DeviceArray, f"__r{_name}__", _operator(_function, swapped=True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert"):
    setattr(DeviceArray, f"__{_name}__", _operator(getattr(operator, f"__{_name}__")))


def _device_array(values: Any, device: Device) -> Any:
    return DeviceArray(np.asarray(values), device)


def _plain(value: Any) -> Any:
    """What NumPy computes with in place of an argument."""
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {np.ndarray}")
    if isinstance(value, list | tuple):
        return type(value)(_plain(each) for each in value)
    return value._values if isinstance(value, DeviceArray) else value


def _device_of(values: Any) -> Device | None:
    if isinstance(values, DeviceArray):
        return values.device
    found = (_device_of(each) for each in values) if isinstance(values, list | tuple) else iter(())
    return next((device for device in found if device is not None), None)


def _wrap(value: Any, device: Device) -> Any:
    if isinstance(value, tuple):
        return tuple(_wrap(each, device) for each in value)
    return _device_array(value, device) if isinstance(value, np.ndarray | np.generic) else value


def _on_device(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.pop("device", None)
        assert device is None or isinstance(device, Device), f"{name}: device={device!r}"
        device = device or _device_of(args) or Device()
        CALLS[name] += 1
        if name == "asarray":  # the way from the host
            return _device_array(function(getattr(args[0], "_values", args[0]), **kwargs), device)
        plain = [_plain(each) for each in args]
        if name == "take":
            return _wrap(np.take(*plain, **kwargs, mode="wrap"), device)
        if name == "eigh":
            DECOMPOSED.append(plain[0].shape)
        return _wrap(function(*plain, **{key: _plain(each) for key, each in kwargs.items()}), device)

    return call


def _namespace(name: str, source: Any) -> ModuleType:
    """A module with the functions of `source` for arrays on the device; types and constants as they are."""
    module = ModuleType(name)

    def look_up(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        found = getattr(source, attribute)
        if inspect.ismodule(found):
            return _namespace(f"{name}.{attribute}", found)
        return found if isinstance(found, type) or not callable(found) else _on_device(attribute, found)

    module.__getattr__ = look_up  # type: ignore[method-assign]
    return module


class CSRMatrix:
    """scipy.sparse in the place of cupyx.scipy.sparse, whose indices are 32 bits wide."""

    def __init__(self, parts: tuple[DeviceArray, ...], shape: tuple[int, int]) -> None:
        data, indices, starts = (_plain(part) for part in parts)
        self.device = parts[0].device
        self._matrix = scipy.sparse.csr_matrix((data, indices.astype(np.int32), starts.astype(np.int32)), shape)
        CALLS["csr_matrix"] += 1

    def __matmul__(self, other: DeviceArray) -> DeviceArray:
        return DeviceArray(self._matrix @ _plain(other), self.device)


class Pool:
    def __init__(self, name: str) -> None:
        self.name = name

    def free_all_blocks(self) -> None:
        CALLS[f"{self.name} freed"] += 1


class NoDriverError(RuntimeError):
    """In the place of CUDARuntimeError: cudaErrorInsufficientDriver."""


NAMESPACE = _namespace("array_api_compat.cupy", host)
_DEVICE_POOL, _PINNED_POOL = Pool("device pool"), Pool("pinned pool")


def _modules(gpus: int | None) -> dict[str, ModuleType]:
    def get_device_count() -> int:
        if gpus is None:
            raise NoDriverError("CUDA driver version is insufficient for CUDA runtime version")
        return gpus

    def synchronize() -> None:
        CALLS["synchronize"] += 1

    def seterr(*, linalg: str) -> None:
        CALLS[f"seterr linalg={linalg}"] += 1

    cupy, cupyx, scipy_, sparse = (ModuleType(n) for n in ("cupy", "cupyx", "cupyx.scipy", "cupyx.scipy.sparse"))
    vars(cupy).update(
        ndarray=DeviceArray,
        cuda=SimpleNamespace(
            Device=Device,
            runtime=SimpleNamespace(getDeviceCount=get_device_count, memGetInfo=lambda: (2**33, 2**34)),
            get_current_stream=lambda: SimpleNamespace(synchronize=synchronize),
        ),
        get_default_memory_pool=lambda: _DEVICE_POOL,
        get_default_pinned_memory_pool=lambda: _PINNED_POOL,
    )
    vars(sparse).update(csr_matrix=CSRMatrix)
    vars(scipy_).update(sparse=sparse)
    vars(cupyx).update(scipy=scipy_, seterr=seterr)
    modules = (cupy, cupyx, scipy_, sparse)
    return {module.__name__: module for module in modules} | {"array_api_compat.cupy": NAMESPACE}


@contextmanager
def installed(*, gpus: int | None = 1) -> Iterator[ModuleType]:
    """Inside, `import cupy` finds the stand-in, with so many GPUs (None: no driver). Counters start at zero."""
    CALLS.clear()
    DECOMPOSED.clear()
    with (
        mock.patch.dict(sys.modules, _modules(gpus)),
        mock.patch.object(array_api_compat, "cupy", NAMESPACE, create=True),
    ):
        yield NAMESPACE
