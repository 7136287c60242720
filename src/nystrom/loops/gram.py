"""The Gram matrix of dense rows, added up in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import DTypeLike

from nystrom.loops.extension import by_rows, native, takes
from nystrom.types import Array

# Rows of a k × k matrix that are updated at a time.
_PANEL = 256


def panels(k: int) -> Iterator[slice]:
    """Yield the rows of a k × k matrix in groups: what is done to one stays in the cache."""
    for first in range(0, k, _PANEL):
        yield slice(first, min(first + _PANEL, k))


def rows_per_sum(k: int) -> int | None:
    """Return the rows whose products :func:`add_gram` adds up before float64 does; None for all that it is given."""
    return native.gram_chain if native is not None and native.suits_gram(k) else None


def add_gram(
    out: Array,
    F: Array,
    dtype: DTypeLike | None = None,
    totals: Array | None = None,
    space: Callable[[tuple[int, ...], np.dtype], Array] = np.empty,
) -> None:
    """Add ``FᵀF`` to ``out`` on and above its diagonal; what is below it has no meaning afterwards.

    Products of :func:`rows_per_sum` rows are added up in ``dtype``, and these sums in float64.

    Parameters
    ----------
    out : ndarray of shape (k, k), float64, its rows contiguous
    F : ndarray of shape (n, k), float32 or float64
    dtype : dtype, optional
        That of F by default, or float64.
    totals : ndarray of shape (k,), float64, optional
        The sums of the columns are added to it.
    space : function
        From a shape and a dtype to memory for the product, where NumPy takes it.

    Examples
    --------
    >>> import numpy as np
    >>> out = np.zeros((2, 2))
    >>> add_gram(out, np.array([[1.0, 2.0], [0.0, 1.0]]))
    >>> out[np.triu_indices(2)]
    array([1., 2., 5.])
    """
    k, wide = F.shape[1], dtype is not None and np.dtype(dtype) != F.dtype
    if native is not None and takes(F.dtype) and native.suits_gram(k):
        native.add_gram(by_rows(F), out, wide, totals)
        return
    F = F.astype(np.float64) if wide else F
    if totals is not None:
        totals += np.ones(len(F), F.dtype) @ F
    product = np.matmul(F.T, F, out=space((k, k), F.dtype))
    for rows in panels(k):
        out[rows, rows.start :] += product[rows, rows.start :]


__all__ = ["add_gram", "panels", "rows_per_sum"]
