"""The contract of a source of rows: blocks of a fixed size, in a fixed order, as often as asked."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nystrom.rows.sparse import rows_between
from nystrom.types import Array, Matrix, issparse


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
    # Whether blocks hold a weight for each row.
    has_weight: bool = False
    # The names of the columns, where the source has them.
    feature_names: tuple[str, ...] | None = None
    # Whether the rows are in memory already, so that a block costs none.
    in_memory: bool = False
    # What the source holds while it is read, beside the blocks: a decoded chunk, a piece of text.
    held_bytes: int = 0
    # Whether the blocks are held by a cluster, so that passes run there.
    on_cluster: bool = False

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
        """Return all rows as one matrix, to be read only: rows in memory are not copied where they need not be."""
        return self.take(np.arange(self.shape[0]))

    def widened(self, block_rows: int) -> RowBlocks:
        """Return the same rows with 2, 4, 8, ... blocks as one, while that is at most ``block_rows`` rows."""
        return self

    def identity(self) -> str | None:
        """Return text that is equal only for equal rows, or None if there is none.

        Rows in memory are hashed, at about a second per gigabyte; files are known by size, times and inode.
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

    def with_target(self, y: Array | None, weight: Array | None = None) -> RowBlocks:
        """Return the same rows with a target (and a weight) beside each."""
        return TargetedRows(self, y, weight)


class _OfWrapped:
    """An attribute that is the wrapped rows' own, unless the wrapper sets one on itself."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, wrapper: Any, owner: type) -> Any:
        return self if wrapper is None else getattr(wrapper.rows, self.name)


def _of_wrapped() -> Any:
    return _OfWrapped()


class WrappedRows(RowBlocks):
    """Base of rows that are made of other rows: everything is theirs but what the wrapper sets.

    A wrapper that cuts other blocks, or other columns, sets ``shape``, ``block_rows`` and what else differs; flags such
    as ``on_cluster`` are never copied, so none can be forgotten.
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
    in_memory = _of_wrapped()
    held_bytes = _of_wrapped()
    on_cluster = _of_wrapped()

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
    """Base of wrappers whose blocks are those of the wrapped rows, each changed on its own.

    Parameters
    ----------
    rows : RowBlocks
        The wrapped rows.
    change : callable
        Makes a block of one of theirs. It does not refer to the rows, so that a cluster can ship it.
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
    """Rows with an in-memory target and weight beside them."""

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


@dataclass(frozen=True)
class _Attach:
    """Put the target and the weight beside the rows of a block."""

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
