"""Kernel values near the ends of a dtype's range: taken in a wider dtype, brought near 1, or refused by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nystrom.kernels.base import Kernel, Prepared
from nystrom.kernels.custom import Precomputed
from nystrom.types import Array, Matrix

# Kernel values outside this range are taken in float64 also of float32 rows.
_FLOAT32_KERNEL = (1e-30, 1e30)
# Kernel values in these ranges can be squared, and their squares summed.
_SQUARABLE = {"float32": (1e-15, 1e15), "float64": (1e-140, 1e140)}


def kernel_dtype(kernel: Kernel, points: Matrix, dtype: np.dtype) -> np.dtype:
    """Return the dtype in which the kernel of rows of ``dtype`` is taken: float64 where float32 has no room for it."""
    if dtype != np.float32 or isinstance(kernel, Precomputed):
        return np.dtype(dtype)
    with np.errstate(over="ignore"):
        largest = float(np.max(kernel.diag(points), initial=0.0))
    inside = largest == 0 or _FLOAT32_KERNEL[0] < largest < _FLOAT32_KERNEL[1]
    return np.dtype(np.float32 if inside else np.float64)


def with_room(evaluate: Prepared, kernel: Kernel, points: Matrix) -> Prepared:
    """Return the function from rows to their kernel values with the points, in float64 where float32 has no room."""
    return _Wide(evaluate) if kernel_dtype(kernel, points, points.dtype) != points.dtype else evaluate


def overflow_error(dtype: np.dtype) -> ValueError:
    """Return the error to raise where kernel values, or sums of them, leave the range of the dtype."""
    wider = " or give them as float64" if dtype == np.float32 else ""
    return ValueError(
        f"the kernel of the rows is not finite in {np.dtype(dtype).name}: its values, or their sums, overflow. Scale "
        f"the rows down (for example with sklearn.preprocessing.StandardScaler){wider}, or lower gamma, degree or "
        f"coef0."
    )


def near_one(
    kernel: Kernel, diagonal: Array, dtype: np.dtype, squarable: tuple[float, float] | None = None
) -> tuple[Kernel, Array]:
    """Return the kernel and its diagonal, divided by the largest of it where values of that size cannot be squared.

    ``squarable`` is the range in which they can: by default, that of ``dtype``.
    """
    largest = float(np.max(diagonal, initial=0.0))
    if not largest < np.inf:
        raise overflow_error(dtype)
    low, high = _SQUARABLE[np.dtype(dtype).name] if squarable is None else squarable
    tiny = float(np.finfo(np.float64).tiny)
    if low < largest < high or largest < tiny or isinstance(kernel, Precomputed):
        return kernel, diagonal
    return _NearOne(kernel, 1 / largest), diagonal / largest


@dataclass(frozen=True)
class _Wide:
    """Kernel values of float32 rows in float64."""

    evaluate: Prepared

    def __call__(self, X: Matrix) -> Array:
        return self.evaluate(X.astype(np.float64))


@dataclass(frozen=True)
class _NearOne(Kernel):
    """``factor · k(x, y)``, taken in float64 and given in the dtype of the rows."""

    kernel: Kernel
    factor: float

    @property
    def is_psd(self) -> bool:
        return self.kernel.is_psd

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        return _Times(self.kernel.prepare(Z, center), self.factor)

    def diag(self, A: Matrix, start: int = 0) -> Array:
        return self.kernel.diag(A, start) * self.factor


@dataclass(frozen=True)
class _Times:
    evaluate: Prepared
    factor: float

    def __call__(self, X: Matrix) -> Array:
        return (self.evaluate(X.astype(np.float64)) * self.factor).astype(X.dtype)


@dataclass(frozen=True)
class Finite:
    """Kernel values, or an error with advice where they overflow."""

    evaluate: Prepared

    def __call__(self, X: Matrix) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            values = self.evaluate(X)
            # Summing is the quick test; the sum itself may overflow.
            finite = np.isfinite(values.sum(dtype=np.float64)) or np.isfinite(values).all()
        if not finite:
            raise overflow_error(X.dtype)
        return values
