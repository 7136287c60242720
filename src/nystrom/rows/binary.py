"""Rows in plain binary files: ``.npy``, memmaps, uncompressed HDF5, and what was spooled."""

from __future__ import annotations

import mmap
import os
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from nystrom.exceptions import DataFileError
from nystrom.rows.base import Block, RowBlocks, blocks_to_join, default_block_rows
from nystrom.rows.columns import Columns, check_dtype, choose_columns, require_target
from nystrom.rows.sparse import csr_rows
from nystrom.rows.stamp import Stamp
from nystrom.types import Array, Matrix


class BinaryFile:
    """A matrix stored in a file from byte ``offset`` on; read by position, never mapped.

    Pages of a mapped file count as the process's memory, and a hard limit on addresses counts the whole file;
    reads into a buffer cost one copy at the speed of memory and neither of these. The file is opened for each
    read, so that objects can be pickled and used by several threads.
    """

    def __init__(self, path: Path, offset: int, shape: tuple[int, ...], dtype: Any, *, fortran: bool = False) -> None:
        # What must stay for the file to stay: the temporary folder that it is in, if it is in one.
        self.keeper: object = None
        self.path = path
        self.offset = offset
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.fortran = fortran and len(shape) > 1
        self.stamp = Stamp.of(path)
        self.row_bytes = self.dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        whole = max(self.stamp.states[0][0] - offset, 0) // max(self.row_bytes, 1)
        if whole < shape[0]:
            raise DataFileError(
                f"{path}: the file ends in row {whole}, but its header promises {shape[0]} rows. Write it anew."
            )

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, start: int, stop: int) -> Array:
        """Return the rows ``start`` to ``stop``, as stored."""
        if self.fortran:
            self.stamp.check(start)
            mapped = np.memmap(self.path, self.dtype, "r", self.offset, self.shape, order="F")
            return np.array(mapped[start:stop], order="C")
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        handle = self._open(start)
        try:
            self._fill(handle, start, out)
        finally:
            os.close(handle)
        return out

    def take(self, indices: Array) -> Array:
        """Return the rows with these numbers, in this order."""
        if self.fortran:
            self.stamp.check(0)
            return np.array(np.memmap(self.path, self.dtype, "r", self.offset, self.shape, order="F")[indices])
        out = np.empty((len(indices), *self.shape[1:]), self.dtype)
        handle = self._open(0)
        try:
            for place in np.argsort(indices, kind="stable"):
                self._fill(handle, int(indices[place]), out[place : place + 1])
        finally:
            os.close(handle)
        return out

    def _open(self, row: int) -> int:
        try:
            handle = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            self.stamp.check(row)
            raise
        try:
            self.stamp.check_open(handle, row)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _fill(self, handle: int, start: int, out: Array) -> None:
        view = memoryview(out.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        position = self.offset + start * self.row_bytes
        done = 0
        while done < len(view):
            count = os.preadv(handle, [view[done:]], position + done)
            if count == 0:
                row = start + done // self.row_bytes
                raise DataFileError(f"{self.path}: the file ends in row {row}, though it has {self.shape[0]} rows.")
            done += count

    def __getitem__(self, piece: slice) -> Array:
        start, stop, _ = piece.indices(self.shape[0])
        values = self.read(start, stop)
        require_target(values, str(self.path), start)
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)


class BinaryRows(RowBlocks):
    """Rows of a :class:`BinaryFile`, read in any order by several threads."""

    def __init__(
        self, file: BinaryFile, columns: Columns, *, dtype: Any = None, block_rows: int | None = None, name: str = ""
    ) -> None:
        self._file = file
        self._columns = columns
        self.name = name or str(file.path)
        self.shape = (file.shape[0], columns.n_features)
        self.dtype = check_dtype(file.dtype, dtype, self.name)
        self.block_rows = block_rows or default_block_rows(self.shape[1] * self.dtype.itemsize, self.shape[0])
        self.has_target = columns.target is not None

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
        self.shape = (len(indptr) - 1, n_features)
        self.dtype = data.dtype
        self.block_rows = block_rows
        self.name = name

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


def read_npy_header(path: Path) -> BinaryFile:
    """Return the matrix or vector that a ``.npy`` file holds, without reading it."""
    try:
        with path.open("rb") as stream:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(stream)
            offset = stream.tell()
    except ValueError as error:
        raise DataFileError(f"{path}: not a .npy file, or a damaged one ({error}).") from error
    if dtype.hasobject:
        raise DataFileError(f"{path}: holds Python objects, which are not read. Store numbers.")
    return BinaryFile(path, offset, shape, dtype, fortran=fortran)


def open_npy(path: Path, *, columns: Any, target: Any, dtype: Any, block_rows: int | None) -> BinaryRows:
    """Open a ``.npy`` file of rows."""
    file = read_npy_header(path)
    return matrix_rows(file, str(path), columns=columns, target=target, dtype=dtype, block_rows=block_rows)


def matrix_rows(
    file: BinaryFile, name: str, *, columns: Any, target: Any, dtype: Any, block_rows: int | None
) -> BinaryRows:
    """Return the rows of a stored matrix, checked to have two dimensions."""
    if len(file.shape) != 2:
        raise ValueError(f"{name} must hold a matrix (rows and columns); got shape {file.shape}.")
    chosen = choose_columns(file.shape[1], columns, target, name)
    return BinaryRows(file, chosen, dtype=dtype, block_rows=block_rows, name=name)


def memmap_file(X: np.memmap[Any, Any]) -> BinaryFile | None:
    """Return the part of a file that a memmap shows, or None if its rows are not consecutive there."""
    if X.ndim != 2 or not X.flags.c_contiguous or X.mode == "c" or X.filename is None or X.size == 0:
        return None
    whole = X
    while isinstance(whole.base, np.memmap):
        whole = whole.base
    begin = whole.__array_interface__["data"][0] - whole.offset % mmap.ALLOCATIONGRANULARITY
    begin_in_file = whole.offset - whole.offset % mmap.ALLOCATIONGRANULARITY
    offset = begin_in_file + X.__array_interface__["data"][0] - begin
    return BinaryFile(Path(X.filename), offset, X.shape, X.dtype)
