"""Rows in plain binary files: ``.npy``, ``.npz``, memmaps, uncompressed HDF5, and spooled sources."""

from __future__ import annotations

import errno
import io
import math
import mmap
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from nystrom.disk import Scratch
from nystrom.exceptions import DataFileError
from nystrom.rows.base import Block, RowBlocks, SparseRows, blocks_to_join, default_block_rows
from nystrom.rows.reading import Columns, Stamp, check_dtype, choose_columns, reading, require_target
from nystrom.rows.sparse import canonical, csr_rows
from nystrom.rows.stream import Piece, StreamRows
from nystrom.types import Array, Matrix, SparseMatrix, issparse

# Upper bound on the length of a header in bytes. A damaged header may state any length.
NPY_HEADER_BYTES = 2**16


class BinaryFile:
    """A matrix stored in a file from byte ``offset`` on; read by position, never mapped.

    Pages of a mapped file count as memory of the process, and a hard limit on address space counts the whole file.
    Reading into a buffer avoids both and costs one copy at memory speed. The file is opened for each read, so that
    objects can be pickled and used by several threads.
    """

    def __init__(
        self, path: Path, offset: int, shape: tuple[int, ...], dtype: DTypeLike, *, fortran: bool = False
    ) -> None:
        # Keeps the file's temporary folder alive, if it is in one.
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
        """Yield, for each column in Fortran order, the number of its first entry and its destination."""
        for number, index in enumerate(np.ndindex(self.shape[:0:-1])):
            yield number * self.shape[0], out[(slice(None), *index[::-1])]

    @contextmanager
    def _opened(self, row: int) -> Iterator[int]:
        """Open the file; it must be unchanged before and after the read."""
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
    """Read into ``view`` from an offset of the file; return the number of bytes read."""
    if hasattr(os, "preadv"):
        return os.preadv(handle, [view], position)
    # Windows has no positioned read; only this call uses the handle, so moving its position is safe.
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
        # The source of the rows, if the file is a temporary one.
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
    """Return shape, order, dtype and the offset of the data, from the first bytes of a ``.npy`` file."""
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
    if file.shape[0] == 0:
        raise DataFileError(f"{name} holds no rows.")
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


def spool(source: StreamRows, *, folder: Path | None, n_features: int | None, block_rows: int | None) -> RowBlocks:
    """Return the rows of ``source`` from a temporary file, written in one pass and removed with the rows.

    ``source`` need not have a known size: this pass counts its rows as well.
    """
    scratch = Scratch("spool", folder)
    try:
        return _Spool(source, scratch).run(n_features, block_rows)
    except OSError as error:
        scratch.remove()
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise OSError(
                error.errno,
                f"no room to spool {source.name} in {scratch.path.parent}: {error.strerror}. Give another folder with "
                f"spool='/path', or leave spool=False to decode the file in every pass",
            ) from error
        raise
    except BaseException:
        scratch.remove()
        raise


class _Spool:
    """The files of one spooled source: one for dense rows, three for CSR, and one for the target."""

    def __init__(self, source: StreamRows, scratch: Scratch) -> None:
        self.source = source
        self.scratch = scratch
        self.place = scratch.path
        self.names = ("indptr", "indices", "data") if source.is_sparse else ("X",)
        # Only a file that states its width in advance can have more columns than 32 bits can number.
        wide = getattr(source, "shape", (0, 0))[1] > np.iinfo(np.int32).max
        self.index_dtype = np.dtype(np.int64 if wide else np.int32)
        self.count = self.entries = self.width = 0
        # Numeric targets go to their own file; text targets, whose width may change, stay in memory.
        self.targets: list[Array] = []
        self.target_like: Array | None = None

    def run(self, n_features: int | None, block_rows: int | None) -> RowBlocks:
        with ExitStack() as stack:
            files = {name: stack.enter_context((self.place / name).open("wb")) for name in self.names}
            if self.source.is_sparse:
                files["indptr"].write(np.zeros(1, np.int64).tobytes())
            files["y"] = stack.enter_context((self.place / "y").open("wb"))
            for piece in self.source.read_pieces():
                self._write(files, piece)
        if self.count == 0:
            raise DataFileError(f"{self.source.name} holds no rows.")
        if self.source.stamp is not None:
            self.source.stamp.check(self.count)
        rows = self._open(n_features or self.width, block_rows)
        rows.name = self.source.name
        self.source.shape = rows.shape
        rows.origin = self.source.identity()
        if self.targets:
            return rows.with_target(np.concatenate(self.targets))
        if self.target_like is None:
            return rows
        like = self.target_like
        return rows.with_target(self._file("y", (self.count, *like.shape[1:]), like.dtype))  # type: ignore[arg-type]

    def _write(self, files: Mapping[str, IO[bytes]], piece: Piece) -> None:
        X = piece.X.astype(self.source.dtype, copy=False)
        if issparse(X):
            files["indptr"].write((X.indptr[1:].astype(np.int64) + self.entries).tobytes())
            files["indices"].write(X.indices.astype(self.index_dtype, copy=False).tobytes())
            files["data"].write(X.data.tobytes())
            self.entries += X.nnz
        else:
            files["X"].write(np.ascontiguousarray(X).tobytes())
        if piece.y is not None:
            require_target(piece.y, self.source.name, self.count)
            self._write_target(files["y"], piece.y)
        self.count += piece.n_rows
        self.width = max(self.width, int(X.shape[1]))

    def _write_target(self, file: IO[bytes], y: Array) -> None:
        if self.target_like is None:
            self.target_like = y[:0]
        written = not self.targets
        if written and y.dtype.kind in "fiub" and y.dtype == self.target_like.dtype:
            file.write(np.ascontiguousarray(y).tobytes())
            return
        if written and self.count:  # another dtype: hold all targets in memory from here on
            file.flush()
            before = np.fromfile(self.place / "y", self.target_like.dtype)
            self.targets.append(before.reshape(self.count, *self.target_like.shape[1:]))
        self.targets.append(y)

    def _file(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> BinaryFile:
        file = BinaryFile(self.place / name, 0, shape, dtype)
        file.keeper = self.scratch
        return file

    def _open(self, n_features: int, block_rows: int | None) -> BinaryRows | SparseBinaryRows:
        kind = self.source.dtype
        if not self.source.is_sparse:
            file = self._file("X", (self.count, n_features), kind)
            return BinaryRows(file, Columns(n_features), block_rows=block_rows)
        indptr = self._file("indptr", (self.count + 1,), np.int64)
        indices = self._file("indices", (self.entries,), self.index_dtype)
        data = self._file("data", (self.entries,), kind)
        wanted = block_rows or default_block_rows((kind.itemsize + 4) * self.entries / self.count, self.count)
        return SparseBinaryRows(indptr, indices, data, n_features, block_rows=wanted, name=self.source.name)


_PIECE_ENTRIES = 2**19
_INDICES = ("indices", "indptr", "row", "col", "offsets")


class NpzRows(StreamRows):
    """A CSR matrix; only ``indptr`` is held in memory."""

    is_sparse = True

    def __init__(self, path: Path, *, dtype: DTypeLike, block_rows: int | None) -> None:
        self.path = path
        self.name = str(path)
        self.stamp = Stamp.of(path)
        with zipfile.ZipFile(path) as archive:
            shape = _shape(_load(archive, "shape"), self.name)
            self._indptr = _load(archive, "indptr")
            _check_indptr(self._indptr, shape[0], self.name)
            entries = int(self._indptr[-1])
            stored = _member(archive, "data", entries, self.name)
            columns = _member(archive, "indices", entries, self.name)
        if columns.kind not in "iu":
            raise DataFileError(f"{path}: indices holds {columns}, not integers. Write the file again.")
        self.dtype = check_dtype(stored, dtype, self.name)
        self.held_bytes = self._indptr.nbytes + 16 * _PIECE_ENTRIES
        self.set_size(shape, entries, block_rows)

    def pieces(self) -> Iterator[Piece]:
        indptr = self._indptr.astype(np.int64, copy=False)
        n, p = self.shape
        with (
            zipfile.ZipFile(self.path) as archive,
            archive.open("data.npy") as values,
            archive.open("indices.npy") as columns,
        ):
            _, value_type, begin = _header(archive, "data")
            values.read(begin)
            _, column_type, begin = _header(archive, "indices")
            columns.read(begin)
            start = 0
            while start < n:
                stop = int(np.searchsorted(indptr, indptr[start] + _PIECE_ENTRIES, side="right")) - 1
                stop = min(max(stop, start + 1), n)
                count = int(indptr[stop] - indptr[start])
                data = self._read(values, value_type, count, start)
                indices = self._read(columns, column_type, count, start)
                ends = indptr[start : stop + 1] - indptr[start]
                yield Piece(csr_rows(data, indices, ends, (stop - start, p), self.name, start=start))
                start = stop

    def _read(self, stream: IO[bytes], dtype: np.dtype, count: int, row: int) -> Array:
        raw = stream.read(count * dtype.itemsize)
        if len(raw) < count * dtype.itemsize:
            raise DataFileError(f"{self.name}: the file ends in the rows from {row} on. Write it again.")
        return np.frombuffer(raw, dtype)


def open_npz(path: Path, *, dtype: DTypeLike, block_rows: int | None) -> RowBlocks:
    """Open a ``scipy.sparse`` file; layouts other than CSR are read into memory and converted."""
    with reading(path):
        with zipfile.ZipFile(path) as archive:
            if "format.npy" not in archive.namelist():
                names = ", ".join(sorted(name.removesuffix(".npy") for name in archive.namelist())[:10])
                raise DataFileError(
                    f"{path} holds the arrays {names}: of .npz files only sparse matrices of scipy.sparse.save_npz are "
                    f"read. Save the rows with numpy.save, as .npy, or open_rows(numpy.load(path)[name])."
                )
            layout = bytes(_load(archive, "format").item()).decode()
        if layout == "csr":
            return NpzRows(path, dtype=dtype, block_rows=block_rows)
    X = load_sparse(path)
    kind = check_dtype(X.dtype, dtype, str(path))
    return SparseRows(X.astype(kind, copy=False), block_rows=block_rows, name=str(path))


def load_sparse(path: Path) -> SparseMatrix:
    """Return the whole matrix of a ``scipy.sparse`` file, of any layout, as checked CSR."""
    with reading(path):
        with np.load(path, allow_pickle=False) as stored:
            for name in _INDICES:
                if name in stored and stored[name].dtype.kind not in "iu":
                    raise DataFileError(f"{path}: {name} holds {stored[name].dtype}, not integers.")
        return canonical(sp.load_npz(path), str(path))


def _shape(stored: Array, name: str) -> tuple[int, int]:
    if stored.shape != (2,) or stored.dtype.kind not in "iu" or (stored < 0).any():
        raise DataFileError(f"{name}: the shape must be two sizes; got {stored.tolist()!r}. Write the file again.")
    return int(stored[0]), int(stored[1])


def _check_indptr(indptr: Array, n_rows: int, name: str) -> None:
    if indptr.dtype.kind not in "iu" or indptr.shape != (n_rows + 1,):
        raise DataFileError(
            f"{name}: indptr holds {indptr.dtype} of shape {indptr.shape}, but {n_rows} rows need {n_rows + 1} "
            f"integers. Write the file again."
        )
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise DataFileError(f"{name}: indptr must rise from 0. Write the file again.")


def _member(archive: zipfile.ZipFile, member: str, count: int, name: str) -> np.dtype:
    """Return the dtype of an array in the archive, checked to hold ``count`` numbers."""
    shape, dtype, _ = _header(archive, member)
    if shape != (count,):
        raise DataFileError(f"{name}: {member} has shape {shape}, but indptr ends at {count}. Write the file again.")
    return dtype


def _load(archive: zipfile.ZipFile, member: str) -> Array:
    _header(archive, member)
    with archive.open(f"{member}.npy") as stream:
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def _header(archive: zipfile.ZipFile, member: str) -> tuple[tuple[int, ...], np.dtype, int]:
    """Return shape, dtype and data offset of an array in the archive; its length must match its header."""
    with archive.open(f"{member}.npy") as stream:
        shape, _, dtype, offset = parse_npy_header(stream.read(NPY_HEADER_BYTES))
    stored = archive.getinfo(f"{member}.npy").file_size - offset
    if dtype.hasobject or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != stored:
        raise ValueError(f"{member} says that it holds {dtype} of shape {shape}, but it has {stored} bytes")
    return shape, dtype, offset
