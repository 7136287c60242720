"""NaN and infinity among the rows, named by the row that holds them."""

from __future__ import annotations

import numpy as np

from nystrom.exceptions import NotFiniteError
from nystrom.types import Array, Matrix, issparse


def require_finite(X: Matrix, name: str, start: int = 0, *, numbers: Array | None = None) -> None:
    """Raise :class:`NotFiniteError` naming the first row of ``X`` that holds NaN or infinity.

    Rows are numbered from ``start``, or as ``numbers`` says.
    """
    row = first_not_finite(X)
    if row is None:
        return
    kind = "NaN" if np.isnan(X[[row]].data if issparse(X) else X[row]).any() else "infinity"
    raise NotFiniteError(name, kind, f"row {start + row if numbers is None else int(numbers[row])}")


def first_not_finite(X: Matrix) -> int | None:
    """Return the number of the first row that holds NaN or infinity, or None."""
    values = X.data if issparse(X) else X
    if values.size == 0:
        return None
    # One dot product reads the block once at memory speed; only if it overflows is the slow test needed.
    flat = values.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.dot(flat, flat)):
            return None
    if issparse(X):
        bad = np.flatnonzero(~np.isfinite(X.data))
        return int(np.searchsorted(X.indptr, bad[0], side="right") - 1) if bad.size else None
    bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
    return int(bad[0]) if bad.size else None
