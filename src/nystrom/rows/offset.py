"""Sparse rows far from the origin: the few columns that put them there are moved to it before squares are taken."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from nystrom.types import Array, SparseMatrix

# A column whose mean squared is below so many times the spread of all costs no digits that matter.
_WORTH = 2.0**10


def offset_columns(mean: Array, spread: float) -> Array | None:
    """Return the mean in the columns that are far from 0 beside the spread of the rows, 0 in others; None if none is.

    Examples
    --------
    >>> import numpy as np
    >>> offset_columns(np.array([1e6, 0.5]), 2.0)
    array([1000000.,       0.])
    """
    # By the root: squares of means above 1e154 would overflow.
    far = np.abs(mean) > np.sqrt(_WORTH) * np.sqrt(max(spread, np.finfo(np.float64).tiny))
    return np.where(far, mean, 0.0) if far.any() else None


def minus_columns(X: SparseMatrix, shift: Array) -> SparseMatrix:
    """Return the CSR rows ``x − shift`` in the dtype of X; columns in which the shift is 0 stay as they are."""
    columns = np.flatnonzero(shift)
    n = X.shape[0]
    values = np.tile(shift[columns].astype(X.dtype), n)
    starts = len(columns) * np.arange(n + 1)
    moved = X - sp.csr_matrix((values, np.tile(columns, n), starts), shape=X.shape)
    return sp.csr_matrix(moved)
