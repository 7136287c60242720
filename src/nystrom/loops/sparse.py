"""Products of CSR rows with dense or CSR landmarks, and the exponential of squared distances."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from nystrom.loops.extension import Columns, aligned, check_columns, native, takes
from nystrom.loops.products import finish
from nystrom.types import Array, Matrix, SparseMatrix, issparse, to_dense

# A panel of sparse landmarks takes 64 or 128 bytes per column of X in each thread; dense landmarks are kept in panels
# of up to this many bytes.
_PANEL_BYTES = 16 * 2**20
_PANEL_ROWS = 2**18
# Columns for which the places of those in use can be kept: 4 bytes each.
_MAX_PLACES = 2**22


class SparseProduct:
    """``X ↦ X @ Z.T`` as an ndarray, for CSR rows X and landmarks Z (m, p), CSR or dense; all in ``dtype``.

    Where the loops would take much memory (very many columns), or are not in use, SciPy makes the product.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> SparseProduct(sp.eye(2, format="csr"), float)(sp.csr_matrix([[3.0, 4.0]]))
    array([[3., 4.]])
    """

    def __init__(self, Z: Matrix, dtype: np.dtype) -> None:
        self.dtype = np.dtype(dtype)
        self.shape: tuple[int, int] = Z.shape
        self._places: Array | None = None
        self._dense: Columns | None = None
        self._sparse: SparseMatrix | None = None
        self._Z: Matrix
        if issparse(Z):
            self._Z = Z = Z.tocsr().astype(self.dtype)
            self._choose_places(Z)
        else:
            self._Z = Z = np.asarray(Z, self.dtype)
            if Z.nbytes <= _PANEL_BYTES:
                self._dense = Columns(Z.T)

    def _choose_places(self, Z: SparseMatrix) -> None:
        """Spread Z in a panel of as many rows as X has columns or, where those are very many, as Z has in use.

        ``places`` then says which row is whose, the last one being for all the others.
        """
        m, p = self.shape
        if p <= _PANEL_ROWS:
            self._sparse = Z
            return
        used = np.unique(Z.indices)
        if p > _MAX_PLACES or used.size >= _PANEL_ROWS:
            return
        self._places = np.full(p, used.size, np.int32)
        self._places[used] = np.arange(used.size)
        packed = (Z.data, self._places[Z.indices], Z.indptr)
        self._sparse = sp.csr_matrix(packed, shape=(m, used.size + 1), copy=False)

    def __call__(self, X: SparseMatrix) -> Array:
        check_columns(X, self.shape[1])
        X = X.tocsr().astype(self.dtype, copy=False)
        if native is None or not takes(self.dtype) or (self._dense is None and self._sparse is None):
            return self._by_scipy(X)
        return self._by_loops(X, None, None, False)

    def _by_scipy(self, X: SparseMatrix) -> Array:
        product = X @ self._Z.T
        return np.ascontiguousarray(to_dense(product))

    def _by_loops(self, X: SparseMatrix, row_norms: Array | None, norms: Array | None, exp: bool) -> Array:
        assert native is not None
        out = np.empty((X.shape[0], self.shape[0]), self.dtype)
        if self._dense is not None:
            native.sparse_product(*_parts(X), self._dense.panels(native), out, row_norms, norms, exp)
            return out
        assert self._sparse is not None
        if self._places is not None:
            if X.indices.size and X.indices.min() < 0:
                raise ValueError("X.indices must not be negative.")
            X = sp.csr_matrix((X.data, self._places[X.indices], X.indptr), shape=(X.shape[0], self._sparse.shape[1]))
        own, other = _parts(X), _parts(self._sparse)
        if own[0].dtype != other[0].dtype:
            own, other = _parts(X, wide=True), _parts(self._sparse, wide=True)
        native.sparse_sparse_product(*own, *other, self._sparse.shape[1], out, row_norms, norms, exp)
        return out


class SparseExponentials(SparseProduct):
    """``X ↦ min(X @ Z.T − row_norms − norms, 0)``, or its exponential, as :class:`Exponentials` for CSR rows."""

    def __init__(self, Z: Matrix, norms: Array) -> None:
        super().__init__(Z, norms.dtype)
        self.norms = aligned(norms)

    def __call__(self, X: SparseMatrix, row_norms: Array, *, exp: bool) -> Array:  # type: ignore[override]
        """Return the exponents or their exponentials, with ``row_norms`` γ‖x‖² of each row."""
        check_columns(X, self.shape[1])
        X = X.tocsr().astype(self.dtype, copy=False)
        row_norms = aligned(row_norms, self.dtype)
        if native is None or not takes(self.dtype) or (self._dense is None and self._sparse is None):
            return finish(self._by_scipy(X), row_norms, self.norms, exp)
        return self._by_loops(X, row_norms, self.norms, exp)


def _parts(A: SparseMatrix, *, wide: bool = False) -> tuple[Array, Array, Array]:
    """Return the arrays of a CSR matrix as the loops read them: numbers of one kind, int64 if ``wide``."""
    indptr, indices = A.indptr, A.indices
    if wide or indptr.dtype != indices.dtype or indices.dtype not in (np.int32, np.int64):
        indptr, indices = indptr.astype(np.int64), indices.astype(np.int64)
    return aligned(indptr), aligned(indices), aligned(A.data)


__all__ = ["SparseExponentials", "SparseProduct"]
