"""Results larger than memory: formats written block by block, locked, resumable, moved into place when complete."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import pickle
import secrets
import shutil
import types
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nystrom.devices import to_host
from nystrom.disk import FolderLock, flush, move
from nystrom.engine.base import Engine
from nystrom.exceptions import NystromError
from nystrom.nystroem.factor import NystromMap
from nystrom.rows.arrow import count_parquet_rows, join_parquet, read_parquet_part, write_parquet_part
from nystrom.rows.base import Block, RowBlocks, WrappedRows
from nystrom.rows.files import open_rows
from nystrom.rows.zarr import create_zarr, has_chunk, is_store, read_zarr_rows, write_zarr
from nystrom.types import Array, Matrix, issparse


class Writer(ABC):
    """One format of output, written in order, block by block, into the folder ``partial``.

    In addition to the data, a journal holds a checksum of each block, written after it: only blocks that match theirs
    are reused.
    """

    def __init__(self, partial: Path, shape: tuple[int, int], dtype: np.dtype, block_rows: int) -> None:
        self.partial = partial
        self.shape = shape
        self.dtype = dtype
        self.block_rows = block_rows
        self.n_blocks = -(-shape[0] // block_rows)

    @property
    def _journal(self) -> Path:
        return self.partial / "journal"

    def add(self, index: int, values: Array) -> None:
        """Write block ``index`` and record it."""
        values = np.ascontiguousarray(values, dtype=self.dtype).reshape(-1, self.shape[1])
        self._write(index, values)
        with self._journal.open("a") as stream:
            stream.write(f"{index} {_checksum(values)}\n")

    def resume(self) -> int:
        """Return the number of complete blocks, counted from the first; what follows them is removed."""
        whole = 0
        try:
            lines = self._journal.read_text().splitlines()
            for line in lines:
                values = self._read(whole)
                if values is None or line != f"{whole} {_checksum(values)}":
                    break
                whole += 1
            self._cut(whole)
        except Exception:  # whatever is wrong with the existing blocks, they can be computed again
            return 0
        self._journal.write_text("".join(f"{line}\n" for line in lines[:whole]))
        return whole

    def restore(self, path: Path) -> None:
        """Undo the first half of an interrupted move into place."""
        old = self.partial / "old"
        if old.exists() and not path.exists():
            os.replace(old, path)

    def finish(self, path: Path) -> None:
        """Move the output to its name after checking that it is complete."""
        complete = self._complete()
        if complete is None:
            raise NystromError(
                f"{path}: blocks in {self.partial} are missing or short, so it is not put in place. Something removed "
                f"them while they were written; call again to write them all."
            )
        self._place(complete, path)

    @abstractmethod
    def create(self) -> None:
        """Start in the empty folder."""

    @abstractmethod
    def _write(self, index: int, values: Array) -> None: ...

    @abstractmethod
    def _read(self, index: int) -> Array | None:
        """Return block ``index`` as stored; None, or an error, if it is not complete."""

    @abstractmethod
    def _cut(self, count: int) -> None:
        """Remove all but the first ``count`` blocks."""

    @abstractmethod
    def _complete(self) -> Path | None:
        """Return the complete output, or None if anything is missing."""

    def _place(self, complete: Path, path: Path) -> None:
        move(complete, path)

    def _rows_of(self, index: int) -> int:
        return min(self.block_rows, self.shape[0] - index * self.block_rows)


def _checksum(values: Array) -> str:
    return f"{zlib.crc32(np.ascontiguousarray(values).reshape(-1).view(np.uint8)):08x}"  # type: ignore[arg-type]


class NpyWriter(Writer):
    """Append to a ``.npy`` file."""

    @property
    def _file(self) -> Path:
        return self.partial / "data.npy"

    def _offset(self, index: int) -> int:
        with self._file.open("rb") as stream:
            np.lib.format.read_magic(stream)
            np.lib.format.read_array_header_1_0(stream)
            rows = min(index * self.block_rows, self.shape[0])
            return stream.tell() + rows * self.shape[1] * self.dtype.itemsize

    def create(self) -> None:
        with self._file.open("wb") as stream:
            described = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
            np.lib.format.write_array_header_1_0(stream, described)

    def _write(self, index: int, values: Array) -> None:
        raw = memoryview(values.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        with self._file.open("ab", buffering=0) as stream:
            while len(raw):
                raw = raw[stream.write(raw) :]

    def _read(self, index: int) -> Array | None:
        with self._file.open("rb") as stream:
            stream.seek(self._offset(index))
            values = np.fromfile(stream, self.dtype, self._rows_of(index) * self.shape[1])
        return values if values.size == self._rows_of(index) * self.shape[1] else None

    def _cut(self, count: int) -> None:
        os.truncate(self._file, self._offset(count))

    def _complete(self) -> Path | None:
        return self._file if self._file.stat().st_size == self._offset(self.n_blocks) else None


class ZarrWriter(Writer):
    """Write one chunk per block."""

    @property
    def _store(self) -> Path:
        return self.partial / "data.zarr"

    def create(self) -> None:
        create_zarr(self._store, self.shape, self.block_rows, self.dtype)

    def _write(self, index: int, values: Array) -> None:
        write_zarr(self._store, index * self.block_rows, values)

    def _read(self, index: int) -> Array | None:
        if not has_chunk(self._store, index):
            return None
        start = index * self.block_rows
        return read_zarr_rows(self._store, start, start + self._rows_of(index))

    def _cut(self, count: int) -> None:
        # Zarr first writes a chunk under another name; a process killed at that moment leaves it behind.
        for orphan in self._store.rglob("*.partial"):
            orphan.unlink()

    def _complete(self) -> Path | None:
        return self._store if all(has_chunk(self._store, index) for index in range(self.n_blocks)) else None

    def _place(self, complete: Path, path: Path) -> None:
        for file in complete.rglob("*"):
            flush(file)
        # A folder cannot be replaced atomically; restore() undoes the first step if the second was not made.
        if path.exists():
            os.replace(path, self.partial / "old")
        move(complete, path)


class ParquetWriter(Writer):
    """Write one file per block and join them at the end: a truncated Parquet file cannot be continued."""

    def _part(self, index: int) -> Path:
        return self.partial / f"{index:09d}.parquet"

    def _parts(self) -> list[Path]:
        return sorted(self.partial.glob("[0-9]*.parquet"))

    def create(self) -> None:
        pass

    def _write(self, index: int, values: Array) -> None:
        unfinished = self.partial / "unfinished"
        write_parquet_part(unfinished, values)
        os.replace(unfinished, self._part(index))

    def _read(self, index: int) -> Array | None:
        values = read_parquet_part(self._part(index))
        return values if values.shape == (self._rows_of(index), self.shape[1]) else None

    def _cut(self, count: int) -> None:
        for part in self._parts():
            if int(part.stem) >= count:
                part.unlink()

    def _complete(self) -> Path | None:
        parts = self._parts()
        if parts != [self._part(index) for index in range(self.n_blocks)]:
            return None
        joined = self.partial / "joined"
        join_parquet(parts, joined)
        return joined if count_parquet_rows(joined) == self.shape[0] else None


WRITERS: dict[str, type[Writer]] = {".npy": NpyWriter, ".zarr": ZarrWriter, ".parquet": ParquetWriter}


_DISK_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_FORMAT = 2


def write_rows(
    out: str | os.PathLike[str],
    rows: RowBlocks,
    engine: Engine,
    step: Callable[[Block], Array],
    n_columns: int,
    dtype: DTypeLike,
    *,
    job: str | None,
    label: str,
) -> RowBlocks:
    """Write the results of ``step`` for each block to ``out`` and return it, opened: one pass.

    Parameters
    ----------
    out : path
        ``.npy``, ``.zarr`` or ``.parquet``. An earlier output of that kind is replaced at the end, in one step.
    rows, engine, step
        As for :meth:`~nystrom.engine.base.Engine.map`.
    n_columns, dtype
        Number of columns and dtype of the result.
    job : str or None
        Identifies this work among others with the same output: unfinished output is resumed only if it and the content
        of the rows are equal. With None it is never resumed.
    label : str
        The label of the pass.

    Raises
    ------
    OutputBusyError
        Another process or thread is writing the same output.
    FileExistsError
        ``out`` exists and is not an output of its kind.
    """
    if not engine.reads_here(rows):
        from nystrom.engine import dask

        return dask.write_parquet(engine.emit(rows, step, n_columns, dtype, label=label), Path(out))
    path = Path(out)
    _check_place(path)
    shape, kind = (rows.shape[0], n_columns), np.dtype(dtype)
    partial = path.with_name(path.name + ".partial")
    with FolderLock(partial, str(path)) as lock:
        writer = WRITERS[path.suffix](partial, shape, kind, rows.block_rows)
        writer.restore(path)
        first = _begin(writer, _describe(rows, job, shape, kind))
        done = first
        try:
            for start, values in engine.map(_Rest(rows, first), step, label=label):
                done = start // rows.block_rows
                writer.add(done, to_host(values))
            writer.finish(path)
        except Exception as error:
            _clear(partial)
            lock.remove()
            if isinstance(error, OSError) and error.errno in _DISK_FULL:
                row = done * rows.block_rows
                raise OSError(
                    error.errno,
                    f"{path} cannot be written at row {row}: {os.strerror(error.errno or 0)}. Free some disk and call "
                    f"again",
                ) from error
            raise
        _clear(partial)
        lock.remove()
    return open_rows(path)


def describe_job(fitted: NystromMap, label: str, results: Mapping[str, object]) -> str | None:
    """Return a fingerprint of a fitted machine, equal only for machines that compute the same numbers.

    ``results`` are its stored attributes by name; arrays and numbers among them count, in addition to the map itself.
    None for a kernel that holds a function, which may do something else in another process.
    """
    content = io.BytesIO()
    try:
        _WithoutFunctions(content).dump(fitted.kernel)
    except (pickle.PicklingError, TypeError, AttributeError):
        return None
    digest = hashlib.blake2b(label.encode() + content.getvalue(), digest_size=16)
    Z: Matrix = fitted.landmarks.points
    named = [(name, part) for name, part in sorted(results.items()) if isinstance(part, (np.ndarray, float, int))]
    places = enumerate((Z.data, Z.indices, Z.indptr) if issparse(Z) else (Z,))
    if "projection_" not in results:  # if it is there, a loaded map may lack its own
        named.append(("projection_", fitted.projection))
    for name, part in (*places, *named):
        array = np.asarray(part)
        array = array.astype(np.str_) if array.dtype.kind == "O" else array
        digest.update(f"{name} {array.shape} {array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class _WithoutFunctions(pickle.Pickler):
    def reducer_override(self, value: object) -> Any:
        if isinstance(value, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)):
            raise pickle.PicklingError("a function has no content to compare")
        return NotImplemented


def _check_place(path: Path) -> None:
    """Raise if the output could not be moved into place at the end, or would replace something else."""
    if path.suffix not in WRITERS:
        raise ValueError(f"out must end in one of {sorted(WRITERS)}; got {str(path)!r}.")
    if not os.path.lexists(path):
        return
    is_folder = path.is_dir()
    if path.suffix == ".zarr" and not (is_folder and (is_store(path) or not any(path.iterdir()))):
        what = "a folder that is not a Zarr store" if is_folder else "a file, and a .zarr output is a folder"
        raise FileExistsError(f"out={str(path)!r} is {what}. Remove it, or give another name.")
    if path.suffix != ".zarr" and is_folder:
        raise FileExistsError(f"out={str(path)!r} is a folder. Remove it, or give another name.")


def _describe(rows: RowBlocks, job: str | None, shape: tuple[int, int], dtype: np.dtype) -> str:
    """Return the text that identifies unfinished output; new every time for work without an identity."""
    identity = None if job is None else rows.identity()
    return json.dumps(
        {
            "format": _FORMAT,
            "job": job,
            "rows": secrets.token_hex(16) if identity is None else hashlib.sha256(identity.encode()).hexdigest(),
            "shape": [*rows.shape, rows.block_rows, str(rows.dtype)],
            "result": [*shape, dtype.str],
        }
    )


def _begin(writer: Writer, text: str) -> int:
    """Return the first block to write: after those of the same job, else 0 with everything else removed."""
    described = writer.partial / "job.json"
    if described.exists() and described.read_text() == text:
        whole = writer.resume()
        if whole:
            return whole
    _clear(writer.partial)
    writer.create()
    described.write_text(text)  # last: a folder without it is not resumed
    return 0


def _clear(partial: Path) -> None:
    """Remove all but the lock; the job's description first, so that a half-removed folder is not resumed."""
    (partial / "job.json").unlink(missing_ok=True)
    for place in partial.iterdir():
        if place.name == "lock":
            continue
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)


class _Rest(WrappedRows):
    """The rows from a given block on."""

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
