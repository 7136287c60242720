"""The number, mean and spread of rows, merged without losing digits far from the origin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nystrom import loops
from nystrom.types import Array, Matrix, SparseMatrix, issparse

# Squares of numbers outside this range, or their sums, would leave that of float64.
_SQUARABLE = (1e-140, 1e140)
# Rows that are summed in their own dtype before the sum goes to float64.
_CHUNK_ROWS = 512
_WIDE_CHUNK_ROWS = 128
# Columns from which rows are wide.
_WIDE = 64
_LEAST = float(np.nextafter(0.0, 1.0))


@dataclass(frozen=True)
class Moments:
    """Number of rows, their mean, and the sum of squared distances to that mean; a weight is a number of repetitions.

    Merging follows Chan, Golub and LeVeque: sums of squares are always about the mean of their own rows, so data
    far from the origin loses no digits.
    """

    count: float
    mean: Array
    scatter: float

    @property
    def spread(self) -> float:
        """Mean squared distance of the rows to their mean: the paper's bandwidth c. Zero only if all rows are equal."""
        return max(self.scatter / self.count, _LEAST) if self.scatter > 0 else self.scatter

    def merge(self, other: Moments) -> Moments:
        count = self.count + other.count
        if not count > 0:
            return self
        gap = other.mean - self.mean
        mean = self.mean + gap * (other.count / count)
        with np.errstate(over="ignore", invalid="ignore"):
            between = _sum_of_squares(gap) * (self.count * (other.count / count))
        return Moments(count, mean, self.scatter + other.scatter + between)


def block_moments(X: Matrix, weight: Array | None = None) -> Moments:
    """Return the moments of one block; a row counts as often as its weight says."""
    # Squares that leave the range are found in the scatter, which is then infinite.
    with np.errstate(over="ignore", invalid="ignore"):
        return _block_moments(X, weight)


def _block_moments(X: Matrix, weight: Array | None) -> Moments:
    n = X.shape[0]
    if issparse(X):
        return _sparse_moments(X, weight)
    if weight is not None:
        return _careful_moments(X, np.asarray(weight, dtype=np.float64))
    quick = _quick_moments(n, *_sums(X), X.dtype)
    return _careful_moments(X, None) if quick is None else quick


def _quick_moments(n: int, sums: Array, total: float, dtype: np.dtype) -> Moments | None:
    """Return the moments of n rows from their sum and the sum of all squares; None where that would lose two digits."""
    least = 1e-30 if dtype == np.float32 else _SQUARABLE[0] ** 2
    if not least < total < _SQUARABLE[1] ** 2:
        return None  # the squares leave the range
    mean = sums / n
    scatter = total - n * float(mean @ mean)
    # Otherwise the mean dominates.
    return Moments(n, mean, scatter) if scatter > 1e-2 * total else None


def _sums(X: Array) -> tuple[Array, float]:
    """Return the sum of the rows and the sum of all squares, added up in float64."""
    sums, total = np.zeros(X.shape[1]), 0.0
    wide = X.shape[1] >= _WIDE
    size = _WIDE_CHUNK_ROWS if wide else _CHUNK_ROWS
    for start in range(0, X.shape[0], size):
        rows = X[start : start + size]
        flat = rows.ravel()
        # Wide rows are added up at the speed of memory; of narrow ones a product makes fewer, longer steps.
        sums += np.add.reduce(rows, axis=0) if wide else np.ones(len(rows), X.dtype) @ rows
        total += float(np.dot(flat, flat))
    return sums, total


def _careful_moments(X: Array, weight: Array | None) -> Moments:
    """Return the moments of dense rows in two readings, the mean taken out before squares are."""
    count = float(X.shape[0] if weight is None else weight.sum())
    if not count > 0:
        # Kept as NaN where rows are: the survey looks for it.
        return Moments(0.0, np.zeros(X.shape[1]), 0.0 * float(X.sum()))
    # Divided first: the sum of rows near the end of the range would leave it.
    mean = (np.full(X.shape[0], 1 / count) if weight is None else weight / count) @ X.astype(np.float64, copy=False)
    centred = X - mean
    correction = (np.full(X.shape[0], 1 / count) if weight is None else weight / count) @ centred
    centred -= correction
    if weight is not None:
        centred *= np.sqrt(weight)[:, None]
    return _unless_equal(count, mean + correction, _sum_of_squares(centred))


def _sparse_moments(X: SparseMatrix, weight: Array | None) -> Moments:
    """Return the moments of CSR rows, column by column about the mean: zeros that are not stored count too."""
    n, p = X.shape
    if weight is None and n:
        quick = _quick_moments(n, *loops.column_sums(X), X.dtype)
        if quick is not None:
            return quick
    w = np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64)
    count = float(w.sum())
    if not count > 0:
        return Moments(0.0, np.zeros(p), 0.0 * float(X.data.sum()))
    data = X.data.astype(np.float64, copy=False)
    of_entries = np.repeat(w, np.diff(X.indptr))
    mean = np.bincount(X.indices, data * (of_entries / count), minlength=p)
    stored = np.bincount(X.indices, of_entries, minlength=p)
    centred = data - mean[X.indices]
    # What the rounding of the mean has left: the entries that are not stored stand at minus the mean.
    unstored = np.maximum(count - stored, 0.0)
    correction = np.bincount(X.indices, centred * (of_entries / count), minlength=p) - mean * (unstored / count)
    mean = mean + correction
    centred = data - mean[X.indices]
    scatter = _sum_of_squares(centred * np.sqrt(of_entries)) + _sum_of_squares(mean * np.sqrt(unstored))
    return _unless_equal(count, mean, scatter)


def _unless_equal(count: float, mean: Array, scatter: float) -> Moments:
    """Return the moments, with no scatter where rounding alone made it: rows that differ do so by ε, and n < 1/ε."""
    rounding = count * float(np.finfo(np.float64).eps) ** 3 * _sum_of_squares(mean)
    return Moments(count, mean, 0.0 if scatter <= rounding < np.inf else scatter)


def _sum_of_squares(A: Array) -> float:
    """Return the sum of squares; above zero, if only just, wherever an entry is."""
    flat = A.ravel()
    total = float(np.dot(flat, flat))
    if _SQUARABLE[0] ** 2 < total < _SQUARABLE[1] ** 2:
        return total
    peak = float(np.max(np.abs(flat), initial=0.0))
    if not 0 < peak < np.inf:
        return peak
    # A power of two scales without rounding.
    scale = 2.0 ** np.floor(np.log2(peak))
    flat = flat / scale
    return max(float(np.dot(flat, flat)) * scale * scale, _LEAST)
