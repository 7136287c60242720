"""Rows in Zarr arrays, read and written: the only file that imports zarr."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nystrom.exceptions import DataFileError, MissingDependencyError
from nystrom.rows.chunked import ChunkedRows, slab_rows
from nystrom.rows.columns import check_dtype, choose_columns
from nystrom.rows.stamp import Stamp
from nystrom.types import Array


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise MissingDependencyError("zarr", "io", "Reading and writing Zarr arrays") from error
    return zarr


class ZarrRows(ChunkedRows):
    """A Zarr array, read a slab of whole chunks at a time."""

    def _slabs(self) -> Iterator[Array]:
        stored = _open(self.path, self.inside)
        for start in range(0, self.shape[0], self.slab_rows):
            yield self._slab(lambda a, b: stored[a:b], start)


def open_zarr(path: Path, inside: str, *, columns: Any, target: Any, dtype: Any, block_rows: int | None) -> ZarrRows:
    """Open an array of a Zarr store."""
    name = f"{path}::{inside}" if inside else str(path)
    stored = _open(path, inside)
    if stored.ndim != 2:
        raise ValueError(f"{name} must hold a matrix (rows and columns); got shape {stored.shape}.")
    chosen = choose_columns(int(stored.shape[1]), columns, target, name)
    kind = check_dtype(stored.dtype, dtype, name)
    chunk = (getattr(stored, "shards", None) or stored.chunks)[0]
    slab = slab_rows(chunk, stored.shape[1] * np.dtype(stored.dtype).itemsize)
    shape = (int(stored.shape[0]), chosen.n_features)
    stamp = Stamp.of([file for file in _metadata(path, inside) if file.exists()])
    return ZarrRows(path, inside, name, stamp, shape, kind, slab, chosen, block_rows)


def read_zarr_vector(path: Path, inside: str) -> Array:
    """Return a target that is an array of its own."""
    return np.asarray(_open(path, inside)[:])


def create_zarr(path: Path, shape: tuple[int, int], chunk_rows: int, dtype: Any) -> None:
    """Create an array whose chunks are whole blocks of rows."""
    chunks = (min(chunk_rows, shape[0]), max(shape[1], 1))
    _zarr().create_array(
        store=str(path), shape=shape, chunks=chunks, dtype=np.dtype(dtype), config={"write_empty_chunks": True}
    )


def write_zarr(path: Path, start: int, values: Array) -> None:
    """Write consecutive rows."""
    stored = _zarr().open_array(str(path), mode="r+", config={"write_empty_chunks": True})
    stored[start : start + len(values)] = values


def written_chunks(path: Path) -> int:
    """Return how many blocks of rows are there, counted from the first."""
    count = 0
    while (path / "c" / str(count) / "0").exists():
        count += 1
    return count


def _metadata(path: Path, inside: str) -> tuple[Path, ...]:
    place = path / inside if inside else path
    return tuple(place / name for name in ("zarr.json", ".zarray"))


def _open(path: Path, inside: str) -> Any:
    zarr = _zarr()
    try:
        found = zarr.open(str(path), mode="r")
    except Exception as error:  # zarr raises many kinds for a damaged store
        raise DataFileError(f"{path}: not a Zarr store, or a damaged one ({error}).") from error
    if not hasattr(found, "shape"):
        names = list(found.array_keys())
        if not inside and len(names) == 1:
            return found[names[0]]
        if inside not in found:
            raise ValueError(f"{path} is a group; write the path as '{path.name}::array' with one of {names}.")
        found = found[inside]
    return found
