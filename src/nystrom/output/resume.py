"""Results larger than memory: written block by block under a temporary name, moved into place when complete.

Beside ``features.npy`` a folder ``features.npy.partial`` holds what is done, a description of the job and a lock. A
process that is killed leaves it; the same call made again, on the same rows, goes on from the last whole block and ends
with the same bytes. An error removes it.
"""

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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nystrom.disk.lock import FolderLock
from nystrom.engine.base import Engine
from nystrom.nystroem.factor import NystromMap
from nystrom.output.writers import WRITERS, Writer
from nystrom.rows.base import Block, RowBlocks, WrappedRows
from nystrom.rows.files import open_rows
from nystrom.rows.zarr import is_store
from nystrom.types import Array, Matrix, issparse

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
    """Write what ``step`` makes of each block to ``out`` and return it, opened: one pass.

    Parameters
    ----------
    out : path
        ``.npy``, ``.zarr`` or ``.parquet``. An earlier output of that kind is replaced, at the end and at once.
    rows, engine, step
        As for :meth:`~nystrom.engine.base.Engine.map`.
    n_columns, dtype
        Of the result.
    job : str or None
        Tells this work from other work with the same output: unfinished output is taken up only if it and the content
        of the rows are equal. None is never taken up.
    label : str
        Of the pass.

    Raises
    ------
    OutputBusyError
        Another process or thread is writing the same output.
    FileExistsError
        ``out`` is something else than an output of its kind.
    """
    if not engine.reads_here(rows):
        raise ValueError("out= writes from this process; rows on a cluster give a lazy result that writes itself.")
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
                writer.add(done, values)
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
    """Return a fingerprint of a fitted machine, equal only for machines that give the same numbers.

    ``results`` are what it stores by name; of these, arrays and numbers count, beside the map itself.
    None for a kernel that holds a function: what that does may change from one process to the next.
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
    if "projection_" not in results:  # where it is, a loaded map may lack its own
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
    """Raise if the output could not take its place at the end, or would take the place of something else."""
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
    """Return the text by which unfinished output is known again; new every time for what has no identity."""
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
    """Return the first block to write: after those of the same job, else 0 with everything else cleared away."""
    described = writer.partial / "job.json"
    if described.exists() and described.read_text() == text:
        whole = writer.resume()
        if whole:
            return whole
    _clear(writer.partial)
    writer.create()
    described.write_text(text)  # last: a folder without it is not taken up
    return 0


def _clear(partial: Path) -> None:
    """Remove all but the lock; the job's description first, so that what is half removed is not taken up."""
    (partial / "job.json").unlink(missing_ok=True)
    for place in partial.iterdir():
        if place.name == "lock":
            continue
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)


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


__all__ = ["describe_job", "write_rows"]
