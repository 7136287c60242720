"""Rows in HDF5 files: the only file that imports h5py."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nystrom.exceptions import DataFileError, MissingDependencyError
from nystrom.rows.base import RowBlocks
from nystrom.rows.binary import BinaryFile, matrix_rows
from nystrom.rows.reading import Stamp, check_dtype, choose_columns, reading
from nystrom.rows.stream import ChunkedRows, slab_rows, which_one
from nystrom.types import Array


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise MissingDependencyError("h5py", "io", "Reading HDF5 files") from error
    return h5py


class Hdf5Rows(ChunkedRows):
    """A dataset that HDF5 must decode, read a slab of whole chunks at a time."""

    def _slabs(self) -> Iterator[Array]:
        with _h5py().File(self.path, "r") as file:
            stored = file[self.inside]
            for start in range(0, self.shape[0], self.slab_rows):
                yield np.asarray(stored[start : start + self.slab_rows])


def open_hdf5(
    path: Path,
    inside: str,
    *,
    columns: Sequence[int | str] | None,
    target: int | str | None,
    dtype: DTypeLike,
    block_rows: int | None,
    fill_missing: bool,
) -> RowBlocks:
    """Open a dataset of an HDF5 file; a contiguous one is read as a plain binary file."""
    name = f"{path}::{inside}" if inside else str(path)
    with _dataset(path, inside, fill_missing) as stored:
        with reading(name):
            # An external link leads to a dataset in another file than the one named.
            home, place = Path(stored.file.filename), stored.name
            shape, kind = tuple(int(size) for size in stored.shape), stored.dtype
            chunk_rows = stored.chunks[0] if stored.chunks else 1
            plain = _plain(stored, home)
        if plain is not None:
            return matrix_rows(plain, name, columns=columns, target=target, dtype=dtype, block_rows=block_rows)
        if len(shape) != 2:
            raise ValueError(f"{name} must hold a matrix (rows and columns); got shape {shape}.")
        chosen = choose_columns(shape[1], columns, target, name)
        slab = slab_rows(chunk_rows, shape[1] * kind.itemsize)
        wanted = check_dtype(kind, dtype, name)
        size = (shape[0], chosen.n_features)
        return Hdf5Rows(home, place, name, Stamp.of(home), size, wanted, slab, chosen, block_rows)


def read_hdf5_vector(path: Path, inside: str) -> Array | BinaryFile:
    """Return a target stored as a separate dataset."""
    with _dataset(path, inside, False) as stored, reading(path):
        plain = _plain(stored, Path(stored.file.filename))
        return np.asarray(stored[()]) if plain is None else plain


@contextmanager
def _dataset(path: Path, inside: str, fill_missing: bool) -> Iterator[Any]:
    """Open a dataset; refuse one whose missing parts would read as fill values."""
    h5py = _h5py()
    with reading(path):
        file = h5py.File(path, "r")
    with file:
        with reading(path):
            names, links = _contents(file)
            _require_target(path, file, inside, links)
            found = file[inside] if inside and inside in file else None
            if not inside and len(names) == 1:
                found = file[names[0]]
        if not isinstance(found, h5py.Dataset):
            raise ValueError(f"{which_one(path, 'dataset', inside, names)}{_describe(path, links)}")
        with reading(path):
            _require_stored(found, f"{path}::{inside or names[0]}", fill_missing)
        yield found


def _contents(group: Any, prefix: str = "", seen: frozenset[int] = frozenset()) -> tuple[list[str], dict[str, str]]:
    """Return the names of all datasets in a group, and its links with their destinations, without following any.

    HDF5's own traversal does not terminate on some damaged files.
    """
    h5py = _h5py()
    names: list[str] = []
    links: dict[str, str] = {}
    for name in group:
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            links[prefix + name] = _leads_to(link)
            continue
        item = group[name]
        if isinstance(item, h5py.Dataset):
            names.append(prefix + name)
        elif isinstance(item, h5py.Group):
            place = int(h5py.h5o.get_info(item.id).addr)
            if place not in seen:  # a group may contain one of its own parents
                below = _contents(item, f"{prefix}{name}/", seen | {place})
                names += below[0]
                links |= below[1]
    return names, links


def _leads_to(link: Any) -> str:
    outside = getattr(link, "filename", None)
    return f"{link.path!r}" if outside is None else f"{link.path!r} of the file {outside!r}"


def _describe(path: Path, links: dict[str, str]) -> str:
    if not links:
        return ""
    first, *others = links
    more = f", and {len(others)} more" if others else ""
    return (
        f" There is a link, {first!r}, to {links[first]}{more}; no link is followed unless it is named, as in "
        f"'{path.name}::{first}'."
    )


def _require_target(path: Path, file: Any, inside: str, links: dict[str, str]) -> None:
    """Raise if the requested name is a link that leads nowhere, or in a circle."""
    link = links.get(inside.strip("/"))
    if link is None:
        return
    try:
        file[inside]
    except (KeyError, OSError, RuntimeError) as error:
        raise DataFileError(
            f"{path}::{inside} is a link to {link}, and there is nothing to read there ({error.args[0]})."
        ) from error


def _require_stored(stored: Any, name: str, fill_missing: bool) -> None:
    if stored.shape is None:
        raise DataFileError(f"{name} is empty: it has no shape and holds no rows.")
    if stored.is_virtual or stored.external:
        what = "virtual: its values are in other datasets" if stored.is_virtual else "kept in external files"
        raise DataFileError(
            f"{name} is {what}, and HDF5 reads zeros where one of those is missing. Copy it into one dataset, as with "
            f"file.create_dataset('copy', data=file[{stored.name!r}][...]), and open that."
        )
    if fill_missing or not stored.size:
        return
    if stored.chunks is None:
        missing = stored.id.get_storage_size() == 0
    else:
        wanted = math.prod(-(-size // chunk) for size, chunk in zip(stored.shape, stored.chunks, strict=True))
        missing = stored.id.get_num_chunks() < wanted
    if missing:
        raise DataFileError(
            f"{name}: parts of the dataset were never written, and HDF5 reads them as {stored.fillvalue}. Give "
            f"fill_missing=True if that is meant, else write the dataset again."
        )


def _plain(stored: Any, path: Path) -> BinaryFile | None:
    """Return the offset of a dataset whose bytes in the file equal those of its dtype in memory, or None."""
    if stored.chunks is not None or stored.dtype.kind not in "fiu":
        return None
    # Integers may be stored with their own offset or precision, which the dtype does not show.
    same = stored.id.get_type() == _h5py().h5t.py_create(stored.dtype)
    offset = stored.id.get_offset() if same else None
    if offset is None:
        return None
    return BinaryFile(path, int(offset), tuple(int(size) for size in stored.shape), stored.dtype)
