"""The contract of an engine: run a function on every block, merge the results in an order fixed by the blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from nystrom.rows.base import Block, RowBlocks
from nystrom.types import Array, Emitted

T = TypeVar("T")
M = TypeVar("M", bound="Mergeable")


class Mergeable(Protocol):
    """What a fold accumulates. ``merge`` is associative up to rounding and may reuse the memory of ``self``."""

    def merge(self, other: Self) -> Self: ...


class Sums(tuple[Any, ...]):
    """Arrays and numbers that merge by addition, entry by entry."""

    __slots__ = ()

    def __new__(cls, *values: object) -> Sums:
        return super().__new__(cls, values)

    def __getnewargs__(self) -> tuple[object, ...]:
        # Copying and pickling pass the values to the constructor one by one.
        return tuple(self)

    def merge(self, other: Sums) -> Sums:
        return Sums(*(_add(a, b) for a, b in zip(self, other, strict=True)))


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, np.ndarray) and a.shape:
        a += b
        return a
    return a + b


class TreeMerger(Generic[T]):
    """Merge a stream of results as a binary tree whose shape depends on their number alone.

    Results arrive in block order; those of equal height are merged as soon as there are two. At most
    log2(blocks) results wait at any time. A cluster builds the same tree out of tasks, so both give the same bits.
    """

    def __init__(self, merge: Callable[[T, T], T]) -> None:
        self._merge = merge
        self._waiting: list[tuple[int, T]] = []

    def push(self, result: T) -> None:
        height = 0
        while self._waiting and self._waiting[-1][0] == height:
            result = self._merge(self._waiting.pop()[1], result)
            height += 1
        self._waiting.append((height, result))

    def result(self) -> T:
        if not self._waiting:
            raise ValueError("there are no rows to read: X has 0 samples")
        _, result = self._waiting.pop()
        while self._waiting:
            result = self._merge(self._waiting.pop()[1], result)
        return result


class Writing(Protocol):
    """The method ``write`` of a step of :meth:`Engine.emit` that can write its result in place."""

    def __call__(self, block: Block, out: Array) -> None: ...


class Engine(Protocol):
    """How a pass runs."""

    @property
    def n_jobs(self) -> int:
        """Threads of this process available to the caller's own work."""
        ...

    @property
    def room(self) -> int | None:
        """Bytes available in this process for the results of a pass; None for no limit."""
        ...

    def reads_here(self, rows: RowBlocks) -> bool:
        """Whether this process reads these rows, rather than workers of a cluster."""
        ...

    def spare(self, rows: RowBlocks) -> Engine | None:
        """Return an engine for a pass that runs during the caller's own work; None if no thread is free."""
        ...

    def fold(self, rows: RowBlocks, step: Callable[[Block], M], *, label: str) -> M:
        """Run ``step`` on every block and merge the results as :class:`TreeMerger` does: one pass."""
        ...

    def map(self, rows: RowBlocks, step: Callable[[Block], T], *, label: str) -> Iterator[tuple[int, T]]:
        """Yield ``(start row, result)`` for every block, in block order: one pass."""
        ...

    def map_rows(
        self, rows: RowBlocks, step: Callable[[Block], Array], n_columns: int, dtype: DTypeLike, *, label: str
    ) -> RowBlocks:
        """Return the rows that ``step`` makes of each block, held where the engine holds data: one pass."""
        ...

    def map_rows_and_fold(
        self, rows: RowBlocks, step: Callable[[Block], tuple[Array, M]], n_columns: int, dtype: DTypeLike, *, label: str
    ) -> tuple[RowBlocks, M]:
        """Do :meth:`map_rows` with the first result of ``step`` and :meth:`fold` with the second: one pass."""
        ...

    def emit(
        self, rows: RowBlocks, step: Callable[[Block], Array], n_columns: int | None, dtype: DTypeLike, *, label: str
    ) -> Emitted:
        """Return the results of ``step`` as one array for the caller, one-dimensional without ``n_columns``.

        This is one pass. For a Dask collection the array is lazy, and the pass runs when it is computed.
        """
        ...
