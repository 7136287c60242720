"""Products of CSR rows with dense or CSR landmarks, the exponential of squared distances, and sums of CSR rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from nystrom.loops.extension import aligned, check_columns, native, takes
from nystrom.loops.products import finish
from nystrom.types import Array, Matrix, SparseMatrix, issparse, to_dense

if TYPE_CHECKING:
    from nystrom.loops._native import InstructionSet, SparseColumns

# Largest number of columns for the loops, which use 4 bytes per column of X or more; SciPy handles wider rows.
_MOST_COLUMNS = 2**24
# Low fraction bits of float64 that are ignored: magnitudes are compared by the exponent and the leading four bits of
# the fraction, in at most this number of steps below the largest.
_STEP_BITS = 48
_MOST_STEPS = 512


class SparseProduct:
    """``X ↦ X @ Z.T`` as an ndarray, for CSR rows X and landmarks Z (m, p), CSR or dense; all in ``dtype``.

    Columns that many sparse landmarks share become rows of m numbers; other columns become lists of the landmarks that
    have them. Together they take at most a few times the memory of Z. SciPy computes the product if the loops are not
    in use or there are very many columns.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> SparseProduct(sp.eye(2, format="csr"), float)(sp.csr_matrix([[3.0, 4.0]]))
    array([[3., 4.]])
    """

    def __init__(self, Z: Matrix, dtype: np.dtype) -> None:
        self.dtype = np.dtype(dtype)
        self.shape: tuple[int, int] = Z.shape
        self._Z = Z.tocsr().astype(self.dtype) if issparse(Z) else np.asarray(Z, self.dtype)
        # By instruction set, made on first use. Threads that race make the same columns.
        self._columns: dict[str, SparseColumns] = {}

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_columns": {}}

    def __call__(self, X: SparseMatrix) -> Array:
        out = np.empty((X.shape[0], self.shape[0]), self.dtype)
        self._fill(out, X)
        return out

    def _fill(
        self,
        out: Array,
        X: SparseMatrix,
        gamma: float = 0.0,
        norms: Array | None = None,
        exp: bool = False,
        minus: Array | None = None,
        largest: Array | None = None,
        kept: Array | None = None,
    ) -> float:
        """Fill ``out`` with the product or, with norms, as :meth:`Exponentials.into`; return the sum of ``‖x‖²``."""
        check_columns(X, self.shape[1])
        X = X.tocsr().astype(self.dtype, copy=False)
        if native is not None and takes(self.dtype) and self.shape[1] <= _MOST_COLUMNS:
            columns = self._met_by(native)
            return native.sparse_product(*parts(X), columns, out, gamma, norms, exp, minus, largest, kept)
        out[:] = to_dense(X @ self._Z.T)
        if norms is None:
            return 0.0
        squares = row_squares(X)
        finish(out, (gamma * squares).astype(self.dtype), norms, exp, minus, largest, kept)
        return float(squares.sum())

    def _met_by(self, loops: InstructionSet) -> SparseColumns:
        if loops.name not in self._columns:
            Z = self._Z
            self._columns[loops.name] = (
                loops.sparse_columns(*parts(Z), self.shape[1]) if issparse(Z) else loops.dense_columns(_usual(Z))
            )
        return self._columns[loops.name]


class SparseExponentials(SparseProduct):
    """``X ↦ min(X @ Z.T − gamma ‖x‖² − norms, 0)``, or its exponential, as :class:`Exponentials` for CSR rows."""

    def __init__(self, Z: Matrix, norms: Array, gamma: float) -> None:
        super().__init__(Z, norms.dtype)
        self.norms = aligned(norms)
        self.gamma = gamma

    def __call__(self, X: SparseMatrix, *, exp: bool) -> Array:  # type: ignore[override]
        """Return the exponents or their exponentials."""
        out = np.empty((X.shape[0], self.shape[0]), self.dtype)
        self._fill(out, X, self.gamma, self.norms, exp)
        return out

    def into(
        self, out: Array, X: SparseMatrix, minus: Array | None, largest: Array | None = None, kept: Array | None = None
    ) -> float:
        """Fill ``out``, whose rows are contiguous, as :meth:`Exponentials.into` does for dense rows."""
        return self._fill(out, X, self.gamma, self.norms, True, minus, largest, kept)


def _usual(Z: Array) -> Array:
    """Return an aligned dense matrix whose strides are multiples of the item size."""
    Z = np.require(Z, Z.dtype.newbyteorder("="), ["ALIGNED"])
    return Z.copy() if any(stride % Z.itemsize for stride in Z.strides) else Z


def row_squares(X: SparseMatrix) -> Array:
    """Return the squared norm of each CSR row, in float64."""
    squares = X.astype(np.float64)
    # As in the compiled loop, overflow gives infinity without a warning.
    with np.errstate(over="ignore"):
        squares.data **= 2
        return np.asarray(squares.sum(axis=1)).ravel()


def column_sums(X: SparseMatrix) -> tuple[Array, float]:
    """Return the sum of each column of CSR rows and the sum of all squares, in float64. Time O(nnz).

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> column_sums(sp.csr_matrix([[1.0, 0.0], [2.0, 3.0]]))
    (array([3., 3.]), 14.0)
    """
    p = X.shape[1]
    if native is None or not takes(X.dtype):
        data = X.data.astype(np.float64, copy=False)
        return np.bincount(X.indices, data, minlength=p), float(np.dot(data, data))
    sums = np.zeros(p)
    squares = native.column_sums(*parts(X), sums)
    return sums, squares


def heavy_sums(labels: Array, X: SparseMatrix, allowed: Array, weight: Array | None = None) -> SparseMatrix:
    """Return the sums of the CSR rows of each label in float64, as CSR, without their lightest entries.

    ``allowed`` holds, per label, the largest sum of squares of the entries left out. Entries whose magnitudes agree in
    their leading four bits are left out together or not at all. Time O(nnz); memory O(p) in addition to the result.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> heavy_sums(np.array([0, 0]), sp.csr_matrix([[1.0, 2.0, 0.0], [0.0, 3.0, -4.0]]), np.array([2.0])).toarray()
    array([[ 0.,  5., -4.]])
    """
    n, p = X.shape
    labels, allowed = aligned(labels, np.int32), aligned(allowed, np.float64)
    m = len(allowed)
    if native is None or not takes(X.dtype) or p > _MOST_COLUMNS:
        hot = sp.csr_matrix((np.ones(n) if weight is None else weight, (labels, np.arange(n))), shape=(m, n))
        return _without_light(sp.csr_matrix(hot @ X.astype(np.float64)), allowed)
    weight = None if weight is None else aligned(weight, np.float64)
    ends, columns, values = native.heavy_sums(*parts(X), p, labels, weight, allowed)
    # Transposing twice sorts the columns, faster than sorting them.
    return sp.csr_matrix((values, columns, ends), shape=(m, p)).tocsc().tocsr()


def _without_light(X: SparseMatrix, allowed: Array) -> SparseMatrix:
    X.sum_duplicates()
    X.eliminate_zeros()
    kept = [_heavy(X.data[a:b], most) + a for a, b, most in zip(X.indptr[:-1], X.indptr[1:], allowed, strict=True)]
    some = np.concatenate([*kept, np.empty(0, np.intp)])
    ends = np.concatenate([[0], np.cumsum([len(part) for part in kept])])
    return sp.csr_matrix((X.data[some], X.indices[some], ends), shape=X.shape)


def _heavy(values: Array, allowed: float) -> Array:
    """Return the positions of the entries of one row that are kept."""
    if not values.size:
        return np.empty(0, np.intp)
    bits = np.abs(values).view(np.int64) >> _STEP_BITS
    steps = np.minimum(bits.max() - bits, _MOST_STEPS - 1)
    with np.errstate(over="ignore"):
        squares = np.bincount(steps, values**2, minlength=_MOST_STEPS)
    # The largest step is always kept.
    lost = np.cumsum(squares[:0:-1])
    return np.flatnonzero(steps < _MOST_STEPS - np.count_nonzero(lost <= allowed))


def is_canonical(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> bool:
    """Return whether these are the arrays of CSR rows whose columns are within the shape and ascend in each row.

    Also False if nothing was checked: without the loops, or for other dtypes.
    """
    usual = data.ndim == indices.ndim == indptr.ndim == 1 and len(indptr) == shape[0] + 1 and len(data) == len(indices)
    if native is None or not usual or not (data.dtype.isnative and takes(data.dtype)):
        return False
    if indices.dtype != indptr.dtype or indices.dtype not in (np.int32, np.int64) or not indices.dtype.isnative:
        return False
    try:
        return native.is_canonical(aligned(indptr), aligned(indices), aligned(data), shape[1])
    except ValueError:
        return False


def parts(A: SparseMatrix) -> tuple[Array, Array, Array]:
    """Return the arrays of a CSR matrix in the layout that the loops read."""
    indptr, indices = A.indptr, A.indices
    if indptr.dtype != indices.dtype or indices.dtype not in (np.int32, np.int64):
        indptr, indices = indptr.astype(np.int64), indices.astype(np.int64)
    return aligned(indptr), aligned(indices), aligned(A.data)


__all__ = ["SparseExponentials", "SparseProduct", "column_sums", "heavy_sums", "is_canonical", "row_squares"]
