"""Products of dense rows with prepared columns, and the exponential of squared distances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nystrom.loops.extension import Columns, by_rows, check_columns, native, takes
from nystrom.types import Array

if TYPE_CHECKING:
    from nystrom.loops._native import InstructionSet

# NumPy takes this many values at a time, so that they stay in the cache from the product to the exponential, within
# these bounds on the rows.
_CHUNK_NUMBERS = 2**18
_MIN_CHUNK_ROWS = 256
_MAX_CHUNK_ROWS = 1024


class Product:
    """``X ↦ X @ columns`` for rows of the dtype of the columns (p, m); in ``out`` if given, its rows contiguous.

    Examples
    --------
    >>> import numpy as np
    >>> Product(np.array([[1.0], [2.0]]))(np.array([[3.0, 4.0]]))
    array([[11.]])
    """

    def __init__(self, columns: Array) -> None:
        self._columns = Columns(columns)
        self.shape: tuple[int, int] = self._columns.values.shape

    def __call__(self, X: Array, out: Array | None = None) -> Array:
        check_columns(X, self.shape[0])
        loops = self._loops_for(X)
        if loops is None:
            return np.asarray(np.matmul(X, self._columns.values, out=out))
        X = by_rows(X)
        if out is None:
            out = np.empty((X.shape[0], self.shape[1]), X.dtype)
        loops.product(X, self._columns.panels(loops), out)
        return out

    def add_to(self, out: Array, X: Array) -> None:
        """Add ``X @ columns`` to ``out``, whose rows are contiguous."""
        check_columns(X, self.shape[0])
        loops = self._loops_for(X)
        if loops is None:
            out += X @ self._columns.values
        else:
            loops.product(by_rows(X), self._columns.panels(loops), out, add=True)

    def _loops_for(self, X: Array) -> InstructionSet | None:
        """Return the loops, or None where NumPy does the work."""
        suits = native is not None and takes(X.dtype) and native.suits_product(*self.shape, X.itemsize, False)
        return native if suits else None


class Exponentials:
    """``X ↦ min((X − center) @ columns − gamma ‖x − center‖² − norms, 0)``, or its exponential.

    With ``columns = 2γ (Z − center)ᵀ`` and ``norms = γ‖z − center‖²`` that is ``−γ‖x − z‖²`` and the Gaussian kernel.

    Parameters
    ----------
    columns : ndarray of shape (p, m), float32 or float64
        Its dtype is that of the work and of the result.
    norms : ndarray of shape (m,)
    gamma : float
    center : ndarray of shape (p,), optional

    Examples
    --------
    >>> import numpy as np
    >>> Exponentials(np.array([[2.0]]), np.array([1.0]), 1.0)(np.array([[1.0], [3.0]]), exp=False)
    array([[ 0.],
           [-4.]])
    """

    def __init__(self, columns: Array, norms: Array, gamma: float, center: Array | None = None) -> None:
        self._columns = Columns(columns)
        self.dtype = self._columns.values.dtype
        self.shape: tuple[int, int] = self._columns.values.shape
        self.norms = np.ascontiguousarray(norms, self.dtype)
        self.gamma = gamma
        self.center = center

    def __call__(self, X: Array, *, exp: bool) -> Array:
        out = np.empty((X.shape[0], self.shape[1]), self.dtype)
        self._fill(out, X, exp)
        return out

    def into(
        self, out: Array, X: Array, minus: Array | None, largest: Array | None = None, kept: Array | None = None
    ) -> float:
        """Fill ``out`` with the exponentials minus one number per column; return the sum of all ``‖x − center‖²``.

        Parameters
        ----------
        out : ndarray of shape (n, m), of this dtype, its rows contiguous
        X : ndarray of shape (n, p)
        minus : ndarray of shape (m,), of this dtype, optional
        largest : ndarray of shape (n,), of this dtype, optional
            Filled with the largest exponential of each row.
        kept : ndarray of shape (n, m), of this dtype, its rows contiguous, optional
            Filled with the exponentials.
        """
        return self._fill(out, X, True, minus, largest, kept)

    def _fill(
        self,
        out: Array,
        X: Array,
        exp: bool,
        minus: Array | None = None,
        largest: Array | None = None,
        kept: Array | None = None,
    ) -> float:
        p, m = self.shape
        check_columns(X, p)
        loops = native if native is not None and native.suits_product(p, m, out.itemsize, exp) else None
        size = min(max(_CHUNK_NUMBERS // max(m, 1), _MIN_CHUNK_ROWS), _MAX_CHUNK_ROWS)
        if loops is not None and self.center is None and X.dtype == self.dtype:
            # The loops take their own chunks, and nothing is copied for them.
            size = max(X.shape[0], 1)
        squares = 0.0
        for start in range(0, X.shape[0], size):
            rows = X[start : start + size]
            if self.center is not None:
                rows = np.subtract(rows, self.center, dtype=self.dtype)
            elif rows.dtype != self.dtype:
                rows = rows.astype(self.dtype)
            piece = out[start : start + size]
            tops, held = (None if each is None else each[start : start + size] for each in (largest, kept))
            if loops is not None:
                panels = self._columns.panels(loops)
                squares += loops.product(by_rows(rows), panels, piece, self.gamma, self.norms, exp, minus, tops, held)
                continue
            np.matmul(rows, self._columns.values, out=piece)
            row_squares = _row_dots(rows)
            squares += float(row_squares.sum(dtype=np.float64))
            finish(piece, row_squares * self.dtype.type(self.gamma), self.norms, exp, minus, tops, held)
        return squares


def finish(
    product: Array,
    row_norms: Array,
    norms: Array,
    exp: bool,
    minus: Array | None = None,
    largest: Array | None = None,
    kept: Array | None = None,
) -> Array:
    """Turn products into exponents, or their exponentials, in place: the NumPy way of the end of each loop.

    ``largest`` receives the largest of each row and ``kept`` all of them, before ``minus`` leaves them.
    """
    product -= row_norms[:, None]
    product -= norms
    # Exponents above 0 are rounding where a row equals a landmark. Checking takes a fifth of the time of clipping.
    if not product.max(initial=0) <= 0:
        np.minimum(product, 0, out=product)
    if exp:
        np.exp(product, out=product)
    if largest is not None:
        product.max(axis=1, initial=0, out=largest)
    if kept is not None:
        kept[:] = product
    if minus is not None:
        product -= minus
    return product


def _row_dots(A: Array) -> Array:
    # vecdot (NumPy 2) takes half the time of einsum.
    # Rows too long for their squares are infinitely far: their exponent is minus infinity.
    with np.errstate(over="ignore"):
        dots: Array = np.vecdot(A, A) if hasattr(np, "vecdot") else np.einsum("ij,ij->i", A, A)
    return dots


__all__ = ["Exponentials", "Product", "finish"]
