"""Decode a slow source once: its rows go to a temporary binary file, which later passes read."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import DTypeLike

from nystrom.disk.scratch import Scratch
from nystrom.exceptions import DataFileError
from nystrom.rows.base import RowBlocks
from nystrom.rows.binary import BinaryFile, BinaryRows, SparseBinaryRows
from nystrom.rows.block_size import default_block_rows
from nystrom.rows.stream import Piece, StreamRows
from nystrom.rows.target_column import Columns, require_target
from nystrom.types import Array, issparse


def spool(source: StreamRows, *, folder: Path | None, n_features: int | None, block_rows: int | None) -> RowBlocks:
    """Return the rows of ``source`` from a temporary file, written in one pass and removed with the rows.

    ``source`` need not have been measured: this pass counts as well.
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
    """The files of one spooled source: dense rows in one, CSR in three, the target beside them."""

    def __init__(self, source: StreamRows, scratch: Scratch) -> None:
        self.source = source
        self.scratch = scratch
        self.place = scratch.path
        self.names = ("indptr", "indices", "data") if source.is_sparse else ("X",)
        # Only a file that says so beforehand can have more columns than 32 bits number.
        wide = getattr(source, "shape", (0, 0))[1] > np.iinfo(np.int32).max
        self.index_dtype = np.dtype(np.int64 if wide else np.int32)
        self.count = self.entries = self.width = 0
        # Numbers go to a file of their own; targets of text, whose width may change, are held.
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
        if written and self.count:  # a type of its own: hold all from here on
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
