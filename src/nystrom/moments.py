"""The number, mean and spread of rows, merged without losing digits far from the origin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from nystrom import compiled
from nystrom.types import Array, Matrix


@dataclass(frozen=True)
class Moments:
    """Number of rows, their mean, and the sum of squared distances to that mean.

    Merging follows Chan, Golub and LeVeque: sums of squares are always about the mean of their own rows, so data
    far from the origin loses no digits.
    """

    count: int
    mean: Array
    scatter: float

    @property
    def spread(self) -> float:
        """Mean squared distance of the rows to their mean: the paper's bandwidth c."""
        return self.scatter / max(self.count, 1)

    def merge(self, other: Moments) -> Moments:
        count = self.count + other.count
        gap = other.mean - self.mean
        mean = self.mean + gap * (other.count / count)
        between = float(gap @ gap) * self.count * other.count / count
        return Moments(count, mean, self.scatter + other.scatter + between)


def block_moments(X: Matrix) -> Moments:
    """Return the moments of one block."""
    n = X.shape[0]
    if sp.issparse(X):
        mean = np.asarray(X.sum(axis=0, dtype=np.float64)).ravel() / n
        data = X.data.astype(np.float64, copy=False)
        scatter = float(data @ data) - n * float(mean @ mean)
        return Moments(n, mean, max(scatter, 0.0))
    if compiled.takes(X.dtype):
        sums, total = compiled.moments(X)
        mean = sums / n
    else:
        mean = (np.ones(n, X.dtype) @ X).astype(np.float64) / n
        flat = X.ravel()
        total = float(np.dot(flat, flat))
    scatter = total - n * float(mean @ mean)
    if not scatter > 1e-2 * total or not np.isfinite(total):
        # The mean dominates, or the squares overflow: two digits or more would be lost.
        centred = X - X.mean(axis=0, dtype=np.float64)
        mean = X.mean(axis=0, dtype=np.float64)
        scatter = float(np.einsum("ij,ij->", centred, centred))
    return Moments(n, mean, scatter)
