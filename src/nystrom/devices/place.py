"""Namespaces of the array API and their devices: the one file that knows torch, CuPy and JAX by name.

An array of another namespace is used only if ``sklearn.set_config(array_api_dispatch=True)`` allows it, or
if ``engine="torch"`` requests it. All transfers between host and device go through :class:`Place`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nystrom.exceptions import MissingDependencyError
from nystrom.types import Array

# Values of ``engine=`` in addition to "auto", "local" and "dask": the package, and what installs it.
ENGINES = {"torch": "torch", "cupy": "cupy-cuda12x", "jax": "jax"}


def _compat() -> Any:
    """Return array-api-compat: the installed one, or the one inside scikit-learn."""
    for name in ("array_api_compat", "sklearn.externals.array_api_compat"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise MissingDependencyError("array-api-compat", None, "computing with arrays of other namespaces")


def is_foreign_array(X: object) -> bool:
    """Whether X is an array of another namespace, and scikit-learn's configuration allows computing with it."""
    if isinstance(X, np.ndarray) or not (hasattr(X, "__array_namespace__") or hasattr(X, "__dlpack__")):
        return False
    return dispatches() and bool(_compat().is_array_api_obj(X))


@dataclass(frozen=True)
class Place:
    """A namespace of the array API and one of its devices.

    ``memory`` is the number of bytes that passes may hold there, None for no limit.
    """

    xp: Any
    device: Any
    memory: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, values: Any) -> Place:
        """Return where an array is."""
        compat = _compat()
        return cls(compat.array_namespace(values), compat.device(values))

    def __str__(self) -> str:
        return f"{self.xp.__name__.rpartition('array_api_compat.')[2]} on {self.device}"

    @cached_property
    def has_float64(self) -> bool:
        """Whether the device computes in float64."""
        try:
            return "float64" in self.xp.__array_namespace_info__().dtypes(device=self.device)
        except (TypeError, ValueError):
            # Some namespaces list dtypes only for their default device.
            return "mps" not in str(self.device)

    @cached_property
    def has_int64(self) -> bool:
        """Whether the device has 64-bit integers."""
        try:
            return "int64" in self.xp.__array_namespace_info__().dtypes(device=self.device)
        except (TypeError, ValueError):
            return True

    @cached_property
    def is_processor(self) -> bool:
        """Whether the device is this machine's processor, with its caches."""
        return "cpu" in str(self.device).lower()

    def dtype(self, dtype: DTypeLike) -> Any:
        """Return the namespace's dtype for a NumPy dtype; half the bits if the device does not have it."""
        name = np.dtype(dtype).name
        if (name == "float64" and not self.has_float64) or (name in ("int64", "uint64") and not self.has_int64):
            name = name.replace("64", "32")
        return getattr(self.xp, name)

    def send(self, A: Any, dtype: DTypeLike | None = None) -> Any:
        """Return a host array, a number or an array of this place as an array of the namespace on this device."""
        if isinstance(A, (np.ndarray, np.generic, int, float, bool, list, tuple)):
            A = np.asarray(A, dtype=dtype)
            if A.dtype.kind in "fiub":
                # Some namespaces share the host's memory and refuse read-only arrays or unusual strides.
                A = np.require(A, A.dtype.newbyteorder("="), ["C", "A", "W"])
            return self.xp.asarray(A, dtype=self.dtype(A.dtype), device=self.device)
        return A if dtype is None else self.xp.astype(A, self.dtype(dtype), copy=False)

    def join(self, pieces: list[Any], dtype: DTypeLike) -> Any:
        """Return arrays of this place, or of the host, as one array of the namespace."""
        sent = [self.send(piece, dtype) for piece in pieces]
        return sent[0] if len(sent) == 1 else self.xp.concat(sent, axis=0)


def fetch(values: Any) -> Array:
    """Return an array of any namespace as a NumPy array that owns its memory: the only transfer to the host."""
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "detach"):  # a tensor that takes part in a gradient
        values = values.detach()
    compat = _compat()
    if compat.is_torch_array(values) or compat.is_cupy_array(values):
        values = compat.to_device(values, "cpu")
    # CuPy copies to a NumPy array; JAX lends its memory.
    on_host = isinstance(values, np.ndarray) or compat.is_jax_array(values)
    return np.array(values if on_host else np.from_dlpack(values))


def dispatches() -> bool:
    """Whether scikit-learn's configuration allows computing with arrays of other namespaces."""
    from sklearn import get_config

    return bool(get_config()["array_api_dispatch"])


def place_of(values: Any) -> Place | None:
    """Return where an array is, None for the host."""
    return None if values is None or isinstance(values, np.ndarray) else Place.of(values)


def beside(values: Any, made: Array) -> Any:
    """Return a host array on the device of ``values``; text stays on the host."""
    place = place_of(values)
    return made if place is None or made.dtype.kind not in "fiub" else place.send(made)


def numpy_dtype(values: Any) -> np.dtype:
    """Return the NumPy dtype of an array of any namespace."""
    return np.dtype(str(values.dtype).rpartition(".")[2])


def named_place(engine: str) -> Place:
    """Return the place for an engine name such as ``engine="torch:cuda"``."""
    package, _, device = engine.partition(":")
    try:
        found = importlib.import_module(package)
    except ImportError as error:
        raise MissingDependencyError(package, None, f"engine={engine!r}", install=ENGINES[package]) from error
    if package == "jax":
        namespace = importlib.import_module("jax.numpy")
        devices = found.devices(device) if device else found.devices()
        return Place(namespace, devices[0])
    if package == "cupy":
        namespace = importlib.import_module(_compat().__name__ + ".cupy")
        return Place(namespace, found.cuda.Device(int(device or 0)))
    namespace = importlib.import_module(_compat().__name__ + ".torch")
    best = "cuda" if found.cuda.is_available() else "cpu"
    place = Place(namespace, found.device(device or best))
    try:
        found.empty(1, device=place.device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"engine={engine!r} names a device that torch cannot use here: {error} Try engine='torch:cpu', or leave "
            f"engine='auto'."
        ) from error
    return place
