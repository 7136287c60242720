"""What the first pass learns of the rows: their number, mean and spread, and that they are finite.

The moments are a value of the rows, the same bits whichever pass takes them. None costs a pass of its own unless
nobody else reads the rows first: :class:`Survey` lets the moments ride along with the first fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event

import numpy as np
from numpy.typing import DTypeLike

from nystrom.engine.base import Engine, M, T, TreeMerger
from nystrom.engine.counted import CountedEngine
from nystrom.exceptions import NotFiniteError
from nystrom.moments import Moments, block_moments
from nystrom.rows.base import Block, RowBlocks
from nystrom.rows.finite import require_finite
from nystrom.types import Array


@dataclass(frozen=True)
class _Surveyed:
    result: object
    moments: Moments

    def merge(self, other: _Surveyed) -> _Surveyed:
        return _Surveyed(self.result.merge(other.result), self.moments.merge(other.moments))  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _FirstError:
    """The error of the first block that has one."""

    error: NotFiniteError | None = None

    def merge(self, other: _FirstError) -> _FirstError:
        return other if self.error is None else self


class Survey:
    """The rows and the engine that reads them.

    Attributes
    ----------
    rows : RowBlocks
        What is read.
    engine : Engine
        For passes over other rows, such as a sample.
    passes : CountedEngine
        For passes over ``rows``: the same engine, with its passes counted.
    """

    def __init__(self, rows: RowBlocks, engine: Engine) -> None:
        self.rows = rows
        self.engine = engine
        self.passes = CountedEngine(engine)
        self._moments: Moments | None = None
        self._coming: Future[Moments] | None = None

    @property
    def n_passes(self) -> int:
        """Passes over the rows so far."""
        return self.passes.n_passes

    @property
    def moments(self) -> Moments:
        """The moments of all rows; costs a pass if no pass was made yet."""
        if self._moments is None:
            with self._first_row_named():
                if self._coming is not None:
                    self._moments = self._coming.result()
                else:
                    self._moments = self.passes.fold(self.rows, _moments_step(self.rows.name), label="survey")
        return self._moments

    def check_finite(self) -> None:
        """Raise :class:`~nystrom.exceptions.NotFiniteError` for rows that are not finite, if no pass has looked yet."""
        if not self._known:
            self.require_finite()

    @property
    def _known(self) -> bool:
        return self._moments is not None or self._coming is not None

    @contextmanager
    def moments_meanwhile(self) -> Iterator[None]:
        """Take the moments while the ``with`` block runs, where the engine has a thread to spare.

        For work that is mostly on one thread and does not read all rows.
        """
        spare = None if self._known else self.passes.spare(self.rows)
        if spare is None:
            yield
            return
        stopped = Event()
        step = _moments_step(self.rows.name)

        def unless_stopped(block: Block) -> Moments:
            if stopped.is_set():
                raise CancelledError
            return step(block)

        beside = ThreadPoolExecutor(1, thread_name_prefix="nystrom-survey")
        try:
            self._coming = beside.submit(spare.fold, self.rows, unless_stopped, label="survey")
            yield
            wait([self._coming])
        except BaseException:  # of the work, or an interrupt while this waits
            stopped.set()
            raise
        finally:
            beside.shutdown()

    def fold(self, step: Callable[[Block], M], *, label: str, checks: bool = False) -> M:
        """Fold ``step`` over the rows, and the moments with it if they are not known yet.

        A step that ``checks`` that its rows are finite carries no moments: whoever needs them has asked before.
        """
        if checks:
            with self._first_row_named():
                return self.passes.fold(self.rows, step, label=label)
        if self._known:
            return self.passes.fold(self.rows, step, label=label)
        survey = _moments_step(self.rows.name)

        def both(block: Block) -> _Surveyed:
            moments = survey(block)  # first, so that a step never meets NaN
            return _Surveyed(step(block), moments)

        with self._first_row_named():
            done = self.passes.fold(self.rows, both, label=label)
        self._moments = done.moments
        return done.result  # type: ignore[return-value]

    def map_rows(self, step: Callable[[Block], Array], n_columns: int, dtype: DTypeLike, *, label: str) -> RowBlocks:
        """Return the rows that ``step`` makes of each block, and take the moments with it if not known yet."""
        if self._known:
            return self.passes.map_rows(self.rows, step, n_columns, dtype, label=label)
        survey = _moments_step(self.rows.name)

        def both(block: Block) -> tuple[Array, Moments]:
            moments = survey(block)
            return step(block), moments

        with self._first_row_named():
            made, self._moments = self.passes.map_rows_and_fold(self.rows, both, n_columns, dtype, label=label)
        return made

    def map(self, step: Callable[[Block], T], *, label: str) -> Iterator[tuple[int, T]]:
        """Yield ``(start row, result)`` for every block, in block order; the moments ride along if all are drawn."""
        if self._known:
            yield from self.passes.map(self.rows, step, label=label)
            return
        survey = _moments_step(self.rows.name)

        def both(block: Block) -> tuple[T, Moments]:
            moments = survey(block)
            return step(block), moments

        merger: TreeMerger[Moments] = TreeMerger(Moments.merge)
        with self._first_row_named():
            for start, (result, moments) in self.passes.map(self.rows, both, label=label):
                merger.push(moments)
                yield start, result
        self._moments = merger.result()

    @contextmanager
    def _first_row_named(self) -> Iterator[None]:
        """Have an error about NaN name the first row of all, on a cluster too, where a later block may fail first."""
        try:
            yield
        except NotFiniteError:
            self.require_finite()
            raise

    def require_finite(self) -> None:
        """Raise :class:`~nystrom.exceptions.NotFiniteError` naming the first row that is not finite: one pass."""
        name = self.rows.name

        def step(block: Block) -> _FirstError:
            try:
                require_finite(block.X, name, block.start)
            except NotFiniteError as error:
                return _FirstError(error.with_traceback(None))
            return _FirstError()

        found = self.passes.fold(self.rows, step, label="find NaN")
        if found.error is not None:
            raise found.error


def _moments_step(name: str) -> Callable[[Block], Moments]:
    def step(block: Block) -> Moments:
        # The moments of a block with NaN or infinity are not finite either, so the rows need not be read twice.
        with np.errstate(over="ignore", invalid="ignore"):
            moments = block_moments(block.X, block.weight)
        if not np.isfinite(moments.scatter):
            require_finite(block.X, name, block.start)
        return moments

    return step
