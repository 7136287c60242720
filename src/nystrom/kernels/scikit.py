"""Gaussian process kernels of scikit-learn as kernels of this library; saved and loaded in the same way."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Any, TypeAlias

import numpy as np

from nystrom.kernels.base import Kernel, Prepared, Scaled
from nystrom.kernels.custom import FromCallable
from nystrom.kernels.distance import Gaussian, Matern
from nystrom.kernels.inner import Polynomial
from nystrom.kernels.metric import InMetric
from nystrom.kernels.pairwise import as_matrix, check_columns
from nystrom.types import Array, Matrix, to_dense

# An object of sklearn.gaussian_process.kernels, which ships no types.
ScikitKernel: TypeAlias = Any

# Largest power of a kernel that is computed as a product; above it, calling the function is as fast.
_MOST_FACTORS = 4
# Called classes that are known to be positive semidefinite; ExpSineSquared is so for a single column only.
_POSITIVE = ("Matern", "RationalQuadratic", "ConstantKernel")


def is_scikit_kernel(kernel: object) -> bool:
    """Return whether the object is one of scikit-learn's Gaussian process kernels; imports nothing."""
    module = sys.modules.get("sklearn.gaussian_process.kernels")
    return module is not None and isinstance(kernel, module.Kernel)


def class_name(kernel: ScikitKernel) -> str:
    """Return the name of a scikit-learn class, "" for any other: a subclass may mean something else."""
    return type(kernel).__name__ if type(kernel).__module__ == "sklearn.gaussian_process.kernels" else ""


def signal_of(kernel: ScikitKernel) -> ScikitKernel | None:
    """Return a kernel of scikit-learn without its WhiteKernels, or None if nothing remains.

    This is the kernel between different rows: ``signal_of(kernel)(X, Z) == kernel(X, Z)``. The removed noise is the
    difference of their diagonals.
    """
    match class_name(kernel):
        case "WhiteKernel":
            return None
        case "CompoundKernel":
            raise ValueError(
                f"kernel={kernel} is a CompoundKernel, which has several values per pair of rows, and a process has "
                f"one. Add its kernels up, or fit one process to each."
            )
        case "Sum":
            parts = [signal for signal in map(signal_of, (kernel.k1, kernel.k2)) if signal is not None]
            return type(kernel)(*parts) if len(parts) == 2 else parts[0] if parts else None
        case "Product":
            left, right = signal_of(kernel.k1), signal_of(kernel.k2)
            return None if left is None or right is None else type(kernel)(left, right)
        case "Exponentiation":
            inner = signal_of(kernel.kernel)
            return None if inner is None else type(kernel)(inner, kernel.exponent)
    return kernel


def from_scikit(kernel: ScikitKernel) -> Kernel:
    """Return a Gaussian process kernel of scikit-learn, with the same parameters and without its noise.

    RBF, Matern with ``nu`` 0.5, 1.5, 2.5 or infinite (one length scale or one per column), DotProduct, and their
    multiples, sums, products and small integer powers are translated. Others are called: :class:`FromScikit`.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, DotProduct, WhiteKernel
    >>> from_scikit(2.0 * RBF(0.5) + DotProduct(3.0) + WhiteKernel())
    2.0 * Gaussian(gamma=2.0) + Polynomial(degree=1, gamma=1.0, coef0=9.0)
    """
    signal = signal_of(kernel)
    if signal is None:
        raise ValueError(f"kernel={kernel} is noise alone; add what is to be learned, such as RBF().")
    return _translated(signal)


def _translated(kernel: ScikitKernel) -> Kernel:
    match class_name(kernel):
        case "RBF":
            return _with_lengths(Gaussian, 0.5, kernel.length_scale)
        case "Matern" if kernel.nu == np.inf:
            return _with_lengths(Gaussian, 0.5, kernel.length_scale)
        case "Matern" if kernel.nu in (0.5, 1.5, 2.5):
            return _with_lengths(lambda gamma: Matern(kernel.nu, gamma), 1.0, kernel.length_scale)
        case "DotProduct":
            return Polynomial(1, 1.0, float(kernel.sigma_0) ** 2)
        case "Sum":
            return _translated(kernel.k1) + _translated(kernel.k2)
        case "Product":
            for constant, other in ((kernel.k1, kernel.k2), (kernel.k2, kernel.k1)):
                if class_name(constant) == "ConstantKernel" and constant.constant_value > 0:
                    found = _translated(other)
                    factor = float(constant.constant_value)
                    return Scaled(factor * found.factor, found.kernel) if isinstance(found, Scaled) else factor * found
            return _translated(kernel.k1) * _translated(kernel.k2)
        case "Exponentiation" if kernel.exponent in range(1, _MOST_FACTORS + 1):
            return reduce(mul, [_translated(kernel.kernel)] * int(kernel.exponent))
        case "":
            return FromCallable(kernel)
    return FromScikit(kernel)


def _with_lengths(make: Any, power: float, lengths: Any) -> Kernel:
    """Return a kernel of distance with one length scale, or with one per column."""
    values = np.asarray(lengths, dtype=np.float64)
    kernel: Kernel = make(power / float(values.reshape(())) ** 2) if values.size == 1 else make(power)
    return kernel if values.size == 1 else InMetric(kernel, 1 / values)


@dataclass(frozen=True, eq=False)
class FromScikit(Kernel):
    """A Gaussian process kernel of scikit-learn without a counterpart here; its function is called.

    Parameters
    ----------
    function : sklearn.gaussian_process.kernels.Kernel
        The kernel, without noise.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RationalQuadratic
    >>> FromScikit(RationalQuadratic())(np.array([[0.0]]), np.array([[1.0]])).round(3)
    array([[0.667]])
    """

    function: ScikitKernel

    def __post_init__(self) -> None:
        if not is_scikit_kernel(self.function):
            raise TypeError(f"function must be a kernel of sklearn.gaussian_process.kernels; got {self.function!r}.")

    @property
    def is_psd(self) -> bool:
        return class_name(self.function) in _POSITIVE

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        return _Called(self.function, to_dense(as_matrix(Z, "Z")).astype(np.float64))

    def diag(self, A: Matrix, start: int = 0) -> Array:
        if A.shape[0] == 0:
            return np.empty(0)
        return np.array(self.function.diag(to_dense(A).astype(np.float64)), dtype=np.float64)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FromScikit) and bool(self.function == other.function)

    def __hash__(self) -> int:
        return hash(repr(self.function))


@dataclass(frozen=True, eq=False)
class _Called:
    function: ScikitKernel
    Z: Array

    def __call__(self, X: Matrix) -> Array:
        check_columns(X, self.Z.shape[1])
        values = self.function(to_dense(X).astype(np.float64), self.Z)
        return np.array(values, dtype=X.dtype, order="C")
