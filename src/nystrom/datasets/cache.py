"""Keep the binary form of a text file, so that it is parsed once.

The form is an uncompressed ``.npz`` of the CSR arrays (no pickle), tied to the size, times and inode of its source. It
is kept in the user's cache, never beside the source. It is written under a temporary name and moved into place, so a
broken write leaves nothing that could be read; a damaged file is made again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from nystrom.datasets.home import parsed_path
from nystrom.disk.replace import replacing
from nystrom.exceptions import DataFileError
from nystrom.rows.reading import Stamp, reading
from nystrom.rows.sparse import csr_rows
from nystrom.types import Array, SparseMatrix

_VERSION = 2


def cached(source: Path, parse: Callable[[], tuple[SparseMatrix, Array]]) -> tuple[SparseMatrix, Array]:
    """Return what ``parse`` makes of ``source``, from the cache if the source has not changed since."""
    stamp = _stamp(source)
    place = parsed_path(source)
    found = None if place is None else _read(place, stamp)
    if found is not None:
        return found
    X, y = parse()
    if place is not None and np.array_equal(_stamp(source), stamp):
        _write(place, X, y, stamp)
    return X, y


def _stamp(source: Path) -> Array:
    # Inodes may need all 64 bits, without a sign.
    return np.array([_VERSION, *Stamp.of(source).states[0]], dtype=np.uint64)


def _read(place: Path, stamp: Array) -> tuple[SparseMatrix, Array] | None:
    try:
        with reading(place), place.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            if not np.array_equal(stored["stamp"], stamp):
                return None
            n, p = (int(size) for size in stored["shape"])
            data, y = stored["data"].astype(np.float64), stored["y"]
            X = csr_rows(data, stored["indices"], stored["indptr"], (n, p), str(place))
            return (X, y) if y.shape == (n,) and y.dtype == np.float64 else None
    except (DataFileError, OSError, MemoryError):
        return None


def _write(place: Path, X: SparseMatrix, y: Array, stamp: Array) -> None:
    """Keep what was parsed; a cache that cannot be kept is no reason to fail."""
    narrow = X.data.astype(np.float32)
    data = narrow if np.array_equal(narrow, X.data) else X.data
    shape = np.array(X.shape, dtype=np.int64)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as temporary, temporary.open("wb") as stream:
            np.savez(stream, stamp=stamp, shape=shape, data=data, indices=X.indices, indptr=X.indptr, y=y)
    except OSError:
        return
