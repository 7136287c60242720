"""A metric as given by the user: an array, or the name of a kind to learn."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from nystrom.kernels import Gaussian, Kernel, Laplacian, Matern
from nystrom.types import Array

MetricLike: TypeAlias = str | ArrayLike | None

METRICS = ("diagonal", "full", "auto")
# Above this many columns "auto" learns scales only: p² numbers are too many for the sample, and p³ operations too slow.
_FULL_COLUMNS = 300
# Above this many columns "auto" skips the Laplacian kernel, which cannot use matrix products.
_LAPLACIAN_COLUMNS = 150


def can_learn(kernel: Kernel) -> bool:
    """Return whether gradients of functions of this kernel are implemented."""
    return isinstance(kernel, (Gaussian, Matern)) or (isinstance(kernel, Laplacian) and kernel.p >= 1)


def check_learnable(kernel: Kernel, metric: str) -> None:
    """Raise unless gradients of functions of this kernel are implemented."""
    if isinstance(kernel, Laplacian) and metric == "full":
        raise ValueError(
            "the Laplacian kernel sums over columns, which metric='full' would mix: use metric='diagonal'."
        )
    if isinstance(kernel, Laplacian) and kernel.p < 1:
        raise ValueError(
            f"a metric is learned from slopes, and those of {kernel!r} are unbounded where rows agree in a column: "
            f"use p of at least 1."
        )
    if not can_learn(kernel):
        raise ValueError(
            f"a metric is learned for the kernels 'gaussian', 'matern' and 'laplacian'; {kernel!r} is another. Choose "
            f"one of those, or give metric as an array."
        )


def metric_root(metric: MetricLike, n_columns: int) -> Array:
    """Return A of a metric given as an array: the scales themselves, or the symmetric root of a matrix."""
    try:
        M = np.asarray(metric)
    except ValueError:  # rows of different lengths
        M = np.asarray(None)
    if M.dtype.kind not in "iuf" or M.shape not in ((n_columns,), (n_columns, n_columns)) or not np.isfinite(M).all():
        raise ValueError(
            f"metric must be one of {METRICS}, None, {n_columns} scales, or a {n_columns} × {n_columns} matrix, all "
            f"finite; got {metric!r}."
        )
    M = M.astype(np.float64)
    if M.ndim == 1:
        if (M < 0).any() or not M.any():
            raise ValueError(
                f"metric as scales needs numbers that are not negative, and some positive; got {metric!r}."
            )
        return M
    uneven = np.abs(M - M.T)
    if uneven.max() > 1e-8 * np.abs(M).max():
        i, j = np.unravel_index(uneven.argmax(), M.shape)
        raise ValueError(
            f"metric as a matrix must be symmetric; metric[{i}, {j}] is {M[i, j]:.6g} and metric[{j}, {i}] is "
            f"{M[j, i]:.6g}."
        )
    values, vectors = np.linalg.eigh((M + M.T) / 2)
    if not values[-1] > 0:
        raise ValueError("metric as a matrix must have a positive eigenvalue: with none, all rows are alike.")
    if values[0] < -1e-8 * values[-1]:
        raise ValueError(f"metric as a matrix must be positive semidefinite; its least eigenvalue is {values[0]:.3g}.")
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)


def kinds_of(metric: str, n_columns: int, *, sparse: bool) -> tuple[str, ...]:
    """Return the kinds of metric to try for a name."""
    if sparse and metric == "full":
        raise ValueError("metric='full' mixes columns, which needs dense rows; for sparse rows use metric='diagonal'.")
    if metric == "diagonal" or sparse or n_columns == 1:
        return ("diagonal",)
    # Scales are a special case of a matrix, and can be learned from fewer rows.
    return ("diagonal", "full") if metric == "full" or n_columns <= _FULL_COLUMNS else ("diagonal",)


def plain_kernels(kernel: Kernel, n_columns: int, *, several: bool, sparse: bool) -> tuple[Kernel, ...]:
    """Return the kernel, or the candidates with its bandwidth: Gaussian, Matérn of smoothness 1/2, and Laplacian."""
    gamma = kernel.gamma if several else None  # type: ignore[attr-defined]
    if not several:
        return (kernel,)
    found = (Gaussian(gamma), Matern(0.5, gamma))
    # A number would be a width in another distance for the Laplacian kernel.
    laplacian = isinstance(gamma, str) and n_columns <= _LAPLACIAN_COLUMNS and not sparse
    return (*found, Laplacian(gamma)) if laplacian else found
