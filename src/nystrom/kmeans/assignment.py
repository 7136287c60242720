"""Which centre is nearest to each row, and the sums of the rows of each cluster.

Assignment is one matrix product per tile: with rows x and centres c about a common origin, the nearest centre has
the largest ``x·c - ‖c‖²/2``, which is the product of ``[x, 1]`` and ``[c, -‖c‖²/2]``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from nystrom import loops
from nystrom.devices import on_device
from nystrom.kernels.pairwise import squared_norms
from nystrom.loops.device import sum_by_label
from nystrom.rows.base import Block
from nystrom.rows.sparse import canonical, minus_columns, native
from nystrom.types import Array, Matrix, SparseMatrix, issparse, to_dense

# Scores of one tile (rows × centres): smaller tiles contend for the GIL.
_TILE_SCORES = 2**20


# Squares of numbers in these ranges, and sums of them, stay within that of the dtype.
_SIZES = {"float32": (1e-15, 1e15), "float64": (1e-140, 1e140)}

# Powers of two that the dtype holds: denormal numbers are brought as near to 1 as these allow.
_MOST_BITS = {"float32": 120, "float64": 1000}


def largest_magnitude(X: Matrix) -> float:
    """Return the largest of ``|x|``, 0 if there are no numbers; NaN if one is."""
    values = X.data if issparse(X) else X
    # Two readings are quicker than an array of magnitudes.
    return float(max(np.max(values, initial=0.0), -np.min(values, initial=0.0)))


def range_factor(X: Matrix, dtype: np.dtype) -> float:
    """Return 1, or the power of two that brings numbers to where their squares stay within the range of the dtype."""
    largest = largest_magnitude(X)
    low, high = _SIZES[np.dtype(dtype).name]
    if low < largest < high or not 0 < largest < np.inf:
        return 1.0
    return float(2.0 ** min(-np.floor(np.log2(largest)), _MOST_BITS[np.dtype(dtype).name]))


class Nearest:
    """Find the nearest of some centres for each row: the hot path of every iteration.

    Parameters
    ----------
    centers : ndarray or CSR of shape (m, p)
        The centres minus ``shift``.
    shift : ndarray of shape (p,) or None
        Taken away from rows first: products of rows far from the origin would cost digits.
    dtype : dtype
        Of the rows.
    sparse : bool
        Whether the rows are, so that the shift may have few entries that are not 0.
    """

    def __init__(self, centers: Matrix, shift: Array | None, dtype: np.dtype, *, sparse: bool = False) -> None:
        moved = [centers] if shift is None else [centers, shift]
        self.factor = min((range_factor(each, dtype) for each in moved), key=lambda factor: abs(math.log2(factor)))
        self.offset = shift if sparse else None
        shift = None if sparse else shift
        self.shift = None if shift is None else shift.astype(dtype)
        centers = centers * self.factor if self.factor != 1 else centers
        self.n_centers = int(centers.shape[0])
        half = (squared_norms(centers) / 2).astype(dtype)
        self._dense: loops.NearestColumn | None = None
        self._sparse: loops.SparseProduct | None = None
        if self.shift is not None:
            self._dense = loops.NearestColumn(
                np.ascontiguousarray(centers.T, dtype), half, self.shift * self.shift.dtype.type(self.factor)
            )
        else:
            self._sparse, self._half = loops.SparseProduct(centers, dtype), half

    def __call__(self, X: Matrix) -> Array:
        """Return the number of the nearest centre of each row, as int32; of equals the first."""
        if self.factor != 1:
            X = X * X.dtype.type(self.factor)
        if self._dense is not None:
            return self._dense(to_dense(X))
        assert self._sparse is not None
        assert issparse(X)
        if self.offset is not None:
            X = minus_columns(X, self.offset * self.factor)
        n = X.shape[0]
        labels = np.empty(n, dtype=np.int32)
        tile = min(max(_TILE_SCORES // self.n_centers, 64), max(n, 1))
        for start in range(0, n, tile):
            scores = self._sparse(X[start : start + tile])
            scores -= self._half
            labels[start : start + tile] = loops.first_largest(scores)
        return labels

    def centred(self, X: Matrix) -> Matrix:
        """Return the rows minus the shift, in float64."""
        if self.shift is not None:
            return np.subtract(to_dense(X), self.shift, dtype=np.float64)
        X = X.astype(np.float64)
        return minus_columns(X, self.offset) if issparse(X) and self.offset is not None else X


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
    if issparse(X) or issparse(centers):
        centers = canonical(centers, "centers") if issparse(centers) else centers
        return Nearest(centers, None, X.dtype)(canonical(X) if issparse(X) else sp.csr_matrix(X))
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
        if issparse(self.sums):
            return ClusterSums(self.sums + other.sums, counts, weights)
        if self.sums.dtype == np.float64:
            np.add(self.sums, to_dense(other.sums), out=self.sums)
            return ClusterSums(self.sums, counts, weights)
        return ClusterSums(np.add(self.sums, to_dense(other.sums), dtype=np.float64), counts, weights)

    def means(self) -> Matrix:
        """Return the means of the clusters that have rows, in order, in float64; CSR where that is smaller."""
        kept = np.flatnonzero(self.counts)
        sums = self.sums if kept.size == self.counts.size else self.sums[kept]
        masses = self.masses[kept].astype(np.float64)
        if not issparse(sums):
            return sums / masses[:, None]
        means = sp.csr_matrix(sp.diags(1.0 / masses) @ sums)
        # CSR takes 12 bytes per entry in float64, dense takes 8.
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
    if not issparse(X):
        sums, counts, _ = loops.sum_by_label(labels, X, n_clusters)
        return ClusterSums(sums, counts)
    counts = np.bincount(labels, minlength=n_clusters)
    # By rows, as X is: a product of CSC and CSR would first turn X around.
    order = np.argsort(labels, kind="stable").astype(np.int32)
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    one_hot = sp.csr_matrix((np.ones(X.shape[0]), order, ends), shape=(n_clusters, X.shape[0]), copy=False)
    return ClusterSums((one_hot @ X.astype(np.float64, copy=False)).tocsr(), counts)


def _weighted_sums(labels: Array, X: Matrix, n_clusters: int, weight: Array) -> ClusterSums:
    heavy = np.flatnonzero(weight > 0)
    counts = np.bincount(labels[heavy], minlength=n_clusters)
    if on_device(X):
        there = sum_by_label(labels, X, n_clusters, weight)
        return ClusterSums(there, counts, np.bincount(labels, weight, minlength=n_clusters))
    n = X.shape[0]
    hot = sp.csr_matrix((weight[heavy], (labels[heavy], heavy)), shape=(n_clusters, n))
    sums = hot @ X.astype(np.float64, copy=False)
    sums = sums.tocsr() if issparse(sums) else np.asarray(sums)
    return ClusterSums(sums, counts, np.bincount(labels, weight, minlength=n_clusters))


__all__ = ["ClusterSums", "Nearest", "assign", "cluster_sums"]


@dataclass(frozen=True)
class Farthest:
    """The rows farthest from their centres: distances, labels and row numbers, in falling order of distance."""

    distances: Array
    labels: Array
    numbers: Array
    limit: int

    def merge(self, other: Farthest) -> Farthest:
        return _farthest(
            np.concatenate([self.distances, other.distances]),
            np.concatenate([self.labels, other.labels]),
            np.concatenate([self.numbers, other.numbers]),
            self.limit,
        )


def _farthest(distances: Array, labels: Array, numbers: Array, limit: int) -> Farthest:
    """Keep the ``limit`` largest distances; rows equal in distance and cluster are taken for the same row."""
    order = np.lexsort((numbers, labels, -distances))
    distances, labels, numbers = distances[order], labels[order], numbers[order]
    first = np.ones(order.size, dtype=bool)
    first[1:] = (np.diff(distances) != 0) | (np.diff(labels) != 0)
    kept = np.flatnonzero(first)[:limit]
    return Farthest(distances[kept], labels[kept], numbers[kept], limit)


@dataclass(frozen=True)
class FindFarthest:
    """Find the farthest rows of a block among the clusters that have a row to spare."""

    nearest: Nearest
    centers: Matrix
    spare: Array
    limit: int

    def __call__(self, block: Block) -> Farthest:
        labels = self.nearest(block.X)
        X = self.nearest.centred(block.X)
        squares = squared_norms(X)
        # A mean of equal rows differs from them by rounding; that is no distance.
        if issparse(X):
            own = self.centers[labels]
            products = X.multiply(own).sum(axis=1) if issparse(own) else _products(X, own)
            distances = squares - 2 * np.asarray(products).ravel() + squared_norms(self.centers)[labels]
            noise = 1e-12 * squares
        else:
            distances = squared_norms(X - self.centers[labels])
            noise = (1e-12 if block.X.dtype == np.float32 else 1e-24) * squares
        heavy = True if block.weight is None else np.asarray(block.weight) > 0
        able = np.flatnonzero((distances > noise) & self.spare[labels] & heavy)
        return _farthest(distances[able], labels[able], block.start + able, self.limit)


def _products(X: SparseMatrix, own: Array) -> Array:
    """Return x·c for each CSR row x and its own dense centre c."""
    lengths = np.diff(X.indptr)
    owner = np.repeat(np.arange(X.shape[0]), lengths)
    return np.bincount(owner, X.data * own[owner, X.indices], minlength=X.shape[0])
