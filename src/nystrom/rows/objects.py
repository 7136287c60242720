"""Rows that are objects of any kind, such as strings or graphs: a column of numbers that identify the objects.

Passes, selectors and solvers read a matrix with one column, like any other rows. Its numbers only say which object a
row is; a kernel of objects looks them up.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from nystrom.rows.base import ArrayRows
from nystrom.types import Array, Matrix, issparse

# Maximum number of objects per source: object number and source number together are exact in float64.
_MOST = 2**24
# Minimum number of blocks per pass, so that threads share the work and progress shows; maximum rows per block.
_BLOCKS, _BLOCK_ROWS = 16, 256


class Objects:
    """A sequence of objects and their identifying numbers, valid as long as this exists."""

    _alive: ClassVar[WeakValueDictionary[int, Objects]] = WeakValueDictionary()
    _lock = threading.Lock()
    # Random, so that numbers from another process (in a pickled model) do not collide with those of a source here.
    _last = int.from_bytes(os.urandom(3), "little") << 4

    def __init__(self, values: Sequence[Any]) -> None:
        if len(values) > _MOST:
            raise ValueError(f"X holds {len(values)} objects; at most {_MOST} are supported.")
        self.values = values
        with Objects._lock:
            Objects._last += 1
            self._first = Objects._last * _MOST
            Objects._alive[Objects._last] = self

    def numbers(self) -> Array:
        """Return the identifying numbers of the objects: a column of float64."""
        return (self._first + np.arange(len(self.values), dtype=np.float64))[:, None]

    @staticmethod
    def find(numbers: Matrix, held: dict[float, Any]) -> list[Any]:
        """Return the objects of some rows: those in ``held``, and the others from their source."""
        found = []
        for number in np.asarray(numbers, dtype=np.float64)[:, 0].tolist():
            if number in held:
                found.append(held[number])
                continue
            source = Objects._alive.get(int(number // _MOST)) if number >= 0 else None
            at = int(number % _MOST)
            if source is None or number != int(number) or at >= len(source.values):
                raise ValueError("the rows are not objects, as those of the fit were: give a sequence of objects.")
            found.append(source.values[at])
        return found


class ObjectRows(ArrayRows):
    """The objects of a sequence, as rows."""

    def __init__(self, values: Sequence[Any], *, block_rows: int | None = None, name: str = "X") -> None:
        self.frame = Objects(values)
        n = len(values)
        size = block_rows or max(1, min(-(-n // _BLOCKS), _BLOCK_ROWS))
        super().__init__(self.frame.numbers(), block_rows=size, name=name)

    def widened(self, block_rows: int) -> ArrayRows:
        # Joined blocks would leave threads without work: the kernel takes the time of a pass, not the blocks.
        return self


def holds_objects(X: Any) -> bool:
    """Return whether X is a sequence of objects that form no matrix: text, graphs, series of different lengths."""
    if issparse(X) or hasattr(X, "columns") or hasattr(X, "column_names"):
        return False
    if isinstance(X, np.ndarray) or hasattr(X, "dtype"):
        return getattr(X, "ndim", 0) == 1 and np.asarray(X[:0] if isinstance(X, np.ndarray) else X).dtype.kind in "OUST"
    if not isinstance(X, (list, tuple)) or not X:
        return False
    if any(isinstance(x, (str, bytes)) for x in X):
        return True
    try:
        return np.asarray(X).dtype.kind not in "fiub" or np.ndim(X) > 2
    except ValueError:  # series of different lengths
        return True


def object_rows(X: Any, *, block_rows: int | None = None, name: str = "X") -> ObjectRows:
    """Return the rows of a sequence of objects."""
    values = list(X)
    if not values:
        raise ValueError(f"{name} holds no objects (0 sample(s)); at least a minimum of 1 is required.")
    return ObjectRows(values, block_rows=block_rows, name=name)
