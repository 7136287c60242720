"""K-means++: first centres for k-means, far from each other, out of rows in memory."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse as sp

from nystrom import compiled
from nystrom.kmeans.assignment import row_squares
from nystrom.types import Array, Matrix

Init = Literal["kmeans++", "greedy"]

# Weights that a draw looks at as one.
_STRETCH = 128


def seed(
    A: Matrix,
    n_clusters: int,
    init: Init,
    rng: np.random.Generator,
    *,
    most_candidates: int | None = None,
    weight: Array | None = None,
) -> Matrix:
    """Return up to ``n_clusters`` rows of ``A`` drawn by k-means++ (Arthur and Vassilvitskii, 2007), in float64.

    Each row is drawn with probability in proportion to its squared distance from the nearest row drawn before; "greedy"
    draws 2 + log m candidates (at most ``most_candidates``) and keeps the one that leaves the least sum of those
    distances. With weights, a row counts as often as its ``weight`` says. There are fewer rows if those left do not
    differ from those drawn by more than rounding. Time O(n m p) times the candidates, memory O(n).

    Examples
    --------
    >>> import numpy as np
    >>> seed(np.array([[0.0], [0.0], [7.0]]), 3, "kmeans++", np.random.default_rng(0)).shape
    (2, 1)
    """
    n = A.shape[0]
    n_candidates = 1 if init == "kmeans++" else 2 + int(np.log(n_clusters))
    if most_candidates is not None:
        if most_candidates < 1:
            raise ValueError(f"most_candidates must be at least 1, or None for no bound; got {most_candidates!r}.")
        n_candidates = min(n_candidates, most_candidates)
    first = int(rng.integers(n)) if weight is None else int(rng.choice(n, p=weight / weight.sum()))
    uniform = rng.random((n_clusters - 1, n_candidates))
    if weight is None and not sp.issparse(A) and compiled.takes(A.dtype) and compiled.suits_seed(n_candidates):
        return A[compiled.seed(A, _short_squares(A), first, uniform, n_clusters)].astype(np.float64)
    distances = _SeedDistances(A)
    zeros, masses = np.zeros(distances.width, A.dtype), np.ones(distances.width, A.dtype)
    if weight is not None:
        masses[:n], masses[n:] = weight / weight.max(), 0
    chosen = [first]
    closest = np.maximum(distances(np.array(chosen))[0], zeros)
    while len(chosen) < n_clusters:
        candidates = _draw_weighted(closest * masses, uniform[len(chosen) - 1])
        if candidates is None:
            break
        candidates = np.minimum(candidates, n - 1)
        nearer = distances(candidates)
        np.minimum(nearer, closest, out=nearer)
        best = int(np.argmin(nearer @ masses)) if n_candidates > 1 else 0
        chosen.append(int(candidates[best]))
        np.maximum(nearer[best], zeros, out=closest)
    return A[chosen].astype(np.float64)


def _draw_weighted(weights: Array, uniform: Array) -> Array | None:
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


def _short_squares(A: Matrix) -> Array:
    """Return the squared norms of the rows, slightly short: the distance of equal rows then comes out below 0."""
    slack = 2.0 * (2.0 + np.sqrt(A.shape[1])) * np.finfo(A.dtype).eps
    return np.asarray((row_squares(A) * (1.0 - slack)).astype(A.dtype))


class _SeedDistances:
    """Squared distances from some rows to all rows of a sample, as one product; not above 0 where they are rounding.

    Columns are added, to ``width``, that are 0 from everywhere and so are never drawn.
    """

    def __init__(self, A: Matrix) -> None:
        n = A.shape[0]
        self.A = A
        self.width = -(-n // _STRETCH) * _STRETCH
        self.squares = _short_squares(A)
        if not sp.issparse(A):
            ones = np.ones_like(self.squares)
            self.left = np.column_stack([-2.0 * A, self.squares, ones]).astype(A.dtype, copy=False)
            self.right = np.zeros((A.shape[1] + 2, self.width), dtype=A.dtype)
            self.right[:, :n] = np.column_stack([A, ones, self.squares]).T

    def __call__(self, candidates: Array) -> Array:
        if not sp.issparse(self.A):
            return np.asarray(self.left[candidates] @ self.right)
        products = (self.A @ self.A[candidates].T).toarray().T
        result = np.zeros((len(candidates), self.width), dtype=self.A.dtype)
        result[:, : self.A.shape[0]] = self.squares[candidates][:, None] + self.squares - 2.0 * products
        return result


__all__ = ["Init", "seed"]
