"""Kernels in a metric: one scale per column, or a matrix that mixes the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nystrom.kernels.base import Kernel, Prepared
from nystrom.types import Array, Matrix, issparse, to_dense

if TYPE_CHECKING:
    from nystrom.engine.passes import Moments


@dataclass(frozen=True, eq=False, repr=False)
class InMetric(Kernel):
    """``k(xA, yA)``: a kernel in the metric ``M = A Aᵀ``.

    Parameters
    ----------
    kernel : Kernel
        The kernel k.
    root : array of shape (p,) or (p, q)
        One scale per column, for dense or sparse rows; or the matrix A, for dense rows.

    Examples
    --------
    >>> import numpy as np
    >>> from nystrom.kernels import Gaussian
    >>> InMetric(Gaussian(1.0), np.array([1.0, 0.0]))(np.array([[0.0, 5.0]]), np.array([[1.0, 7.0]])).round(3)
    array([[0.368]])
    """

    kernel: Kernel
    root: Array

    def __post_init__(self) -> None:
        root = np.array(self.root, dtype=np.float64)
        if root.ndim not in (1, 2) or not root.size or not np.isfinite(root).all():
            raise ValueError(
                f"a metric must be one finite scale per column, or a finite matrix with a row per column; got "
                f"{self.root!r}."
            )
        root.setflags(write=False)
        object.__setattr__(self, "root", root)

    @property
    def is_psd(self) -> bool:
        return self.kernel.is_psd

    @property
    def needs_moments(self) -> bool:
        return self.kernel.needs_moments

    def bind(self, names: Sequence[str] | None, n_columns: int, table: object = None) -> Kernel:
        # A matrix produces new columns without names.
        own = names if self.root.ndim == 1 else None
        return InMetric(self.kernel.bind(own, self.root.shape[-1]), self.root)

    def of_new_columns(self, n_columns: int) -> Kernel:
        scale = float(np.sqrt(np.sum(self.root**2) / len(self.root)))
        return InMetric(self.kernel.of_new_columns(n_columns), np.full(n_columns, scale))

    def mean_columns(self, n_columns: int) -> Array:
        found = self.kernel.mean_columns(self.root.shape[-1])
        return found if self.root.ndim == 1 else np.full(n_columns, found.all())

    def resolve(self, moments: Moments) -> Kernel:
        """Return this kernel with a number for ``gamma``; the moments are those of the rows in the metric."""
        return InMetric(self.kernel.resolve(moments), self.root)

    def prepare(self, Z: Matrix, center: Array | None = None) -> Prepared:
        middle = None if center is None else to_dense(to_metric(center[None, :], self.root))[0]
        return _InMetric(self.kernel.prepare(to_metric(Z, self.root), middle), self.root)

    def diag(self, A: Matrix, start: int = 0) -> Array:
        return self.kernel.diag(to_metric(A, self.root), start)

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, InMetric) and self.kernel == other.kernel
        return same and np.array_equal(self.root, other.root)  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((self.kernel, self.root.shape, self.root.tobytes()))

    def __repr__(self) -> str:
        return f"InMetric({self.kernel!r}, {'diagonal' if self.root.ndim == 1 else 'full'})"


@dataclass(frozen=True)
class _InMetric:
    prepared: Prepared
    root: Array

    def __call__(self, X: Matrix) -> Array:
        values = self.prepared(to_metric(X, self.root))
        return values.astype(np.float32) if X.dtype == np.float32 else values


def to_metric(X: Matrix, root: Array) -> Matrix:
    """Return ``X A`` in float64: each column times its scale, or rows times the matrix.

    Products in float32 would lose the digits in which float32 rows far from the origin differ.
    """
    if X.shape[1] != root.shape[0]:
        raise ValueError(
            f"the metric, or gamma as an array, is for rows of {root.shape[0]} columns; these have {X.shape[1]}."
        )
    if root.ndim == 2:
        if issparse(X):
            raise ValueError("sparse rows allow a diagonal metric only: give one scale per column, or dense rows.")
        return X.astype(np.float64, copy=False) @ root
    if issparse(X):
        scaled = X.astype(np.float64)  # a copy in any case
        scaled.data *= root[X.indices]
        return scaled
    return X * root
