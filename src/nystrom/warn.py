"""Warnings that point at the caller's line, and how a part of this library suppresses them and NumPy's."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

# Of this thread or task alone; `warnings.catch_warnings` would change the filters of all threads.
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
    """Suppress this library's warnings of these categories inside the ``with`` block, in this thread alone.

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


def judged_by_value() -> np.errstate:
    """Turn NumPy's floating-point warnings off, or its errors after ``np.seterr(all="raise")``, in this thread.

    Overflow and underflow are part of the work here: what comes of them is checked by value, and refused by an error
    that says what to do. Every public call and every step of a pass runs inside.
    """
    return np.errstate(all="ignore")
