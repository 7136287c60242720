"""Which centre is nearest to each row, and the sums of the rows of each cluster.

Assignment is one matrix product a tile: with rows x and centres c about a common origin, the nearest centre has
the largest ``x·c - ‖c‖²/2``, which is the product of ``[x, 1]`` and ``[c, -‖c‖²/2]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from nystrom import compiled
from nystrom.rows.sparse import canonical, native
from nystrom.types import Array, Matrix

# Scores of one tile (rows × centres): more calls of less work would have threads wait for the interpreter.
_TILE_SCORES = 2**20
# Up to this many columns a float32 block is summed in float64 at once: it costs little, and repeated rows stay exact.
_NARROW = 64


class Nearest:
    """Find the nearest of some centres for each row: the hot path of every iteration.

    Parameters
    ----------
    centers : ndarray or CSR of shape (m, p)
        The centres, less ``shift``.
    shift : ndarray of shape (p,) or None
        Taken away from dense rows first: products of rows far from the origin would cost digits.
    dtype : dtype
        Of the rows.
    """

    def __init__(self, centers: Matrix, shift: Array | None, dtype: np.dtype[Any]) -> None:
        self.shift = None if shift is None else shift.astype(dtype)
        self.n_centers = int(centers.shape[0])
        squares = row_squares(centers)
        if shift is None:
            transposed = centers.T.astype(dtype)
            self.table = transposed.tocsr() if sp.issparse(centers) else np.ascontiguousarray(transposed)
            self.half = (squares / 2).astype(dtype)
        else:
            self.table = np.concatenate([centers.T, -squares[None, :] / 2]).astype(dtype)
        self._loops: compiled.Nearest | None = None
        if self.shift is not None and compiled.takes(dtype) and compiled.suits_nearest(centers.shape[1]):
            self._loops = compiled.Nearest.prepare(self.table[:-1], -self.table[-1], self.shift)
        self._sparse_loops: compiled.SparseExponents | None = None
        if sp.issparse(centers):
            self._sparse_loops = compiled.SparseExponents.prepare(centers, dtype)

    def __call__(self, X: Matrix) -> Array:
        """Return the number of the nearest centre of each row, as int32; of equals the first."""
        if self._loops is not None and compiled.available() and X.dtype == self.table.dtype:
            return self._loops(X)
        n = X.shape[0]
        labels = np.empty(n, dtype=np.intp)
        tile = min(max(_TILE_SCORES // self.n_centers, 64), max(n, 1))
        scores = self._apart if self.shift is None else _Tiles(self.table, self.shift, tile)
        for start in range(0, n, tile):
            stop = min(start + tile, n)
            np.argmax(scores(X[start:stop]), axis=1, out=labels[start:stop])
        return labels.astype(np.int32)

    def _apart(self, X: Matrix) -> Array:
        if self._sparse_loops is not None and compiled.available() and X.dtype == self.half.dtype:
            scores = self._sparse_loops(X)
        else:
            scores = X @ self.table
            scores = scores.toarray() if sp.issparse(scores) else scores
        scores -= self.half
        return np.asarray(scores)


class _Tiles:
    """Scores of dense rows, in memory that is used again for each tile."""

    def __init__(self, table: Array, shift: Array, tile: int) -> None:
        self.table = table
        self.shift = shift
        self.rows = np.ones((tile, table.shape[0]), dtype=table.dtype)
        self.scores = np.empty((tile, table.shape[1]), dtype=table.dtype)

    def __call__(self, X: Array) -> Array:
        n = len(X)
        np.subtract(X, self.shift, out=self.rows[:n, :-1])
        return np.dot(self.rows[:n], self.table, out=self.scores[:n])


def row_squares(A: Matrix) -> Array:
    """Return the squared norm of each row, in float64."""
    if sp.issparse(A):
        A = A.astype(np.float64)
        return np.asarray(A.multiply(A).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", A, A, dtype=np.float64))


def assign(X: Matrix, centers: Matrix) -> Array:
    """Return the number of the nearest centre of each row (int32; of equals the first).

    Time O(n m p); memory for one tile of scores beside the labels.

    Examples
    --------
    >>> import numpy as np
    >>> assign(np.array([[0.0], [9.0], [4.0]]), np.array([[1.0], [8.0]]))
    array([0, 1, 0], dtype=int32)
    """
    X = native(X)
    if sp.issparse(X) or sp.issparse(centers):
        centers = canonical(centers, "centers") if sp.issparse(centers) else centers
        return Nearest(centers, None, X.dtype)(canonical(X) if sp.issparse(X) else sp.csr_matrix(X))
    shift = centers.mean(axis=0, dtype=np.float64).astype(X.dtype)
    return Nearest(centers - shift, shift, X.dtype)(X)


@dataclass(frozen=True)
class ClusterSums:
    """Sums of the rows of each cluster, and their numbers. Merges by addition, in float64.

    ``sums`` is an ndarray for dense rows and CSR for CSR rows, so that m clusters of rows with very many columns
    take the memory of what is not zero. With weights, rows are summed as often as these say, ``weights`` holds the sums
    of them, and ``counts`` are the rows whose weight is not 0.
    """

    sums: Matrix
    counts: Array
    weights: Array | None = None

    @property
    def masses(self) -> Array:
        """The sum of the weights of each cluster's rows; their number without weights."""
        return self.counts if self.weights is None else self.weights

    def merge(self, other: ClusterSums) -> ClusterSums:
        counts = self.counts + other.counts
        weights = None if self.weights is None or other.weights is None else self.weights + other.weights
        if sp.issparse(self.sums):
            return ClusterSums(self.sums + other.sums, counts, weights)
        if self.sums.dtype == np.float64:
            np.add(self.sums, other.sums, out=self.sums)
            return ClusterSums(self.sums, counts, weights)
        return ClusterSums(np.add(self.sums, other.sums, dtype=np.float64), counts, weights)

    def means(self) -> Matrix:
        """Return the means of the clusters that have rows, in order, in float64; CSR where that is smaller."""
        kept = np.flatnonzero(self.counts)
        sums = self.sums if kept.size == self.counts.size else self.sums[kept]
        masses = self.masses[kept].astype(np.float64)
        if not sp.issparse(sums):
            return sums / masses[:, None]
        means = sp.csr_matrix(sp.diags(1.0 / masses) @ sums)
        # CSR takes 12 bytes an entry in float64, dense takes 8.
        return means if 12 * means.nnz < 8 * means.shape[0] * means.shape[1] else means.toarray()


def cluster_sums(labels: Array, X: Matrix, n_clusters: int, weight: Array | None = None) -> ClusterSums:
    """Sum the rows of one block by cluster: step 5 of Algorithm 3, before the division.

    The sum is the product of the one-hot matrix of the labels and the rows: O(np) time (O(nnz) for CSR), and memory
    for the result. Wide float32 blocks are summed in float32, and blocks are added up in float64.

    Examples
    --------
    >>> import numpy as np
    >>> cluster_sums(np.array([0, 1, 0]), np.array([[1.0], [5.0], [3.0]]), 2).means().ravel()
    array([2., 5.])
    """
    if weight is not None:
        return _weighted_sums(labels, X, n_clusters, np.asarray(weight, dtype=np.float64))
    if not sp.issparse(X) and compiled.takes(X.dtype):
        sums, counts, _ = compiled.cluster_sums(labels, X, n_clusters)
        return ClusterSums(sums, counts)
    n = X.shape[0]
    counts = np.bincount(labels, minlength=n_clusters)
    if sp.issparse(X) or (X.dtype == np.float32 and X.shape[1] <= _NARROW):
        X = X.astype(np.float64, copy=False)
    ones = np.ones(n, dtype=X.dtype)
    if sp.issparse(X):
        # By rows, as X is: a product of CSC and CSR would first turn X around.
        order = np.argsort(labels, kind="stable").astype(np.int32)
        ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        one_hot = sp.csr_matrix((ones, order, ends), shape=(n_clusters, n), copy=False)
    else:
        columns = np.arange(n + 1, dtype=np.int32)
        one_hot = sp.csc_matrix((ones, labels.astype(np.int32, copy=False), columns), shape=(n_clusters, n), copy=False)
    sums = one_hot @ X
    return ClusterSums(sums.tocsr() if sp.issparse(sums) else np.asarray(sums), counts)


def _weighted_sums(labels: Array, X: Matrix, n_clusters: int, weight: Array) -> ClusterSums:
    heavy = np.flatnonzero(weight > 0)
    counts = np.bincount(labels[heavy], minlength=n_clusters)
    n = X.shape[0]
    hot = sp.csr_matrix((weight[heavy], (labels[heavy], heavy)), shape=(n_clusters, n))
    sums = hot @ X.astype(np.float64, copy=False)
    sums = sums.tocsr() if sp.issparse(sums) else np.asarray(sums)
    return ClusterSums(sums, counts, np.bincount(labels, weight, minlength=n_clusters))


__all__ = ["ClusterSums", "Nearest", "assign", "cluster_sums", "row_squares"]
