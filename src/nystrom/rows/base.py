"""The contract of a source of rows: blocks of a fixed size, in a fixed order, and rows made of other rows."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nystrom.devices import Place, on_device, to_host
from nystrom.exceptions import NotFiniteError
from nystrom.rows.sparse import canonical, rows_between
from nystrom.types import Array, Matrix, SparseMatrix, issparse, to_dense

_BLOCK_BYTES = 8 * 2**20
_MIN_BLOCK_ROWS = 256
MAX_BLOCK_ROWS = 8192
# Minimum number of rows per block that makes sharing among threads worthwhile.
_SHARED_ROWS = 2048
# From this number of blocks on, threads finish a pass together even if the blocks are uneven.
_MANY_BLOCKS = 64


@dataclass(frozen=True, slots=True)
class Block:
    """One block of consecutive rows: ``X`` holds rows ``start`` to ``start + len(X)``."""

    index: int
    start: int
    X: Matrix
    y: Array | None = None
    weight: Array | None = None

    @property
    def stop(self) -> int:
        return self.start + int(self.X.shape[0])

    def split(self, n_rows: int) -> Iterator[Block]:
        """Yield the block in pieces of at most ``n_rows`` rows."""
        if self.X.shape[0] <= n_rows:
            yield self
            return
        for first in range(0, self.X.shape[0], n_rows):
            piece = slice(first, first + n_rows)
            yield Block(
                self.index,
                self.start + first,
                rows_between(self.X, first, first + n_rows),
                None if self.y is None else self.y[piece],
                None if self.weight is None else self.weight[piece],
            )


class RowBlocks(ABC):
    """A matrix of rows that is read block by block.

    A subclass sets ``shape``, ``dtype`` (float32 or float64: what its blocks hold), ``is_sparse``,
    ``block_rows`` and ``name`` (for messages), and defines :meth:`block` and :meth:`take`. A source that can only be
    read from its beginning sets ``random_access = False`` and defines :meth:`iterate` too.
    """

    shape: tuple[int, int]
    dtype: np.dtype
    is_sparse: bool = False
    block_rows: int
    name: str = "X"
    random_access: bool = True
    has_target: bool = False
    # Whether blocks hold a weight per row.
    has_weight: bool = False
    # The names of the columns, if the source has them.
    feature_names: tuple[str, ...] | None = None
    # The data frame of the rows, or an empty copy of it, from which callables choose columns.
    frame: Any = None
    # Whether the rows are already in memory, so that a block needs no memory.
    in_memory: bool = False
    # Bytes the source holds while it is read, in addition to the blocks: a decoded chunk, a piece of text.
    held_bytes: int = 0
    # Whether a cluster holds the blocks, so that passes run there.
    on_cluster: bool = False
    # Where results of a pass belong if not on the host: on the device that holds the rows.
    home: Place | None = None
    # Where blocks are if not on the host.
    place: Place | None = None

    def __repr__(self) -> str:
        n, p = self.shape
        kind = f"{'sparse ' if self.is_sparse else ''}{self.dtype}"
        target = ", with target" if self.has_target else ""
        blocks = f"{self.n_blocks:,} block{'' if self.n_blocks == 1 else 's'}"
        return f"<{type(self).__name__} {self.name!r}: {n:,} × {p:,} {kind}, {blocks}{target}>"

    @property
    def n_blocks(self) -> int:
        return -(-self.shape[0] // self.block_rows)

    @property
    def n_columns(self) -> int:
        return self.shape[1]

    @property
    def block_bytes(self) -> int:
        """The memory of one block of rows."""
        return self.block_rows * self.shape[1] * self.dtype.itemsize

    @abstractmethod
    def block(self, index: int) -> Block:
        """Return block ``index``. Called from several threads at once."""

    def iterate(self) -> Iterator[Block]:
        """Yield every block in order: one pass."""
        for index in range(self.n_blocks):
            yield self.block(index)

    @abstractmethod
    def take(self, indices: Array) -> Matrix:
        """Return the rows with the given numbers, in the given order, as one matrix: a copy."""

    def whole(self) -> Matrix:
        """Return all rows as one read-only matrix; rows in memory are copied only if necessary."""
        return self.take(np.arange(self.shape[0]))

    def widened(self, block_rows: int) -> RowBlocks:
        """Return the same rows with 2, 4, 8, ... blocks joined, up to ``block_rows`` rows per block."""
        return self

    def identity(self) -> str | None:
        """Return text that is equal only for equal rows, or None if there is none.

        Rows in memory are hashed, at about a second per gigabyte; files are identified by size, times and inode.
        """
        if not self.in_memory:
            return None
        digest = hashlib.blake2b(f"{self.shape} {self.dtype} {self.is_sparse}".encode(), digest_size=32)
        for block in self.iterate():
            X = block.X
            for part in (X.data, X.indices, X.indptr) if issparse(X) else (X,):
                digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def target(self) -> Array | None:
        """Return the target of every row as one array, or None if there is none; may cost a pass."""
        if not self.has_target:
            return None
        return np.concatenate([np.asarray(block.y) for block in self.iterate()])

    def target_dtype(self) -> np.dtype | None:
        """Return the dtype of the target that the rows hold, or None if they hold none; may read the first block."""
        return np.asarray(next(iter(self.iterate())).y).dtype if self.has_target else None

    def with_target(self, y: Array | None, weight: Array | None = None) -> RowBlocks:
        """Return the same rows with a target (and a weight) per row, if they are given."""
        return self if y is None and weight is None else TargetedRows(self, y, weight)


class _OfWrapped:
    """An attribute of the wrapped rows, unless the wrapper sets its own."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, wrapper: Any, owner: type) -> Any:
        return self if wrapper is None else getattr(wrapper.rows, self.name)


def _of_wrapped() -> Any:
    return _OfWrapped()


class WrappedRows(RowBlocks):
    """Base of rows that are made from other rows; attributes that the wrapper does not set are theirs.

    A wrapper with other blocks or columns sets ``shape``, ``block_rows`` and whatever else differs. Flags such as
    ``on_cluster`` are never copied, so none can be forgotten.
    """

    shape = _of_wrapped()
    dtype = _of_wrapped()
    is_sparse = _of_wrapped()
    block_rows = _of_wrapped()
    name = _of_wrapped()
    random_access = _of_wrapped()
    has_target = _of_wrapped()
    has_weight = _of_wrapped()
    feature_names = _of_wrapped()
    frame = _of_wrapped()
    in_memory = _of_wrapped()
    held_bytes = _of_wrapped()
    on_cluster = _of_wrapped()
    home = _of_wrapped()
    place = _of_wrapped()

    def __init__(self, rows: RowBlocks) -> None:
        self.rows = rows

    @property
    def block_bytes(self) -> int:
        return math.ceil(
            self.rows.block_bytes
            * self.block_rows
            * self.dtype.itemsize
            / (self.rows.block_rows * self.rows.dtype.itemsize)
        )

    def take(self, indices: Array) -> Matrix:
        return self.rows.take(indices)


class BlockwiseRows(WrappedRows):
    """Base of wrappers that change each block of the wrapped rows on its own.

    Parameters
    ----------
    rows : RowBlocks
        The wrapped rows.
    change : callable
        Makes a block from one of theirs. It does not refer to the rows, so that it can be sent to a cluster.
    """

    def __init__(self, rows: RowBlocks, change: Callable[[Block], Block]) -> None:
        super().__init__(rows)
        self.change = change

    @property
    def n_blocks(self) -> int:
        return self.rows.n_blocks

    def block(self, index: int) -> Block:
        return self.change(self.rows.block(index))

    def iterate(self) -> Iterator[Block]:
        return map(self.change, self.rows.iterate())


class TargetedRows(BlockwiseRows):
    """Rows with an in-memory target and weight."""

    def __init__(self, rows: RowBlocks, y: Array | None, weight: Array | None) -> None:
        super().__init__(rows, _Attach(y, weight))
        self.y = y
        self.weight = weight
        self.has_target = y is not None or rows.has_target
        self.has_weight = weight is not None or rows.has_weight

    def widened(self, block_rows: int) -> RowBlocks:
        return TargetedRows(self.rows.widened(block_rows), self.y, self.weight)

    def identity(self) -> str | None:
        return self.rows.identity()

    def target(self) -> Array | None:
        return self.rows.target() if self.y is None else np.asarray(self.y)

    def target_dtype(self) -> np.dtype | None:
        return self.rows.target_dtype() if self.y is None else np.asarray(self.y[:0]).dtype


@dataclass(frozen=True)
class _Attach:
    """Add the target and the weight to a block."""

    y: Array | None
    weight: Array | None

    def __call__(self, block: Block) -> Block:
        piece = slice(block.start, block.stop)
        return Block(
            block.index,
            block.start,
            block.X,
            block.y if self.y is None else self.y[piece],
            block.weight if self.weight is None else self.weight[piece],
        )


def default_block_rows(row_bytes: float, n_rows: int) -> int:
    """Return the number of rows per block: at most 8 MiB, but from 256 to 8192 rows.

    Blocks are as even as possible, and there are 2, 4 or a multiple of 8, so that the threads finish a pass together;
    fewer than 8 only if they would have fewer than 2048 rows each. The size depends on the rows alone, never on threads
    or on ``max_memory``: sums are taken block by block, so results have the same bits on every machine.
    """
    most = int(min(max(_BLOCK_BYTES / max(row_bytes, 1.0), _MIN_BLOCK_ROWS), MAX_BLOCK_ROWS))
    count = max(math.ceil(n_rows / most), min(n_rows // _SHARED_ROWS, 8), 1)
    if count > _MANY_BLOCKS:
        return most
    even = -(-count // 8) * 8 if count > 4 else 1 << (count - 1).bit_length()
    return max(-(-n_rows // even), 1)


def blocks_to_join(have: int, want: int) -> int:
    """Return the largest power of two of blocks of ``have`` rows with at most ``want`` rows in total; at least 1."""
    return 1 << int(np.log2(max(want // max(have, 1), 1)))


class MappedRows(BlockwiseRows):
    """Dense rows that ``function`` computes from each block of other rows, again in every pass; nothing is stored.

    Parameters
    ----------
    rows : RowBlocks
        The input of the function.
    function : callable
        Takes a block and returns one new row per row, in the dtype of ``rows``.
    n_columns : int
        Number of columns of the new rows.
    name : str
        For messages.
    target : {"kept", "rows"}
        The target of the new rows: that of the old rows, or the old rows themselves (dense).

    Examples
    --------
    >>> from nystrom.rows import as_blocks
    >>> rows = MappedRows(as_blocks([[1.0, 2.0], [3.0, 4.0]]), lambda block: block.X[:, :1] ** 2, 1, name="squares")
    >>> rows.take([1])
    array([[9.]])
    """

    is_sparse = False
    in_memory = False
    feature_names = None
    frame = None

    def __init__(
        self,
        rows: RowBlocks,
        function: Callable[[Block], Array],
        n_columns: int,
        *,
        name: str,
        target: str = "kept",
    ) -> None:
        super().__init__(rows, _Map(function, target == "rows"))
        self.shape = (rows.shape[0], n_columns)
        self.name = name
        if target == "rows":
            self.has_target = True

    @property
    def block_bytes(self) -> int:
        new = self.block_rows * self.shape[1] * self.dtype.itemsize
        return new if self.rows.in_memory else new + self.rows.block_bytes

    def take(self, indices: Array) -> Matrix:
        return self.change(Block(0, 0, self.rows.take(indices))).X


@dataclass(frozen=True)
class _Map:
    function: Callable[[Block], Array]
    rows_as_target: bool

    def __call__(self, block: Block) -> Block:
        y = block.y
        if self.rows_as_target:
            y = to_host(to_dense(block.X))
        return Block(block.index, block.start, self.function(block), y, block.weight)


class ScaledRows(BlockwiseRows):
    """Rows times a number, in their dtype; moves rows near the ends of its range to where squares fit."""

    def __init__(self, rows: RowBlocks, factor: float) -> None:
        super().__init__(rows, _Scale(factor))
        self.factor = factor

    def take(self, indices: Array) -> Matrix:
        taken = self.rows.take(indices)
        return taken * taken.dtype.type(self.factor)


@dataclass(frozen=True)
class _Scale:
    factor: float

    def __call__(self, block: Block) -> Block:
        return replace(block, X=block.X * block.X.dtype.type(self.factor))


def require_finite(X: Matrix, name: str, start: int = 0, *, numbers: Array | None = None) -> None:
    """Raise :class:`NotFiniteError` naming the first row of ``X`` that holds NaN or infinity.

    Rows are numbered from ``start``, or by ``numbers``.
    """
    values = X.data if issparse(X) else X
    if on_device(X):
        if np.isfinite(float(X.sum())):
            return
        finite = to_host(np.isfinite(X).all(axis=1))
        if not finite.all():
            row = int(np.argmin(finite))
            kind = "NaN" if np.isnan(to_host(X[row])).any() else "infinity"
            raise NotFiniteError(name, kind, f"row {start + row if numbers is None else int(numbers[row])}")
        return
    # One dot product reads the block once at memory speed; the slow test is needed only if it overflows.
    flat = values.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.dot(flat, flat)):
            return
    finite = np.isfinite(values)
    bad = np.flatnonzero(~(finite if issparse(X) else finite.all(axis=1)))
    if not bad.size:
        return
    row = int(np.searchsorted(X.indptr, bad[0], side="right") - 1) if issparse(X) else int(bad[0])
    kind = "NaN" if np.isnan(X[[row]].data if issparse(X) else X[row]).any() else "infinity"
    raise NotFiniteError(name, kind, f"row {start + row if numbers is None else int(numbers[row])}")


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
    """A dense array with the target of its rows, or the names of its columns; parts and copies of it have neither."""

    target: Array | None = None
    column_names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, X: Array, target: Array | None, column_names: tuple[str, ...] | None = None) -> TargetedArray:
        held = np.asarray(X).view(cls)
        held.target, held.column_names = target, column_names
        return held


class TakenRows(WrappedRows):
    """Some dense rows in memory, by number; the thread that reads a block gathers it."""

    has_target = False
    has_weight = False
    home = None
    place = None

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
        """The memory of the block with the most entries."""
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
        # Copying all rows is faster than SciPy's selection. It must be a copy: models keep what they take.
        every = len(indices) == n and np.array_equal(indices, np.arange(n))
        return (self._X.copy() if every else self._X[indices]).astype(self.dtype, copy=False)

    def whole(self) -> Matrix:
        return self._X.astype(self.dtype, copy=False)


def array_rows(X: Matrix, *, block_rows: int | None = None, name: str = "X") -> RowBlocks:
    """Wrap an in-memory matrix, dense or sparse."""
    if issparse(X):
        return SparseRows(X, block_rows=block_rows, name=name)
    return ArrayRows(X, block_rows=block_rows, name=name)
