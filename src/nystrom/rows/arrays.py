"""Rows that are in memory, or mapped into it: ndarray, memmap, CSR."""

from __future__ import annotations

import numpy as np

from nystrom.rows.base import Block, RowBlocks, WrappedRows, blocks_to_join, default_block_rows
from nystrom.rows.sparse import canonical, rows_between
from nystrom.types import Array, Matrix, SparseMatrix, issparse


class ArrayRows(RowBlocks):
    """A dense array (C or Fortran order, writable or not, mapped or not); blocks are views where possible."""

    in_memory = True

    def __init__(self, X: Array, *, block_rows: int | None = None, name: str = "X") -> None:
        self._X = X
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.dtype = np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
        self.block_rows = block_rows or default_block_rows(self.shape[1] * self.dtype.itemsize, self.shape[0])
        self.name = name

    def block(self, index: int) -> Block:
        start = index * self.block_rows
        piece = self._X[start : start + self.block_rows]
        return Block(index, start, np.ascontiguousarray(piece, dtype=self.dtype))

    def take(self, indices: Array) -> Matrix:
        return np.asarray(self._X[indices], dtype=self.dtype, order="C")

    def whole(self) -> Matrix:
        return np.asarray(self._X, dtype=self.dtype, order="C")

    def widened(self, block_rows: int) -> ArrayRows:
        joined = self.block_rows * blocks_to_join(self.block_rows, block_rows)
        return ArrayRows(self._X, block_rows=joined, name=self.name)


class TargetedArray(np.ndarray):
    """A dense array that holds the target of its rows; parts and copies of it do not."""

    target: Array | None = None

    @classmethod
    def of(cls, X: Array, target: Array) -> TargetedArray:
        held = np.asarray(X).view(cls)
        held.target = target
        return held


class TakenRows(WrappedRows):
    """Some of the dense rows in memory, by number; a block is gathered when it is read, by the thread that reads it."""

    has_target = False
    has_weight = False

    def __init__(self, rows: RowBlocks, numbers: Array) -> None:
        super().__init__(rows)
        self.numbers = numbers
        self.shape = (len(numbers), rows.shape[1])
        self.block_rows = default_block_rows(self.shape[1] * self.dtype.itemsize, self.shape[0])

    def block(self, index: int) -> Block:
        start = index * self.block_rows
        return Block(index, start, self.rows.take(self.numbers[start : start + self.block_rows]))

    def take(self, indices: Array) -> Matrix:
        return self.rows.take(self.numbers[indices])


class SparseRows(RowBlocks):
    """A CSR matrix; blocks are CSR too and share its memory."""

    is_sparse = True
    in_memory = True

    def __init__(self, X: SparseMatrix, *, block_rows: int | None = None, name: str = "X") -> None:
        self._X = canonical(X, name)
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.dtype = np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
        row_bytes = (self.dtype.itemsize + 4) * self._X.nnz / max(self.shape[0], 1)
        self.block_rows = block_rows or default_block_rows(row_bytes, self.shape[0])
        self.name = name

    @property
    def block_bytes(self) -> int:
        """The memory of the block with most entries."""
        indptr = self._X.indptr
        ends = np.append(indptr[:: self.block_rows], indptr[-1])
        most = int(np.diff(ends).max(initial=0))
        return most * (self.dtype.itemsize + indptr.itemsize) + (self.block_rows + 1) * int(indptr.itemsize)

    def block(self, index: int) -> Block:
        start = index * self.block_rows
        piece = rows_between(self._X, start, start + self.block_rows)
        return Block(index, start, piece.astype(self.dtype, copy=False))

    def take(self, indices: Array) -> Matrix:
        n = self.shape[0]
        # A plain copy of all rows is quicker than SciPy's selection. It is a copy: models keep what they take.
        every = len(indices) == n and np.array_equal(indices, np.arange(n))
        return (self._X.copy() if every else self._X[indices]).astype(self.dtype, copy=False)

    def whole(self) -> Matrix:
        return self._X.astype(self.dtype, copy=False)


def array_rows(X: Matrix, *, block_rows: int | None = None, name: str = "X") -> RowBlocks:
    """Wrap an in-memory matrix, dense or sparse."""
    if issparse(X):
        return SparseRows(X, block_rows=block_rows, name=name)
    return ArrayRows(X, block_rows=block_rows, name=name)
