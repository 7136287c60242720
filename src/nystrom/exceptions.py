"""The errors and warnings of this library.

Errors that a user can cause by a wrong value are plain ``ValueError``/``TypeError``; the classes here are
for errors that a caller may want to catch separately.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class NystromError(Exception):
    """Base class of this library's own errors."""


class NotPositiveSemidefiniteError(NystromError, ValueError):
    """The kernel of the landmarks has an eigenvalue far below zero: it is not an inner product."""


class MemoryBudgetError(NystromError, ValueError):
    """``max_memory`` is smaller than the minimum that the work needs."""


class RowsChangedError(NystromError, RuntimeError):
    """A source of rows gave different rows (or another number of them) than in the previous pass."""


class DataFileError(NystromError, ValueError):
    """A data file is damaged or not in its format; the message names the file and the line or row."""


class ModelFileError(DataFileError):
    """A model file is damaged, forged, or of a version that this library cannot read; the message names the file."""


class NotInModelFileError(NystromError, RuntimeError, AttributeError):
    """A loaded model was asked for something that its file does not hold; the message says how to keep it.

    It is also an AttributeError, so that ``hasattr`` and notebook displays skip missing attributes.
    """


class NotFiniteError(NystromError, ValueError):
    """The rows hold NaN or infinity; the message names the first such row.

    Parameters
    ----------
    name : str
        What holds the rows.
    kind : str
        "NaN" or "infinity".
    place : str
        Position of the first one, as in "row 7".
    """

    def __init__(self, name: str, kind: str, place: str) -> None:
        super().__init__(name, kind, place)

    def __str__(self) -> str:
        name, kind, place = self.args
        return (
            f"Input {name} contains {kind} (first in {place}). Rows must be finite: drop such rows or fill them in, "
            f"for example with sklearn.impute.SimpleImputer."
        )


class OutputBusyError(NystromError, RuntimeError):
    """Another process, or another thread of this one, is writing the same output; the message says which."""


class ClusterLostError(NystromError, ConnectionError):
    """The Dask cluster cannot finish the work: its scheduler is gone, or its workers die repeatedly."""


class ClusterVersionError(NystromError, RuntimeError):
    """A Dask worker lacks the package, or has another version of it."""


class MissingDependencyError(NystromError, ImportError):
    """An optional package is needed; the message gives the command that installs it."""

    def __init__(self, package: str, extra: str | None, purpose: str, *, install: str | None = None) -> None:
        # The package itself comes first: requesting an extra by the library's name does not work from a clone.
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. "
            f"Install it with: pip install {install or package}"
            + ("" if extra is None else f" (it belongs to the extra {extra!r} of nystrom)")
        )


class AccuracyWarning(UserWarning):
    """The answer is usable but some accuracy was lost; the message says how much and what to do."""


class ApproximationWarning(UserWarning):
    """The landmarks leave too much of the kernel unexplained; the message says how much, why and what to do."""


class FewerLandmarksWarning(UserWarning):
    """Fewer landmarks than requested could be found, because the rows are not distinct enough."""


class TableWarning(UserWarning):
    """A problem in a table that does not stop a fit: a column or rows left out, numbers treated as text."""


class ConvergenceWarning(UserWarning):
    """An iteration stopped at its limit before it reached its tolerance."""


# Per thread or task; `warnings.catch_warnings` would change the filters of all threads.
_silenced: ContextVar[tuple[type[Warning], ...]] = ContextVar("silenced", default=())


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn from the line that called this library, unless the category is silenced."""
    if issubclass(category, _silenced.get()):
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "nystrom":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def silenced(*categories: type[Warning]) -> Iterator[None]:
    """Suppress this library's warnings of these categories inside the ``with`` block, in this thread only.

    Examples
    --------
    >>> from nystrom.exceptions import FewerLandmarksWarning
    >>> with silenced(FewerLandmarksWarning):
    ...     warn_caller("fewer landmarks than asked for", FewerLandmarksWarning)
    """
    token = _silenced.set((*_silenced.get(), *categories))
    try:
        yield
    finally:
        _silenced.reset(token)
