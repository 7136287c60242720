"""CSR rows in ``.npz`` files of :func:`scipy.sparse.save_npz`, decompressed as they are read."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from nystrom.exceptions import DataFileError
from nystrom.rows.base import RowBlocks, SparseRows
from nystrom.rows.binary import NPY_HEADER_BYTES, parse_npy_header
from nystrom.rows.reading import Stamp, check_dtype, reading
from nystrom.rows.sparse import canonical, csr_rows
from nystrom.rows.stream import Piece, StreamRows
from nystrom.types import Array, SparseMatrix

_PIECE_ENTRIES = 2**19
_INDICES = ("indices", "indptr", "row", "col", "offsets")


class NpzRows(StreamRows):
    """A CSR matrix; of its arrays only ``indptr`` is held."""

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
    """Open a ``scipy.sparse`` file; other layouts than CSR are read into memory and converted."""
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
    """Return the dtype of an array of the archive, checked to be one of ``count`` numbers."""
    shape, dtype, _ = _header(archive, member)
    if shape != (count,):
        raise DataFileError(f"{name}: {member} has shape {shape}, but indptr ends at {count}. Write the file again.")
    return dtype


def _load(archive: zipfile.ZipFile, member: str) -> Array:
    _header(archive, member)
    with archive.open(f"{member}.npy") as stream:
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def _header(archive: zipfile.ZipFile, member: str) -> tuple[tuple[int, ...], np.dtype, int]:
    """Return shape and dtype of an array of the archive, and where its data begin; it must be as long as it says."""
    with archive.open(f"{member}.npy") as stream:
        shape, _, dtype, offset = parse_npy_header(stream.read(NPY_HEADER_BYTES))
    stored = archive.getinfo(f"{member}.npy").file_size - offset
    if dtype.hasobject or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != stored:
        raise ValueError(f"{member} says that it holds {dtype} of shape {shape}, but it has {stored} bytes")
    return shape, dtype, offset
