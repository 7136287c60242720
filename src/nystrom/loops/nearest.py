"""The nearest centre of each dense row."""

from __future__ import annotations

import numpy as np

from nystrom.loops.extension import Columns, by_rows, check_columns, native, takes
from nystrom.types import Array

# Scores of one tile (rows × centres): smaller tiles contend for the GIL.
_TILE_SCORES = 2**20
# The loop looks for the nearest centre with whole rows in the cache.
_MAX_LOOP_COLUMNS = 1024


class NearestColumn:
    """``X ↦`` the number of the first column j with the largest ``(x − shift) · column_j − half_j``, as int32.

    A score that is NaN is never the largest; a row of which all are has 0.

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

    def __call__(self, X: Array) -> Array:
        p = self.shift.size
        check_columns(X, p)
        if native is None or X.dtype != self.dtype or not takes(X.dtype) or p > _MAX_LOOP_COLUMNS:
            return self._by_tiles(X)
        labels = np.empty(X.shape[0], np.int32)
        native.nearest(by_rows(X), self._columns.panels(native), self.half, self.shift, labels)
        return labels

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
    # argmax takes NaN as the largest, so that only rows whose largest is NaN need a second look.
    unknown = np.flatnonzero(np.isnan(scores[np.arange(labels.size), labels]))
    if unknown.size:
        part = scores[unknown]
        labels[unknown] = np.argmax(np.where(np.isnan(part), -np.inf, part), axis=1)
    return labels


__all__ = ["NearestColumn", "first_largest"]
