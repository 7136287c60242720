"""Products of dense rows with prepared columns, distances and their exponential, Gram matrices and their sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from nystrom.devices import Sent, on_device
from nystrom.loops import device
from nystrom.loops.extension import Columns, aligned, by_rows, check_columns, native, takes
from nystrom.types import Array

if TYPE_CHECKING:
    from nystrom.loops._native import InstructionSet

# Number of values that NumPy computes at a time, so that they stay in the cache from the product to the exponential,
# within these bounds on the rows.
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
        if on_device(X):
            return X @ self._columns.beside(X)
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
        """Return the loops, or None if NumPy does the work."""
        suits = native is not None and takes(X.dtype) and native.suits_product(*self.shape, X.itemsize, False)
        return native if suits else None


class Exponentials:
    """``X ↦ min((X − center) @ columns − gamma ‖x − center‖² − norms, 0)``, or its exponential.

    With ``columns = 2γ (Z − center)ᵀ`` and ``norms = γ‖z − center‖²`` that is ``−γ‖x − z‖²`` and the Gaussian kernel.

    Parameters
    ----------
    columns : ndarray of shape (p, m), float32 or float64
        Its dtype is that of the computation and of the result.
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
        self._norms = Sent(self.norms)
        self._center = None if center is None else Sent(center.astype(self.dtype, copy=False))

    def __call__(self, X: Array, *, exp: bool) -> Array:
        if on_device(X):
            return self._on_device(X, exp)
        out = np.empty((X.shape[0], self.shape[1]), self.dtype)
        self.into(out, X, exp=exp)
        return out

    def _on_device(self, X: Any, exp: bool) -> Any:
        check_columns(X, self.shape[0])
        if self.dtype == np.float64 and not X.place.has_float64:
            # float32 products would lose the precision for which float64 was chosen.
            points = self._columns.values / (2 * self.gamma) + (0 if self.center is None else self.center[:, None])
            exponents = device.differences(X, X.beside(points.T), 2) * -self.gamma
            return np.exp(exponents) if exp else exponents
        center = None if self._center is None else self._center.beside(X)
        return device.exponentials(X, self._columns.beside(X), self._norms.beside(X), self.gamma, center, exp)

    def into(
        self,
        out: Array,
        X: Array,
        minus: Array | None = None,
        largest: Array | None = None,
        kept: Array | None = None,
        *,
        exp: bool = True,
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
        exp : bool
            False for the exponents themselves.
        """
        p, m = self.shape
        loops = native if native is not None and native.suits_product(p, m, out.itemsize, exp) else None
        size = min(max(_CHUNK_NUMBERS // max(m, 1), _MIN_CHUNK_ROWS), _MAX_CHUNK_ROWS)
        if loops is not None and self.center is None and X.dtype == self.dtype:
            # The loops choose their own chunks and copy nothing.
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
    """Turn products into exponents, or their exponentials, in place: the NumPy version of the end of each loop.

    ``largest`` receives the largest value of each row and ``kept`` all values, before ``minus`` is subtracted.
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


# Rows of a k × k matrix that are updated at a time.
_PANEL = 256


def panels(k: int) -> Iterator[slice]:
    """Yield the rows of a k × k matrix in groups that stay in the cache."""
    for first in range(0, k, _PANEL):
        yield slice(first, min(first + _PANEL, k))


def rows_per_sum(k: int) -> int | None:
    """Return the number of rows that :func:`add_gram` sums in ``dtype`` before float64; None for all rows given."""
    return native.gram_chain if native is not None and native.suits_gram(k) else None


def add_gram(
    out: Array,
    F: Array,
    dtype: DTypeLike | None = None,
    totals: Array | None = None,
    space: Callable[[tuple[int, ...], np.dtype], Array] = np.empty,
) -> None:
    """Add ``FᵀF`` to ``out`` on and above its diagonal; entries below it are undefined afterwards.

    Products of :func:`rows_per_sum` rows are summed in ``dtype``, and these sums in float64.

    Parameters
    ----------
    out : ndarray of shape (k, k), float64, its rows contiguous
    F : ndarray of shape (n, k), float32 or float64
    dtype : dtype, optional
        The dtype of F (the default) or float64.
    totals : ndarray of shape (k,), float64, optional
        The sums of the columns are added to it.
    space : function
        Maps a shape and a dtype to memory for the product, if NumPy computes it.

    Examples
    --------
    >>> import numpy as np
    >>> out = np.zeros((2, 2))
    >>> add_gram(out, np.array([[1.0, 2.0], [0.0, 1.0]]))
    >>> out[np.triu_indices(2)]
    array([1., 2., 5.])
    """
    if on_device(F):
        device.add_gram(out, F, np.dtype(dtype or F.dtype), totals)
        return
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


class NormKernel:
    """``X ↦ exp(−(γ‖x − z‖_p)^q)`` for dense rows and landmarks ``Z`` of one dtype, which the result has too.

    All terms are positive, so the sums have a small relative error wherever the rows are.

    Parameters
    ----------
    Z : ndarray of shape (m, columns), float32 or float64
    gamma, p, q : float
        With 0 < q ≤ p ≤ 2.

    Examples
    --------
    >>> import numpy as np
    >>> NormKernel(np.array([[1.0, 2.0]]), 0.5, 1.0, 1.0)(np.array([[3.0, 4.0]])).round(3)
    array([[0.135]])
    """

    def __init__(self, Z: Array, gamma: float, p: float, q: float) -> None:
        self._columns = Columns(Z.T)
        self.dtype = self._columns.values.dtype
        self.gamma, self.p, self.q = gamma, p, q

    def __call__(self, X: Array) -> Array:
        values = self._columns.values
        check_columns(X, values.shape[0])
        if on_device(X):
            sums = device.differences(X, self._columns.beside(X).T, self.p)
            return np.exp(-np.power(sums, self.q / self.p) * self.gamma**self.q)
        if native is None:
            return self._by_scipy(X, values.T)
        out = np.empty((X.shape[0], values.shape[1]), values.dtype)
        native.norm_kernel(by_rows(X), self._columns.panels(native), out, self.gamma, self.p, self.q)
        return out

    def _by_scipy(self, X: Array, Z: Array) -> Array:
        # Imported on use: slow to import.
        from scipy.spatial.distance import cdist

        A, B = (each.astype(np.float64) for each in (X, Z))
        if self.p == 1:
            distances = cdist(A, B, "cityblock")
            distances *= self.gamma
        else:
            # Scaling by a power of two is exact, and powers of differences near 1 / γ stay within range.
            unit = 2.0 ** round(np.log2(self.gamma))
            distances = cdist(A * unit, B * unit, "minkowski", p=self.p)
            distances *= self.gamma / unit
        if self.q != 1:
            np.power(distances, self.q, out=distances)
        np.negative(distances, out=distances)
        return np.asarray(np.exp(distances, out=distances).astype(Z.dtype, copy=False))


# Largest number of columns of V for the loop; with more, two products of a small float64 copy are faster.
_MOST_COLUMNS = 4
# Number of values of C that NumPy copies to float64 at a time.
_COPIED_NUMBERS = 2**17


def normal_product(C: Array, V: Array, out: Array, weights: Array | None = None) -> Array:
    """Return ``U = C V`` and add ``Cᵀ (w ∘ U)`` to ``out``; all sums in float64, whatever the dtype of C.

    Kernel values in float32 are accurate enough for conjugate gradients, but sums in float32 are not. C is read
    once. Time O(n m t).

    Parameters
    ----------
    C : ndarray of shape (n, m), float32 or float64
        Kernel values of a block of rows.
    V : ndarray of shape (m, t) or (m,)
    out : float64 ndarray of the shape of V, C-contiguous
        Added to in place.
    weights : ndarray of shape (n,), optional
        Ones by default.

    Returns
    -------
    U : float64 ndarray of shape (n, t) or (n,)

    Examples
    --------
    >>> import numpy as np
    >>> C, out = np.array([[1.0, 2.0]], np.float32), np.zeros(2)
    >>> normal_product(C, np.array([3.0, 4.0]), out), out
    (array([11.]), array([11., 22.]))
    """
    V = np.asarray(V, np.float64)
    if C.ndim != 2 or V.ndim not in (1, 2) or V.shape[0] != C.shape[1]:
        raise ValueError(f"V must have a row per column of C, of shape {C.shape}; got shape {V.shape}.")
    if out.dtype != np.float64 or out.shape != V.shape or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(
            f"out must be a writeable, contiguous float64 array of shape {V.shape}; "
            f"got dtype {out.dtype}, shape {out.shape}."
        )
    if weights is not None:
        weights = np.ascontiguousarray(weights, np.float64)
        if weights.shape != C.shape[:1]:
            raise ValueError(f"weights must have shape {C.shape[:1]}; got {weights.shape}.")
    if on_device(C):
        return device.normal_product(C, V, out, weights)
    U = np.empty((C.shape[0], *V.shape[1:]))
    V2, U2, out2 = (A if A.ndim == 2 else A[:, None] for A in (V, U, out))
    if native is None or not takes(C.dtype) or V2.shape[1] > _MOST_COLUMNS:
        _by_chunks(C, V2, U2, out2, weights)
    else:
        native.normal_product(by_rows(C), by_rows(V2), weights, U2, out2)
    return U


def _by_chunks(C: Array, V: Array, U: Array, out: Array, weights: Array | None) -> None:
    size = max(_COPIED_NUMBERS // max(C.shape[1], 1), 16)
    for start in range(0, C.shape[0], size):
        rows = slice(start, start + size)
        part = C[rows].astype(np.float64, copy=False)
        U[rows] = part @ V
        out += part.T @ (U[rows] if weights is None else weights[rows, None] * U[rows])


def coalition_sums(x: Array, background: Array, weights: Array, nodes: Array, parts: Array) -> Array:
    """Return ``Σ_b w_b (x_j − b_j) Σ_q u_q Π_{i≠j} (b_i + t_q (x_i − b_i))`` for each factor j and landmark.

    For non-negative factors no terms cancel, and nothing is divided. Time O(B q p m).

    Parameters
    ----------
    x : float64 ndarray of shape (p, m)
        Factors of one row with m landmarks.
    background : float64 ndarray of shape (B, p, m)
        Factors of the background rows.
    weights : ndarray of shape (B,)
    nodes, parts : ndarrays of shape (q,)
        Nodes t and weights u of the quadrature on [0, 1].

    Returns
    -------
    float64 ndarray of shape (p, m)

    Examples
    --------
    With one factor, the result is the difference of the row and the background:

    >>> import numpy as np
    >>> coalition_sums(np.array([[3.0]]), np.array([[[1.0]]]), np.ones(1), np.array([0.5]), np.ones(1))
    array([[2.]])
    """
    x, background = aligned(x, np.float64), aligned(background, np.float64)
    weights, nodes, parts = (aligned(values, np.float64) for values in (weights, nodes, parts))
    if x.ndim != 2 or background.shape != (len(weights), *x.shape):
        raise ValueError(f"background must have shape {(len(weights), *x.shape)}; got {background.shape}.")
    if len(nodes) != len(parts):
        raise ValueError(f"nodes and parts must have the same size; got {len(nodes)} and {len(parts)}.")
    out = np.zeros(x.shape)
    if native is None:
        _by_arrays(x, background, weights, nodes, parts, out)
    else:
        native.coalitions(x, background, weights, nodes, parts, out)
    return out


def _by_arrays(x: Array, background: Array, weights: Array, nodes: Array, parts: Array, out: Array) -> None:
    for b, weight in zip(background, weights, strict=True):
        slope = x - b
        # (q, p, m), with ones before the first and after the last factor.
        factors = b + nodes[:, None, None] * slope
        prefix, suffix = np.ones_like(factors), np.ones_like(factors)
        np.cumprod(factors[:, :-1], axis=1, out=prefix[:, 1:])
        np.cumprod(factors[:, :0:-1], axis=1, out=suffix[:, -2::-1])
        out += weight * slope * np.tensordot(parts, prefix * suffix, 1)


__all__ = [
    "Exponentials",
    "NormKernel",
    "Product",
    "add_gram",
    "coalition_sums",
    "finish",
    "normal_product",
    "panels",
    "rows_per_sum",
]
