"""Sums of dense rows by label, in float64."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from nystrom.loops.extension import aligned, by_rows, check_columns, native, takes
from nystrom.types import Array

# Up to this many columns a float32 block is summed in float64 at once: it costs little, and repeated rows stay exact.
_NARROW = 64


def sum_by_label(labels: Array, X: Array, n_clusters: int, shift: Array | None = None) -> tuple[Array, Array, float]:
    """Return, for rows minus ``shift``, the sums by label, the counts, and the sum of all squared norms.

    Without a shift the squared norms are not summed, and NaN stands in their place. Time O(np), memory for the result.

    Examples
    --------
    >>> import numpy as np
    >>> sum_by_label(np.array([0, 1, 0]), np.array([[1.0], [5.0], [3.0]]), 2)[:2]
    (array([[4.],
           [5.]]), array([2, 1]))
    """
    check_columns(X, X.shape[-1] if shift is None else len(shift))
    labels = np.asarray(labels)
    if labels.shape != X.shape[:1] or (labels.size and not 0 <= labels.min() <= labels.max() < n_clusters):
        raise ValueError(f"labels must be one number from 0 to {n_clusters - 1} for each of {X.shape[0]} rows.")
    X = by_rows(X)
    if native is None or not takes(X.dtype):
        return _by_products(labels, X, n_clusters, shift)
    shift = None if shift is None else aligned(shift, X.dtype)
    sums, counts = np.zeros((n_clusters, X.shape[1])), np.zeros(n_clusters, np.int64)
    squares = native.cluster_sums(X, aligned(labels, np.int32), shift, sums, counts)
    return sums, counts, float("nan") if shift is None else squares


def _by_products(labels: Array, X: Array, n_clusters: int, shift: Array | None) -> tuple[Array, Array, float]:
    """Do the same by the product of the one-hot matrix of the labels and the rows."""
    n, squares = X.shape[0], float("nan")
    counts = np.bincount(labels, minlength=n_clusters)
    if shift is not None:
        X = np.subtract(X, shift.astype(X.dtype), dtype=np.float64)
        squares = float(np.einsum("ij,ij->", X, X))
    elif X.dtype == np.float32 and X.shape[1] <= _NARROW:
        X = X.astype(np.float64)
    columns = np.arange(n + 1, dtype=np.int32)
    ones = np.ones(n, dtype=X.dtype)
    one_hot = sp.csc_matrix((ones, labels.astype(np.int32), columns), shape=(n_clusters, n), copy=False)
    return np.asarray(one_hot @ X), counts, squares


__all__ = ["sum_by_label"]
