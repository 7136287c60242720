"""Dense answers in extended precision, and how far from them a right answer may be.

Kernel values are computed from their definition in ``longdouble`` (64 bits of mantissa and exponents to 4932, so that
neither squares nor cancellation matter). The bounds follow from the dtype: an inner product of p numbers is off by at
most ``(p + c) ε |a|·|b|``; a distance, by that of the landmark relative to the centre; what a kernel makes of it, by
its change between the two ends of that interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nystrom.kernels import (
    Cosine,
    FromCallable,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    OnColumns,
    Overlap,
    Polynomial,
    Precomputed,
    Product,
    Scaled,
    Sum,
)
from nystrom.types import Array

Long = np.longdouble
EPS64 = float(np.finfo(np.float64).eps)
# γ‖z‖² below which the kernels of distance do not move the rows to the landmarks' mean (docs/numerics.md).
_UNCENTRED = 32.0
# Operations on a value beyond the inner product: scaling, exponential, sums of parts.
_MORE = 16
_LEAST = 4 * float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Values:
    """Kernel values in extended precision, and how far from them computed ones may be."""

    exact: Array
    slack: Array


def kernel_values(kernel: Any, A: Array, B: Array, eps: float) -> Values:
    """Return k(A, B) for rows A and landmarks B."""
    with np.errstate(all="ignore"):
        return _values(kernel, A.astype(Long), B.astype(Long), eps)


def _values(kernel: Any, A: Array, B: Array, eps: float) -> Values:
    if isinstance(kernel, Sum):
        parts = [_values(each, A, B, eps) for each in (kernel.left, kernel.right)]
        exact = parts[0].exact + parts[1].exact
        return Values(exact, parts[0].slack + parts[1].slack + 2 * eps * np.abs(exact))
    if isinstance(kernel, Product):
        left, right = (_values(each, A, B, eps) for each in (kernel.left, kernel.right))
        exact = left.exact * right.exact
        slack = left.slack * np.abs(right.exact) + right.slack * np.abs(left.exact) + left.slack * right.slack
        return Values(exact, slack + 2 * eps * np.abs(exact))
    if isinstance(kernel, Scaled):
        inner = _values(kernel.kernel, A, B, eps)
        return Values(kernel.factor * inner.exact, kernel.factor * (inner.slack + 2 * eps * np.abs(inner.exact)))
    if isinstance(kernel, OnColumns):
        numbers = list(kernel.numbers(A.shape[1]))
        return _values(kernel.kernel, A[:, numbers], B[:, numbers], eps)
    if isinstance(kernel, Overlap):
        t = kernel._number(A.shape[1]) * (A[:, None] != B[None]).sum(-1).astype(Long)
        return _between(lambda t: np.exp(-t), t, _MORE * eps * (t + 1))
    if isinstance(kernel, (Gaussian, Matern)):
        return _of_distance(kernel, A, B, eps)
    p = A.shape[1]
    if isinstance(kernel, Laplacian):
        return _of_norm(kernel, A, B, eps)
    if isinstance(kernel, Precomputed):
        taken = A[:, list(kernel.indices)]
        return Values(taken, np.zeros_like(taken))
    if isinstance(kernel, FromCallable):
        exact = np.asarray(kernel.function(A, B))
        return Values(exact, _MORE * (eps + EPS64) * p * np.abs(exact))
    return _of_inner_product(kernel, A, B, eps)


def _of_norm(kernel: Laplacian, A: Array, B: Array, eps: float) -> Values:
    gamma, p = _gamma(kernel, A.shape[1]), A.shape[1]
    distances = gamma * (np.abs(A[:, None] - B[None]) ** Long(kernel.p)).sum(-1) ** (1 / Long(kernel.p))
    if kernel.p == 2:
        # From products: off by as much as those of the Gaussian kernel, of γ² and the squares.
        size = gamma**2 * ((B - B.mean(axis=0)) ** 2).sum(-1)
        wide = (p + _MORE) * (eps * (np.minimum(size, _UNCENTRED) + 1 + distances**2) + EPS64 * size)
        return _between(lambda t: np.exp(-(t ** Long(kernel.q / 2))), distances**2, wide, eps=(p + _MORE) * eps)
    t = distances ** Long(kernel.q)
    return _between(lambda t: np.exp(-t), t, (p + _MORE) * eps * (t + 1))


def _of_distance(kernel: Any, A: Array, B: Array, eps: float) -> Values:
    gamma, p = _gamma(kernel, A.shape[1]), A.shape[1]
    t = gamma * ((A[:, None] - B[None]) ** 2).sum(-1)
    size = gamma * ((B - B.mean(axis=0)) ** 2).sum(-1)
    moved = np.minimum(size, _UNCENTRED) + 1
    wide = (p + _MORE) * (eps * (moved + t) + EPS64 * size)
    if isinstance(kernel, Gaussian):
        return _between(lambda t: np.exp(-t), t, wide)
    functions = {
        0.5: lambda d: np.exp(-d),
        1.5: lambda d: (1 + np.sqrt(Long(3)) * d) * np.exp(-np.sqrt(Long(3)) * d),
        2.5: lambda d: (1 + np.sqrt(Long(5)) * d + 5 * d * d / 3) * np.exp(-np.sqrt(Long(5)) * d),
    }
    return _between(lambda t: functions[kernel.nu](np.sqrt(t)), t, wide, eps=(p + _MORE) * eps)


def _of_inner_product(kernel: Any, A: Array, B: Array, eps: float) -> Values:
    p = A.shape[1]
    lengths = [np.sqrt((each**2).sum(-1)) for each in (A, B)]
    inner, sizes = A @ B.T, np.outer(*lengths)
    wide = (p + _MORE) * eps * sizes
    if isinstance(kernel, Linear):
        return Values(inner, wide)
    if isinstance(kernel, Cosine):
        # Rows whose length has no reciprocal in float64 count as zeros.
        long = np.logical_and.outer(*(each > _LEAST for each in lengths))
        cosines = np.where(long, inner / np.where(long, sizes, 1), 0)
        return Values(cosines, np.broadcast_to((p + _MORE) * eps, inner.shape))
    assert isinstance(kernel, Polynomial)
    gamma = _gamma(kernel, p)
    base, more = gamma * inner + kernel.coef0, gamma * wide
    exact = base**kernel.degree
    largest = (np.abs(base) + more + eps * abs(kernel.coef0)) ** kernel.degree
    change = kernel.degree * (np.abs(base) + more) ** (kernel.degree - 1) * (more + eps * abs(kernel.coef0))
    return Values(exact, change + _MORE * eps * largest)


def _between(function: Any, t: Array, wide: Array, *, eps: float = 0.0) -> Values:
    """Return the function, and its greatest change while t moves by ``wide``."""
    exact = function(t)
    ends = [np.abs(function(np.maximum(t + sign * wide, 0)) - exact) for sign in (-1, 1)]
    return Values(exact, np.maximum(*ends) + (eps or _MORE * EPS64))


def _gamma(kernel: Any, p: int) -> Array:
    if isinstance(kernel.gamma, str):
        assert isinstance(kernel, Polynomial), f"{kernel} has no bandwidth"
        return Long(1)  # "scale", for a kernel of the inner product
    return Long(1.0 / p if kernel.gamma is None else kernel.gamma)


def diagonal(kernel: Any, A: Array) -> Array:
    """Return k(x, x) of each row; of a precomputed kernel, the diagonal."""
    if isinstance(kernel, Precomputed):
        return np.diagonal(A).astype(Long)
    return np.array([kernel_values(kernel, A[[i]], A[[i]], 0.0).exact[0, 0] for i in range(len(A))])


def spread(X: Array) -> float:
    """Return the mean squared distance of the rows to their mean."""
    X = X.astype(Long)
    return ((X - X.mean(axis=0)) ** 2).sum(axis=1).mean()


def ridge(phi: Array, y: Array, alpha: float, weight: Array | None, intercept: bool) -> tuple[Array, Array]:
    """Return the coefficients and the intercepts of ridge regression on features, by least squares.

    The system ``[√D Φ; √α I] w ≈ [√D y; 0]`` has the root of the condition of its normal equations.
    """
    w = np.ones(len(phi)) if weight is None else weight
    mean = (w @ phi / w.sum(), w @ y / w.sum()) if intercept else (np.zeros(phi.shape[1]), np.zeros(y.shape[1]))
    root = np.sqrt(w)[:, None]
    A = np.concatenate([root * (phi - mean[0]), np.sqrt(alpha) * np.eye(phi.shape[1])])
    b = np.concatenate([root * (y - mean[1]), np.zeros((phi.shape[1], y.shape[1]))])
    scale = np.abs(A).max(initial=np.sqrt(alpha))
    coefficients = np.linalg.lstsq(A / scale, b, rcond=0)[0] / scale
    return coefficients, mean[1] - mean[0] @ coefficients
