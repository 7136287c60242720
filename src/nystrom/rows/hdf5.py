"""Rows in HDF5 files: the only file that imports h5py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nystrom.exceptions import DataFileError, MissingDependencyError
from nystrom.rows.base import RowBlocks
from nystrom.rows.binary import BinaryFile, matrix_rows
from nystrom.rows.chunked import ChunkedRows, slab_rows
from nystrom.rows.columns import check_dtype, choose_columns
from nystrom.rows.stamp import Stamp
from nystrom.types import Array


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise MissingDependencyError("h5py", "io", "Reading HDF5 files") from error
    return h5py


class Hdf5Rows(ChunkedRows):
    """A chunked or compressed HDF5 dataset, read a slab of whole chunks at a time."""

    def _slabs(self) -> Iterator[Array]:
        with _h5py().File(self.path, "r") as file:
            stored = file[self.inside]
            for start in range(0, self.shape[0], self.slab_rows):
                yield self._slab(lambda a, b: stored[a:b], start)


def open_hdf5(path: Path, inside: str, *, columns: Any, target: Any, dtype: Any, block_rows: int | None) -> RowBlocks:
    """Open a dataset of an HDF5 file; one that is stored in one piece is read as a plain binary file."""
    name = f"{path}::{inside}" if inside else str(path)
    with _open(path) as file:
        stored = _find(file, inside, path)
        plain = _plain(stored, path)
        if plain is not None:
            return matrix_rows(plain, name, columns=columns, target=target, dtype=dtype, block_rows=block_rows)
        if stored.ndim != 2:
            raise ValueError(f"{name} must hold a matrix (rows and columns); got shape {stored.shape}.")
        chosen = choose_columns(int(stored.shape[1]), columns, target, name)
        kind = check_dtype(stored.dtype, dtype, name)
        slab = slab_rows(stored.chunks[0], stored.shape[1] * stored.dtype.itemsize)
        shape = (int(stored.shape[0]), chosen.n_features)
        return Hdf5Rows(path, stored.name, name, Stamp.of(path), shape, kind, slab, chosen, block_rows)


def read_hdf5_vector(path: Path, inside: str) -> Array | BinaryFile:
    """Return a target that is a dataset of its own."""
    with _open(path) as file:
        stored = _find(file, inside, path)
        plain = _plain(stored, path)
        return np.asarray(stored[()]) if plain is None else plain


def _open(path: Path) -> Any:
    try:
        return _h5py().File(path, "r")
    except OSError as error:
        raise DataFileError(f"{path}: not an HDF5 file, or a damaged one ({error}).") from error


def _find(file: Any, inside: str, path: Path) -> Any:
    h5py = _h5py()
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    if inside and inside in file and isinstance(file[inside], h5py.Dataset):
        return file[inside]
    if not inside and len(names) == 1:
        return file[names[0]]
    asked = f"has no dataset {inside!r}" if inside else f"holds {len(names)} datasets"
    raise ValueError(f"{path} {asked}; write the path as '{path.name}::dataset' with one of {names}.")


def _plain(stored: Any, path: Path) -> BinaryFile | None:
    """Return the place of a dataset that is stored as it is in memory, or None."""
    offset = None if stored.chunks is not None or stored.external else stored.id.get_offset()
    if offset is None or not stored.dtype.isnative or stored.dtype.hasobject:
        return None
    return BinaryFile(path, int(offset), tuple(int(size) for size in stored.shape), stored.dtype)
