"""The contract of an engine: run a function on every block, merge the results in an order fixed by the blocks.

A pass tells how far it has come: by a bar in a terminal, by plain lines elsewhere, by nothing unless asked.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, Self, TextIO, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from nystrom.rich_terminal import make_bar, make_console
from nystrom.rows.base import Block, RowBlocks
from nystrom.types import Array, Emitted

T = TypeVar("T")
M = TypeVar("M", bound="Mergeable")


class Mergeable(Protocol):
    """What a fold adds up. ``merge`` is associative up to rounding and may reuse the memory of ``self``."""

    def merge(self, other: Self) -> Self: ...


class Sums(tuple[Any, ...]):
    """Arrays and numbers that merge by addition, entry by entry."""

    __slots__ = ()

    def __new__(cls, *values: object) -> Sums:
        return super().__new__(cls, values)

    def __getnewargs__(self) -> tuple[object, ...]:
        # A copy (and a pickle) is made from the values one by one, as the constructor takes them.
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


class Progress(Protocol):
    """Told of the rows done; the library is silent unless one is given.

    ``listens`` is False for one that ignores what it is told. Passes may then run side by side, and a cluster sends no
    messages.
    """

    @property
    def listens(self) -> bool: ...
    def start(self, label: str, total: int) -> None: ...
    def advance(self, rows: int) -> None: ...
    def stop(self) -> None: ...


class Silent:
    """The progress that says nothing."""

    listens = False

    def start(self, label: str, total: int) -> None:
        pass

    def advance(self, rows: int) -> None:
        pass

    def stop(self) -> None:
        pass


class Writing(Protocol):
    """The method ``write`` of a step of :meth:`Engine.emit` that can put what it makes where it belongs."""

    def __call__(self, block: Block, out: Array) -> None: ...


class Engine(Protocol):
    """How a pass runs."""

    @property
    def n_jobs(self) -> int:
        """Threads of this process that the caller's own work may take."""
        ...

    @property
    def room(self) -> int | None:
        """Bytes in which this process may hold what a pass makes; None for no limit."""
        ...

    def reads_here(self, rows: RowBlocks) -> bool:
        """Whether this process reads these rows, rather than workers of a cluster."""
        ...

    def spare(self, rows: RowBlocks) -> Engine | None:
        """Return an engine for a pass over these rows beside the caller's own work; None without a thread for it."""
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
        """Do :meth:`map_rows` with the first part of what ``step`` returns, :meth:`fold` with the second: one pass."""
        ...

    def emit(
        self, rows: RowBlocks, step: Callable[[Block], Array], n_columns: int | None, dtype: DTypeLike, *, label: str
    ) -> Emitted:
        """Return what ``step`` makes of each block as one array for the caller, of one dimension if no ``n_columns``.

        One pass; where the rows are a Dask collection the array is one too, and the pass is made when it is computed.
        """
        ...


_SECONDS_BETWEEN_LINES = 5.0


def make_progress(verbose: bool | int) -> Progress:
    """Return the progress that an estimator's ``verbose`` asks for.

    Parameters
    ----------
    verbose : bool or int
        0 or False: silent. 1, True or more: a bar on standard error if that is a terminal and rich is
        installed, plain lines otherwise.

    Returns
    -------
    Progress
        Told of each pass by ``start``, ``advance`` and ``stop``.

    Examples
    --------
    >>> from nystrom.engine.base import make_progress
    >>> progress = make_progress(verbose=0)
    >>> progress.start("sketch", total=1000)  # silent: prints nothing
    """
    if not isinstance(verbose, (bool, int, np.integer, np.bool_)) or verbose < 0:
        raise ValueError(
            f"verbose must be False (or 0) for silence or True (or 1) for progress on every pass; got {verbose!r}."
        )
    if not verbose:
        return Silent()
    if sys.stderr.isatty():
        try:
            return BarProgress()
        except ImportError:
            pass  # rich is optional: lines say the same with less comfort
    return LineProgress()


class LineProgress:
    """Write plain lines: at most one every few seconds, and one at the end of each pass.

    Parameters
    ----------
    stream : file-like, optional
        Where lines go; standard error if None.
    every : float
        Least seconds between two lines of the same pass.
    clock : callable
        Returns seconds; a parameter so that a test can drive it.
    """

    listens = True

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        every: float = _SECONDS_BETWEEN_LINES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._every = every
        self._clock = clock
        self._running = False

    def start(self, label: str, total: int) -> None:
        self.stop()
        self._label, self._total, self._done = label, total, 0
        self._began = self._last_line = self._clock()
        self._running = True

    def advance(self, rows: int) -> None:
        self._done += rows
        now = self._clock()
        if now - self._last_line >= self._every and self._done < self._total:
            self._last_line = now
            elapsed = now - self._began
            left = format_seconds(elapsed * (self._total - self._done) / self._done) if self._done else "unknown"
            share = self._done / self._total
            self._write(f"{self._counts()} ({share:.0%}), {self._rate(elapsed)}, {left} left")

    def stop(self) -> None:
        if not self._running:
            return
        self._running = False
        elapsed = self._clock() - self._began
        outcome = "done" if self._done >= self._total else "stopped early"
        self._write(f"{self._counts()}, {self._rate(elapsed)}, {outcome} in {format_seconds(elapsed)}")

    def _counts(self) -> str:
        return f"{self._label}: {self._done:,} of {self._total:,} rows"

    def _rate(self, elapsed: float) -> str:
        return f"{format_rate(self._done / elapsed)} rows/s" if elapsed > 0 else "- rows/s"

    def _write(self, line: str) -> None:
        print(line, file=self._stream or sys.stderr, flush=True)


class BarProgress:
    """Draw one bar per pass with rich: rows done, rows per second, time left.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where the bar is drawn; standard error if None.
    """

    listens = True

    def __init__(self, console: Any = None) -> None:
        self._console = console or make_console(stderr=True)
        self._bar: Any = None

    def start(self, label: str, total: int) -> None:
        self.stop()
        self._bar = make_bar(self._console)
        self._total, self._done, self._began = total, 0, time.monotonic()
        self._task = self._bar.add_task(label, total=total, **self._fields())
        self._bar.start()

    def advance(self, rows: int) -> None:
        self._done += rows
        self._bar.update(self._task, advance=rows, **self._fields())

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _fields(self) -> dict[str, str]:
        elapsed = time.monotonic() - self._began
        rate = format_rate(self._done / elapsed) if self._done and elapsed > 0 else "-"
        return {"counts": f"{self._done:,}/{self._total:,} rows", "rate": f"{rate} rows/s"}


def format_rate(per_second: float) -> str:
    """Return a rate to three digits with k, M or G.

    Examples
    --------
    >>> from nystrom.engine.base import format_rate
    >>> [format_rate(value) for value in (7.25, 950, 12_345, 8_000_000)]
    ['7.25', '950', '12.3k', '8M']
    """
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        # From 999.5 on, three digits round up to the next unit.
        if per_second >= 0.9995 * limit:
            return f"{per_second / limit:.3g}{suffix}"
    return f"{per_second:.3g}"


def format_seconds(seconds: float) -> str:
    """Return a duration as a person would say it.

    Examples
    --------
    >>> from nystrom.engine.base import format_seconds
    >>> [format_seconds(value) for value in (0.042, 7.26, 75, 7_325)]
    ['0.04 s', '7.3 s', '1 min 15 s', '2 h 2 min']
    """
    if seconds < 0.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
