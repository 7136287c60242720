"""Rows in Zarr arrays, read and written: the only file that imports zarr."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nystrom.exceptions import DataFileError, MissingDependencyError
from nystrom.rows.reading import Stamp, check_dtype, choose_columns, reading
from nystrom.rows.stream import ChunkedRows, slab_rows, which_one
from nystrom.types import Array

_MARKS = ("zarr.json", ".zarray", ".zgroup")


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise MissingDependencyError("zarr", "io", "Reading and writing Zarr arrays") from error
    return zarr


class ZarrRows(ChunkedRows):
    """A Zarr array, read a slab of whole chunks at a time."""

    fill_missing = False

    def _slabs(self) -> Iterator[Array]:
        stored = _open(self.path, self.inside)
        if not self.fill_missing:
            _require_chunks(stored, self.path / stored.path, self.name)
        for start in range(0, self.shape[0], self.slab_rows):
            yield np.asarray(stored[start : start + self.slab_rows])


def open_zarr(
    path: Path,
    inside: str,
    *,
    columns: Sequence[int | str] | None,
    target: int | str | None,
    dtype: DTypeLike,
    block_rows: int | None,
    fill_missing: bool,
) -> ZarrRows:
    """Open an array of a Zarr store."""
    name = f"{path}::{inside}" if inside else str(path)
    stored = _open(path, inside)
    with reading(name):
        stamp = Stamp.of(path / stored.path)
        shape = tuple(int(size) for size in stored.shape)
        chunks = _stored_chunks(stored)
        kind = np.dtype(stored.dtype)
    if len(shape) != 2:
        raise ValueError(f"{name} must hold a matrix (rows and columns); got shape {shape}.")
    chosen = choose_columns(shape[1], columns, target, name)
    slab = slab_rows(chunks[0], shape[1] * kind.itemsize)
    size = (shape[0], chosen.n_features)
    rows = ZarrRows(path, inside, name, stamp, size, check_dtype(kind, dtype, name), slab, chosen, block_rows)
    rows.fill_missing = fill_missing
    return rows


def read_zarr_vector(path: Path, inside: str) -> Array:
    """Return a target stored as a separate array."""
    stored = _open(path, inside)
    with reading(path):
        _require_chunks(stored, path / stored.path, str(path))
        return np.asarray(stored[:])


def create_zarr(path: Path, shape: tuple[int, int], chunk_rows: int, dtype: DTypeLike) -> None:
    """Create an array whose chunks are whole blocks of rows."""
    chunks = (min(chunk_rows, shape[0]), max(shape[1], 1))
    _zarr().create_array(
        store=str(path), shape=shape, chunks=chunks, dtype=np.dtype(dtype), config={"write_empty_chunks": True}
    )


def write_zarr(path: Path, start: int, values: Array) -> None:
    """Write consecutive rows."""
    stored = _zarr().open_array(str(path), mode="r+", config={"write_empty_chunks": True})
    stored[start : start + len(values)] = values


def read_zarr_rows(path: Path, start: int, stop: int) -> Array:
    """Return consecutive rows of an array that :func:`create_zarr` made."""
    return np.asarray(_zarr().open_array(str(path), mode="r")[start:stop])


def has_chunk(path: Path, index: int) -> bool:
    """Return whether a block of rows is stored in an array that :func:`create_zarr` made."""
    return (path / "c" / str(index) / "0").exists()


def is_store(path: Path) -> bool:
    """Return whether a folder is a Zarr store."""
    return any((path / name).exists() for name in _MARKS)


def _stored_chunks(stored: Any) -> tuple[int, ...]:
    """Return the shape of the parts stored as one file each: chunks, or shards of chunks."""
    return tuple(getattr(stored, "shards", None) or stored.chunks)


def _require_chunks(stored: Any, place: Path, name: str) -> None:
    """Raise if a chunk has no file: Zarr would read its fill value, and a lost file looks like an empty one."""
    chunks = _stored_chunks(stored)
    grid = [range(-(-size // max(chunk, 1))) for size, chunk in zip(stored.shape, chunks, strict=True)]
    encode = stored.metadata.encode_chunk_key
    for index in product(*grid):
        key = encode(index)
        if not (place / key).exists():
            raise DataFileError(
                f"{name}: the chunk {key!r}, from row {index[0] * chunks[0]} on, has no file. Zarr reads it as "
                f"{stored.fill_value}: give fill_missing=True if it was left out because it holds nothing else, or "
                f"write the store again."
            )


def _open(path: Path, inside: str) -> Any:
    zarr = _zarr()
    with reading(path):
        found = zarr.open(str(path), mode="r")
        if hasattr(found, "shape"):
            if inside:
                raise DataFileError(f"{path} is one array, with none inside it; leave '::{inside}' out of the path.")
            return found
        arrays = [(name, member) for name, member in found.members(max_depth=None) if hasattr(member, "shape")]
        if not inside and len(arrays) == 1:
            return arrays[0][1]
        if inside in found:
            found = found[inside]
    if not hasattr(found, "shape"):
        raise ValueError(which_one(path, "array", inside, sorted(name for name, _ in arrays)))
    return found
