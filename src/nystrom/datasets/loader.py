"""``load``: a set by its name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from nystrom.datasets.cache import cached
from nystrom.datasets.checksums import pinned, record, verify
from nystrom.datasets.download import fetch, missing
from nystrom.datasets.home import download_folder, find_file
from nystrom.datasets.registry import DatasetInfo, Split, info, registry
from nystrom.datasets.synthetic import GENERATORS
from nystrom.exceptions import DataFileError
from nystrom.rows.binary import read_npy_header
from nystrom.rows.libsvm import read_libsvm
from nystrom.rows.npz import load_sparse
from nystrom.types import Array, Matrix, SparseMatrix


def load(
    name: str,
    *,
    split: Split = "train",
    dtype: DTypeLike = np.float64,
    download: bool = True,
    sha256: str | None = None,
) -> tuple[Matrix, Array | None]:
    """Load a set of the LIBSVM archive, or one that is generated, by its name.

    Files are looked for in the data home (the environment variable ``NYSTROM_DATA``, one folder or several;
    by default ``nystrom`` in the user's cache) and downloaded there if they are missing. Text is parsed once: its
    binary form is kept in the user's cache (or the folder ``NYSTROM_CACHE``; ``NYSTROM_CACHE=off`` keeps none).
    A download's checksum is recorded beside it as ``FILE.sha256``, and later readings must agree with it.

    Parameters
    ----------
    name : str
        One of :func:`list_datasets`.
    split : {"train", "test"}
        Which part.
    dtype : dtype
        float64 or float32.
    download : bool
        Whether a missing file may be fetched; False raises at once.
    sha256 : str, optional
        What the file's checksum must be. The environment variable ``NYSTROM_CHECKSUMS`` names a file of such, in the
        form of the program sha256sum.

    Returns
    -------
    X : ndarray, or CSR matrix where the registry says ``sparse``
    y : ndarray of float64, or None for sets without a target

    Raises
    ------
    DataUnavailableError
        The file is not here and cannot be downloaded.
    DataFileError
        The file is damaged; the message names the line.

    Examples
    --------
    >>> from nystrom.datasets import load
    >>> X, y = load("rings")
    >>> X.shape
    (4000, 2)
    """
    entry = info(name)
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype must be float32 or float64; got {dtype!r}.")
    if entry.generator is not None:
        if split != "train":
            raise ValueError(f"split={split!r} does not exist for the generated set {name!r}; use split='train'.")
        X, target = GENERATORS[entry.generator]()
        return X.astype(kind, copy=False), target
    path = locate(entry, split, download=download, sha256=sha256)
    if path.suffix in (".npy", ".npz"):
        return _load_binary(entry, path, kind)
    parsed, y = cached(path, lambda: _parse(entry, path, split))  # which looks at the recorded checksum
    parsed = parsed.astype(kind, copy=False)
    return (parsed if entry.sparse else parsed.toarray()), y


def locate(entry: DatasetInfo, split: Split = "train", *, download: bool = True, sha256: str | None = None) -> Path:
    """Return the file that holds a split, fetching it if need be; it has the checksum that is pinned, if any is."""
    name = entry.file_of(split)
    path = find_file(name)
    if path is not None:
        wanted = pinned(path.name, entry.sha256 if split == "train" and path.name == name else None, sha256)
        if wanted is not None:
            verify(path, wanted)
        return path
    address = entry.address_of(split)
    if address is None or not download:
        raise missing(name, address, download_folder())
    wanted = pinned(name, entry.sha256 if split == "train" else None, sha256)
    path = fetch(address, download_folder(), sha256=wanted)
    record(path)
    return path


def is_available(name: str, split: Split = "train") -> bool:
    """Return whether a set can be loaded without the network."""
    entry = info(name)
    return entry.generator is not None or find_file(entry.file_of(split)) is not None


def list_datasets(*, stand_ins: bool = True) -> list[DatasetInfo]:
    """Return what is known of every set, in the order of the registry.

    Examples
    --------
    >>> from nystrom.datasets import list_datasets
    >>> [entry.name for entry in list_datasets()][:3]
    ['satimage', 'dna', 'protein']
    """
    return [entry for entry in registry().values() if stand_ins or not entry.stand_in]


def _parse(entry: DatasetInfo, path: Path, split: Split) -> tuple[SparseMatrix, Array]:
    verify(path, None)
    X, y = read_libsvm(path, n_features=entry.p)
    wanted = entry.rows_of(split)
    if wanted is not None and X.shape[0] != wanted:
        raise DataFileError(
            f"{path.name}: the file ends at line {X.shape[0]}, but {entry.name} has {wanted} rows: it was "
            f"cut short, or it is another file of that name. Fetch it again."
        )
    return X, y


def _load_binary(entry: DatasetInfo, path: Path, dtype: np.dtype) -> tuple[Matrix, Array | None]:
    X = load_sparse(path) if path.suffix == ".npz" else np.asarray(read_npy_header(path))
    if X.ndim != 2 or X.shape[1] != entry.p:
        raise DataFileError(f"{path.name}: the shape is {X.shape}, but {entry.name} has {entry.p} columns.")
    y = None
    if entry.target is not None:
        place = find_file(entry.target)
        if place is None:
            raise missing(entry.target, None, path.parent)
        y = np.asarray(read_npy_header(place)).astype(np.float64)
        if y.shape != (X.shape[0],):
            raise DataFileError(f"{place.name}: {y.shape} targets for {X.shape[0]} rows.")
    return X.astype(dtype, copy=False), y
