"""K-means++: first centres for k-means, far from each other, out of rows in memory."""

from __future__ import annotations

from typing import Literal

import numpy as np

from nystrom import loops
from nystrom.kernels.pairwise import squared_norms
from nystrom.types import Array, Matrix

Init = Literal["kmeans++", "greedy"]


def seed(
    A: Matrix,
    n_clusters: int,
    init: Init,
    rng: np.random.Generator,
    *,
    most_candidates: int | None = None,
    weight: Array | None = None,
    n_threads: int = 1,
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
    drawn = loops.draw_seeds(A, _short_squares(A), first, uniform, n_clusters, weight, n_threads=n_threads)
    return A[drawn].astype(np.float64)


def _short_squares(A: Matrix) -> Array:
    """Return the squared norms of the rows, rounded down a little, so that equal rows have a distance below 0."""
    slack = 2.0 * (2.0 + np.sqrt(A.shape[1])) * np.finfo(A.dtype).eps
    return np.asarray((squared_norms(A) * (1.0 - slack)).astype(A.dtype))


__all__ = ["Init", "seed"]
