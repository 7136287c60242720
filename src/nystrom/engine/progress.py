"""The progress of a fit: a bar in a terminal, plain lines elsewhere, nothing by default.

The passes of a stage (see :func:`stage`) share one line; a pass outside of a stage, such as a prediction, has its own.
Only this file imports rich, on use; without it, what draws with rich raises ``ImportError``.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol, TextIO

import numpy as np


class Progress(Protocol):
    """Receives the number of rows done; the library is silent unless one is given.

    ``listens`` is False for a progress that ignores its calls. Passes may then run concurrently, and a cluster sends no
    messages.
    """

    @property
    def listens(self) -> bool: ...
    def start(self, label: str, total: int) -> None: ...
    def advance(self, rows: int) -> None: ...
    def stop(self) -> None: ...


class Silent:
    """A progress that shows nothing."""

    listens = False

    def start(self, *told: object, **more: object) -> None:
        pass

    advance = stop = start


class Stage:
    """A named part of a fit: how often it made each kind of pass, and over how many rows at most.

    ``shown_by`` is the progress that showed its passes and will show its end; None if none listened.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.passes: Counter[str] = Counter()
        self.rows = 0
        self.began = self.last_line = 0.0
        self.shown_by: LineProgress | BarProgress | None = None

    def add(self, label: str, total: int, shown_by: LineProgress | BarProgress, now: float) -> None:
        """Add a pass to the stage."""
        if self.shown_by is None:
            self.began = self.last_line = now
        self.shown_by = shown_by
        # A label ends with the state of an iteration: "pivots, 20 of 100" and "Lloyd step 3 of 10".
        self.passes[re.sub(r"[\s,]+(step )?\d.*| step .*", "", label)] += 1
        self.rows = max(self.rows, total)

    def __str__(self) -> str:
        made = ", ".join(label if count == 1 else f"{label} × {count}" for label, count in self.passes.items())
        return f"{self.name}: {self.rows:,} rows, {made}"


_STAGE: ContextVar[Stage | None] = ContextVar("stage", default=None)
# Entered for each outermost stage, with its name.
WATCHER: ContextVar[Callable[[str], AbstractContextManager[Any]]] = ContextVar("watcher", default=nullcontext)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Show the passes inside as one stage, which ends with one line; a nested stage belongs to the outer one."""
    if _STAGE.get() is not None:
        yield
        return
    current = Stage(name)
    token = _STAGE.set(current)
    try:
        with WATCHER.get()(name):
            yield
    finally:
        _STAGE.reset(token)
        if current.shown_by is not None:
            current.shown_by.end(current)


_SECONDS_BETWEEN_LINES = 5.0
# A pass outside of a stage that ends sooner is not shown.
_LEAST_SECONDS = 0.1


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
        Its ``start``, ``advance`` and ``stop`` are called for each pass.

    Examples
    --------
    >>> from nystrom.engine.progress import make_progress
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
            pass  # rich is optional: plain lines show the same
    return LineProgress()


class LineProgress:
    """Write plain lines: at most one every few seconds, and one at the end of each stage.

    A pass outside of a stage has a line at its end if it took 0.1 seconds or more.

    Parameters
    ----------
    stream : file-like, optional
        Where lines go; standard error if None.
    every : float
        Minimum seconds between two lines of the same stage.
    clock : callable
        Returns seconds; a parameter for tests.
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
        self._stage = _STAGE.get()
        self._total, self._done = total, 0
        self._began = self._last_line = self._clock()
        self._label = label
        if self._stage is not None:
            self._label = f"{self._stage.name}, {label}"
            self._stage.add(label, total, self, self._began)
            self._last_line = self._stage.last_line
        self._running = True

    def advance(self, rows: int) -> None:
        self._done += rows
        now = self._clock()
        if now - self._last_line >= self._every and (self._done < self._total or not self._total):
            self._last_line = now
            if self._stage is not None:
                self._stage.last_line = now
            elapsed = now - self._began
            if not self._total:
                self._write(f"{self._counts()}, {self._rate(elapsed)}")
                return
            left = format_seconds(elapsed * (self._total - self._done) / self._done) if self._done else "unknown"
            share = self._done / self._total
            self._write(f"{self._counts()} ({share:.0%}), {self._rate(elapsed)}, {left} left")

    def stop(self) -> None:
        if not self._running:
            return
        self._running = False
        if self._stage is not None and self._done >= self._total:
            return
        elapsed = self._clock() - self._began
        if self._stage is None and self._done >= self._total and elapsed < _LEAST_SECONDS:
            return
        outcome = "done" if self._done >= self._total else "stopped early"
        self._write(f"{self._counts()}, {self._rate(elapsed)}, {outcome} in {format_seconds(elapsed)}")

    def end(self, stage: Stage) -> None:
        """Write the line of a stage."""
        self._write(f"{stage}, {format_seconds(self._clock() - stage.began)}")

    def _counts(self) -> str:
        return f"{self._label}: {self._done:,}{f' of {self._total:,}' if self._total else ''} rows"

    def _rate(self, elapsed: float) -> str:
        return f"{format_rate(self._done / elapsed)} rows/s" if elapsed > 0 else "- rows/s"

    def _write(self, line: str) -> None:
        print(line, file=self._stream or sys.stderr, flush=True)


class BarProgress:
    """Draw one bar per stage with rich: what is done, rows done, rows per second, time left.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where the bar is drawn; standard error if None.
    """

    listens = True

    def __init__(self, console: Any = None) -> None:
        self._console = console or make_console(stderr=True)
        self._bar: Any = None
        self._task: Any = None

    def start(self, label: str, total: int) -> None:
        stage = _STAGE.get()
        before = None if stage is None else stage.shown_by
        self._total, self._done, self._began = total, 0, time.monotonic()
        if stage is not None:
            stage.add(label, total, self, self._began)
            label = f"{stage.name}, {label}"
        if isinstance(before, BarProgress) and before._bar is not None:
            self._bar, self._task = before._bar, before._task
            self._bar.reset(self._task, total=total, description=label, **self._fields())
            return
        self.stop()
        self._bar = make_bar(self._console)
        self._task = self._bar.add_task(label, total=total or None, **self._fields())
        self._bar.start()

    def advance(self, rows: int) -> None:
        self._done += rows
        self._bar.update(self._task, advance=rows, **self._fields())

    def stop(self) -> None:
        # The bar of a stage stays until the stage ends.
        if self._bar is not None and _STAGE.get() is None:
            if self._done >= self._total and time.monotonic() - self._began < _LEAST_SECONDS:
                self._bar.live.transient = True  # clear it from the terminal
            self._bar.stop()
            self._bar = None

    def end(self, stage: Stage) -> None:
        """Leave the last state of a stage in the terminal."""
        if self._bar is not None:
            took = format_seconds(time.monotonic() - stage.began)
            self._bar.update(self._task, description=stage.name, counts=f"{stage.rows:,} rows", rate=took)
            self._bar.stop()
            self._bar = None

    def _fields(self) -> dict[str, str]:
        elapsed = time.monotonic() - self._began
        rate = format_rate(self._done / elapsed) if self._done and elapsed > 0 else "-"
        of = f"/{self._total:,}" if self._total else ""
        return {"counts": f"{self._done:,}{of} rows", "rate": f"{rate} rows/s"}


def make_console(*, stderr: bool = False) -> Any:
    """Return a console on standard output, or on standard error."""
    from rich.console import Console

    return Console(stderr=stderr)


def make_bar(console: Any) -> Any:
    """Return a progress bar whose tasks have the fields ``counts`` and ``rate``."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[counts]}"),
        TextColumn("{task.fields[rate]}", style="green"),
        TimeRemainingColumn(compact=True),
        TimeElapsedColumn(),
        console=console,
    )


def print_rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None) -> None:
    """Print a table on standard output, the first column aligned left and the others right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold")
    for i, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if i == 0 else "right", no_wrap=True)
    for row in rows:
        # Text, not str: rich would read square brackets in a str as markup.
        table.add_row(*map(Text, row))
    make_console().print(table)


def format_rate(per_second: float) -> str:
    """Return a rate to three digits with k, M or G.

    Examples
    --------
    >>> from nystrom.engine.progress import format_rate
    >>> [format_rate(value) for value in (7.25, 950, 12_345, 8_000_000)]
    ['7.25', '950', '12.3k', '8M']
    """
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        # From 999.5 on, three digits round up to the next unit.
        if per_second >= 0.9995 * limit:
            return f"{per_second / limit:.3g}{suffix}"
    return f"{per_second:.3g}"


def format_seconds(seconds: float) -> str:
    """Return a duration in words for a reader.

    Examples
    --------
    >>> from nystrom.engine.progress import format_seconds
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


def format_numbers(text: str) -> str:
    """Return a text with its long decimal fractions rounded to four digits.

    Examples
    --------
    >>> from nystrom.engine.progress import format_numbers
    >>> format_numbers("Gaussian(gamma=0.0012969551264435364)")
    'Gaussian(gamma=0.001297)'
    """
    return re.sub(r"\d+\.\d{5,}(?:e[+-]?\d+)?", lambda found: f"{float(found[0]):.4g}", text)
