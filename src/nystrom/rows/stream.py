"""Rows that can only be read from the beginning: pieces of any size are cut into blocks of a fixed size."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from copy import copy
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from nystrom.exceptions import DataFileError, RowsChangedError
from nystrom.rows.base import Block, RowBlocks, blocks_to_join, default_block_rows
from nystrom.rows.draw import take_from
from nystrom.rows.reading import (
    Columns,
    Stamp,
    check_dtype,
    check_weights,
    reading,
    require_target,
    require_unmasked,
)
from nystrom.rows.sparse import canonical, join_arrays, stack_rows
from nystrom.types import Array, Matrix, issparse

_SLAB_BYTES = 8 * 2**20
_MOST_NAMES = 20  # in a message


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
    :meth:`measure` to determine the size in a separate pass.
    """

    random_access = False
    stamp: Stamp | None = None
    _block_bytes: float | None = None

    @abstractmethod
    def pieces(self) -> Iterator[Piece]:
        """Yield all rows in order, in pieces of any size, decoding each row once."""

    def read_pieces(self) -> Iterator[Piece]:
        """Yield :meth:`pieces`; errors of a file's parser name the file and the row."""
        pieces = self.pieces()
        start = 0
        while True:
            # A source without files is the caller's own code; its errors pass unchanged.
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
            if count and not self.is_sparse and piece.X.shape[1] != width:
                raise self._other_width(count, int(piece.X.shape[1]), width)
            count += piece.n_rows
            width = max(width, int(piece.X.shape[1]))
            entries += piece.X.nnz if issparse(piece.X) else 0
            self.has_target = piece.y is not None
            self.has_weight = piece.weight is not None
        if count == 0:
            raise DataFileError(f"{self.name} holds no rows.")
        self.set_size((count, n_features or width), entries, block_rows)

    def set_size(self, shape: tuple[int, int], entries: int, block_rows: int | None) -> None:
        """Set ``shape`` and ``block_rows``, the same as for these rows in memory."""
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
        start, weighs = 0, False
        if self.stamp is not None:
            self.stamp.check(start)
        for index, piece in enumerate(rechunk(self._checked(), self.block_rows)):
            if start + piece.n_rows > n:
                raise self._other_count(start, f"has more rows than the {n}", f"it goes on at row {n}")
            if piece.y is not None:
                require_target(piece.y, self.name, start)
            if piece.weight is not None:
                check_weights(piece.weight, f"the weights of {self.name}", start)
                weighs = weighs or bool(np.any(piece.weight))
            yield Block(index, start, piece.X, piece.y, piece.weight)
            start += piece.n_rows
        if self.has_weight and not weighs:
            raise ValueError(f"the weights of {self.name} are all 0; at least one must be positive.")
        if start < n:
            raise self._other_count(start, f"has fewer rows than the {n}", f"it ended at row {start}")
        if self.stamp is not None:
            self.stamp.check(start)

    def _other_count(self, start: int, what: str, where: str) -> Exception:
        """Return the error for more or fewer rows than announced: the file changed, or its header is wrong."""
        if self.stamp is None:
            return RowsChangedError(
                f"{self.name} {what} it had when it was opened: {where}. Every pass must see the same rows; open it "
                f"again and start over."
            )
        self.stamp.check(start)
        return DataFileError(f"{self.name} is damaged: it {what} that it says it has; {where}. Write it again.")

    def _other_width(self, start: int, found: int, before: int) -> Exception:
        return DataFileError(
            f"{self.name}: the rows from {start} on have {found} columns, but the rows before them have {before}."
        )

    def _checked(self) -> Iterator[Piece]:
        start = 0
        for piece in self.read_pieces():
            if piece.X.shape[1] != self.shape[1]:
                raise self._other_width(start, int(piece.X.shape[1]), self.shape[1])
            X = piece.X.astype(self.dtype, copy=False)
            yield piece._replace(X=X if issparse(X) else np.ascontiguousarray(X))
            start += piece.n_rows

    def block(self, index: int) -> Block:
        return next(islice(self.iterate(), index, None))

    def take(self, indices: Array) -> Matrix:
        return take_from(self.iterate(), indices)

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
    """Blocks that a function, or an object that can be iterated repeatedly, yields for every pass.

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
        self.has_weight = first.weight is not None
        self._like = None if first.y is None else first.y[:0]
        self.dtype = check_dtype(first.X.dtype, dtype, name)
        if shape is None or self.is_sparse:
            self.measure(None if shape is None else shape[1], block_rows)
        else:
            self.set_size((int(shape[0]), int(shape[1])), 0, block_rows)

    def pieces(self) -> Iterator[Piece]:
        start = 0
        for piece in self._raw():
            self._check(piece, start)
            yield piece
            start += piece.n_rows

    def _check(self, piece: Piece, start: int) -> None:
        """Raise unless every row has a target and a weight, if the first row has."""
        for word, values, first in (("target", piece.y, self.has_target), ("weight", piece.weight, self.has_weight)):
            if (values is not None) != first:
                holds, other = ("a", "none") if first else ("no", "one")
                raise ValueError(
                    f"{self.name}: the first block holds {holds} {word} for each row, but the block from row {start} "
                    f"on has {other}. Give every block its {word}s, or none."
                )
            if values is not None and len(values) != piece.n_rows:
                raise ValueError(
                    f"{self.name}: the block from row {start} on has {piece.n_rows} rows, but {len(values)} {word}s; "
                    f"there must be one per row."
                )
        if piece.weight is not None and piece.weight.ndim != 1:
            raise ValueError(f"{self.name}: weights must have one dimension; got shape {piece.weight.shape}.")
        like = self._like
        if piece.y is not None and like is not None:
            numbers = piece.y.dtype.kind in "fiub", like.dtype.kind in "fiub"
            if piece.y.shape[1:] != like.shape[1:] or numbers[0] != numbers[1]:
                raise ValueError(
                    f"{self.name}: the target of the block from row {start} on holds {piece.y.dtype} of shape "
                    f"{piece.y.shape}, but that of the first holds {like.dtype}, {like.shape[1:]} per row."
                )

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
            for part in parts:
                require_unmasked(part, self.name)
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


def slab_rows(chunk_rows: int, row_bytes: int) -> int:
    """Return the number of rows to decode at a time: whole chunks, about 8 MiB in total."""
    return int(chunk_rows * max(1, _SLAB_BYTES // max(chunk_rows * row_bytes, 1)))


def which_one(path: Path, word: str, inside: str, names: Sequence[str]) -> str:
    """Return the message for a file that has no matrix of the requested name, or several to choose from."""
    asked = f"has no {word} {inside!r}" if inside else f"holds {len(names) or 'no'} {word}s"
    if not names:
        return f"{path} {asked}{', nor any other' if inside else ''}."
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    said = ", ".join(map(repr, names[:_MOST_NAMES]))
    return f"{path} {asked}; write the path as '{path.name}::{word}' with one of {said}{more}."


class ChunkedRows(StreamRows):
    """Base of the chunked formats. A subclass yields the decoded slabs."""

    def __init__(
        self,
        path: Path,
        inside: str,
        name: str,
        stamp: Stamp,
        shape: tuple[int, int],
        dtype: np.dtype,
        slab: int,
        columns: Columns,
        block_rows: int | None,
    ) -> None:
        self.path = path
        self.inside = inside
        self.name = name
        self.stamp = stamp
        self.dtype = dtype
        self.slab_rows = slab
        self.columns = columns
        self.has_target = columns.target is not None
        self.held_bytes = 2 * min(slab, shape[0]) * shape[1] * 8
        self.set_size(shape, 0, block_rows)

    @abstractmethod
    def _slabs(self) -> Iterator[Array]:
        """Yield the stored rows, ``slab_rows`` at a time."""

    def _choice(self) -> str:
        return self.columns.identity

    def pieces(self) -> Iterator[Piece]:
        for stored in self._slabs():
            yield Piece(*self.columns.split(stored))
