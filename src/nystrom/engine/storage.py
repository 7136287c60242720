"""Rows that a pass makes for later ones: in memory where there is room, else in a temporary file."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from nystrom.disk.scratch import Scratch
from nystrom.rows.arrays import ArrayRows
from nystrom.rows.base import RowBlocks
from nystrom.rows.binary import BinaryFile, BinaryRows
from nystrom.rows.target_column import Columns
from nystrom.types import Array


class Held(Protocol):
    """Written by several threads, each its own rows; then read as rows."""

    def write(self, start: int, values: Array) -> None: ...
    def rows(self, block_rows: int, name: str) -> RowBlocks: ...


def hold(shape: tuple[int, int], dtype: DTypeLike, room: int | None) -> Held:
    """Return a place for a matrix: in memory if it takes at most ``room`` bytes (None for no limit)."""
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    return _InMemory(shape, dtype) if room is None or size <= room else _OnDisk(shape, dtype)


class _InMemory:
    def __init__(self, shape: tuple[int, int], dtype: DTypeLike) -> None:
        self.values: Array = np.empty(shape, dtype)

    def write(self, start: int, values: Array) -> None:
        self.values[start : start + len(values)] = values

    def rows(self, block_rows: int, name: str) -> RowBlocks:
        return ArrayRows(self.values, block_rows=block_rows, name=name)


class _OnDisk:
    def __init__(self, shape: tuple[int, int], dtype: DTypeLike) -> None:
        self.scratch = Scratch("held")
        self.path = self.scratch.path / "rows"
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.path.touch()

    def write(self, start: int, values: Array) -> None:
        raw = memoryview(np.ascontiguousarray(values, dtype=self.dtype).reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        position = start * self.shape[1] * self.dtype.itemsize
        handle = os.open(self.path, os.O_WRONLY | getattr(os, "O_BINARY", 0))
        try:
            done = 0
            while done < len(raw):
                done += _write_at(handle, raw[done:], position + done)
        except OSError as error:
            raise OSError(
                error.errno,
                f"the temporary file {self.path} cannot be written at row {start}: {error.strerror}. Free some disk, "
                f"set TMPDIR to a folder with room, or raise max_memory",
            ) from error
        finally:
            os.close(handle)

    def rows(self, block_rows: int, name: str) -> RowBlocks:
        file = BinaryFile(self.path, 0, self.shape, self.dtype)
        file.keeper = self.scratch
        return BinaryRows(file, Columns(self.shape[1]), block_rows=block_rows, name=name)


def _write_at(handle: int, raw: memoryview, position: int) -> int:
    """Write at a place of the file; return how many bytes went."""
    if hasattr(os, "pwrite"):
        return os.pwrite(handle, raw, position)
    # Windows has no positioned write; the handle is this call's own, so moving it disturbs nobody.
    os.lseek(handle, position, os.SEEK_SET)
    return os.write(handle, raw)
