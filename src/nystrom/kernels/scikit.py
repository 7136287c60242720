"""Gaussian process kernels of scikit-learn as kernels of this library, which are faster, and can be saved."""

from __future__ import annotations

import sys
from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from nystrom.kernels.base import Kernel
from nystrom.kernels.custom import FromCallable
from nystrom.kernels.distance import Gaussian, Matern
from nystrom.kernels.inner import Polynomial
from nystrom.kernels.metric import InMetric

# Powers of a kernel up to this are products; beyond, the function is as fast.
_MOST_FACTORS = 4


def is_scikit_kernel(kernel: object) -> bool:
    """Return whether the object is one of scikit-learn's Gaussian process kernels; imports nothing."""
    module = sys.modules.get("sklearn.gaussian_process.kernels")
    return module is not None and isinstance(kernel, module.Kernel)


def from_scikit(kernel: Any) -> Kernel:
    """Return a Gaussian process kernel of scikit-learn, with its parameters as they are.

    RBF, Matern with ``nu`` 0.5, 1.5, 2.5 or infinite (one length scale or one per column), DotProduct, and multiples,
    sums, products and small whole powers of such are translated. Others are called: :class:`FromCallable`.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, DotProduct
    >>> from_scikit(2.0 * RBF(0.5) + DotProduct(3.0))
    2.0 * Gaussian(gamma=2.0) + Polynomial(degree=1, gamma=1.0, coef0=9.0)
    """
    # Exact classes: a subclass may mean something else than its base.
    match type(kernel).__name__ if type(kernel).__module__ == "sklearn.gaussian_process.kernels" else "":
        case "RBF":
            return _with_lengths(Gaussian, 0.5, kernel.length_scale)
        case "Matern" if kernel.nu == np.inf:
            return _with_lengths(Gaussian, 0.5, kernel.length_scale)
        case "Matern" if kernel.nu in (0.5, 1.5, 2.5):
            return _with_lengths(lambda gamma: Matern(kernel.nu, gamma), 1.0, kernel.length_scale)
        case "DotProduct":
            return Polynomial(1, 1.0, float(kernel.sigma_0) ** 2)
        case "Sum":
            return from_scikit(kernel.k1) + from_scikit(kernel.k2)
        case "Product":
            for constant, other in ((kernel.k1, kernel.k2), (kernel.k2, kernel.k1)):
                if type(constant).__name__ == "ConstantKernel" and constant.constant_value > 0:
                    return float(constant.constant_value) * from_scikit(other)
            return from_scikit(kernel.k1) * from_scikit(kernel.k2)
        case "Exponentiation" if kernel.exponent in range(1, _MOST_FACTORS + 1):
            return reduce(mul, [from_scikit(kernel.kernel)] * int(kernel.exponent))
    return FromCallable(kernel)


def _with_lengths(make: Any, power: float, lengths: Any) -> Kernel:
    """Return a kernel of distance with one length scale, or with one per column."""
    values = np.asarray(lengths, dtype=np.float64)
    kernel: Kernel = make(power / float(values.reshape(())) ** 2) if values.size == 1 else make(power)
    return kernel if values.size == 1 else InMetric(kernel, 1 / values)
