"""Inner products and distances between a block of rows and the landmarks: the hot path of every pass.

Each class here is *prepared* with the landmarks once and then called with block after block, from several
threads at a time. Quantities of the landmarks alone (norms, transposed copies) are computed on the first block
of each dtype and kept. Packages that few kernels need are imported on use: scikit-learn's metrics are slow to import.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from nystrom import loops
from nystrom.devices import host, on_device
from nystrom.loops.device import differences
from nystrom.rows.sparse import canonical, minus_columns, native, offset_columns
from nystrom.types import Array, Matrix, SparseMatrix, issparse, to_dense

# Largest γ‖z‖² for ‖x‖² − 2⟨x,z⟩ + ‖z‖²: the error of the exponent −γ‖x − z‖² reaches about 32 ε there.
_CANCELLATION_LIMIT = 32.0
# Largest γ‖z‖² for the same in float64; above it distances come from differences, which is slow but accurate.
_DIFFERENCE_LIMIT = 2.0**16
# Range of γ and squared norms for work in float32; outside it, work in float64.
_FLOAT32_RANGE = (1e-30, 1e30)
# Bytes of a dense copy up to which sparse landmarks are made dense: the product is then as fast (3 % of entries
# set) or twice as fast (20 %); larger copies exceed the cache and are slower.
_DENSE_BYTES = 16 * 2**20
# Share of ‖z‖² below which squared distances are recomputed from differences, if their root is used.
_SHARP_SHARE = 1e-4
# Number of values held at a time while doing so.
_SHARP_NUMBERS = 2**19
# Smallest q / p of p-norm kernels computed in float32.
_LEAST_ROOT = 0.2


def as_matrix(A: Matrix, name: str, n_columns: int | None = None) -> Matrix:
    """Return ``A`` as a two-dimensional float32 or float64 array, or CSR; copies only if needed.

    Raises unless it has ``n_columns``, if given.
    """
    if on_device(A):
        check_columns(A, A.shape[1] if n_columns is None else n_columns)
        return A
    if issparse(A):
        A = canonical(A, name)
    else:
        A = np.asarray(A)
        if A.ndim != 2:
            raise ValueError(
                f"{name} must have two dimensions (rows and columns); got shape {A.shape}. "
                "Reshape one row with A.reshape(1, -1)."
            )
    if n_columns is not None and A.shape[1] != n_columns:
        check_columns(A, n_columns)
    if not A.dtype.isnative:
        A = native(A)
    return A if A.dtype in (np.float32, np.float64) else A.astype(np.float64)


def check_columns(X: Matrix, n_features: int) -> None:
    """Raise unless the rows of ``X`` have as many columns as the landmarks."""
    if X.shape[1] != n_features:
        raise ValueError(
            f"The rows have {X.shape[1]} columns, but the rows they are compared with have {n_features}. "
            "Both must have the same features."
        )


def squared_norms(A: Matrix) -> Array:
    """Return ``‖a‖²`` for each row, in float64."""
    if on_device(A):
        return host(np.einsum("ij,ij->i", A, A, dtype=np.float64))
    if issparse(A):
        return loops.row_squares(A)
    norms: Array = np.einsum("ij,ij->i", A, A, dtype=np.float64)
    return norms


def quick_norms(A: Matrix) -> Array:
    """Return ``‖a‖²`` for each row, in the dtype of dense rows unless the squares leave its range."""
    if issparse(A) or A.dtype == np.float64 or A.shape[0] == 0:
        return squared_norms(A)
    # Values that overflow are recomputed.
    with np.errstate(over="ignore"):
        norms = _row_dots(A)
    low, high = _FLOAT32_RANGE
    return norms if low < norms.min() and norms.max() < high else squared_norms(A)


def _row_dots(A: Array) -> Array:
    # vecdot (NumPy 2) takes half the time of einsum.
    dots: Array = np.vecdot(A, A) if hasattr(np, "vecdot") else np.einsum("ij,ij->i", A, A)
    return dots


def _dense_if_small(Z: Matrix) -> Matrix:
    if issparse(Z) and 8 * Z.shape[0] * Z.shape[1] <= _DENSE_BYTES:
        return Z.toarray()
    return Z


def _scaled(Z: Matrix, scale: float, dtype: np.dtype) -> Matrix:
    """Return ``scale · Z`` in ``dtype``, scaled in float64 before it is rounded; a dense one has contiguous columns."""
    if issparse(Z):
        return (Z.astype(np.float64) * scale).astype(dtype)
    return np.ascontiguousarray((np.asarray(Z, np.float64) * scale).astype(dtype).T).T


def _product(X: Matrix, columns: Matrix) -> Array:
    product = X @ columns
    return np.ascontiguousarray(to_dense(product))


def _difference(A: Matrix, B: Matrix) -> Matrix:
    if issparse(A) != issparse(B):
        A, B = to_dense(A), to_dense(B)
    difference: Matrix = A.astype(np.float64) - B  # type: ignore[operator] # both dense, or both sparse
    return difference


class InnerProducts:
    """``X ↦ scale · X Zᵀ`` for the landmarks ``Z``, in the dtype of ``X``."""

    def __init__(self, Z: Matrix, scale: float = 1.0) -> None:
        self._Z = Z
        self._scale = scale
        # The first thread fills it; threads that race compute the same values.
        self._ways: dict[tuple[np.dtype, bool], Callable[[Any], Array]] = {}

    def __call__(self, X: Matrix) -> Array:
        X = as_matrix(X, "X", self._Z.shape[1])
        key = (X.dtype, issparse(X))
        if key not in self._ways:
            self._ways[key] = self._way(*key)
        return self._ways[key](X)

    def _way(self, dtype: np.dtype, is_sparse: bool) -> Callable[[Any], Array]:
        if is_sparse:
            return loops.SparseProduct(_scaled(self._Z, self._scale, dtype), dtype)
        Z = _scaled(_dense_if_small(self._Z), self._scale, dtype)
        return partial(_product, columns=Z.T.tocsr()) if issparse(Z) else loops.Product(Z.T)


@dataclass(frozen=True)
class _Landmarks:
    """Landmarks prepared for one dtype: ``2γ (Z − c)``, ``γ‖z − c‖²``, γ, and ``c`` or None for no centring.

    ``points`` are the landmarks themselves if small distances are computed from differences. ``offset`` is subtracted
    from sparse rows and their landmarks.
    """

    rows: Matrix
    norms: Array
    gamma: float
    center: Array | None
    points: Matrix | None = None
    offset: Array | None = None

    def exponents(self, X: Matrix, exp: bool) -> Array:
        """Return ``−γ‖x − z‖²``, at most 0, or its exponential, in the dtype of the landmarks."""
        if issparse(X) and self.offset is not None:
            X = minus_columns(X.astype(self.norms.dtype, copy=False), self.offset)
        if issparse(X):
            out = self._of_sparse(X, exp=exp)
        elif issparse(self.rows):
            row_norms = (squared_norms(X) * self.gamma).astype(self.norms.dtype)
            out = loops.finish(
                _product(X.astype(self.norms.dtype, copy=False), self._rows_transposed), row_norms, self.norms, exp
            )
        else:
            out = self._of_dense(X, exp=exp)
        if self.points is not None:
            self._sharpen(out, X, self.points)
        return out

    def fill(
        self, out: Array, X: Matrix, minus: Array | None, largest: Array | None, kept: Array | None
    ) -> float | None:
        """Fill ``out`` with the exponentials of rows, minus one number per column; None if that is not possible."""
        dtype = self.norms.dtype
        if self.points is not None or (kept is not None and kept.dtype != dtype):
            return None
        if self.offset is not None or (issparse(self.rows) and not issparse(X)):
            return None
        own = largest if largest is None or largest.dtype == dtype else np.empty(len(out), dtype)
        less = None if minus is None else minus.astype(dtype, copy=False)
        if issparse(X):
            squares = self._of_sparse.into(out, X, less, own, kept)
        else:
            squares = self._of_dense.into(out, X, less, own, kept)
        if largest is not None and own is not largest:
            largest[:] = own
        return squares

    @cached_property
    def _rows_transposed(self) -> SparseMatrix:
        return self.rows.T.tocsr()  # type: ignore[union-attr] # for sparse landmarks only

    @cached_property
    def _of_dense(self) -> loops.Exponentials:
        return loops.Exponentials(to_dense(self.rows).T, self.norms, self.gamma, self.center)

    @cached_property
    def _of_sparse(self) -> loops.SparseExponentials:
        return loops.SparseExponentials(self.rows, self.norms, self.gamma)

    def _sharpen(self, out: Array, X: Matrix, points: Matrix) -> None:
        row, column = np.nonzero(out > -_SHARP_SHARE * self.norms)
        step = max(1, _SHARP_NUMBERS // X.shape[1])
        for start in range(0, row.size, step):
            i, j = row[start : start + step], column[start : start + step]
            out[i, j] = -self.gamma * squared_norms(_difference(X[i], points[j]))


class Exponents:
    """``X ↦ −γ‖x − z‖²`` for the landmarks ``Z``: never positive, in the dtype of ``X``; on request its exponential.

    One matrix product with γ folded into the landmarks, then the norms in place. The error is about
    ``ε γ‖z‖²``, whatever the rows (rows much longer than ``z`` are far from it). If ``γ‖z‖²`` is above
    a limit,

    1. dense rows and landmarks are taken relative to ``center`` (the landmarks' mean, if not given), sparse ones only
       in columns that put them far from the origin;
    2. landmarks still above the limit are compared in float64 if the rows are float32;
    3. landmarks above the limit of float64 are compared by differences.

    Parameters
    ----------
    Z : matrix of shape (m, p)
    gamma : float
    center : array of shape (p,), optional
    sharp : bool
        Give small distances a small relative error: compute in float64 whatever the dtype of the rows,
        and compute the distances of nearly equal rows from their difference.
    exp : bool
        Return the exponentials, computed chunk by chunk while the exponents are in the cache.
    """

    def __init__(
        self, Z: Matrix, gamma: float, center: Array | None = None, *, sharp: bool = False, exp: bool = False
    ) -> None:
        self._Z = Z
        self._gamma = gamma
        self._center = center
        self._sharp = sharp
        self._exp = exp
        self._prepared: dict[tuple[np.dtype, bool], list[tuple[Array | None, _Landmarks | _ByDifferences]]] = {}

    def _meet(self, X: Matrix) -> tuple[Matrix, list[tuple[Array | None, _Landmarks | _ByDifferences]]]:
        """Return the checked rows, and the landmarks prepared for them."""
        X = as_matrix(X, "X", self._Z.shape[1])
        key = (X.dtype, issparse(X))
        if key not in self._prepared:
            self._prepared[key] = self._prepare(*key)
        return X, self._prepared[key]

    def into(
        self, out: Array, X: Matrix, minus: Array | None, largest: Array | None = None, kept: Array | None = None
    ) -> float | None:
        """Fill ``out`` with the exponentials minus one number per column, as :func:`nystrom.kernels.base.fill`.

        Returns None if the landmarks need several kinds of comparison, if dense rows meet sparse landmarks, or if
        sparse rows are shifted first.
        """
        X, ((_, first), *others) = self._meet(X)
        if on_device(X) or others or not isinstance(first, _Landmarks) or first.norms.dtype != out.dtype:
            return None
        return first.fill(out, X, minus, largest, kept)

    def __call__(self, X: Matrix) -> Array:
        X, ((_, first), *others) = self._meet(X)
        if on_device(X) and (self._sharp or others):
            # Some landmarks need more accurate distances; a device compares all of them by differences.
            return _ByDifferences(self._Z, self._gamma).exponents(X, self._exp).astype(X.dtype, copy=False)
        out = first.exponents(X, self._exp).astype(X.dtype, copy=False)
        for columns, part in others:
            out[:, columns] = part.exponents(X, self._exp)
        return out

    def _prepare(self, dtype: np.dtype, is_sparse: bool) -> list[tuple[Array | None, _Landmarks | _ByDifferences]]:
        """Return the comparison of all landmarks, and more accurate ones with the landmarks that need them."""
        Z, center, offset, norms = self._centred(dtype, is_sparse)
        exact = _Landmarks(Z, norms, self._gamma, center, offset=offset)
        size = self._gamma * norms
        by_differences = ~(size <= _DIFFERENCE_LIMIT)
        wide = np.dtype(np.float64)
        low, high = _FLOAT32_RANGE
        is_far = ~(size <= _CANCELLATION_LIMIT) if dtype == np.float32 else by_differences
        if 2 * by_differences.sum() > by_differences.size:
            return [(None, _ByDifferences(self._Z, self._gamma))]
        if dtype == np.float32 and (self._sharp or not low < self._gamma < high or 2 * is_far.sum() > is_far.size):
            is_far, dtype = by_differences, wide
        near = _without(exact, is_far) if is_far.any() else exact
        found: list[tuple[Array | None, _Landmarks | _ByDifferences]] = [(None, self._shape(near, dtype))]
        between = np.flatnonzero(is_far & ~by_differences)
        if between.size:
            some = replace(exact, rows=Z[between], norms=norms[between], points=self._Z[between])
            found.append((between, self._shape(some, wide)))
        if by_differences.any():
            found.append(
                (np.flatnonzero(by_differences), _ByDifferences(self._Z[np.flatnonzero(by_differences)], self._gamma))
            )
        return found

    def _centred(self, dtype: np.dtype, is_sparse: bool) -> tuple[Matrix, Array | None, Array | None, Array]:
        """Return the landmarks, relative to the centre if that gains accuracy; the centre of dense rows, the offset of
        sparse ones; squared norms."""
        whole = self._Z if is_sparse else _dense_if_small(self._Z)
        norms = squared_norms(whole)
        if is_sparse or issparse(whole):
            return self._less_offset(dtype, norms) if is_sparse else (whole, None, None, norms)
        if not self._gamma * norms.max(initial=0.0) > _CANCELLATION_LIMIT:
            return whole, None, None, norms
        Z = whole.astype(np.float64)
        center = Z.mean(axis=0) if self._center is None else np.asarray(self._center, np.float64)
        # Rounded to the rows' dtype first, so that rows and landmarks move by the same vector.
        center = center.astype(dtype)
        Z -= center
        centred = squared_norms(Z)
        if not 2 * np.median(centred) < np.median(norms):
            return whole, None, None, norms
        return Z, center, None, centred

    def _less_offset(self, dtype: np.dtype, norms: Array) -> tuple[Matrix, None, Array | None, Array]:
        if not self._gamma * norms.max(initial=0.0) > _DIFFERENCE_LIMIT:
            return self._Z, None, None, norms
        mean = np.asarray(self._Z.mean(axis=0), dtype=np.float64).ravel()
        offset = offset_columns(mean, 1 / self._gamma)
        if offset is None:
            return self._Z, None, None, norms
        offset = offset.astype(dtype).astype(np.float64)
        Z = self._Z.astype(np.float64)
        Z = minus_columns(Z, offset) if issparse(Z) else Z - offset
        return Z, None, offset, squared_norms(Z)

    def _shape(self, exact: _Landmarks, dtype: np.dtype) -> _Landmarks:
        rows = _scaled(exact.rows, 2 * self._gamma, dtype)
        center = None if exact.center is None else exact.center.astype(dtype)
        points = None
        if self._sharp:
            points = self._Z if exact.points is None else exact.points
            points = (
                points if exact.offset is None else _difference(points, np.broadcast_to(exact.offset, points.shape))
            )
        norms = (self._gamma * exact.norms).astype(dtype)
        return _Landmarks(rows, norms, self._gamma, center, points, exact.offset)


def _without(landmarks: _Landmarks, others: Array) -> _Landmarks:
    """Return the landmarks with the ``others`` moved to the origin; a more accurate comparison handles those."""
    Z, norms = landmarks.rows, np.where(others, 0.0, landmarks.norms)
    if issparse(Z):
        return replace(landmarks, rows=sp.csr_matrix(sp.diags((~others).astype(np.float64)) @ Z), norms=norms)
    return replace(landmarks, rows=np.where(others[:, None], 0.0, Z), norms=norms)


@dataclass(frozen=True)
class _ByDifferences:
    """``−γ‖x − z‖²`` from differences in float64: accurate at any distance; n·m·p operations, no matrix product."""

    points: Matrix
    gamma: float

    def exponents(self, X: Matrix, exp: bool) -> Array:
        """Return ``−γ‖x − z‖²``, or its exponential."""
        if on_device(X):
            found = differences(X, X.beside(_dense(self.points)), 2) * -self.gamma
            return np.exp(found) if exp else found
        from scipy.spatial.distance import cdist

        out = np.empty((X.shape[0], self.points.shape[0]))
        step = max(1, _SHARP_NUMBERS // X.shape[1])
        for i in range(0, X.shape[0], step):
            rows = _dense(X[i : i + step])
            for j in range(0, self.points.shape[0], step):
                out[i : i + step, j : j + step] = cdist(rows, _dense(self.points[j : j + step]), "sqeuclidean")
        out *= -self.gamma
        return np.exp(out, out=out) if exp else out


def _dense(A: Matrix) -> Array:
    return np.asarray(to_dense(A), dtype=np.float64)


class NormKernel:
    """``X ↦ exp(−(γ‖x − z‖_p)^q)`` for the landmarks ``Z``, in the dtype of ``X``: no matrix product computes it.

    float32 rows use float32 landmarks if rounding these changes no exponent by more than about 32 ε, else float64
    landmarks. Sparse rows are made dense a few at a time, except for p = q = 1.
    """

    def __init__(self, Z: Matrix, gamma: float, p: float, q: float) -> None:
        self._Z = Z
        self._parameters = (gamma, p, q)
        self._dense = _dense_if_small(Z)
        self._sparse: SparseMatrix | None = None
        # The first thread fills it; threads that race compute the same values.
        self._ways: dict[np.dtype, loops.NormKernel] = {}

    def __call__(self, X: Matrix) -> Array:
        check_columns(X, self._Z.shape[1])
        if not issparse(X) and not issparse(self._dense):
            return self._of_dense(X)
        gamma, p, q = self._parameters
        if p == q == 1:
            return np.asarray(np.exp(-gamma * self._manhattan(X)).astype(X.dtype, copy=False))
        out = np.empty((X.shape[0], self._Z.shape[0]), X.dtype)
        step = max(1, _SHARP_NUMBERS // X.shape[1])
        for j in range(0, self._Z.shape[0], step):
            some = self._dense if not issparse(self._dense) else to_dense(self._Z[j : j + step])
            part = self if some is self._dense else NormKernel(some, *self._parameters)
            columns = slice(j, j + some.shape[0])
            for i in range(0, X.shape[0], step):
                out[i : i + step, columns] = part._of_dense(to_dense(X[i : i + step]))
            if part is self:
                break
        return out

    def _of_dense(self, X: Array) -> Array:
        if X.dtype not in self._ways:
            dtype = np.dtype(np.float32 if X.dtype == np.float32 and self._fits_float32() else np.float64)
            self._ways[X.dtype] = loops.NormKernel(np.asarray(self._dense, dtype), *self._parameters)
        way = self._ways[X.dtype]
        return way(X.astype(way.dtype, copy=False)).astype(X.dtype, copy=False)

    def _fits_float32(self) -> bool:
        gamma, p, q = self._parameters
        low, high = _FLOAT32_RANGE
        # Below this q / p, a value that float32 flushes to zero would have a root that is not small.
        if not low < gamma < high or q < _LEAST_ROOT * p:
            return False
        with np.errstate(over="ignore"):
            rounded = np.asarray(self._dense, np.float32)
        moved = np.abs(np.asarray(self._dense, np.float64) - rounded).sum(axis=1).max(initial=0.0)
        return bool(gamma * moved <= _CANCELLATION_LIMIT * np.finfo(np.float32).eps)

    def _manhattan(self, X: Matrix) -> Array:
        from sklearn.metrics.pairwise import manhattan_distances

        if self._sparse is None:
            self._sparse = _as_sklearn_wants(self._Z)
        return np.asarray(manhattan_distances(_as_sklearn_wants(X), self._sparse))


def _as_sklearn_wants(A: Matrix) -> SparseMatrix:
    """Return a new CSR matrix with sorted int32 indices, float64 values and no duplicate entries."""
    # scikit-learn would do this too, but in place on landmarks that several threads share.
    A = canonical(A) if issparse(A) else sp.csr_matrix(A)
    data, indices, indptr = A.data.astype(np.float64), A.indices.astype(np.int32), A.indptr.astype(np.int32)
    return sp.csr_matrix((data, indices, indptr), shape=A.shape)
