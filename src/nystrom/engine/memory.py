"""The memory that a pass needs and a budget allows, and where rows and arrays of blocks are stored.

The size of blocks does not depend on the budget, so results have the same bits; the budget decides how many blocks are
in flight, and whether results go to a temporary file instead of memory.
"""

from __future__ import annotations

import math
import os
import re
import threading
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from nystrom.checks import is_number
from nystrom.disk import Scratch
from nystrom.exceptions import MemoryBudgetError
from nystrom.machine import free_memory, machine_memory
from nystrom.rows.base import ArrayRows, RowBlocks
from nystrom.rows.binary import BinaryFile, BinaryRows
from nystrom.rows.reading import Columns
from nystrom.rows.sparse import FEWER_COLUMNS
from nystrom.types import Array

_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
_BINARY_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_AMOUNT = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE]\+?[0-9]+)?)\s*([kKmMgGtT]?)(i?)[bB]?\s*$")
# Bytes a pass adds outside the formulas (BLAS packing buffers, allocator arenas, thread stacks); measured.
_PASS_BYTES = 40 * 10**6
_THREAD_BYTES = 8 * 10**6
# Without a budget, keep encoded rows of a table, and results per row of a file, in memory up to this many bytes, and
# larger ones in a temporary file.
HELD_BYTES = 512 * 2**20
# Number of m × m matrices alive while the landmarks' kernel and the Gram matrix are factorised.
_SQUARE_MATRICES = 10
# Number alive during a pass, in addition to sums waiting to be merged: those of the whitening and of an earlier map.
_PASS_MATRICES = 4
# Least number of rows per block on a device: fewer leave it idle.
_LEAST_DEVICE_ROWS = 16


def parse_memory(amount: object, name: str = "max_memory") -> int | None:
    """Return a budget in bytes: a number of bytes, or text such as "2GB", "500M", "1.5GiB" or "1e9"; None for no limit.

    Examples
    --------
    >>> parse_memory("2GB"), parse_memory("1.5 GiB"), parse_memory("1e9"), parse_memory(1024)
    (2000000000, 1610612736, 1000000000, 1024)
    """
    if amount is None:
        return None
    if is_number(amount):
        if 0 < amount < math.inf:
            return int(amount)
    elif isinstance(amount, str):
        found = _AMOUNT.match(amount)
        if found is not None and float(found[1]) > 0:
            unit = found[2].upper()
            factor = _BINARY_UNITS.get(unit) if found[3] else _UNITS[unit]
            if factor is not None:
                return int(float(found[1]) * factor)
    raise ValueError(
        f"{name} must be None, a positive number of bytes, or an amount such as '500MB', '2GB' or '1.5GiB'; "
        f"got {amount!r}."
    )


def format_memory(count: float) -> str:
    """Return bytes as a person would write them, rounded up to three digits.

    Examples
    --------
    >>> format_memory(123_456_789), format_memory(2_000_000_000)
    ('124MB', '2GB')
    """
    for suffix, unit in (("GB", 1000**3), ("MB", 1000**2), ("kB", 1000)):
        if count >= unit:
            digits = max(0, 2 - int(np.log10(count / unit)))
            rounded = np.ceil(round(count / unit * 10**digits, 6)) / 10**digits
            return f"{rounded:.10g}{suffix}"
    return f"{int(np.ceil(count))}B"


def room_for_values(room: int | None) -> float:
    """Return the bytes available for kernel values: the room of a budget, or a third of the free memory."""
    if room is not None:
        return float(room)
    free = free_memory()
    return float(2**30) if free is None else free / 3


class RowsShape(Protocol):
    """The properties of actual or planned rows that determine a footprint."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> np.dtype: ...
    @property
    def is_sparse(self) -> bool: ...
    @property
    def block_rows(self) -> int: ...
    @property
    def n_blocks(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    @property
    def in_memory(self) -> bool: ...
    @property
    def held_bytes(self) -> int: ...


@dataclass(frozen=True)
class Footprint:
    """The memory that work adds to the process: ``fixed`` bytes, plus ``per_thread`` for each block in flight.

    ``for_columns`` bytes of them are numbers per column of sparse rows; fewer landmarks or smaller blocks do not help.
    """

    fixed: int
    per_thread: int
    for_columns: int = 0

    @property
    def least(self) -> int:
        """The smallest sufficient budget: one thread."""
        return self.fixed + self.per_thread

    def joined(self, other: Footprint) -> Footprint:
        """Return a footprint that suffices for both, run one after the other."""
        return Footprint(
            max(self.fixed, other.fixed),
            max(self.per_thread, other.per_thread),
            max(self.for_columns, other.for_columns),
        )

    def _advice(self, usual: str) -> str:
        return f"Most of it is for the columns: {FEWER_COLUMNS}" if 2 * self.for_columns > self.least else usual

    def threads(self, budget: int, wanted: int, *, advice: str) -> int:
        """Return how many threads the budget allows, at most ``wanted``.

        Raises
        ------
        MemoryBudgetError
            If not even one block can be in flight; the message names the smallest sufficient budget.
        """
        if budget < self.least:
            raise MemoryBudgetError(
                f"max_memory={format_memory(budget)} is too small: this needs at least "
                f"max_memory={format_memory(self.least)!r}. {self._advice(advice)}"
            )
        return max(1, min(wanted, (budget - self.fixed) // max(self.per_thread, 1)))

    def check_machine(self) -> None:
        """Raise if this machine lacks the memory for one thread: the operating system would kill the process."""
        has = machine_memory()
        if has is not None and self.least > has:
            usual = (
                "Use fewer landmarks, or solver='cg' in KernelRidge and KernelRidgeClassifier, which needs one m × m "
                "matrix instead of a dozen."
            )
            raise MemoryBudgetError(
                f"this needs about {format_memory(self.least)} of memory, and this machine has {format_memory(has)}. "
                f"{self._advice(usual)} max_memory={format_memory(self.least)!r} tries anyway."
            )

    def room(self, budget: int, threads: int) -> int:
        """Return the bytes of the budget that remain with ``threads`` blocks in flight."""
        return max(0, budget - self.fixed - threads * self.per_thread)


def fit_footprint(
    rows: RowsShape, n_landmarks: int, selection_bytes: int = 0, selection_thread_bytes: int = 0
) -> Footprint:
    """Return the memory that fitting a map of ``n_landmarks`` landmarks adds to the process.

    A block in flight holds its rows (and a float64 copy where they are summed), its kernel values with the landmarks,
    the whitened values, a float64 copy of them, and its statistics. ``selection_bytes`` and ``selection_thread_bytes``
    are the memory for choosing the landmarks, in total and per block in flight.
    """
    m = n_landmarks
    square = 8 * m * m
    fixed = (
        _PASS_BYTES
        + rows.held_bytes
        + _block_rows_bytes(rows)
        + square_matrices(rows.n_blocks) * square
        + landmark_bytes(rows, m)
        + selection_bytes
    )
    values = rows.block_rows * m * (2 * rows.dtype.itemsize + (8 if rows.dtype == np.float32 else 0))
    work = max(values + 2 * square, selection_thread_bytes)
    return _with_columns(rows, Footprint(fixed, _THREAD_BYTES + _work_on_rows(rows) + work))


def square_matrices(n_blocks: int) -> int:
    """Return how many m × m matrices a factor needs at most: during the pass, or in the algebra after it."""
    waiting = 2 + int(np.log2(n_blocks + 1))
    return max(waiting + _PASS_MATRICES, _SQUARE_MATRICES)


def landmark_bytes(rows: RowsShape, m: int) -> int:
    """Return the memory of the landmarks, which are held in up to four forms at a time, in float64.

    Landmarks from sparse rows stay sparse while that is smaller; means of rows have at most the entries of the rows.
    """
    dense = 4 * 8 * m * rows.shape[1]
    if not rows.is_sparse:
        return dense
    # A float64 entry with its index takes at most twice its size in the rows.
    return min(dense, 4 * 2 * rows.block_bytes * rows.n_blocks)


def samples_gram(n_rows: int, n_landmarks: int) -> bool:
    """Whether conjugate gradients on landmarks are preconditioned by the Gram matrix of a sample of rows.

    A sixth to a third of the steps then suffice. Above m² = 30 n it takes longer than the steps it saves.
    """
    return n_landmarks**2 <= 30 * n_rows


def cg_footprint(
    rows: RowsShape,
    n_landmarks: int,
    n_targets: int = 1,
    selection_bytes: int = 0,
    selection_thread_bytes: int = 0,
) -> Footprint:
    """Return the memory of conjugate gradients on ``n_landmarks`` landmarks: m × m matrices and tiles of kernel values.

    There is one m × m matrix, and two more while a sample of rows is summed (:func:`samples_gram`).
    """
    m = n_landmarks
    sampled = samples_gram(rows.shape[0], m)
    panel = 3 * 8 * (2048 if sampled else 1024) * m
    fixed = (
        _PASS_BYTES
        + rows.held_bytes
        + _block_rows_bytes(rows)
        + 8 * m * m * (3 if sampled else 1)
        + panel
        + landmark_bytes(rows, m)
        + 20 * 8 * m * n_targets
        + selection_bytes
    )
    tiles = 4 * max(2 * 2**20, 64 * m * 8)
    work = max(tiles + 3 * 8 * m * n_targets, selection_thread_bytes)
    return _with_columns(rows, Footprint(fixed, _THREAD_BYTES + _work_on_rows(rows) + work))


def emit_footprint(rows: RowsShape, n_landmarks: int, n_columns: int, *, held: int = 0) -> Footprint:
    """Return the memory of computing ``n_columns`` numbers per row; ``held`` is the result, if it is in memory."""
    m = n_landmarks
    fixed = (
        _PASS_BYTES + rows.held_bytes + _block_rows_bytes(rows) + landmark_bytes(rows, m) + 4 * 8 * m * n_columns + held
    )
    result = 2 * rows.block_rows * n_columns * 8
    return Footprint(fixed, _THREAD_BYTES + _work_on_rows(rows) + rows.block_rows * m * rows.dtype.itemsize + result)


def cluster_footprint(rows: RowsShape, n_landmarks: int, n_columns: int, n_clusters: int) -> Footprint:
    """Return the memory of k-means in ``n_columns`` features; the features use the remaining room, or a file."""
    n = rows.shape[0]
    # Current and previous labels, distances, and the sample from which the seeds are drawn.
    held = 24 * n + 2 * 8 * min(max(16 * n_clusters, 10_000), n) * n_columns
    work = emit_footprint(rows, n_landmarks, n_columns, held=held)
    features = rows.block_rows * (n_columns + 2 * n_clusters) * 8
    return Footprint(work.fixed + 8 * n_clusters * n_columns * 8, work.per_thread + features)


def exact_footprint(rows: RowsShape, n_components: int, n_targets: int, *, tile_rows: int) -> Footprint:
    """Return the memory of exact conjugate gradients without the features, which use the remaining room."""
    (n, p), t, r = rows.shape, n_targets, n_components
    vectors = 8 * n * t
    waiting = 2 + int(np.log2(n // tile_rows + 1))
    copy = rows.block_bytes * rows.n_blocks if rows.is_sparse else 8 * n * p
    fixed = _PASS_BYTES + rows.held_bytes + (copy if rows.in_memory else 0) + (12 + waiting) * vectors + 4 * 8 * r * r
    rows_of_tile = _sparse_tile_bytes(rows, tile_rows) if rows.is_sparse else 8 * tile_rows * p
    tile = 8 * tile_rows * 3 * tile_rows + 3 * rows_of_tile + 2 * vectors
    return Footprint(fixed, _THREAD_BYTES + tile + _block_rows_bytes(rows) + 3 * 8 * rows.block_rows * r)


def device_block_rows(rows: RowsShape, n_landmarks: int, budget: int) -> int:
    """Return the number of rows per block with which a pass adds at most ``budget`` bytes on a device.

    The device holds the landmarks in two forms, two m × m matrices, a panel of sums, three blocks in flight, and the
    kernel values of one block in up to six copies; at most a quarter of the budget is for results and differences.

    Raises
    ------
    MemoryBudgetError
        If not even blocks of 16 rows fit; the message names the smallest sufficient budget.
    """
    m, p = n_landmarks, rows.shape[1]
    fixed, per_row = 8 * m * (2 * p + 2 * m + 128), 8 * (3 * p + 6 * m)
    least = math.ceil((fixed + _LEAST_DEVICE_ROWS * per_row) * 4 / 3)
    if budget < least:
        raise MemoryBudgetError(
            f"max_device_memory={format_memory(budget)} is too small: {m:,} landmarks of {p:,} columns need at least "
            f"max_device_memory={format_memory(least)!r}. Use fewer landmarks."
        )
    return min(int((budget * 3 / 4 - fixed) // per_row), rows.shape[0])


def _with_columns(rows: RowsShape, work: Footprint) -> Footprint:
    """Return the footprint plus the dense means of sparse rows: of all rows, of each block, and of merged blocks."""
    if not rows.is_sparse:
        return work
    vector = 8 * rows.shape[1]
    fixed, per_thread = (1 + int(np.log2(rows.n_blocks))) * vector, 2 * vector
    return Footprint(work.fixed + fixed, work.per_thread + per_thread, fixed + per_thread)


def _sparse_tile_bytes(rows: RowsShape, tile_rows: int) -> int:
    # In float64: an entry with its index takes at most twice its size in the rows.
    return 2 * rows.block_bytes * min(tile_rows, rows.block_rows) // rows.block_rows


def _block_rows_bytes(rows: RowsShape) -> int:
    return 0 if rows.in_memory else rows.block_bytes


def _work_on_rows(rows: RowsShape) -> int:
    dense_copy = 8 * rows.block_rows * rows.shape[1]
    return _block_rows_bytes(rows) + (2 * rows.block_bytes if rows.is_sparse else dense_copy)


class Held(Protocol):
    """A matrix that several threads write, each its own rows, and that is then read as rows."""

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
    """Write at an offset of the file; return the number of bytes written."""
    if hasattr(os, "pwrite"):
        return os.pwrite(handle, raw, position)
    # Windows has no positioned write; only this call uses the handle, so moving its position is safe.
    os.lseek(handle, position, os.SEEK_SET)
    return os.write(handle, raw)


class Room(threading.local):
    """Reusable memory for the arrays of a block, one array per use; the blocks of a thread share it in turn.

    Allocating fresh memory is slow. Each thread has its own room, freed with the last reference. A pickled room
    arrives empty.
    """

    def __reduce__(self) -> tuple[type[Room], tuple[()]]:
        return Room, ()

    def array(self, use: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an array with arbitrary content; the same use gets the same memory each time."""
        held: dict[str, Array] = vars(self)
        key, size = f"{use} {np.dtype(dtype)}", math.prod(shape)
        if key not in held or held[key].size < size:
            held[key] = np.empty(size, dtype)
        return held[key][:size].reshape(shape)
