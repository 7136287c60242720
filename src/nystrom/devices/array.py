"""Rows on a device, with the interface of a NumPy array.

The steps of a pass are written with NumPy. NumPy passes a call whose arguments are :class:`DeviceArray` to the methods
``__array_ufunc__`` and ``__array_function__`` below, which compute it with functions of the array API, on the device.
Data leaves the device only by :func:`to_host`: ``np.asarray`` of a :class:`DeviceArray` is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike

from nystrom.devices.place import Place, fetch, numpy_dtype
from nystrom.types import Array

# NumPy's names of functions that have other names in the array API.
_NAMES = {
    "absolute": "abs",
    "power": "pow",
    "true_divide": "divide",
    "float_power": "pow",
    "invert": "bitwise_invert",
}
# Functions that return fractions for integers.
_FRACTIONS = {"divide", "exp", "sqrt", "tanh", "log", "log1p", "expm1", "reciprocal"}


class DeviceArray(NDArrayOperatorsMixin):
    """An array of another namespace; NumPy's functions compute with it on its device.

    Attributes
    ----------
    values : array of ``place.xp``
    place : Place
    """

    __slots__ = ("place", "values")

    def __init__(self, values: Any, place: Place) -> None:
        self.values = values
        self.place = place

    def __repr__(self) -> str:
        return f"<DeviceArray {self.shape} {self.dtype}, {self.place}>"

    def __array__(self, *args: object, **kwargs: object) -> Any:
        raise TypeError(f"{self!r} is computed with where it is; to_host(...) fetches it on purpose.")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(size) for size in self.values.shape)

    @property
    def ndim(self) -> int:
        return int(self.values.ndim)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def dtype(self) -> np.dtype:
        return numpy_dtype(self.values)

    @property
    def itemsize(self) -> int:
        return int(self.dtype.itemsize)

    @property
    def T(self) -> DeviceArray:
        return self._new(self.place.xp.permute_dims(self.values, tuple(range(self.ndim))[::-1]))

    def __len__(self) -> int:
        return self.shape[0]

    def __float__(self) -> float:
        return float(fetch(self.values))

    def __int__(self) -> int:
        return int(fetch(self.values))

    def __bool__(self) -> bool:
        return bool(fetch(self.values))

    def _new(self, values: Any) -> DeviceArray:
        return DeviceArray(values, self.place)

    def _inner(self, other: Any, dtype: DTypeLike | None = None) -> Any:
        """Return another operand as an array of this namespace and device."""
        if not isinstance(other, DeviceArray):
            return self.place.send(other, dtype)
        return other.values if dtype is None else self.place.send(other.values, dtype)

    def beside(self, A: Any, dtype: DTypeLike | None = None) -> DeviceArray:
        """Return a host array on the device of this one."""
        return self._new(self._inner(A, dtype))

    def __getitem__(self, key: Any) -> DeviceArray:
        return self._new(_item(self.values, key, self.place))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.values = _set(self.values, key, self._inner(value, self.dtype), self.place)

    def astype(self, dtype: DTypeLike, *, copy: bool = True, **_: object) -> DeviceArray:
        return self._new(self.place.xp.astype(self.values, self.place.dtype(dtype), copy=copy))

    def copy(self, order: str = "C") -> DeviceArray:
        return self._new(self.place.xp.asarray(self.values, copy=True))

    def reshape(self, *shape: Any) -> DeviceArray:
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        return self._new(self.place.xp.reshape(self.values, tuple(wanted)))

    def ravel(self, order: str = "C") -> DeviceArray:
        return self.reshape(-1)

    def take(self, indices: Any, axis: int = 0) -> DeviceArray:
        return self._new(self.place.xp.take(self.values, self._indices(indices), axis=axis))

    def _indices(self, indices: Any) -> Any:
        return self._inner(np.asarray(indices, dtype=np.int64) if not isinstance(indices, DeviceArray) else indices)

    def sum(self, axis: int | None = None, dtype: DTypeLike | None = None, **_: object) -> DeviceArray:
        wanted = None if dtype is None else self.place.dtype(dtype)
        return self._new(self.place.xp.sum(self.values, axis=axis, dtype=wanted))

    def mean(self, axis: int | None = None, dtype: DTypeLike | None = None) -> DeviceArray:
        values = self.values if dtype is None else self.place.send(self.values, dtype)
        return self._new(self.place.xp.mean(values, axis=axis))

    def max(self, axis: int | None = None, **_: object) -> DeviceArray:
        return self._new(self.place.xp.max(self.values, axis=axis))

    def min(self, axis: int | None = None, **_: object) -> DeviceArray:
        return self._new(self.place.xp.min(self.values, axis=axis))

    def argmax(self, axis: int | None = None) -> DeviceArray:
        return self._new(self.place.xp.argmax(self.values, axis=axis))

    def argmin(self, axis: int | None = None) -> DeviceArray:
        return self._new(self.place.xp.argmin(self.values, axis=axis))

    def all(self, axis: int | None = None) -> DeviceArray:
        return self._new(self.place.xp.all(self.values, axis=axis))

    def any(self, axis: int | None = None) -> DeviceArray:
        return self._new(self.place.xp.any(self.values, axis=axis))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out, where = kwargs.pop("out", None), kwargs.pop("where", True)
        dtype = kwargs.pop("dtype", None)
        kwargs.pop("casting", None)
        if method != "__call__" or where is not True or kwargs:
            return NotImplemented
        if out is not None and not isinstance(out[0], DeviceArray):
            return NotImplemented
        made = self._new(_ufunc(ufunc.__name__, inputs, dtype, self.place))
        if out is None:
            return made
        out[0][...] = made
        return out[0]

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        known = _FUNCTIONS.get(func)
        return NotImplemented if known is None else known(self.place, *args, **kwargs)


class Sent:
    """A host array that is sent once to each device of rows. Copies on devices are not pickled."""

    def __init__(self, values: Array) -> None:
        self.values = values
        self._sent: dict[Place, DeviceArray] = {}

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"_sent": {}}

    def beside(self, X: DeviceArray) -> DeviceArray:
        """Return the array on the device of X."""
        if X.place not in self._sent:
            self._sent[X.place] = X.beside(self.values)
        return self._sent[X.place]


def on_device(X: object) -> TypeGuard[Any]:
    """Whether X is on a device. A type checker then sees Any: the code is written for NumPy arrays."""
    return isinstance(X, DeviceArray)


def put(A: Any, place: Place) -> Any:
    """Return a host array, or an array of a place's namespace, as one on its device."""
    return DeviceArray(place.send(A), place)


def to_values(values: Any) -> Any:
    """Return the array of the namespace inside; a host array is returned as it is."""
    return values.values if isinstance(values, DeviceArray) else values


def to_host(values: Any) -> Any:
    """Return an array as a NumPy array; a host array is returned as it is."""
    return fetch(values.values) if isinstance(values, DeviceArray) else values


def _common(inputs: tuple[Any, ...], dtype: DTypeLike | None) -> np.dtype:
    kinds = [each.dtype if hasattr(each, "dtype") else each for each in inputs]
    return np.dtype(dtype) if dtype is not None else np.result_type(*kinds)


def _ufunc(name: str, inputs: tuple[Any, ...], dtype: DTypeLike | None, place: Place) -> Any:
    common = _common(inputs, dtype)
    name = _NAMES.get(name, name)
    if name in _FRACTIONS and common.kind in "iub":
        common = np.dtype(np.float64)
    sent = [place.send(each.values if isinstance(each, DeviceArray) else each, common) for each in inputs]
    if name == "reciprocal":
        return 1 / sent[0]
    if name == "bitwise_invert" and common.kind == "b":
        name = "logical_not"
    return getattr(place.xp, name)(*sent)


def _item(values: Any, key: Any, place: Place) -> Any:
    """Return part of an array: slices, numbers and ``None`` as they are, arrays of numbers or booleans by ``take``."""
    keys = key if isinstance(key, tuple) else (key,)
    arrays = [axis for axis, each in enumerate(keys) if isinstance(each, (np.ndarray, list, DeviceArray))]
    if not arrays:
        if Ellipsis in keys or None in keys:
            return values[keys]
        bounded = [_bounded(each, size) for each, size in zip(keys, values.shape, strict=False)]
        return values[(*bounded, ...) if len(keys) < values.ndim else tuple(bounded)]
    if len(arrays) > 1 or any(each != slice(None) for axis, each in enumerate(keys) if axis != arrays[0]):
        raise TypeError(f"rows on a device take one array of numbers or booleans as an index; got {key!r}.")
    chosen = to_host(keys[arrays[0]])
    chosen = np.asarray(chosen)
    numbers = np.flatnonzero(chosen) if chosen.dtype.kind == "b" else chosen.astype(np.int64)
    numbers = np.where(numbers < 0, numbers + values.shape[arrays[0]], numbers)
    return place.xp.take(values, place.send(numbers), axis=arrays[0])


def _bounded(key: Any, size: int) -> Any:
    """Return a slice or a number within an axis: the array API leaves indices beyond it undefined."""
    return slice(*key.indices(size)) if isinstance(key, slice) and (key.step or 1) > 0 else int(key)


def _set(values: Any, key: Any, new: Any, place: Place) -> Any:
    """Return the array with a part replaced: in place if the namespace can write, else as a new array."""
    if hasattr(values, "at"):  # JAX arrays are immutable
        return values.at[key].set(new)
    values[key] = new
    return values


def _einsum(place: Place, pattern: str, *operands: Any, **kwargs: Any) -> DeviceArray:
    """Compute the products of rows that the library writes as einsum."""
    first, second = (_values(each, place, kwargs.get("dtype")) for each in operands)
    axis = {"ij,ij->i": 1, "ij,ij->j": 0, "ij,ij->": None}[pattern]
    return DeviceArray(place.xp.sum(first * second, axis=axis), place)


def _values(each: Any, place: Place, dtype: DTypeLike | None = None) -> Any:
    return place.send(each.values if isinstance(each, DeviceArray) else each, dtype)


def _concatenate(place: Place, arrays: Any, axis: int = 0) -> DeviceArray:
    dtype = np.result_type(*(each.dtype for each in arrays))
    return DeviceArray(place.xp.concat([_values(each, place, dtype) for each in arrays], axis=axis), place)


def _where(place: Place, condition: Any, a: Any, b: Any) -> DeviceArray:
    dtype = _common((a, b), None)
    return DeviceArray(
        place.xp.where(_values(condition, place), _values(a, place, dtype), _values(b, place, dtype)), place
    )


def _clip(place: Place, A: Any, low: Any, high: Any, **_: object) -> Any:
    return np.minimum(np.maximum(A, low), high)


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.einsum: _einsum,
    np.concatenate: _concatenate,
    np.where: _where,
    np.clip: _clip,
    np.sum: lambda place, A, **options: A.sum(**options),
    np.mean: lambda place, A, **options: A.mean(**options),
    np.max: lambda place, A, axis=None, **_: A.max(axis),
    np.min: lambda place, A, axis=None, **_: A.min(axis),
    np.argmax: lambda place, A, axis=None: A.argmax(axis),
    np.argmin: lambda place, A, axis=None: A.argmin(axis),
    np.all: lambda place, A, axis=None: A.all(axis),
    np.any: lambda place, A, axis=None: A.any(axis),
    np.take: lambda place, A, indices, axis=0: A.take(indices, axis),
    np.shape: lambda place, A: A.shape,
    np.ravel: lambda place, A: A.ravel(),
}


def host(values: Any, dtype: DTypeLike = np.float64) -> Array:
    """Return an array on the host in a dtype, float64 by default."""
    return np.asarray(to_host(values), dtype=dtype)
