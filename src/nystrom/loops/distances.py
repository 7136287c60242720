"""Distances of dense rows in the 1-norm."""

from __future__ import annotations

import numpy as np

from nystrom.loops.extension import Columns, by_rows, check_columns, native, takes
from nystrom.types import Array


class ManhattanDistances:
    """``X ↦ ‖x − z‖₁`` for dense rows and landmarks ``Z``, in float64; the same bits as SciPy's.

    Examples
    --------
    >>> import numpy as np
    >>> ManhattanDistances(np.array([[1.0, 2.0]]))(np.array([[3.0, 4.0]]))
    array([[4.]])
    """

    def __init__(self, Z: Array) -> None:
        self._columns = Columns(np.asarray(Z, np.float64).T)

    def __call__(self, X: Array) -> Array:
        values = self._columns.values
        check_columns(X, values.shape[0])
        X = by_rows(X)
        if native is None or not takes(X.dtype):
            # Imported on use: it takes long.
            from scipy.spatial.distance import cdist

            return np.asarray(cdist(X, values.T, "cityblock"))
        out = np.empty((X.shape[0], values.shape[1]))
        native.distances(X, self._columns.panels(native), out)
        return out


__all__ = ["ManhattanDistances"]
