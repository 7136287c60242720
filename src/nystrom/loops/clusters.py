"""The loops of k-means: seeds, the nearest centre, sums by label."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from nystrom.devices import DeviceArray, Sent, on_device
from nystrom.loops import device
from nystrom.loops.extension import Columns, aligned, by_rows, check_columns, native, takes
from nystrom.types import Array, Matrix, issparse

# Number of columns up to which float32 blocks are summed directly in float64: cheap, and exact for repeated rows.
_NARROW = 64


def sum_by_label(labels: Array, X: Array, n_clusters: int, shift: Array | None = None) -> tuple[Array, Array, float]:
    """Return, for rows minus ``shift``, the sums by label, the counts, and the sum of all squared norms.

    Without a shift the squared norms are not summed and NaN is returned for them. Time O(np), memory for the result.

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
    if on_device(X):
        moved = X if shift is None else np.subtract(X, shift, dtype=np.float64)
        squares = float("nan") if shift is None else float(np.einsum("ij,ij->", moved, moved))
        return device.sum_by_label(labels, moved, n_clusters), np.bincount(labels, minlength=n_clusters), squares
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

# Number of scores (rows × centres) per tile: smaller tiles contend for the GIL.
_TILE_SCORES = 2**20
# Number of scores per tile on a device.
_DEVICE_SCORES = 2**24
# Largest number of columns for the compiled loop, which keeps whole rows in the cache.
_MAX_LOOP_COLUMNS = 1024


class NearestColumn:
    """``X ↦`` the number of the first column j with the largest ``(x − shift) · column_j − half_j``, as int32.

    A NaN score is never the largest; a row with only NaN scores gets 0.

    Parameters
    ----------
    columns : ndarray of shape (p, m), m at least 1, float32 or float64
        Its dtype is that of the rows.
    half : ndarray of shape (m,)
    shift : ndarray of shape (p,)

    Examples
    --------
    >>> import numpy as np
    >>> centres = np.array([[1.0, 8.0]])
    >>> NearestColumn(centres, centres[0] ** 2 / 2, np.zeros(1))(np.array([[0.0], [9.0]]))
    array([0, 1], dtype=int32)
    """

    def __init__(self, columns: Array, half: Array, shift: Array) -> None:
        bad = np.isnan(columns).any(axis=0) | np.isnan(half)
        if bad.any():
            columns, half = np.where(bad, 0, columns), np.where(bad, np.inf, half)
        self._columns = Columns(columns)
        self.dtype = self._columns.values.dtype
        self.half = np.ascontiguousarray(half, self.dtype)
        self.shift = np.ascontiguousarray(shift, self.dtype)
        self._sent = Sent(self.half), Sent(self.shift)

    def __call__(self, X: Array) -> Array:
        p = self.shift.size
        check_columns(X, p)
        if on_device(X):
            return self._on_device(X)
        if native is None or X.dtype != self.dtype or not takes(X.dtype) or p > _MAX_LOOP_COLUMNS:
            return self._by_tiles(X)
        labels = np.empty(X.shape[0], np.int32)
        native.nearest(by_rows(X), self._columns.panels(native), self.half, self.shift, labels)
        return labels

    def _on_device(self, X: DeviceArray) -> Array:
        tile = max(_DEVICE_SCORES // len(self.half), 64)
        columns, beside = self._columns.beside(X), [each.beside(X) for each in self._sent]
        return np.concatenate(
            [device.nearest(X[first : first + tile], columns, *beside) for first in range(0, max(len(X), 1), tile)]
        )

    def _by_tiles(self, X: Array) -> Array:
        n, (p, m) = X.shape[0], self._columns.values.shape
        tile = min(max(_TILE_SCORES // m, 64), max(n, 1))
        # One product per tile: the scores are those of [x − shift, 1] with [column, −half].
        table = np.concatenate([self._columns.values, -self.half[None, :]])
        rows, scores = np.ones((tile, p + 1), self.dtype), np.empty((tile, m), self.dtype)
        labels = np.empty(n, np.intp)
        for start in range(0, n, tile):
            stop = min(start + tile, n)
            np.subtract(X[start:stop], self.shift, out=rows[: stop - start, :p], casting="same_kind")
            np.dot(rows[: stop - start], table, out=scores[: stop - start])
            labels[start:stop] = first_largest(scores[: stop - start])
        return labels.astype(np.int32)


def first_largest(scores: Array) -> Array:
    """Return the number of the first largest score of each row; NaN is never the largest."""
    labels = np.argmax(scores, axis=1)
    # argmax treats NaN as the largest, so only rows whose largest is NaN need a second search.
    unknown = np.flatnonzero(np.isnan(scores[np.arange(labels.size), labels]))
    if unknown.size:
        part = scores[unknown]
        labels[unknown] = np.argmax(np.where(np.isnan(part), -np.inf, part), axis=1)
    return labels


__all__ = ["NearestColumn", "first_largest"]

# Number of weights per stretch; a draw first selects a stretch.
_STRETCH = 128
# Minimum number of products (numbers × candidates) for several threads: fewer are done before a second one starts.
_MANY_PRODUCTS = 2**20


def draw_seeds(
    A: Matrix,
    squares: Array,
    first: int,
    uniform: Array,
    n_clusters: int,
    weight: Array | None = None,
    *,
    n_threads: int = 1,
) -> Array:
    """Return the numbers of up to ``n_clusters`` rows of ``A`` drawn by k-means++; the first is given.

    Each next row is drawn in proportion to its squared distance from the rows already drawn, once per candidate, and
    the candidate with the smallest resulting sum of distances is kept. There are fewer if all others have distance 0.

    Parameters
    ----------
    A : ndarray or CSR of shape (n, p)
    squares : ndarray of shape (n,), of the dtype of A
        Squared norms of the rows, rounded down, so that equal rows have a distance below 0.
    first : int
    uniform : ndarray of shape (n_clusters − 1, candidates)
        Draws from [0, 1).
    weight : ndarray of shape (n,), optional
        Number of repetitions of each row; NumPy then does the work.
    n_threads : int
        Threads of the compiled loop, if there are enough rows for several. The draws do not depend on it.
    """
    if uniform.ndim != 2 or uniform.shape[0] != n_clusters - 1 or uniform.shape[1] < 1:
        raise ValueError(
            f"uniform must have {n_clusters - 1} rows and a column per candidate, at least one; got {uniform.shape}."
        )
    if not 0 <= first < A.shape[0]:
        raise ValueError(f"first must be the number of a row, from 0 to {A.shape[0] - 1}; got {first}.")
    if native is None or weight is not None or issparse(A) or not takes(A.dtype):
        return _draw_by_products(A, squares, first, uniform, n_clusters, weight)
    A = np.require(A, A.dtype.newbyteorder("="), ["ALIGNED"])
    if A.strides[0] % A.itemsize or A.strides[1] % A.itemsize:
        A = A.copy()
    chosen = np.empty(n_clusters, np.int64)
    chosen[0] = first
    squares, uniform = np.ascontiguousarray(squares, A.dtype), np.ascontiguousarray(uniform, np.float64)
    shared = A.size * uniform.shape[1] >= _MANY_PRODUCTS
    return chosen[: native.seed(A, squares, uniform, chosen, n_threads if shared else 1)]


def _draw_by_products(
    A: Matrix, squares: Array, first: int, uniform: Array, n_clusters: int, weight: Array | None
) -> Array:
    n = A.shape[0]
    distances = _Distances(A, squares)
    zeros, masses = np.zeros(distances.width, A.dtype), np.ones(distances.width, A.dtype)
    if weight is not None:
        masses[:n], masses[n:] = weight / weight.max(), 0
    chosen = [first]
    closest = np.maximum(distances(np.array(chosen))[0], zeros)
    while len(chosen) < n_clusters:
        candidates = draw_weighted(closest * masses, uniform[len(chosen) - 1])
        if candidates is None:
            break
        candidates = np.minimum(candidates, n - 1)
        nearer = distances(candidates)
        np.minimum(nearer, closest, out=nearer)
        best = int(np.argmin(nearer @ masses)) if uniform.shape[1] > 1 else 0
        chosen.append(int(candidates[best]))
        np.maximum(nearer[best], zeros, out=closest)
    return np.array(chosen)


def draw_weighted(weights: Array, uniform: Array) -> Array | None:
    """Return numbers drawn in proportion to ``weights``, one per number in ``uniform``; None if no weight is positive.

    A stretch of 128 weights is drawn first, then one of them: a cumulative sum of all weights is five times slower.
    """
    stretches = weights.reshape(-1, _STRETCH)
    sums = stretches @ np.ones(_STRETCH, weights.dtype)
    ends = np.cumsum(sums, dtype=np.float64)
    if not ends[-1] > 0:
        return None
    target = np.minimum(uniform * ends[-1], np.nextafter(ends[-1], 0.0))
    stretch = np.searchsorted(ends, target, side="right")
    inner = np.cumsum(stretches[stretch], axis=1, dtype=np.float64)
    share = 1.0 - (ends[stretch] - target) / sums[stretch]
    place = np.count_nonzero(inner <= (share * inner[:, -1])[:, None], axis=1)
    return np.asarray(stretch * _STRETCH + np.minimum(place, _STRETCH - 1))


class _Distances:
    """Squared distances from some rows to all rows of a sample, as one product; distances within rounding are ≤ 0.

    Columns are padded to ``width`` with zeros, which have distance 0 and are never drawn.
    """

    def __init__(self, A: Matrix, squares: Array) -> None:
        n = A.shape[0]
        self.A = A
        self.width = -(-n // _STRETCH) * _STRETCH
        self.squares = squares
        if not issparse(A):
            ones = np.ones_like(self.squares)
            self.left = np.column_stack([-2.0 * A, self.squares, ones]).astype(A.dtype, copy=False)
            self.right = np.zeros((A.shape[1] + 2, self.width), dtype=A.dtype)
            self.right[:, :n] = np.column_stack([A, ones, self.squares]).T

    def __call__(self, candidates: Array) -> Array:
        if not issparse(self.A):
            return np.asarray(self.left[candidates] @ self.right)
        products = (self.A @ self.A[candidates].T).toarray().T
        result = np.zeros((len(candidates), self.width), dtype=self.A.dtype)
        result[:, : self.A.shape[0]] = self.squares[candidates][:, None] + self.squares - 2.0 * products
        return result


__all__ = ["draw_seeds", "draw_weighted"]
