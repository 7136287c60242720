"""Rows that can only be read from their beginning: pieces of any size, made into blocks of a fixed one."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from copy import copy
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from nystrom.exceptions import DataFileError, RowsChangedError
from nystrom.rows.base import Block, RowBlocks
from nystrom.rows.block_size import blocks_to_join, default_block_rows
from nystrom.rows.reading import reading
from nystrom.rows.sparse import canonical
from nystrom.rows.stack import join_arrays, stack_rows
from nystrom.rows.stamp import Stamp
from nystrom.rows.target_column import check_dtype, require_target
from nystrom.types import Array, Matrix, issparse


class Piece(NamedTuple):
    """Consecutive rows as a source gives them."""

    X: Matrix
    y: Array | None = None
    weight: Array | None = None

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    def rows(self, start: int, stop: int) -> Piece:
        piece = slice(start, stop)
        return Piece(
            self.X[piece],
            None if self.y is None else self.y[piece],
            None if self.weight is None else self.weight[piece],
        )


class StreamRows(RowBlocks):
    """Base of the sources that are read in order.

    A subclass defines :meth:`pieces`, sets ``name``, ``dtype`` and ``is_sparse``, and calls :meth:`set_size`, or
    :meth:`measure` to find the size in a pass of its own.
    """

    random_access = False
    stamp: Stamp | None = None
    _block_bytes: float | None = None

    @abstractmethod
    def pieces(self) -> Iterator[Piece]:
        """Yield all rows in order, in pieces of any size, decoding each row once."""

    def read_pieces(self) -> Iterator[Piece]:
        """Yield :meth:`pieces`; what the parser of a file raises names the file and the row."""
        pieces = self.pieces()
        start = 0
        while True:
            # A source without files is the caller's own code, and so are its errors.
            with nullcontext() if self.stamp is None else reading(self.name, start):
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece
            start += piece.n_rows

    def measure(self, n_features: int | None, block_rows: int | None) -> None:
        """Count rows, columns and entries in one pass, and set ``shape`` and ``block_rows``."""
        count = entries = width = 0
        for piece in self.read_pieces():
            count += piece.n_rows
            width = max(width, int(piece.X.shape[1]))
            entries += piece.X.nnz if issparse(piece.X) else 0
            self.has_target = piece.y is not None
            self.has_weight = piece.weight is not None
        if count == 0:
            raise DataFileError(f"{self.name} holds no rows.")
        self.set_size((count, n_features or width), entries, block_rows)

    def set_size(self, shape: tuple[int, int], entries: int, block_rows: int | None) -> None:
        """Set ``shape`` and ``block_rows``: those that the same rows have in memory."""
        self.shape = shape
        row_bytes = float(shape[1] * self.dtype.itemsize)
        if self.is_sparse:
            row_bytes = (self.dtype.itemsize + 4) * entries / max(shape[0], 1)
        self.block_rows = block_rows or default_block_rows(row_bytes, shape[0])
        self._block_bytes = row_bytes * self.block_rows

    def identity(self) -> str | None:
        if self.stamp is None:
            return None
        about = f"{type(self).__name__} {self.name} {self.shape} {self.dtype} {self._choice()}"
        return f"{about} {self.stamp.identity}"

    def _choice(self) -> str:
        """Return which columns are read, for :meth:`identity`."""
        return "all"

    @property
    def block_bytes(self) -> int:
        return int(self._block_bytes or super().block_bytes)

    def iterate(self) -> Iterator[Block]:
        n = self.shape[0]
        start = 0
        if self.stamp is not None:
            self.stamp.check(start)
        for index, piece in enumerate(rechunk(self._checked(), self.block_rows)):
            if start + piece.n_rows > n:
                raise self._other_count(start, f"has more rows than the {n}", f"it goes on at row {n}")
            if piece.y is not None:
                require_target(piece.y, self.name, start)
            yield Block(index, start, piece.X, piece.y, piece.weight)
            start += piece.n_rows
        if start < n:
            raise self._other_count(start, f"has fewer rows than the {n}", f"it ended at row {start}")
        if self.stamp is not None:
            self.stamp.check(start)

    def _other_count(self, start: int, what: str, where: str) -> Exception:
        """Return the error for rows that are more or fewer than announced: the file changed, or was never right."""
        if self.stamp is None:
            return RowsChangedError(
                f"{self.name} {what} it had when it was opened: {where}. Every pass must see the same rows; open it "
                f"again and start over."
            )
        self.stamp.check(start)
        return DataFileError(f"{self.name} is damaged: it {what} that it says it has; {where}. Write it again.")

    def _checked(self) -> Iterator[Piece]:
        start = 0
        for piece in self.read_pieces():
            if piece.X.shape[1] != self.shape[1]:
                raise DataFileError(
                    f"{self.name}: the rows from {start} on have {piece.X.shape[1]} columns, "
                    f"but the rows before them have {self.shape[1]}."
                )
            X = piece.X.astype(self.dtype, copy=False)
            yield piece._replace(X=X if issparse(X) else np.ascontiguousarray(X))
            start += piece.n_rows

    def block(self, index: int) -> Block:
        return next(islice(self.iterate(), index, None))

    def take(self, indices: Array) -> Matrix:
        order = np.argsort(indices, kind="stable")
        wanted = np.asarray(indices)[order]
        found = []
        for block in self.iterate():
            first, last = np.searchsorted(wanted, (block.start, block.stop))
            # An array of row numbers copies, so that the block itself can be freed.
            found.append(block.X[wanted[first:last] - block.start])
        return stack_rows(found, order)

    def widened(self, block_rows: int) -> StreamRows:
        wide = copy(self)
        wide.block_rows = self.block_rows * blocks_to_join(self.block_rows, block_rows)
        return wide


def rechunk(pieces: Iterable[Piece], block_rows: int) -> Iterator[Piece]:
    """Yield the same rows in pieces of ``block_rows``; the last one may be shorter."""
    held: deque[Piece] = deque()
    count = 0
    for piece in pieces:
        if piece.n_rows:
            held.append(piece)
            count += piece.n_rows
        del piece
        while count >= block_rows:
            yield _cut(held, block_rows)
            count -= block_rows
    if count:
        yield _cut(held, count)


def _cut(held: deque[Piece], wanted: int) -> Piece:
    parts = []
    while wanted:
        piece = held.popleft()
        if piece.n_rows > wanted:
            held.appendleft(piece.rows(wanted, piece.n_rows))
            piece = piece.rows(0, wanted)
        parts.append(piece)
        wanted -= piece.n_rows
    if len(parts) == 1:
        return parts[0]
    return Piece(
        stack_rows([part.X for part in parts]),
        join_arrays([part.y for part in parts]),
        join_arrays([part.weight for part in parts]),
    )


class IterableRows(StreamRows):
    """Blocks that a function, or an object that can be iterated again, gives again for every pass.

    A block is a matrix, dense or sparse, or a tuple ``(X, y)`` or ``(X, y, weight)``.
    """

    def __init__(
        self,
        start: Callable[[], Iterable[Any]],
        *,
        shape: tuple[int, int] | None = None,
        dtype: DTypeLike | None = None,
        block_rows: int | None = None,
        name: str = "X",
    ) -> None:
        self._start = start
        self.name = name
        first = next(self._raw(), None)
        if first is None:
            raise DataFileError(f"{name} gives no blocks.")
        self.is_sparse = issparse(first.X)
        self.has_target = first.y is not None
        self.dtype = check_dtype(first.X.dtype, dtype, name)
        if shape is None or self.is_sparse:
            self.measure(None if shape is None else shape[1], block_rows)
        else:
            self.set_size((int(shape[0]), int(shape[1])), 0, block_rows)

    def pieces(self) -> Iterator[Piece]:
        return self._raw()

    def _raw(self) -> Iterator[Piece]:
        for item in self._start():
            if isinstance(item, Block):
                item = (item.X, item.y, item.weight)
            parts = item if isinstance(item, tuple) else (item,)
            X = canonical(parts[0], self.name) if issparse(parts[0]) else np.asarray(parts[0])
            if X.ndim != 2 or len(parts) > 3:
                raise ValueError(
                    f"{self.name} must give blocks that are two-dimensional matrices, or tuples (X, y) or "
                    f"(X, y, weight); got {type(item).__name__} with X of shape {X.shape}."
                )
            yield Piece(X, *(None if part is None else np.asarray(part) for part in parts[1:]))


def iterable_rows(source: Any, *, dtype: DTypeLike | None = None, block_rows: int | None = None) -> StreamRows:
    """Return the rows of a callable, a re-iterable object, or an object with ``shape`` and ``iterate``."""
    name = getattr(source, "name", None) or type(source).__name__
    if hasattr(source, "iterate") and hasattr(source, "shape"):
        return IterableRows(source.iterate, shape=source.shape, dtype=dtype, block_rows=block_rows, name=str(name))
    if callable(source):
        name = getattr(source, "__name__", name)
        return IterableRows(source, dtype=dtype, block_rows=block_rows, name=str(name))
    if iter(source) is source:
        raise TypeError(
            f"X is {type(source).__name__}, which can be read once only, and rows are read more than once. Give a "
            f"function that returns a new iterator for every pass, such as lambda: (load(file) for file in files)."
        )
    return IterableRows(lambda: iter(source), dtype=dtype, block_rows=block_rows, name=str(name))
