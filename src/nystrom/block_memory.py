"""Memory that the blocks of a pass use one after another."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import DTypeLike

from nystrom.types import Array


class Room:
    """Memory for the arrays of one block, each known by its use."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, np.dtype], Array] = {}

    def array(self, use: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an array of any content, the same memory each time it is asked for the same use."""
        key, size = (use, np.dtype(dtype)), math.prod(shape)
        if key not in self._held or self._held[key].size < size:
            self._held[key] = np.empty(size, dtype)
        return self._held[key][:size].reshape(shape)


class Rooms:
    """Memory that blocks of a pass use one after another: to be handed fresh memory takes long.

    There are as many rooms as blocks at a time. Sent to another process they arrive empty, and are filled there; a step
    that is sent is let go of when its pass has ended, and its memory with it.
    """

    def __init__(self) -> None:
        self._free: deque[Room] = deque()

    def __reduce__(self) -> tuple[type[Rooms], tuple[()]]:
        return Rooms, ()

    @contextmanager
    def one(self) -> Iterator[Room]:
        """Lend a room to the ``with`` block."""
        try:
            room = self._free.pop()
        except IndexError:
            room = Room()
        yield room
        self._free.append(room)

    def clear(self) -> None:
        """Give the memory of all rooms back."""
        self._free.clear()
