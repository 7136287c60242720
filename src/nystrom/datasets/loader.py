"""``load``: a set by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nystrom.datasets.cache import cached
from nystrom.datasets.download import fetch, missing
from nystrom.datasets.home import download_folder, find_file
from nystrom.datasets.registry import DatasetInfo, Split, info, registry
from nystrom.datasets.synthetic import GENERATORS
from nystrom.exceptions import DataFileError
from nystrom.rows.libsvm_text import read_libsvm
from nystrom.types import Array, Matrix


def load(
    name: str,
    *,
    split: Split = "train",
    dtype: Any = np.float64,
    download: bool = True,
) -> tuple[Matrix, Array | None]:
    """Load a set of the LIBSVM archive, or one that is generated, by its name.

    Files are looked for in the data home (the environment variable ``NYSTROM_DATA``, one folder or several;
    by default ``nystrom`` in the user's cache) and downloaded there if they are missing. Text is parsed once:
    its binary form is kept beside it, or in the user's cache if that folder is read-only.

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
    path = locate(entry, split, download=download)
    if path.suffix in (".npy", ".npz"):
        return _load_binary(entry, path, kind)
    X, y = cached(path, lambda: _parse(entry, path, split))
    X = X.astype(kind, copy=False)
    return (X if entry.sparse else X.toarray()), y


def locate(entry: DatasetInfo, split: Split = "train", *, download: bool = True) -> Path:
    """Return the file that holds a split, fetching it if need be."""
    name = entry.file_of(split)
    path = find_file(name)
    if path is not None:
        return path
    address = entry.address_of(split)
    if address is None or not download:
        raise missing(name, address, download_folder())
    return fetch(address, download_folder(), sha256=entry.sha256 if split == "train" else None)


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


def _parse(entry: DatasetInfo, path: Path, split: Split) -> tuple[Matrix, Array]:
    X, y = read_libsvm(path, n_features=entry.p)
    wanted = entry.rows_of(split)
    if wanted is not None and X.shape[0] != wanted:
        raise DataFileError(
            f"{path.name}: the file ends at line {X.shape[0]}, but {entry.name} has {wanted} rows: it was "
            f"cut short, or it is another file of that name. Fetch it again."
        )
    return X, y


def _load_binary(entry: DatasetInfo, path: Path, dtype: np.dtype[Any]) -> tuple[Matrix, Array | None]:
    try:
        X = sp.load_npz(path).tocsr() if path.suffix == ".npz" else np.load(path, allow_pickle=False)
    except Exception as error:  # numpy and zipfile raise a dozen kinds for a damaged file
        raise DataFileError(f"{path.name}: the file is damaged ({error}). Make it again.") from error
    if X.ndim != 2 or X.shape[1] != entry.p:
        raise DataFileError(f"{path.name}: the shape is {X.shape}, but {entry.name} has {entry.p} columns.")
    y = None
    if entry.target is not None:
        place = find_file(entry.target)
        if place is None:
            raise missing(entry.target, None, path.parent)
        y = np.load(place, allow_pickle=False).astype(np.float64)
        if y.shape != (X.shape[0],):
            raise DataFileError(f"{place.name}: {y.shape} targets for {X.shape[0]} rows.")
    return X.astype(dtype, copy=False), y
