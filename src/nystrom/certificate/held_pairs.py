"""Some rows of a sample, the kernel between which is held: what their pairs say of the error on all rows."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from nystrom.certificate.estimate import ratio_of
from nystrom.certificate.pairs import TILE, kernel_with
from nystrom.engine.base import Engine
from nystrom.kernels import Kernel
from nystrom.rows.arrays import array_rows
from nystrom.rows.base import Block
from nystrom.types import Array, Matrix


class Sums(NamedTuple):
    """Of a matrix of the rows: row sums of squares off the diagonal, weighted by columns, and what is on it."""

    off: Array
    on: Array


class Terms(NamedTuple):
    """A ratio of sums over all pairs of rows, and how it changes with each row of the part."""

    ratio: float
    influence: Array


class HeldPairs:
    """All pairs of some rows.

    Parameters
    ----------
    X, numbers : rows
        And where they are among all rows.
    chance : array (t,)
        That each was drawn.
    n_rows : int
        All rows.
    kernel, engine, dtype
        To compute their kernel with, and the dtype to hold it in.
    """

    def __init__(
        self, X: Matrix, numbers: Array, chance: Array, n_rows: int, kernel: Kernel, engine: Engine, dtype: DTypeLike
    ) -> None:
        self.X, self.numbers, self.chance, self.n_rows = X, numbers, chance, n_rows
        self._kernel, self._engine, self._dtype = kernel, engine, np.dtype(dtype)

    def __len__(self) -> int:
        return len(self.chance)

    @cached_property
    def K(self) -> Array:
        """The kernel between the rows; each pair is looked at once."""
        K = np.empty((len(self), len(self)), dtype=self._dtype)

        def step(block: Block) -> None:
            rows, later = slice(block.start, block.stop), slice(block.start, None)
            K[rows, later] = kernel_with(self.X[later], self.numbers[later], self._kernel)(block.X)
            K[later, rows] = K[rows, later].T

        for _ in self._engine.map(array_rows(self.X, block_rows=TILE), step, label="kernel of a sample"):
            pass
        return K

    @cached_property
    def _kernel_squares(self) -> Sums:
        return self._squares(np.zeros((len(self), 0), dtype=self._dtype))

    def _squares(self, L: Array) -> Sums:
        """Return what the squares of ``K − L Lᵀ`` add up to, each divided by its column's chance."""
        t, weight = len(L), (1 / self.chance).astype(self._dtype)
        off, on = np.zeros(t), np.empty(t)
        # In tiles, which stay in the cache, on and above the diagonal: the matrix is symmetric.
        other, room = np.ascontiguousarray(L.T), np.empty(min(TILE, t) * t, dtype=self._dtype)
        for first in range(0, t, TILE):
            rows, later = slice(first, min(first + TILE, t)), slice(first, None)
            count = rows.stop - first
            E = np.matmul(L[rows], other[:, later], out=room[: count * (t - first)].reshape(count, -1))
            np.subtract(self.K[rows, later], E, out=E)
            np.square(E, out=E)
            on[rows] = E.diagonal()
            off[rows] += E @ weight[later]
            off[rows.stop :] += weight[rows] @ E[:, count:]
        return Sums(off - on * weight, on)

    def terms(self, L: Array) -> Terms:
        """Return the ratio ``‖K − L Lᵀ‖² / ‖K‖²`` over all rows, for the features L of these.

        Each row, and each pair of rows, counts by one over the chance that it was drawn. The influence of a row is the
        jackknife's, for a U-statistic.
        """
        t, n = len(self), self.n_rows
        error, kernel = self._squares(L), self._kernel_squares
        # Two rows are drawn together a little less often than by the product of their chances.
        pairs = t / max(t - 1, 1) * (n - 1) / n
        top, bottom = (float(((pairs * sums.off + sums.on) / self.chance).sum()) for sums in (error, kernel))
        ratio = ratio_of(max(top, 0.0), bottom)
        influence = 2 * pairs * (error.off - ratio * kernel.off) + error.on - ratio * kernel.on
        return Terms(ratio, influence / bottom if bottom > 0 else np.zeros(t))
