"""Results larger than memory: written block by block under a temporary name, moved into place when complete.

Beside ``features.npy`` a folder ``features.npy.partial`` holds what is done and a description of the job. A process
that is killed leaves it; the same call made again goes on from the last whole block and ends with the same bytes. An
error removes it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nystrom.engine.base import Engine
from nystrom.factor import NystromMap
from nystrom.rows.arrow import join_parquet, write_parquet_part
from nystrom.rows.base import Block, RowBlocks, WrappedRows
from nystrom.rows.files import open_rows
from nystrom.rows.zarr import create_zarr, write_zarr, written_chunks
from nystrom.types import Array, Matrix

_DISK_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def write_rows(
    out: str | os.PathLike[str],
    rows: RowBlocks,
    engine: Engine,
    step: Callable[[Block], Array],
    n_columns: int,
    dtype: Any,
    *,
    job: str,
    label: str,
) -> RowBlocks:
    """Write what ``step`` makes of each block to ``out`` and return it, opened: one pass.

    Parameters
    ----------
    out : path
        ``.npy``, ``.zarr`` or ``.parquet``. What was there is replaced, at the end and at once.
    rows, engine, step
        As for :meth:`~nystrom.engine.base.Engine.map`.
    n_columns, dtype
        Of the result.
    job : str
        Tells this work from other work with the same output: unfinished output is taken up only if it is equal.
    label : str
        Of the pass.
    """
    if rows.on_cluster:
        raise ValueError("out= writes from this process; rows on a cluster give a lazy result that writes itself.")
    path = Path(out)
    if path.suffix not in _WRITERS:
        raise ValueError(f"out must end in one of {sorted(_WRITERS)}; got {str(path)!r}.")
    partial = path.with_name(path.name + ".partial")
    writer = _WRITERS[path.suffix](partial, (rows.shape[0], n_columns), np.dtype(dtype), rows.block_rows)
    text = json.dumps(
        {"job": job, "rows": [rows.name, *rows.shape, rows.block_rows], "result": [n_columns, str(np.dtype(dtype))]}
    )
    first = _begin(writer, text)
    done = first
    try:
        for start, values in engine.map(_Rest(rows, first), step, label=label):
            done = start // rows.block_rows
            writer.write(done, values)
        writer.finish(path)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        if error.errno in _DISK_FULL:
            row = done * rows.block_rows
            raise OSError(
                error.errno, f"{path} cannot be written at row {row}: {error.strerror}. Free some disk and call again"
            ) from error
        raise
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    shutil.rmtree(partial, ignore_errors=True)
    return open_rows(path)


def describe_job(fitted: NystromMap, label: str) -> str:
    """Return a fingerprint of a fitted map: equal for maps that give the same features."""
    digest = hashlib.blake2b(f"{label} {fitted.kernel!r}".encode(), digest_size=16)
    Z: Matrix = fitted.landmarks.points
    for part in (*((Z.data, Z.indices, Z.indptr) if sp.issparse(Z) else (Z,)), fitted.projection):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def _begin(writer: Writer, text: str) -> int:
    """Return the first block to write: after those of the same job, else 0 with everything else cleared away."""
    described = writer.partial / "job.json"
    if described.exists() and described.read_text() == text:
        return writer.resume()
    shutil.rmtree(writer.partial, ignore_errors=True)
    writer.partial.mkdir(parents=True)
    writer.create()
    described.write_text(text)  # last: a folder without it is not taken up
    return 0


class _Rest(WrappedRows):
    """The rows from some block on."""

    def __init__(self, rows: RowBlocks, first: int) -> None:
        super().__init__(rows)
        self._first = first
        self.shape = (max(rows.shape[0] - first * rows.block_rows, 0), rows.shape[1])

    def block(self, index: int) -> Block:
        return self.rows.block(self._first + index)

    def iterate(self) -> Iterator[Block]:
        if self.random_access:
            return super().iterate()
        return (block for block in self.rows.iterate() if block.index >= self._first)

    def take(self, indices: Array) -> Matrix:
        return self.rows.take(indices + self._first * self.block_rows)


class Writer(ABC):
    """One format of output, written in order, block by block."""

    def __init__(self, partial: Path, shape: tuple[int, int], dtype: np.dtype[Any], block_rows: int) -> None:
        self.partial = partial
        self.shape = shape
        self.dtype = dtype
        self.block_rows = block_rows

    @abstractmethod
    def create(self) -> None:
        """Begin anew in the empty folder ``partial``."""

    @abstractmethod
    def resume(self) -> int:
        """Return how many blocks are there and whole, having removed the rest."""

    @abstractmethod
    def write(self, index: int, values: Array) -> None:
        """Write block ``index``."""

    @abstractmethod
    def finish(self, path: Path) -> None:
        """Move the complete output to its name."""


class NpyWriter(Writer):
    """Appends to a ``.npy`` file; how far it came is its size."""

    @property
    def _file(self) -> Path:
        return self.partial / "data.npy"

    def _header(self) -> int:
        with self._file.open("rb") as stream:
            np.lib.format.read_magic(stream)
            np.lib.format.read_array_header_1_0(stream)
            return stream.tell()

    def create(self) -> None:
        with self._file.open("wb") as stream:
            described = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
            np.lib.format.write_array_header_1_0(stream, described)

    def resume(self) -> int:
        header = self._header()
        block_bytes = self.block_rows * self.shape[1] * self.dtype.itemsize
        whole = (self._file.stat().st_size - header) // block_bytes
        os.truncate(self._file, header + whole * block_bytes)
        return int(whole)

    def write(self, index: int, values: Array) -> None:
        raw = memoryview(np.ascontiguousarray(values, dtype=self.dtype).reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        with self._file.open("ab", buffering=0) as stream:
            while len(raw):
                raw = raw[stream.write(raw) :]

    def finish(self, path: Path) -> None:
        with self._file.open("ab") as stream:
            os.fsync(stream.fileno())
        os.replace(self._file, path)


class ZarrWriter(Writer):
    """Writes one chunk a block."""

    @property
    def _store(self) -> Path:
        return self.partial / "data.zarr"

    def create(self) -> None:
        create_zarr(self._store, self.shape, self.block_rows, self.dtype)

    def resume(self) -> int:
        # Zarr writes a chunk under another name first; a kill at that moment leaves it behind.
        for orphan in self._store.rglob("*.partial"):
            orphan.unlink()
        # The last chunk may have been cut short.
        return max(written_chunks(self._store) - 1, 0)

    def write(self, index: int, values: Array) -> None:
        write_zarr(self._store, index * self.block_rows, np.asarray(values, dtype=self.dtype))

    def finish(self, path: Path) -> None:
        if path.exists():
            os.replace(path, self.partial / "old")
        os.replace(self._store, path)


class ParquetWriter(Writer):
    """Writes a file a block, and joins them at the end: a Parquet file that was cut short cannot be continued."""

    def _part(self, index: int) -> Path:
        return self.partial / f"{index:09d}.parquet"

    def _parts(self) -> list[Path]:
        return sorted(self.partial.glob("[0-9]*.parquet"))

    def create(self) -> None:
        pass

    def resume(self) -> int:
        return len(self._parts())

    def write(self, index: int, values: Array) -> None:
        unfinished = self.partial / "unfinished"
        write_parquet_part(unfinished, np.asarray(values, dtype=self.dtype))
        os.replace(unfinished, self._part(index))

    def finish(self, path: Path) -> None:
        joined = self.partial / "joined"
        join_parquet(self._parts(), joined)
        os.replace(joined, path)


_WRITERS: dict[str, type[Writer]] = {".npy": NpyWriter, ".zarr": ZarrWriter, ".parquet": ParquetWriter}
