"""Landmarks that the user has chosen already: points, or row numbers."""

from __future__ import annotations

import numpy as np

from nystrom.engine.passes import Passes
from nystrom.kernels import Kernel
from nystrom.landmarks.base import Landmarks, Selector, smaller_form
from nystrom.rows.base import require_finite
from nystrom.rows.draw import gather
from nystrom.rows.sparse import canonical
from nystrom.types import Array, Matrix, issparse, to_dense


class GivenPoints(Selector):
    """Use these points, all of them, whatever ``n_landmarks`` says.

    Parameters
    ----------
    points : array or sparse matrix, shape (m, p)
        The landmarks; they need not be rows of X.
    """

    needs_points = True

    def __init__(self, points: Matrix) -> None:
        self.points = points

    def count(self, n_landmarks: object, n_rows: int) -> int:
        return int(np.shape(self.points)[0])

    def _select(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        rows = passes.rows
        points = canonical(self.points, "landmarks") if issparse(self.points) else np.asarray(self.points)
        if points.ndim != 2 or points.shape[0] < 1 or points.shape[1] != rows.shape[1]:
            raise ValueError(
                f"landmarks given as points must have shape (m, {rows.shape[1]}), as many columns as {rows.name}; "
                f"got shape {points.shape}. Row numbers go in a one-dimensional integer array."
            )
        # A copy: a fitted model must not change when the caller's array does.
        points = points.astype(rows.dtype, order="C") if not issparse(points) else points.astype(rows.dtype)
        require_finite(points, "landmarks")
        return Landmarks(smaller_form(points) if rows.is_sparse else _dense(points), None)


class GivenIndices(Selector):
    """Use the rows with these numbers, all of them, whatever ``n_landmarks`` says.

    Parameters
    ----------
    indices : array of int, shape (m,)
        Row numbers of X; negative ones count from the end.
    """

    def __init__(self, indices: Array) -> None:
        self.indices = indices

    def count(self, n_landmarks: object, n_rows: int) -> int:
        return len(np.atleast_1d(self.indices))

    def _select(self, passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        n = passes.rows.shape[0]
        indices = np.asarray(self.indices)
        if indices.ndim != 1 or indices.size == 0 or indices.dtype.kind not in "iu":
            raise ValueError(
                f"landmarks given as row numbers must be a one-dimensional, non-empty integer array; got shape "
                f"{indices.shape} of {indices.dtype}. For a mask use numpy.flatnonzero(mask)."
            )
        outside = indices[(indices < -n) | (indices >= n)]
        if outside.size:
            raise ValueError(
                f"landmarks holds the row number {outside[0]}, but {passes.rows.name} has {n} rows; "
                f"row numbers go from 0 to {n - 1}."
            )
        indices = np.where(indices < 0, indices.astype(np.intp) + n, indices).astype(np.intp)
        return Landmarks(smaller_form(gather(passes, indices)), indices)


# Selectors that choose nothing.
GIVEN = (GivenPoints, GivenIndices)


def _dense(points: Matrix) -> Array:
    return np.asarray(to_dense(points))
