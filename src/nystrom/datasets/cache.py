"""Keep the binary form of a text file, so that it is parsed once.

The form is an uncompressed ``.npz`` of the CSR arrays (no pickle), tied to the size and time of its source.
It is written under a temporary name and moved into place, so a broken write leaves nothing that could be
read.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from nystrom.datasets.home import cache_paths, is_writable
from nystrom.types import Array, Matrix

_VERSION = 1


def cached(source: Path, parse: Callable[[], tuple[Matrix, Array]]) -> tuple[Matrix, Array]:
    """Return what ``parse`` makes of ``source``, from the cache if the source has not changed since."""
    stamp = _stamp(source)
    places = cache_paths(source)
    for place in places:
        found = _read(place, stamp)
        if found is not None:
            return found
    X, y = parse()
    if np.array_equal(_stamp(source), stamp):
        _write_first(places, X, y, stamp)
    return X, y


def _stamp(source: Path) -> Array:
    status = source.stat()
    return np.array([_VERSION, status.st_size, status.st_mtime_ns], dtype=np.int64)


def _read(place: Path, stamp: Array) -> tuple[Matrix, Array] | None:
    try:
        with place.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            if not np.array_equal(stored["stamp"], stamp):
                return None
            shape = tuple(int(size) for size in stored["shape"])
            parts = (stored["data"].astype(np.float64), stored["indices"], stored["indptr"])
            X = sp.csr_matrix(parts, shape=shape)
            X.check_format(full_check=True)
            return X, stored["y"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _write_first(places: tuple[Path, ...], X: Matrix, y: Array, stamp: Array) -> None:
    """Write to the first place that takes it; a cache that cannot be kept is no reason to fail."""
    for place in places:
        try:
            if place is places[-1]:
                place.parent.mkdir(parents=True, exist_ok=True)
            if is_writable(place.parent):
                _write(place, X, y, stamp)
                return
        except OSError:
            continue


def _write(place: Path, X: Matrix, y: Array, stamp: Array) -> None:
    narrow = X.data.astype(np.float32)
    data = narrow if np.array_equal(narrow, X.data) else X.data
    handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=f"{place.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(
                stream,
                stamp=stamp,
                shape=np.array(X.shape, dtype=np.int64),
                data=data,
                indices=X.indices,
                indptr=X.indptr,
                y=y,
            )
        os.replace(temporary, place)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
