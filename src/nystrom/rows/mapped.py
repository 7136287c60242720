"""Rows as a function makes them of other rows, when they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nystrom.rows.base import Block, BlockwiseRows, RowBlocks
from nystrom.types import Array, Matrix, to_dense


class MappedRows(BlockwiseRows):
    """Dense rows that ``function`` makes of each block of others; nothing is held, every pass computes them again.

    Parameters
    ----------
    rows : RowBlocks
        What the function is given.
    function : callable
        From a block to its new rows, as many as it has, in the dtype of ``rows``.
    n_columns : int
        Columns of the new rows.
    name : str
        For messages.
    target : {"kept", "rows"}
        What stands beside the new rows: the target of the old ones, or the old rows themselves (dense).

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
            y = np.asarray(to_dense(block.X))
        return Block(block.index, block.start, self.function(block), y, block.weight)


class ScaledRows(BlockwiseRows):
    """Rows times a number, in their dtype: those near the ends of its range come to where squares fit."""

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
