"""The compiled inner loops of ``compiled.c``: whether they are there, and how they are called.

They are built when the package is installed on a machine with a C compiler. Without them, or with
``NYSTROM_COMPILED=0`` in the environment, every caller takes the way through NumPy that stands beside its call, and the
results differ by rounding only.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from nystrom.types import Array, Matrix

_VERSION = 1
_VECTOR_BYTES = 32
_TILE_ROWS = 6
_PRODUCT, _EXPONENTS, _EXPONENTIAL = range(3)
# Where the processor has wider vectors than the library uses, BLAS is faster on products with more columns.
_NARROW = 64
# The nearest of the centres is looked for with a whole row in the cache.
_MAX_NEAREST_COLUMNS = 1024
# A panel of sparse landmarks takes 64 bytes a row in each thread; dense ones are kept in panels of up to so many bytes.
_PANEL_BYTES = 16 * 2**20
_PANEL_ROWS = 2**18
# Columns for which the places of those in use can be kept: 4 bytes each.
_MAX_PLACES = 2**22
_STRETCH = 128
_MAX_CANDIDATES = 64

_P, _N, _REAL = ctypes.c_void_p, ctypes.c_ssize_t, {"float32": ctypes.c_float, "float64": ctypes.c_double}


def _load() -> ctypes.CDLL | None:
    """Return the library beside this file, or None if it is not there, not wanted, or not for this processor."""
    if os.environ.get("NYSTROM_COMPILED", "1") == "0":
        return None
    for path in Path(__file__).parent.glob("_compiled.*"):
        try:
            library = ctypes.CDLL(str(path))
            if library.nystrom_version() != _VERSION:
                continue
        except (OSError, AttributeError):
            continue
        for name, real in _REAL.items():
            signatures = {
                "product": [_P, _N, _N, _N, _P, _N, _P, _N, real, _P, ctypes.c_int],
                "sparse_product": [_P, _P, _P, _N, _N, _P, _P, _P, _P, _P, _N, _P, _N, _P, _P, ctypes.c_int],
                "nearest": [_P, _N, _N, _N, _P, _P, _P, _N, _P, _P],
                "sums": [_P, _N, _N, _N, _P, _P, _P, _P, _P],
                "moments": [_P, _N, _N, _N, _P, _P, _P],
                "seed": [_P, _N, _N, _P, _P, _N, _N, _P, _P, _P, _P, _P],
            }
            for function, arguments in signatures.items():
                entry = getattr(library, f"nystrom_{function}_{name}")
                entry.argtypes, entry.restype = arguments, _N if function == "seed" else None
        return library
    return None


_library = _load()
_wider_vectors = _library is not None and bool(_library.nystrom_wider_vectors())


def available() -> bool:
    """Whether the compiled loops are in use."""
    return _library is not None


@contextmanager
def turned_off() -> Iterator[None]:
    """Use NumPy inside the ``with`` block, in all threads: to compare, not for work."""
    global _library
    kept, _library = _library, None
    try:
        yield
    finally:
        _library = kept


def takes(dtype: np.dtype) -> bool:
    """Whether the loops are in use and read numbers of this kind: float32 or float64, in the machine's byte order."""
    return available() and dtype in (np.float32, np.float64)


def suits_product(n_columns: int) -> bool:
    """Whether a product with so many columns is faster here than by BLAS."""
    return available() and (not _wider_vectors or n_columns <= _NARROW)


def suits_nearest(n_features: int) -> bool:
    """Whether the nearest centre of rows with so many columns can be looked for here."""
    return available() and n_features <= _MAX_NEAREST_COLUMNS


def suits_seed(n_candidates: int) -> bool:
    """Whether seeds with so many candidates each can be drawn here."""
    return available() and n_candidates <= _MAX_CANDIDATES


@dataclass(frozen=True)
class Panels:
    """A matrix (p, m) as the loops read it: panels of two vectors of columns, filled up with zeros."""

    data: Array
    shape: tuple[int, int]


def in_panels(columns: Array) -> Panels:
    """Return a float32 or float64 matrix (p, m) in panels."""
    p, m = columns.shape
    panel = _panel(columns.dtype)
    count = -(-m // panel)
    padded = np.zeros((p, count * panel), columns.dtype)
    padded[:, :m] = columns
    return Panels(np.ascontiguousarray(padded.reshape(p, count, panel).transpose(1, 0, 2)), (p, m))


def _panel(dtype: np.dtype) -> int:
    return 2 * _VECTOR_BYTES // dtype.itemsize


def _padded(values: Array, dtype: np.dtype, fill: float) -> Array:
    """Return one number a column, as many as their panels have."""
    wide = np.full(-(-values.size // _panel(dtype)) * _panel(dtype), fill, dtype)
    wide[: values.size] = values
    return wide


def _function(name: str, dtype: np.dtype) -> ctypes._NamedFuncPointer:
    return getattr(_library, f"nystrom_{name}_{dtype.name}")


def _by_rows(X: Array, n_columns: int) -> tuple[Array, int]:
    """Return the rows with the numbers of each one after the other, and the numbers from one row to the next."""
    if X.shape[1] != n_columns:
        raise ValueError(f"X must have {n_columns} columns; got {X.shape[1]}.")
    size = X.dtype.itemsize
    if X.strides[1] != size or X.strides[0] % size or not X.flags.aligned:
        X = X.copy(order="C")
    return X, X.strides[0] // size


def product(X: Array, columns: Panels) -> Array:
    """Return ``X @ columns``, of the dtype of both."""
    out = np.empty((X.shape[0], columns.shape[1]), X.dtype)
    _call_product(X, columns, out, 0.0, None, _PRODUCT)
    return out


@dataclass(frozen=True)
class Exponents:
    """``X ↦ min(X @ columns − gamma ‖x‖² − norms, 0)``, or its exponential; X of the dtype of the columns."""

    columns: Panels
    norms: Array
    gamma: float

    @classmethod
    def prepare(cls, columns: Array, norms: Array, gamma: float) -> Exponents:
        panels = in_panels(columns)
        return cls(panels, _padded(norms, columns.dtype, 0.0), gamma)

    def __call__(self, X: Array, *, exp: bool, out: Array) -> None:
        _call_product(X, self.columns, out, self.gamma, self.norms, _EXPONENTIAL if exp else _EXPONENTS)


def _call_product(X: Array, columns: Panels, out: Array, gamma: float, norms: Array | None, mode: int) -> None:
    X, stride = _by_rows(X, columns.shape[0])
    _function("product", X.dtype)(
        X.ctypes.data,
        stride,
        *X.shape,
        columns.data.ctypes.data,
        columns.shape[1],
        out.ctypes.data,
        out.strides[0] // out.itemsize,
        gamma,
        None if norms is None else norms.ctypes.data,
        mode,
    )


@dataclass(frozen=True)
class _Sparse:
    """A CSR matrix with the numbers that the loops read."""

    ends: Array
    indices: Array
    data: Array
    shape: tuple[int, int]

    @property
    def pointers(self) -> tuple[int, int, int]:
        return self.ends.ctypes.data, self.indices.ctypes.data, self.data.ctypes.data


def _sparse(A: Matrix, dtype: np.dtype) -> _Sparse:
    A = A.tocsr()
    contiguous = np.ascontiguousarray
    return _Sparse(contiguous(A.indptr, np.int64), contiguous(A.indices, np.int32), contiguous(A.data, dtype), A.shape)


def sparse_product(X: Matrix, Z: Matrix) -> Array | None:
    """Return ``X @ Z.T`` as an ndarray, for CSR X and CSR or dense Z; None if that does not suit the loops."""
    loops = SparseExponents.prepare(Z, X.dtype)
    return None if loops is None else loops(X)


@dataclass(frozen=True)
class SparseExponents:
    """``X ↦ X @ Z.T`` for CSR rows; with norms and ``gamma``, as :class:`Exponents`. Z is CSR or dense.

    Sparse Z is spread into a panel of as many rows as X has columns or, where those are very many, as Z has columns
    that are not empty: ``places`` then says which row is whose, the last one being for all the others.
    """

    dtype: np.dtype
    rows: _Sparse | None
    columns: Panels | None
    norms: Array | None
    places: Array | None
    n_features: int

    @classmethod
    def prepare(cls, Z: Matrix, dtype: np.dtype, norms: Array | None = None) -> SparseExponents | None:
        """Return the loops for these landmarks; None if there are none, or the panel would take much memory."""
        m, p = Z.shape
        if not takes(dtype):
            return None
        wide = None if norms is None else _padded(norms, dtype, 0.0)
        if not sp.issparse(Z):
            if m * p * dtype.itemsize > _PANEL_BYTES:
                return None
            return cls(dtype, None, in_panels(np.asarray(Z.T, dtype)), wide, None, p)
        rows = _sparse(Z, dtype)
        if p <= _PANEL_ROWS:
            return cls(dtype, rows, None, wide, None, p)
        used = np.unique(Z.indices)
        if p > _MAX_PLACES or used.size >= _PANEL_ROWS:
            return None
        places = np.full(p, used.size, np.int32)
        places[used] = np.arange(used.size)
        packed = replace(rows, indices=places[rows.indices], shape=(m, used.size + 1))
        return cls(dtype, packed, None, wide, places, p)

    def __call__(self, X: Matrix, row_norms: Array | None = None, *, exp: bool = False) -> Array:
        """Return the products; with ``row_norms``, γ‖x‖² of each row, the exponents or their exponentials."""
        if X.shape[1] != self.n_features:
            raise ValueError(f"X must have {self.n_features} columns; got {X.shape[1]}.")
        rows = _sparse(X, self.dtype)
        if self.places is not None:
            rows = replace(rows, indices=self.places[rows.indices])
        m, p = (self.columns.shape[1], X.shape[1]) if self.columns is not None else self.rows.shape  # type: ignore[union-attr]
        out = np.empty((X.shape[0], m), self.dtype)
        space = None if self.rows is None else np.zeros(p * _panel(self.dtype), self.dtype)
        row_norms = None if row_norms is None else np.ascontiguousarray(row_norms, self.dtype)
        _function("sparse_product", self.dtype)(
            *rows.pointers,
            X.shape[0],
            p,
            None if self.columns is None else self.columns.data.ctypes.data,
            *((None, None, None) if self.rows is None else self.rows.pointers),
            None if space is None else space.ctypes.data,
            m,
            out.ctypes.data,
            m,
            None if row_norms is None else row_norms.ctypes.data,
            None if self.norms is None else self.norms.ctypes.data,
            _PRODUCT if row_norms is None else _EXPONENTIAL if exp else _EXPONENTS,
        )
        return out


@dataclass(frozen=True)
class Nearest:
    """``X ↦`` the number of the first column j with the largest ``(x − shift) · column_j − half_j``, as int32."""

    columns: Panels
    half: Array
    shift: Array

    @classmethod
    def prepare(cls, columns: Array, half: Array, shift: Array) -> Nearest:
        panels = in_panels(columns)
        return cls(panels, _padded(half, columns.dtype, np.inf), np.ascontiguousarray(shift))

    def __call__(self, X: Array) -> Array:
        X, stride = _by_rows(X, self.columns.shape[0])
        labels = np.empty(X.shape[0], np.int32)
        space = np.empty((_TILE_ROWS, X.shape[1]), X.dtype)
        _function("nearest", X.dtype)(
            X.ctypes.data,
            stride,
            *X.shape,
            self.shift.ctypes.data,
            self.columns.data.ctypes.data,
            self.half.ctypes.data,
            self.columns.shape[1],
            space.ctypes.data,
            labels.ctypes.data,
        )
        return labels


def cluster_sums(labels: Array, X: Array, n_clusters: int, shift: Array | None = None) -> tuple[Array, Array, float]:
    """Return, for rows less ``shift``, the sums by label, the counts, and the sum of all squared norms; in float64."""
    X, stride = _by_rows(X, X.shape[1] if shift is None else len(shift))
    labels = np.asarray(labels)
    if labels.shape != X.shape[:1] or (labels.size and not 0 <= labels.min() <= labels.max() < n_clusters):
        raise ValueError(f"labels must be one number from 0 to {n_clusters - 1} for each of {X.shape[0]} rows.")
    labels = np.ascontiguousarray(labels, np.int32)
    shift = None if shift is None else np.ascontiguousarray(shift, X.dtype)
    sums, counts = np.zeros((n_clusters, X.shape[1])), np.zeros(n_clusters, np.int64)
    squares = ctypes.c_double()
    _function("sums", X.dtype)(
        X.ctypes.data,
        stride,
        *X.shape,
        None if shift is None else shift.ctypes.data,
        labels.ctypes.data,
        sums.ctypes.data,
        counts.ctypes.data,
        ctypes.addressof(squares),
    )
    return sums, counts, squares.value


def moments(X: Array) -> tuple[Array, float]:
    """Return the sum of the rows and the sum of their squared norms, in float64."""
    X, stride = _by_rows(X, X.shape[1])
    sums, space, squares = np.zeros(X.shape[1]), np.empty(X.shape[1], X.dtype), ctypes.c_double()
    _function("moments", X.dtype)(
        X.ctypes.data, stride, *X.shape, space.ctypes.data, sums.ctypes.data, ctypes.addressof(squares)
    )
    return sums, squares.value


def seed(A: Array, squares: Array, first: int, uniform: Array, n_clusters: int) -> Array:
    """Return the numbers of up to ``n_clusters`` rows of ``A`` drawn by k-means++, the first of them given.

    ``squares`` are the squared norms of the rows; ``uniform``, of shape (n_clusters − 1, candidates), draws.
    """
    n, p = A.shape
    width = -(-n // _STRETCH) * _STRETCH
    points, norms, closest = np.zeros((p, width), A.dtype), np.zeros(width, A.dtype), np.zeros(width, A.dtype)
    points[:, :n] = A.T
    norms[:n] = squares
    closest[:n] = np.inf
    chosen = np.empty(n_clusters, np.int64)
    chosen[0] = first
    uniform = np.ascontiguousarray(uniform, np.float64)
    nearer, ends = np.empty((uniform.shape[1], width), A.dtype), np.empty(width // _STRETCH)
    space = np.empty((_TILE_ROWS, p), A.dtype)
    found = _function("seed", A.dtype)(
        points.ctypes.data,
        width,
        p,
        norms.ctypes.data,
        uniform.ctypes.data,
        n_clusters,
        uniform.shape[1],
        chosen.ctypes.data,
        closest.ctypes.data,
        nearer.ctypes.data,
        space.ctypes.data,
        ends.ctypes.data,
    )
    return chosen[:found]
