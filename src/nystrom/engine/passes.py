"""The passes over rows: count them, check for NaN and, on request, compute the moments.

The moments are a property of the rows, with the same bits whichever pass computes them. A request costs a pass, unless
:meth:`Passes.want_moments` was called before and the first pass computed them as well. A first pass without moments
still checks for NaN.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from threading import Event
from typing import TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from nystrom import loops
from nystrom.devices import DeviceArray, on_device
from nystrom.engine.base import Engine, M, T, TreeMerger
from nystrom.exceptions import NotFiniteError
from nystrom.loops.device import column_sums
from nystrom.rows.base import Block, RowBlocks, require_finite
from nystrom.types import Array, Emitted, Matrix, SparseMatrix, issparse


@dataclass(frozen=True)
class _Finite:
    """Rows that were checked to be finite."""

    def merge(self, other: _Finite) -> _Finite:
        return self


# What the first pass finds out about the rows.
_Seen: TypeAlias = "Moments | _Finite"


@dataclass(frozen=True)
class _WithSeen:
    """The result of a pass, and what the pass found out about the rows."""

    result: object
    seen: _Seen

    def merge(self, other: _WithSeen) -> _WithSeen:
        return _WithSeen(self.result.merge(other.result), self.seen.merge(other.seen))  # type: ignore[attr-defined, arg-type]


@dataclass(frozen=True)
class _FirstError:
    """The error of the first block that raised one."""

    error: NotFiniteError | None = None

    def merge(self, other: _FirstError) -> _FirstError:
        return other if self.error is None else self


class Passes:
    """The rows and the engine that reads them.

    Attributes
    ----------
    rows : RowBlocks
        The rows to read.
    engine : Engine
        For passes over other rows, such as a sample.
    counted : CountedEngine
        For passes over ``rows``: the same engine, with a count of its passes.
    """

    def __init__(self, rows: RowBlocks, engine: Engine) -> None:
        self.rows = rows
        self.engine = engine
        self.counted = CountedEngine(engine)
        self._wants_moments = False
        self._by_column = False
        self._seen: _Seen | None = None
        self._coming: Future[Moments] | None = None

    @property
    def n_passes(self) -> int:
        """Passes over the rows so far."""
        return self.counted.n_passes

    def want_moments(self, *, by_column: bool = False) -> None:
        """Have the next pass compute the moments as well, unless they are known; saves a pass if they are needed later.

        With ``by_column``, the moments of each column are computed too.
        """
        self._wants_moments = True
        if by_column and not self._by_column:
            self._by_column, self._seen, self._coming = True, None, None

    @property
    def moments(self) -> Moments:
        """The moments of all rows; costs a pass unless an earlier one computed them."""
        if isinstance(self._seen, Moments):
            return self._seen
        with self._first_row_named():
            if self._coming is not None:
                found = self._coming.result()
            else:
                found = self.counted.fold(self.rows, _MomentsLook(self.rows.name, self._by_column), label="moments")
        self._seen = found
        return found

    def check_finite(self) -> None:
        """Raise :class:`~nystrom.exceptions.NotFiniteError` for rows that are not finite, unless a pass has checked."""
        if self._seen is None and self._coming is None:
            self.require_finite()

    @property
    def _has_moments(self) -> bool:
        """Whether the moments are known, or being computed in another thread."""
        return isinstance(self._seen, Moments) or self._coming is not None

    @contextmanager
    def moments_meanwhile(self) -> Iterator[None]:
        """Compute the moments while the ``with`` block runs, if the engine has a spare thread.

        For work that mostly runs on one thread and does not read all rows.
        """
        spare = None if self._has_moments else self.counted.spare(self.rows)
        if spare is None:
            yield
            return
        stopped = Event()
        look = _MomentsLook(self.rows.name, self._by_column)

        def unless_stopped(block: Block) -> Moments:
            if stopped.is_set():
                raise CancelledError
            return look(block)

        beside = ThreadPoolExecutor(1, thread_name_prefix="nystrom-moments")
        try:
            self._coming = beside.submit(spare.fold, self.rows, unless_stopped, label="moments")
            yield
            wait([self._coming])
        except BaseException:  # raised by the work, or an interrupt while this waits
            stopped.set()
            raise
        finally:
            beside.shutdown()

    def fold(self, step: Callable[[Block], M], *, label: str, checks: bool = False) -> M:
        """Fold ``step`` over the rows; with ``checks``, the step itself raises for rows that are not finite."""
        look = self._look(checks)
        if look is None:
            with self._first_row_named() if checks else nullcontext():
                return self.counted.fold(self.rows, step, label=label)

        def both(block: Block) -> _WithSeen:
            seen = look(block)  # first, so that a step never meets NaN
            return _WithSeen(step(block), seen)

        with self._first_row_named():
            done = self.counted.fold(self.rows, both, label=label)
        self._seen = done.seen
        return done.result  # type: ignore[return-value]

    def map_rows(
        self, step: Callable[[Block], Array], n_columns: int, dtype: DTypeLike, *, label: str, checks: bool = False
    ) -> RowBlocks:
        """Return the rows that ``step`` makes of each block; ``checks`` as for :meth:`fold`."""
        look = self._look(checks)
        if look is None:
            with self._first_row_named() if checks else nullcontext():
                return self.counted.map_rows(self.rows, step, n_columns, dtype, label=label)

        def both(block: Block) -> tuple[Array, _Seen]:
            seen = look(block)
            return step(block), seen

        with self._first_row_named():
            made, self._seen = self.counted.map_rows_and_fold(self.rows, both, n_columns, dtype, label=label)
        return made

    def map(self, step: Callable[[Block], T], *, label: str) -> Iterator[tuple[int, T]]:
        """Yield ``(start row, result)`` for every block, in block order."""
        look = self._look()
        if look is None:
            yield from self.counted.map(self.rows, step, label=label)
            return

        def both(block: Block) -> tuple[T, _Seen]:
            seen = look(block)
            return step(block), seen

        merger: TreeMerger[_Seen] = TreeMerger(lambda a, b: a.merge(b))  # type: ignore[arg-type]
        with self._first_row_named():
            for start, (result, seen) in self.counted.map(self.rows, both, label=label):
                merger.push(seen)
                yield start, result
        self._seen = merger.result()

    def _look(self, checks: bool = False) -> Callable[[Block], _Seen] | None:
        """Return the check or the moments that the next pass must add to its work on a block, or None."""
        if self._has_moments:
            return None
        if self._wants_moments:
            return _MomentsLook(self.rows.name, self._by_column)
        return None if checks or self._seen is not None else _FiniteLook(self.rows.name)

    @contextmanager
    def _first_row_named(self) -> Iterator[None]:
        """Make an error about NaN name the first row of all; on a cluster a later block may fail first."""
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

        found = self.counted.fold(self.rows, step, label="find NaN")
        if found.error is not None:
            raise found.error


@dataclass(frozen=True)
class _MomentsLook:
    """Compute the moments of a block and check that its rows are finite."""

    name: str
    by_column: bool

    def __call__(self, block: Block) -> Moments:
        # The moments of a block with NaN or infinity are not finite either, so the rows need not be read twice.
        with np.errstate(over="ignore", invalid="ignore"):
            moments = block_moments(block.X, block.weight, by_column=self.by_column)
        if not np.isfinite(moments.scatter):
            require_finite(block.X, self.name, block.start)
        return moments


@dataclass(frozen=True)
class _FiniteLook:
    """Check that the rows of a block are finite."""

    name: str

    def __call__(self, block: Block) -> _Finite:
        require_finite(block.X, self.name, block.start)
        return _Finite()


class PassCount:
    """A count of passes that several threads may increment."""

    def __init__(self) -> None:
        self.value = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            self.value += 1


class CountedEngine:
    """An engine that counts the passes of another one.

    Parameters
    ----------
    engine : Engine
        Runs the passes.
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

    @property
    def room(self) -> int | None:
        return self.engine.room

    def reads_here(self, rows: RowBlocks) -> bool:
        return self.engine.reads_here(rows)

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


# Magnitudes whose squares, and sums of squares, stay within the range of float64.
_SQUARABLE = (1e-140, 1e140)
# Number of rows summed in their own dtype before the sum is converted to float64.
_CHUNK_ROWS = 512
_WIDE_CHUNK_ROWS = 128
# Number of columns from which rows count as wide.
_WIDE = 64
_LEAST = float(np.nextafter(0.0, 1.0))


@dataclass(frozen=True)
class Moments:
    """Number of rows, their mean, and the sum of squared distances to that mean; a weight counts as repetitions.

    Merging follows Chan, Golub and LeVeque: sums of squares are always about the mean of their own rows, so data
    far from the origin loses no digits.
    """

    count: float
    mean: Array
    scatter: float
    by_column: Array | None = None

    def of(self, columns: Sequence[int]) -> Moments:
        """Return the moments of some columns; requires moments by column."""
        if self.by_column is None:
            raise ValueError("these moments are of all columns together: take them with by_column=True.")
        scatters = self.by_column[list(columns)]
        return Moments(self.count, self.mean[list(columns)], float(scatters.sum()), scatters)

    @property
    def spread(self) -> float:
        """Mean squared distance of the rows to their mean: the paper's bandwidth c. Zero only if all rows are equal."""
        return max(self.scatter / self.count, _LEAST) if self.scatter > 0 else self.scatter

    def merge(self, other: Moments) -> Moments:
        count = self.count + other.count
        if not count > 0:
            return self
        gap = other.mean - self.mean
        mean = self.mean + gap * (other.count / count)
        with np.errstate(over="ignore", invalid="ignore"):
            between = _sum_of_squares(gap) * (self.count * (other.count / count))
            scatters = None
            if self.by_column is not None and other.by_column is not None:
                scatters = self.by_column + other.by_column + gap**2 * (self.count * (other.count / count))
        return Moments(count, mean, self.scatter + other.scatter + between, scatters)


def block_moments(X: Matrix, weight: Array | None = None, *, by_column: bool = False) -> Moments:
    """Return the moments of one block, on request also ``by_column``; a weight counts as repetitions."""
    # Squares that overflow make the scatter infinite, which is checked.
    with np.errstate(over="ignore", invalid="ignore"):
        if on_device(X):
            moments = _device_moments(X, weight)
        elif issparse(X):
            moments = _sparse_moments(X, weight)
        elif weight is not None:
            moments = _careful_moments(X, np.asarray(weight, dtype=np.float64))
        else:
            moments = _quick_moments(X.shape[0], *_sums(X), X.dtype) or _careful_moments(X, None)
        return replace(moments, by_column=_scatters(X, weight, moments.mean)) if by_column else moments


def _scatters(X: Matrix, weight: Array | None, mean: Array) -> Array:
    """Return the sum of squared deviations from the mean of each column."""
    w = np.ones(X.shape[0]) if weight is None else np.asarray(weight, dtype=np.float64)
    if on_device(X):
        centred = X - mean
        return column_sums(centred * centred * w[:, None])
    if not issparse(X):
        centred = X - mean
        return np.array([_sum_of_squares(column) for column in (centred * np.sqrt(w)[:, None]).T])
    of_entries = np.repeat(w, np.diff(X.indptr))
    stored = np.bincount(X.indices, of_entries, minlength=X.shape[1])
    squares = np.bincount(X.indices, (X.data - mean[X.indices]) ** 2 * of_entries, minlength=X.shape[1])
    # Entries that are not stored are 0, so they deviate by the mean.
    return squares + mean**2 * np.maximum(w.sum() - stored, 0.0)


def _quick_moments(n: int, sums: Array, total: float, dtype: np.dtype) -> Moments | None:
    """Return the moments of n rows from their sum and the sum of all squares; None if that loses two digits."""
    least = 1e-30 if dtype == np.float32 else _SQUARABLE[0] ** 2
    if not least < total < _SQUARABLE[1] ** 2:
        return None  # the squares overflow or underflow
    mean = sums / n
    scatter = total - n * float(mean @ mean)
    # Otherwise the mean dominates the squares, and the difference loses digits.
    return Moments(n, mean, scatter) if scatter > 1e-2 * total else None


def _sums(X: Array) -> tuple[Array, float]:
    """Return the sum of the rows and the sum of all squares, accumulated in float64."""
    sums, total = np.zeros(X.shape[1]), 0.0
    wide = X.shape[1] >= _WIDE
    size = _WIDE_CHUNK_ROWS if wide else _CHUNK_ROWS
    for start in range(0, X.shape[0], size):
        rows = X[start : start + size]
        flat = rows.ravel()
        # Summing wide rows is limited by memory bandwidth; for narrow rows a matrix product is faster.
        sums += np.add.reduce(rows, axis=0) if wide else np.ones(len(rows), X.dtype) @ rows
        total += float(np.dot(flat, flat))
    return sums, total


def _careful_moments(X: Array, weight: Array | None) -> Moments:
    """Return the moments of dense rows in two readings; the mean is subtracted before squaring."""
    count = float(X.shape[0] if weight is None else weight.sum())
    if not count > 0:
        # NaN in the rows stays NaN: the first pass checks for it.
        return Moments(0.0, np.zeros(X.shape[1]), 0.0 * float(X.sum()))
    # Divide first: the sum of rows near the largest float64 would overflow.
    mean = (np.full(X.shape[0], 1 / count) if weight is None else weight / count) @ X.astype(np.float64, copy=False)
    centred = X - mean
    correction = (np.full(X.shape[0], 1 / count) if weight is None else weight / count) @ centred
    centred -= correction
    if weight is not None:
        centred *= np.sqrt(weight)[:, None]
    return _unless_equal(count, mean + correction, _sum_of_squares(centred))


def _device_moments(X: DeviceArray, weight: Array | None) -> Moments:
    """Return the moments of rows on a device, which computes the sums."""
    count = float(len(X) if weight is None else np.sum(weight))
    if not count > 0:
        return Moments(0.0, np.zeros(X.shape[1]), 0.0 * float(X.sum()))
    share = None if weight is None else np.asarray(weight, dtype=np.float64)[:, None]
    mean = np.zeros(X.shape[1])
    # Subtract a first mean before summing again: float32 sums lose digits of rows far from the origin.
    for _ in range(2):
        step = column_sums(X if share is None else X * share) / count
        step = step.astype(X.dtype).astype(np.float64)
        X, mean = X - step.astype(X.dtype), mean + step
    squares = X * X if share is None else X * X * share
    return _unless_equal(count, mean, float(column_sums(squares).sum()))


def _sparse_moments(X: SparseMatrix, weight: Array | None) -> Moments:
    """Return the moments of CSR rows, column by column about the mean: zeros that are not stored count too."""
    n, p = X.shape
    if weight is None and n:
        quick = _quick_moments(n, *loops.column_sums(X), X.dtype)
        if quick is not None:
            return quick
    w = np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64)
    count = float(w.sum())
    if not count > 0:
        return Moments(0.0, np.zeros(p), 0.0 * float(X.data.sum()))
    data = X.data.astype(np.float64, copy=False)
    of_entries = np.repeat(w, np.diff(X.indptr))
    mean = np.bincount(X.indices, data * (of_entries / count), minlength=p)
    stored = np.bincount(X.indices, of_entries, minlength=p)
    centred = data - mean[X.indices]
    # Correct the rounding of the mean; entries that are not stored deviate by minus the mean.
    unstored = np.maximum(count - stored, 0.0)
    correction = np.bincount(X.indices, centred * (of_entries / count), minlength=p) - mean * (unstored / count)
    mean = mean + correction
    centred = data - mean[X.indices]
    scatter = _sum_of_squares(centred * np.sqrt(of_entries)) + _sum_of_squares(mean * np.sqrt(unstored))
    return _unless_equal(count, mean, scatter)


def _unless_equal(count: float, mean: Array, scatter: float) -> Moments:
    """Return the moments, with a scatter of 0 if it is within rounding: different rows differ by ε at least."""
    rounding = count * float(np.finfo(np.float64).eps) ** 3 * _sum_of_squares(mean)
    return Moments(count, mean, 0.0 if scatter <= rounding < np.inf else scatter)


def _sum_of_squares(A: Array) -> float:
    """Return the sum of squares; positive if any entry is not 0, even where the squares underflow."""
    flat = A.ravel()
    total = float(np.dot(flat, flat))
    if _SQUARABLE[0] ** 2 < total < _SQUARABLE[1] ** 2:
        return total
    peak = float(np.max(np.abs(flat), initial=0.0))
    if not 0 < peak < np.inf:
        return peak
    # A power of two scales without rounding.
    scale = 2.0 ** np.floor(np.log2(peak))
    flat = flat / scale
    return max(float(np.dot(flat, flat)) * scale * scale, _LEAST)
