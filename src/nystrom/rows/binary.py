"""Rows in plain binary files: ``.npy``, memmaps, uncompressed HDF5, and what was spooled."""

from __future__ import annotations

import io
import math
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nystrom.exceptions import DataFileError
from nystrom.rows.base import Block, RowBlocks
from nystrom.rows.block_size import blocks_to_join, default_block_rows
from nystrom.rows.reading import reading
from nystrom.rows.sparse import csr_rows
from nystrom.rows.stamp import Stamp
from nystrom.rows.target_column import Columns, check_dtype, choose_columns, require_target
from nystrom.types import Array, Matrix

# Upper bound on the length of a header. A damaged one may state any length.
NPY_HEADER_BYTES = 2**16


class BinaryFile:
    """A matrix stored in a file from byte ``offset`` on; read by position, never mapped.

    Pages of a mapped file count as the process's memory, and a hard limit on addresses counts the whole file;
    reads into a buffer cost one copy at the speed of memory and neither of these. The file is opened for each
    read, so that objects can be pickled and used by several threads.
    """

    def __init__(
        self, path: Path, offset: int, shape: tuple[int, ...], dtype: DTypeLike, *, fortran: bool = False
    ) -> None:
        # What must stay for the file to stay: the temporary folder that it is in, if it is in one.
        self.keeper: object = None
        self.path = path
        self.offset = offset
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.fortran = fortran and len(shape) > 1
        self.stamp = Stamp.of(path)
        if min(shape, default=0) < 0:
            raise DataFileError(f"{path}: the header says shape {shape}, which has a negative size. Write it again.")
        self.row_bytes = self.dtype.itemsize * math.prod(shape[1:])
        whole = max(self.stamp.states[0][0] - offset, 0) // max(self.row_bytes, 1)
        if whole < self.shape[0]:
            raise DataFileError(
                f"{path}: the file ends in row {whole}, but its header promises {shape[0]} rows. Write it again."
            )

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, start: int, stop: int) -> Array:
        """Return the rows ``start`` to ``stop``, as stored."""
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        with self._opened(start) as handle:
            if not self.fortran:
                self._fill(handle, start * self.row_bytes, out, start)
                return out
            for place, column in self._columns_of(out):
                values = np.empty(stop - start, self.dtype)
                self._fill(handle, (place + start) * self.dtype.itemsize, values, start)
                column[:] = values
        return out

    def take(self, indices: Array) -> Array:
        """Return the rows with these numbers, in this order."""
        out = np.empty((len(indices), *self.shape[1:]), self.dtype)
        if not len(indices):
            return out
        low, high = int(np.min(indices)), int(np.max(indices))
        with self._opened(low) as handle:
            if not self.fortran:
                for place in np.argsort(indices, kind="stable"):
                    number = int(indices[place])
                    self._fill(handle, number * self.row_bytes, out[place : place + 1], number)
                return out
            values = np.empty(high - low + 1, self.dtype)
            for place, column in self._columns_of(out):
                self._fill(handle, (place + low) * self.dtype.itemsize, values, low)
                column[:] = values[np.asarray(indices) - low]
        return out

    def _columns_of(self, out: Array) -> Iterator[tuple[int, Array]]:
        """Yield, for each column in Fortran's order, the number of its first entry and where it goes."""
        for number, index in enumerate(np.ndindex(self.shape[:0:-1])):
            yield number * self.shape[0], out[(slice(None), *index[::-1])]

    @contextmanager
    def _opened(self, row: int) -> Iterator[int]:
        """Open the file, which must be as it was before and after it is read."""
        try:
            handle = os.open(self.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except FileNotFoundError:
            self.stamp.check(row)
            raise
        try:
            self.stamp.check_open(handle, row)
            yield handle
            self.stamp.check_open(handle, row)
        finally:
            os.close(handle)

    def _fill(self, handle: int, position: int, out: Array, row: int) -> None:
        view = memoryview(out.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        done = 0
        while done < len(view):
            count = _read_at(handle, view[done:], self.offset + position + done)
            if count == 0:
                self.stamp.check_open(handle, row)
                raise DataFileError(f"{self.path}: the file ends in row {row}, though it has {self.shape[0]} rows.")
            done += count

    def __getitem__(self, piece: slice) -> Array:
        start, stop, _ = piece.indices(self.shape[0])
        values = self.read(start, stop)
        require_target(values, str(self.path), start)
        return values

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)


def _read_at(handle: int, view: memoryview, position: int) -> int:
    """Read into ``view`` from a place of the file; return how many bytes came."""
    if hasattr(os, "preadv"):
        return os.preadv(handle, [view], position)
    # Windows has no positioned read; the handle is this call's own, so moving it disturbs nobody.
    os.lseek(handle, position, os.SEEK_SET)
    raw = os.read(handle, len(view))
    view[: len(raw)] = raw
    return len(raw)


class BinaryRows(RowBlocks):
    """Rows of a :class:`BinaryFile`, read in any order by several threads."""

    def __init__(
        self,
        file: BinaryFile,
        columns: Columns,
        *,
        dtype: DTypeLike | None = None,
        block_rows: int | None = None,
        name: str = "",
    ) -> None:
        self._file = file
        self._columns = columns
        # What the rows were made of, where the file is a temporary one.
        self.origin: str | None = None
        self.name = name or str(file.path)
        self.shape = (file.shape[0], columns.n_features)
        self.dtype = check_dtype(file.dtype, dtype, self.name)
        self.block_rows = block_rows or default_block_rows(self.shape[1] * self.dtype.itemsize, self.shape[0])
        self.has_target = columns.target is not None

    def identity(self) -> str | None:
        place = (self._file.offset, self._file.dtype.str, self._file.fortran)
        own = f"{self._file.stamp.identity} {place} {self.shape} {self.dtype} {self._columns.identity}"
        return own if self.origin is None else self.origin

    @property
    def block_bytes(self) -> int:
        stored = self.block_rows * self._file.row_bytes
        same = self._columns.features is None and self._file.dtype == self.dtype
        return stored if same else stored + super().block_bytes

    def block(self, index: int) -> Block:
        start = index * self.block_rows
        X, y = self._columns.split(self._file.read(start, min(start + self.block_rows, self.shape[0])))
        if y is not None:
            require_target(y, self.name, start)
        return Block(index, start, np.ascontiguousarray(X, dtype=self.dtype), y)

    def take(self, indices: Array) -> Matrix:
        X, _ = self._columns.split(self._file.take(np.asarray(indices)))
        return np.ascontiguousarray(X, dtype=self.dtype)

    def widened(self, block_rows: int) -> BinaryRows:
        wide = copy(self)
        wide.block_rows = self.block_rows * blocks_to_join(self.block_rows, block_rows)
        return wide


class SparseBinaryRows(RowBlocks):
    """CSR rows in three files: where each row begins, its columns and its values."""

    is_sparse = True

    def __init__(
        self, indptr: BinaryFile, indices: BinaryFile, data: BinaryFile, n_features: int, *, block_rows: int, name: str
    ) -> None:
        self._indptr, self._indices, self._data = indptr, indices, data
        self.origin: str | None = None
        self.shape = (len(indptr) - 1, n_features)
        self.dtype = data.dtype
        self.block_rows = block_rows
        self.name = name

    def identity(self) -> str | None:
        return self.origin

    @property
    def block_bytes(self) -> int:
        entry = self._data.row_bytes + self._indices.row_bytes
        return int(entry * len(self._data) / self.shape[0] * self.block_rows)

    def block(self, index: int) -> Block:
        start = index * self.block_rows
        stop = min(start + self.block_rows, self.shape[0])
        indptr = self._indptr.read(start, stop + 1)
        first, last = int(indptr[0]), int(indptr[-1])
        data, indices = self._data.read(first, last), self._indices.read(first, last)
        shape = (stop - start, self.shape[1])
        return Block(index, start, csr_rows(data, indices, indptr - first, shape, self.name, start=start))

    def take(self, indices: Array) -> Matrix:
        numbers = np.asarray(indices, dtype=np.int64)
        starts, stops = self._indptr.take(numbers), self._indptr.take(numbers + 1)
        places = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)] or [numbers[:0]])
        indptr = np.concatenate([[0], np.cumsum(stops - starts)])
        data, columns = self._data.take(places), self._indices.take(places)
        return csr_rows(data, columns, indptr, (len(numbers), self.shape[1]), self.name)


def parse_npy_header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Return shape, order, dtype and where the data begin, from the first bytes of a ``.npy`` file."""
    stream = io.BytesIO(head)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    return shape, fortran, dtype, stream.tell()


def read_npy_header(path: Path) -> BinaryFile:
    """Return the matrix or vector that a ``.npy`` file holds, without reading it."""
    with reading(path):
        with path.open("rb") as stream:
            shape, fortran, dtype, offset = parse_npy_header(stream.read(NPY_HEADER_BYTES))
        if dtype.hasobject:
            raise DataFileError(f"{path}: holds Python objects, which are not read. Store numbers.")
        return BinaryFile(path, offset, shape, dtype, fortran=fortran)


def open_npy(
    path: Path,
    *,
    columns: Sequence[int | str] | None,
    target: int | str | None,
    dtype: DTypeLike,
    block_rows: int | None,
) -> BinaryRows:
    """Open a ``.npy`` file of rows."""
    file = read_npy_header(path)
    return matrix_rows(file, str(path), columns=columns, target=target, dtype=dtype, block_rows=block_rows)


def matrix_rows(
    file: BinaryFile,
    name: str,
    *,
    columns: Sequence[int | str] | None,
    target: int | str | None,
    dtype: DTypeLike | None,
    block_rows: int | None,
) -> BinaryRows:
    """Return the rows of a stored matrix, checked to have two dimensions."""
    if len(file.shape) != 2:
        raise ValueError(f"{name} must hold a matrix (rows and columns); got shape {file.shape}.")
    chosen = choose_columns(file.shape[1], columns, target, name)
    return BinaryRows(file, chosen, dtype=dtype, block_rows=block_rows, name=name)


def memmap_file(X: np.memmap[Any, Any]) -> BinaryFile | None:
    """Return the part of a file that a memmap shows, or None if its rows are not consecutive there."""
    contiguous = X.flags.c_contiguous or X.flags.f_contiguous
    if X.ndim != 2 or not contiguous or X.mode == "c" or X.filename is None or X.size == 0:
        return None
    whole = X
    while isinstance(whole.base, np.memmap):
        whole = whole.base
    begin = whole.__array_interface__["data"][0] - whole.offset % mmap.ALLOCATIONGRANULARITY
    begin_in_file = whole.offset - whole.offset % mmap.ALLOCATIONGRANULARITY
    offset = begin_in_file + X.__array_interface__["data"][0] - begin
    return BinaryFile(Path(X.filename), offset, X.shape, X.dtype, fortran=not X.flags.c_contiguous)
