"""An engine whose passes are counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from numpy.typing import DTypeLike

from nystrom.engine.base import Engine, M, T
from nystrom.rows.base import Block, RowBlocks
from nystrom.types import Array, Emitted


class PassCount:
    """A number of passes that several threads may add to."""

    def __init__(self) -> None:
        self.value = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            self.value += 1


class CountedEngine:
    """Another engine, with every pass that it is asked for counted.

    Parameters
    ----------
    engine : Engine
        Makes the passes.
    count : PassCount, optional
        Shared with other engines whose passes count as well.
    """

    def __init__(self, engine: Engine, count: PassCount | None = None) -> None:
        self.engine = engine
        self._count = count or PassCount()

    @property
    def n_jobs(self) -> int:
        return self.engine.n_jobs

    @property
    def n_passes(self) -> int:
        return self._count.value

    def spare(self, rows: RowBlocks) -> CountedEngine | None:
        spare = self.engine.spare(rows)
        return None if spare is None else CountedEngine(spare, self._count)

    def fold(self, rows: RowBlocks, step: Callable[[Block], M], *, label: str) -> M:
        self._count.add()
        return self.engine.fold(rows, step, label=label)

    def map(self, rows: RowBlocks, step: Callable[[Block], T], *, label: str) -> Iterator[tuple[int, T]]:
        self._count.add()
        return self.engine.map(rows, step, label=label)

    def map_rows(
        self, rows: RowBlocks, step: Callable[[Block], Array], n_columns: int, dtype: DTypeLike, *, label: str
    ) -> RowBlocks:
        self._count.add()
        return self.engine.map_rows(rows, step, n_columns, dtype, label=label)

    def map_rows_and_fold(
        self, rows: RowBlocks, step: Callable[[Block], tuple[Array, M]], n_columns: int, dtype: DTypeLike, *, label: str
    ) -> tuple[RowBlocks, M]:
        self._count.add()
        return self.engine.map_rows_and_fold(rows, step, n_columns, dtype, label=label)

    def emit(
        self, rows: RowBlocks, step: Callable[[Block], Array], n_columns: int | None, dtype: DTypeLike, *, label: str
    ) -> Emitted:
        self._count.add()
        return self.engine.emit(rows, step, n_columns, dtype, label=label)
