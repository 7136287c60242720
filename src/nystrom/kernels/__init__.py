"""Kernels: similarities of two rows, as small immutable objects that can be added, multiplied and scaled.

A kernel is called as ``kernel(A, B)``. Passes over the rows call ``kernel.prepare(Z)`` once and its result
with each block, so that quantities of the landmarks alone are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import numpy as np

from nystrom.checks import check_degree, check_number
from nystrom.kernels.base import Gamma, Kernel, OnColumns, Prepared, Product, Scaled, Sum, check_gamma
from nystrom.kernels.columns import ColumnsLike
from nystrom.kernels.custom import FromCallable, KernelFunction, Precomputed
from nystrom.kernels.distance import Gaussian, Laplacian, Matern
from nystrom.kernels.inner import AdditiveChi2, Chi2, Cosine, Linear, Polynomial, Sigmoid
from nystrom.kernels.metric import InMetric, to_metric
from nystrom.kernels.overlap import Overlap
from nystrom.kernels.scikit import FromScikit, from_scikit, is_scikit_kernel
from nystrom.types import Array

__all__ = [
    "AdditiveChi2",
    "Chi2",
    "ColumnsLike",
    "Cosine",
    "FromCallable",
    "FromScikit",
    "Gamma",
    "GammaLike",
    "Gaussian",
    "InMetric",
    "Kernel",
    "KernelFunction",
    "KernelLike",
    "Laplacian",
    "Linear",
    "Matern",
    "OnColumns",
    "Overlap",
    "Polynomial",
    "Precomputed",
    "Prepared",
    "Product",
    "Scaled",
    "Sigmoid",
    "Sum",
    "from_scikit",
    "make_kernel",
    "to_metric",
]

KernelLike: TypeAlias = str | Kernel | KernelFunction
GammaLike: TypeAlias = float | str | Sequence[float] | Array | None

_BY_NAME: dict[str, Callable[[Gamma, int, float], Kernel]] = {
    "gaussian": lambda gamma, degree, coef0: Gaussian(gamma),
    "rbf": lambda gamma, degree, coef0: Gaussian(gamma),
    "polynomial": lambda gamma, degree, coef0: Polynomial(degree, gamma, coef0),
    "poly": lambda gamma, degree, coef0: Polynomial(degree, gamma, coef0),
    "linear": lambda gamma, degree, coef0: Linear(),
    "laplacian": lambda gamma, degree, coef0: Laplacian(gamma),
    "matern": lambda gamma, degree, coef0: Matern(gamma=gamma),
    "cosine": lambda gamma, degree, coef0: Cosine(),
    "chi2": lambda gamma, degree, coef0: Chi2(gamma),
    "additive_chi2": lambda gamma, degree, coef0: AdditiveChi2(),
    "sigmoid": lambda gamma, degree, coef0: Sigmoid(gamma, coef0),
    "precomputed": lambda gamma, degree, coef0: Precomputed(),
}


def make_kernel(
    kernel: KernelLike,
    *,
    gamma: GammaLike = "scale",
    degree: int = 3,
    coef0: float = 1,
) -> Kernel:
    """Return the kernel for a name, a kernel object or a callable.

    Parameters
    ----------
    kernel : str, Kernel or callable
        A name; a kernel object, returned as it is; a Gaussian process kernel of scikit-learn, see
        :func:`from_scikit`; or a function for :class:`FromCallable`.
    gamma : float, "scale", None or array
        The bandwidth of a kernel given by name; an array has one per column. "scale" is 1 / (mean squared
        distance of the rows to their mean) for kernels of distance, and 1 for kernels of the inner product; None is
        1 / n_features.
    degree, coef0
        For "polynomial".

    Examples
    --------
    >>> make_kernel("rbf", gamma=0.5)
    Gaussian(gamma=0.5)
    >>> make_kernel(2.0 * Gaussian(0.5) + Linear())
    2.0 * Gaussian(gamma=0.5) + Linear()
    """
    check_degree(degree)
    check_number(coef0, "coef0")
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str):
        if isinstance(gamma, (list, tuple, np.ndarray)) and kernel in _BY_NAME:
            return _per_column(kernel, gamma, degree, coef0)
        check_gamma(gamma)
        if kernel in _BY_NAME:
            return _BY_NAME[kernel](cast("Gamma", gamma), degree, coef0)
    elif isinstance(kernel, type) and issubclass(kernel, Kernel):
        raise TypeError(f"kernel must be an object, not the class {kernel.__name__}; use {kernel.__name__}().")
    elif is_scikit_kernel(kernel):
        return from_scikit(kernel)
    elif callable(kernel):
        return FromCallable(kernel)
    names = ", ".join(repr(name) for name in _BY_NAME)
    kind = ValueError if isinstance(kernel, str) else TypeError
    raise kind(
        f"kernel must be one of {names}, a Kernel object such as Gaussian(gamma=0.5), or a callable; got {kernel!r}."
    )


def _per_column(name: str, gamma: GammaLike, degree: int, coef0: float) -> Kernel:
    """Return the kernel with one bandwidth per column: the kernel of bandwidth 1 in a diagonal metric."""
    values = np.asarray(gamma)
    numeric = values.dtype.kind in "iuf" and values.ndim == 1 and values.size > 0
    if not numeric or not (np.isfinite(values) & (values >= 0)).all() or not values.any():
        raise ValueError(
            f"gamma as an array must have one finite number for each column, none negative and some positive; got "
            f"{gamma!r}."
        )
    kernel = _BY_NAME[name](1.0, degree, coef0)
    if not hasattr(kernel, "gamma"):
        raise ValueError(f"kernel={name!r} has no bandwidth, so gamma cannot have one for each column.")
    # The Laplacian kernel uses absolute differences, the others squares or products.
    return InMetric(kernel, values if isinstance(kernel, Laplacian) else np.sqrt(values))
