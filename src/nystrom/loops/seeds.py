"""K-means++: rows far from each other, drawn in proportion to squared distances."""

from __future__ import annotations

import numpy as np

from nystrom.loops.extension import native, takes
from nystrom.types import Array, Matrix, issparse

# Weights that a draw looks at as one.
_STRETCH = 128
# Fewer products of numbers and candidates are made by one thread before a second has begun.
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
    """Return the numbers of up to ``n_clusters`` rows of ``A`` drawn by k-means++, the first of them given.

    Each next row is drawn in proportion to its squared distance from those drawn before, once per candidate, and the
    candidate that leaves the least sum of distances is kept. There are fewer if no row is left at a distance.

    Parameters
    ----------
    A : ndarray or CSR of shape (n, p)
    squares : ndarray of shape (n,), of the dtype of A
        Squared norms of the rows, short by rounding: the distance of equal rows then comes out below 0.
    first : int
    uniform : ndarray of shape (n_clusters − 1, candidates)
        Draws from [0, 1).
    weight : ndarray of shape (n,), optional
        How often each row counts; NumPy then does the work.
    n_threads : int
        Of the compiled loop, where there are enough rows for more than one. The draws do not depend on it.
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
    """Return numbers drawn in proportion to ``weights``, one for each of ``uniform``; None if no weight is positive.

    First a stretch of 128 weights is drawn, then one of them: a cumulative sum of all is five times slower.
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
    """Squared distances from some rows to all rows of a sample, as one product; not above 0 where they are rounding.

    Columns are filled up to ``width`` with zeros: at distance 0 from everywhere, they are never drawn.
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
