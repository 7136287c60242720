"""Sparse rows from LIBSVM text and from ``scipy.sparse`` files."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from nystrom.exceptions import DataFileError
from nystrom.rows.arrays import SparseRows
from nystrom.rows.base import RowBlocks
from nystrom.rows.columns import check_dtype
from nystrom.rows.libsvm_text import iterate_libsvm
from nystrom.rows.stamp import Stamp
from nystrom.rows.stream import Piece, StreamRows
from nystrom.types import Array

# A piece of text of 8 MiB, its tokens and numbers, as the parser holds them.
_PARSER_BYTES = 160 * 2**20
_NPZ_PIECE_ENTRIES = 2**19


class LibsvmRows(StreamRows):
    """A LIBSVM text file, plain or compressed; the label is the target."""

    is_sparse = True
    has_target = True
    held_bytes = _PARSER_BYTES

    def __init__(self, path: Path, *, n_features: int | None, dtype: Any, label: bool) -> None:
        self.path = path
        self.name = str(path)
        self.dtype = check_dtype(np.float64, dtype, self.name)
        self.stamp = Stamp.of(path)
        self.has_target = label
        self._n_features = n_features

    def pieces(self) -> Iterator[Piece]:
        width = self._n_features
        for part in iterate_libsvm(self.path, n_features=width):
            columns = width or self._width(part.columns)
            indptr = np.concatenate([[0], np.cumsum(part.counts)])
            X = sp.csr_matrix((part.values, part.columns, indptr), shape=(part.y.size, columns))
            yield Piece(X.astype(self.dtype, copy=False), part.y if self.has_target else None)

    def _width(self, columns: Array) -> int:
        # Once measured, every piece has the width of the whole; before that, its own.
        known = getattr(self, "shape", None)
        return int(known[1]) if known else int(columns.max(initial=0)) + 1


class NpzRows(StreamRows):
    """A CSR matrix stored by :func:`scipy.sparse.save_npz`, decompressed as it is read."""

    is_sparse = True

    def __init__(self, path: Path, *, dtype: Any, block_rows: int | None) -> None:
        self.path = path
        self.name = str(path)
        self.stamp = Stamp.of(path)
        with zipfile.ZipFile(path) as archive:
            self._indptr = _load(archive, "indptr")
            shape = tuple(int(size) for size in _load(archive, "shape"))
            with archive.open("data.npy") as stream:
                stored = _header(stream)[1]
        self.dtype = check_dtype(stored, dtype, self.name)
        self.held_bytes = self._indptr.nbytes + 16 * _NPZ_PIECE_ENTRIES
        self.set_size((shape[0], shape[1]), int(self._indptr[-1]), block_rows)

    def pieces(self) -> Iterator[Piece]:
        indptr = self._indptr.astype(np.int64, copy=False)
        n, p = self.shape
        with (
            zipfile.ZipFile(self.path) as archive,
            archive.open("data.npy") as values,
            archive.open("indices.npy") as columns,
        ):
            value_type, column_type = _header(values)[1], _header(columns)[1]
            start = 0
            while start < n:
                stop = int(np.searchsorted(indptr, indptr[start] + _NPZ_PIECE_ENTRIES, side="right")) - 1
                stop = min(max(stop, start + 1), n)
                count = int(indptr[stop] - indptr[start])
                parts = (
                    self._read(values, value_type, count, start),
                    self._read(columns, column_type, count, start),
                    indptr[start : stop + 1] - indptr[start],
                )
                yield Piece(sp.csr_matrix(parts, shape=(stop - start, p)))
                start = stop

    def _read(self, stream: IO[bytes], dtype: np.dtype[Any], count: int, row: int) -> Array:
        raw = stream.read(count * dtype.itemsize)
        if len(raw) < count * dtype.itemsize:
            raise DataFileError(f"{self.name}: the file ends in the rows from {row} on. Write it anew.")
        return np.frombuffer(raw, dtype)


def _load(archive: zipfile.ZipFile, name: str) -> Array:
    with archive.open(f"{name}.npy") as stream:
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype


def open_npz(path: Path, *, dtype: Any, block_rows: int | None) -> RowBlocks:
    """Open a ``scipy.sparse`` file; other layouts than CSR are read into memory and converted."""
    try:
        with zipfile.ZipFile(path) as archive:
            layout = bytes(_load(archive, "format").item()).decode()
    except (KeyError, zipfile.BadZipFile, ValueError, AttributeError, TypeError) as error:
        raise DataFileError(f"{path}: not a file of scipy.sparse.save_npz ({error}).") from error
    if layout != "csr":
        X = sp.load_npz(path).tocsr()
        kind = check_dtype(X.dtype, dtype, str(path))
        return SparseRows(X.astype(kind, copy=False), block_rows=block_rows, name=str(path))
    return NpzRows(path, dtype=dtype, block_rows=block_rows)
