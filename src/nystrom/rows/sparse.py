"""Sparse rows: the check of all sparse input, and operations shared by CSR and dense matrices.

The check ensures that compiled loops never see an index out of bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from nystrom import loops
from nystrom.checks import is_whole
from nystrom.exceptions import MemoryBudgetError
from nystrom.machine import machine_memory
from nystrom.types import Array, Matrix, SparseMatrix, issparse

# A function returns the kind of matrix it was given.
M = TypeVar("M", Array, SparseMatrix, Array | SparseMatrix)

# Minimum number of dense values per column that every pass over sparse rows holds at a time.
_COLUMN_NUMBERS = 3
FEWER_COLUMNS = "leave out columns without entries, as in X[:, numpy.unique(X.indices)], or hash columns to fewer."


# Minimum ratio of a column's squared mean to the total spread at which subtracting the mean gains accuracy.
_WORTH = 2.0**10


def rows_between(X: M, start: int, stop: int) -> M:
    """Return the rows from ``start`` to ``stop`` as views of X: SciPy would copy sparse ones.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> rows_between(sp.eye(3, format="csr"), 1, 3).toarray()
    array([[0., 1., 0.],
           [0., 0., 1.]])
    """
    if not issparse(X):
        return X[start:stop]
    stop = min(stop, X.shape[0])
    first, last = X.indptr[start], X.indptr[stop]
    piece = sp.csr_matrix((stop - start, X.shape[1]), dtype=X.dtype)
    # The constructor would copy parts of larger arrays.
    piece.data, piece.indices = X.data[first:last], X.indices[first:last]
    piece.indptr = X.indptr[start : stop + 1] - first
    return piece


def canonical(X: SparseMatrix, name: str = "X", *, start: int = 0) -> SparseMatrix:
    """Return sparse rows of any layout as checked CSR with sorted columns and no duplicate entries.

    Nothing is copied if the rows already have this form. Time O(nnz).

    Parameters
    ----------
    X : sparse matrix or array
        Of any layout; its arrays may be damaged.
    name : str
        The name of the rows, for messages.
    start : int
        The number of the first row, for messages.

    Raises
    ------
    ValueError
        An index is out of bounds or not an integer, or the arrays do not fit together.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from nystrom.rows.sparse import canonical
    >>> X = sp.csr_matrix(np.eye(3))
    >>> X.indices[1] = 7
    >>> canonical(X)
    Traceback (most recent call last):
    ValueError: X: row 1 has an entry in column 7, but there are 3 columns, numbered from 0. The data are damaged.
    """
    if X.ndim != 2:
        raise ValueError(f"{name} must have two dimensions (rows and columns); got shape {X.shape}.")
    n, p = X.shape
    if X.format in ("csr", "csc", "bsr"):
        _check_arrays(name, values=X.data, indices=X.indices, indptr=X.indptr)
    if X.format == "csr":
        return csr_rows(X.data, X.indices, X.indptr, (n, p), name, start=start)
    # SciPy converts between layouts in C and trusts every index, so each layout is checked before it is converted.
    if X.format == "csc":
        _check_compressed(X.data, X.indices, X.indptr, (p, n), name, 0, ("column", "row"))
        X = sp.csc_matrix((X.data, _whole(X.indices), _whole(X.indptr)), shape=(n, p))
    elif X.format == "bsr":
        if X.data.ndim != 3:
            raise ValueError(f"{name}: blocks must have three dimensions; got {X.data.ndim}. The data are damaged.")
        high, wide = X.data.shape[1:]
        blocks = (n // max(high, 1), p // max(wide, 1))
        _check_compressed(X.data, X.indices, X.indptr, blocks, name, 0, ("block row", "block column"))
    elif X.format == "dia":
        _check_diagonals(X, name)
    elif X.format == "lil":
        _check_lists(X, name)
    else:
        X = _as_pairs(X, name)
    X = X.tocsr()
    return csr_rows(X.data, X.indices, X.indptr, (n, p), name, start=start)


def require_room_for_columns(n_columns: int, name: str) -> None:
    """Raise if this machine cannot hold the mean of sparse rows, which is dense however few entries they have."""
    has = machine_memory()
    needed = _COLUMN_NUMBERS * 8 * n_columns
    if has is not None and needed > has:
        raise MemoryBudgetError(
            f"{name} has {n_columns} columns, and {_COLUMN_NUMBERS} numbers for each, such as their mean, take "
            f"{needed / 1e9:.3g} GB; this machine has {has / 1e9:.3g} GB. {FEWER_COLUMNS[0].upper()}{FEWER_COLUMNS[1:]}"
        )


def csr_rows(
    data: Array, indices: Array, indptr: Array, shape: tuple[int, int], name: str = "X", *, start: int = 0
) -> SparseMatrix:
    """Return the CSR matrix of these arrays, checked and in canonical form; see :func:`canonical`."""
    if loops.is_canonical(data, indices, indptr, shape):
        X = sp.csr_matrix((data, indices, indptr), shape=shape, copy=False)
        X.has_canonical_format = X.has_sorted_indices = True
        return X
    _check_compressed(data, indices, indptr, shape, name, start, ("row", "column"))
    # A new matrix: flags cached on the caller's matrix may be older than its arrays.
    X = sp.csr_matrix((native(data), _whole(indices), _whole(indptr)), shape=shape, copy=False)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def native(X: M) -> M:
    """Return the matrix with numbers in native byte order; copies only if needed."""
    return X if X.dtype.isnative else X.astype(X.dtype.newbyteorder("="))


def _whole(numbers: Array) -> Array:
    """Return checked indices in an integer dtype that SciPy accepts; unsigned 64-bit ones are known to be small."""
    return numbers.astype(np.int64) if numbers.dtype.kind == "u" else native(numbers)


def _check_compressed(
    data: Array,
    indices: Array,
    indptr: Array,
    shape: tuple[int, int],
    name: str,
    start: int,
    words: tuple[str, str],
) -> None:
    """Raise unless the three arrays are a compressed matrix; ``words`` name its major and its minor axis."""
    major, minor = words
    if data.ndim < 1:
        raise ValueError(f"{name}: the values must have one dimension.")
    _check_numbers(data, name)
    _check_integers(name, indices=indices, indptr=indptr)
    if indptr.ndim != 1 or indices.ndim != 1 or min(shape) < 0:
        raise ValueError(f"{name}: indices and indptr must have one dimension, and the shape no negative size.")
    if len(indptr) != shape[0] + 1:
        raise ValueError(
            f"{name}: indptr has {len(indptr)} entries, but {shape[0]} {major}s need {shape[0] + 1}. "
            f"The data are damaged."
        )
    if indptr[0] != 0:
        raise ValueError(f"{name}: indptr must begin with 0; got {indptr[0]}. The data are damaged.")
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if falls.size:
        raise ValueError(f"{name}: indptr falls at {major} {start + int(falls[0])}. The data are damaged.")
    if indptr[-1] != len(indices) or len(indices) != len(data):
        raise ValueError(
            f"{name}: indptr ends at {indptr[-1]}, but there are {len(indices)} indices and {len(data)} values. "
            f"The data are damaged."
        )
    if not indices.size or (indices.min() >= 0 and indices.max() < shape[1]):
        return
    first = int(np.flatnonzero((indices < 0) | (indices >= shape[1]))[0])
    row = start + int(np.searchsorted(indptr, first, side="right")) - 1
    raise ValueError(
        f"{name}: {major} {row} has an entry in {minor} {indices[first]}, but there are {shape[1]} {minor}s, "
        f"numbered from 0. The data are damaged."
    )


def _check_diagonals(X: Any, name: str) -> None:
    """Raise unless each diagonal of a matrix in layout "dia" has exactly one, distinct offset."""
    _check_arrays(name, values=X.data, offsets=X.offsets)
    _check_numbers(X.data, name)
    _check_integers(name, offsets=X.offsets)
    if X.data.ndim != 2 or X.offsets.ndim != 1 or len(X.data) != len(X.offsets):
        raise ValueError(
            f"{name}: there are offsets of shape {X.offsets.shape} for diagonals of shape {X.data.shape}; each "
            f"diagonal needs one. The data are damaged."
        )
    if len(np.unique(X.offsets)) != len(X.offsets):
        raise ValueError(f"{name}: two diagonals have the same offset. The data are damaged.")


def _check_lists(X: Any, name: str) -> None:
    """Raise unless each row of a matrix in layout "lil" has lists of columns and values of equal length."""
    n, p = X.shape
    if len(X.rows) != n or len(X.data) != n:
        raise ValueError(
            f"{name}: there are columns of {len(X.rows)} rows and values of {len(X.data)}, but {n} rows. "
            f"The data are damaged."
        )
    for row, (columns, values) in enumerate(zip(X.rows, X.data, strict=True)):
        if not isinstance(columns, list) or not isinstance(values, list) or len(columns) != len(values):
            raise ValueError(f"{name}: row {row} has other columns than values. The data are damaged.")
        if any(not is_whole(column) or not 0 <= column < p for column in columns):
            raise ValueError(
                f"{name}: row {row} has entries in columns {columns}, but there are {p} columns, numbered from 0. "
                f"The data are damaged."
            )


def _as_pairs(X: Any, name: str) -> Any:
    """Return a matrix of another layout with the row and column number of each entry, checked."""
    try:
        pairs = X.tocoo()
    except (ValueError, TypeError, IndexError) as error:
        raise ValueError(f"{name}: {error}. The data are damaged.") from error
    _check_pairs(pairs, name)
    return pairs


def _check_pairs(X: Any, name: str) -> None:
    """Raise unless the row and column number of every entry is within the shape."""
    _check_numbers(X.data, name)
    _check_integers(name, row=X.row, col=X.col)
    if not len(X.data) == len(X.row) == len(X.col):
        raise ValueError(f"{name}: {len(X.row)} rows and {len(X.col)} columns of {len(X.data)} values are given.")
    for word, numbers, size in (("row", X.row, X.shape[0]), ("column", X.col, X.shape[1])):
        if numbers.size and (numbers.min() < 0 or numbers.max() >= size):
            bad = numbers[(numbers < 0) | (numbers >= size)][0]
            raise ValueError(f"{name}: an entry is in {word} {bad}, but there are {size} {word}s, numbered from 0.")


def _check_arrays(name: str, **parts: object) -> None:
    for what, part in parts.items():
        if not isinstance(part, np.ndarray):
            raise ValueError(f"{name}: {what} must be an array; got {type(part).__name__}. The data are damaged.")


def _check_numbers(data: Array, name: str) -> None:
    if data.dtype.kind not in "fiub":
        raise ValueError(f"{name} holds {data.dtype}, which are not real numbers; rows must be numbers.")


def _check_integers(name: str, **arrays: Array) -> None:
    for what, numbers in arrays.items():
        if numbers.dtype.kind not in "iu":
            raise ValueError(f"{name}: {what} must be integers; got {numbers.dtype}. The data are damaged.")


def stack_rows(pieces: Sequence[Matrix], order: Array | None = None) -> Matrix:
    """Return the rows of all pieces as one matrix: CSR if any piece is sparse.

    Parameters
    ----------
    pieces : sequence of matrices
    order : array of int, optional
        The result of ``np.argsort`` on the requested row numbers, if the pieces were read in sorted order. The rows are
        returned in the requested order.

    Examples
    --------
    >>> import numpy as np
    >>> wanted = np.array([5, 0, 3])
    >>> stack_rows([np.array([[0]]), np.array([[3], [5]])], np.argsort(wanted)).ravel()
    array([5, 0, 3])
    """
    dense: list[Array] = [piece for piece in pieces if not issparse(piece)]
    stacked: Matrix = np.concatenate(dense) if len(dense) == len(pieces) else sp.vstack(pieces, format="csr")
    if order is None:
        return stacked
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return stacked[back]


def join_arrays(pieces: Sequence[Array | None]) -> Array | None:
    """Return the targets or weights of all pieces as one array; None if any piece has none."""
    present = [np.asarray(piece) for piece in pieces if piece is not None]
    return np.concatenate(present) if len(present) == len(pieces) else None


def offset_columns(mean: Array, spread: float) -> Array | None:
    """Return the mean in the columns where it is large relative to the spread, 0 in the others; None if all are 0.

    Examples
    --------
    >>> import numpy as np
    >>> offset_columns(np.array([1e6, 0.5]), 2.0)
    array([1000000.,       0.])
    """
    # Compare roots: squares of means above 1e154 would overflow.
    far = np.abs(mean) > np.sqrt(_WORTH) * np.sqrt(max(spread, np.finfo(np.float64).tiny))
    return np.where(far, mean, 0.0) if far.any() else None


def minus_columns(X: SparseMatrix, shift: Array) -> SparseMatrix:
    """Return the CSR rows ``x − shift`` in the dtype of X; columns with shift 0 are unchanged."""
    columns = np.flatnonzero(shift)
    n = X.shape[0]
    values = np.tile(shift[columns].astype(X.dtype), n)
    starts = len(columns) * np.arange(n + 1)
    moved = X - sp.csr_matrix((values, np.tile(columns, n), starts), shape=X.shape)
    return sp.csr_matrix(moved)
