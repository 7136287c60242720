"""What is learned of the rows beside the work of a pass: that they are finite and, where asked, their moments.

The moments are a value of the rows, the same bits whichever pass takes them. They are taken where somebody asks: by a
pass of their own, or, where :meth:`Survey.want_moments` was called before, along with the first pass over the rows. A
first pass that takes no moments looks for NaN all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import Event
from typing import TypeAlias

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
class _Finite:
    """Rows that were seen to be finite."""

    def merge(self, other: _Finite) -> _Finite:
        return self


# What a first pass has learned.
_Seen: TypeAlias = Moments | _Finite


@dataclass(frozen=True)
class _WithSeen:
    """The result of a pass, and what it has learned beside."""

    result: object
    seen: _Seen

    def merge(self, other: _WithSeen) -> _WithSeen:
        return _WithSeen(self.result.merge(other.result), self.seen.merge(other.seen))  # type: ignore[attr-defined, arg-type]


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
        self._wants_moments = False
        self._seen: _Seen | None = None
        self._coming: Future[Moments] | None = None

    @property
    def n_passes(self) -> int:
        """Passes over the rows so far."""
        return self.passes.n_passes

    def want_moments(self) -> None:
        """Have the next pass take the moments along, unless they are known: a pass is saved if they are asked for."""
        self._wants_moments = True

    @property
    def moments(self) -> Moments:
        """The moments of all rows; costs a pass unless an earlier one took them along."""
        if isinstance(self._seen, Moments):
            return self._seen
        with self._first_row_named():
            if self._coming is not None:
                found = self._coming.result()
            else:
                found = self.passes.fold(self.rows, _MomentsLook(self.rows.name), label="survey")
        self._seen = found
        return found

    def check_finite(self) -> None:
        """Raise :class:`~nystrom.exceptions.NotFiniteError` for rows that are not finite, if no pass has looked yet."""
        if self._seen is None and self._coming is None:
            self.require_finite()

    @property
    def _has_moments(self) -> bool:
        """Whether the moments are known, or being taken beside other work."""
        return isinstance(self._seen, Moments) or self._coming is not None

    @contextmanager
    def moments_meanwhile(self) -> Iterator[None]:
        """Take the moments while the ``with`` block runs, where the engine has a thread to spare.

        For work that is mostly on one thread and does not read all rows.
        """
        spare = None if self._has_moments else self.passes.spare(self.rows)
        if spare is None:
            yield
            return
        stopped = Event()
        look = _MomentsLook(self.rows.name)

        def unless_stopped(block: Block) -> Moments:
            if stopped.is_set():
                raise CancelledError
            return look(block)

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
        """Fold ``step`` over the rows; ``checks`` says that the step itself raises for rows that are not finite."""
        look = self._look(checks)
        if look is None:
            with self._first_row_named() if checks else nullcontext():
                return self.passes.fold(self.rows, step, label=label)

        def both(block: Block) -> _WithSeen:
            seen = look(block)  # first, so that a step never meets NaN
            return _WithSeen(step(block), seen)

        with self._first_row_named():
            done = self.passes.fold(self.rows, both, label=label)
        self._seen = done.seen
        return done.result  # type: ignore[return-value]

    def map_rows(
        self, step: Callable[[Block], Array], n_columns: int, dtype: DTypeLike, *, label: str, checks: bool = False
    ) -> RowBlocks:
        """Return the rows that ``step`` makes of each block; ``checks`` as for :meth:`fold`."""
        look = self._look(checks)
        if look is None:
            with self._first_row_named() if checks else nullcontext():
                return self.passes.map_rows(self.rows, step, n_columns, dtype, label=label)

        def both(block: Block) -> tuple[Array, _Seen]:
            seen = look(block)
            return step(block), seen

        with self._first_row_named():
            made, self._seen = self.passes.map_rows_and_fold(self.rows, both, n_columns, dtype, label=label)
        return made

    def map(self, step: Callable[[Block], T], *, label: str) -> Iterator[tuple[int, T]]:
        """Yield ``(start row, result)`` for every block, in block order."""
        look = self._look()
        if look is None:
            yield from self.passes.map(self.rows, step, label=label)
            return

        def both(block: Block) -> tuple[T, _Seen]:
            seen = look(block)
            return step(block), seen

        merger: TreeMerger[_Seen] = TreeMerger(lambda a, b: a.merge(b))  # type: ignore[arg-type]
        with self._first_row_named():
            for start, (result, seen) in self.passes.map(self.rows, both, label=label):
                merger.push(seen)
                yield start, result
        self._seen = merger.result()

    def _look(self, checks: bool = False) -> Callable[[Block], _Seen] | None:
        """Return what the next pass has to learn of a block beside its work, or None."""
        if self._has_moments:
            return None
        if self._wants_moments:
            return _MomentsLook(self.rows.name)
        return None if checks or self._seen is not None else _FiniteLook(self.rows.name)

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


@dataclass(frozen=True)
class _MomentsLook:
    """Takes the moments of a block of finite rows."""

    name: str

    def __call__(self, block: Block) -> Moments:
        # The moments of a block with NaN or infinity are not finite either, so the rows need not be read twice.
        with np.errstate(over="ignore", invalid="ignore"):
            moments = block_moments(block.X, block.weight)
        if not np.isfinite(moments.scatter):
            require_finite(block.X, self.name, block.start)
        return moments


@dataclass(frozen=True)
class _FiniteLook:
    """Sees to it that a block has finite rows."""

    name: str

    def __call__(self, block: Block) -> _Finite:
        require_finite(block.X, self.name, block.start)
        return _Finite()
