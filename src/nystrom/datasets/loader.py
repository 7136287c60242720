"""``load``: load a data set by name, from the data home, the cache of parsed files or the archive."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import stat
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import DTypeLike

from nystrom.disk import replacing
from nystrom.exceptions import DataFileError, MissingDependencyError, NystromError
from nystrom.rows.binary import load_sparse, read_npy_header
from nystrom.rows.libsvm import read_libsvm
from nystrom.rows.reading import Stamp, reading
from nystrom.rows.sparse import csr_rows
from nystrom.types import Array, Matrix, SparseMatrix

Split = Literal["train", "test"]


@dataclass(frozen=True)
class DatasetInfo:
    """The registry entry of a data set; ``registry.toml`` explains each field at its top."""

    name: str
    task: str
    p: int
    n: int | None = None
    n_test: int | None = None
    file: str | None = None
    test: str | None = None
    target: str | None = None
    folder: str | None = None
    sparse: bool = False
    sha256: str | None = None
    stand_in_for: str | None = None
    generator: str | None = None
    note: str = ""

    @property
    def stand_in(self) -> bool:
        """Whether this set replaces one that was not available."""
        return self.stand_in_for is not None

    def file_of(self, split: Split) -> str:
        """Return the archive's name of the file that holds ``split``."""
        if split not in ("train", "test"):
            raise ValueError(f"split must be 'train' or 'test'; got {split!r}.")
        name = self.file if split == "train" else self.test
        if name is None:
            raise ValueError(
                f"split={split!r} does not exist for the set {self.name!r}, which has a single part; "
                f"load it with split='train' and divide it with sklearn.model_selection.train_test_split."
            )
        return name

    def rows_of(self, split: Split) -> int | None:
        """Return the number of rows that ``split`` should have, if known."""
        return self.n if split == "train" else self.n_test

    def address_of(self, split: Split) -> str | None:
        """Return the address of ``split`` in the archive; None for sets that it does not hold."""
        return f"{archive()}/{self.folder}/{self.file_of(split)}" if self.folder else None


@cache
def _document() -> dict[str, object]:
    text = files("nystrom.datasets").joinpath("registry.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def archive() -> str:
    """Return the address of the LIBSVM archive."""
    return str(_document()["archive"])


@cache
def registry() -> dict[str, DatasetInfo]:
    """Return every known set by name, in the order of the file."""
    tables = {name: table for name, table in _document().items() if isinstance(table, dict)}
    return {name: DatasetInfo(name=name, **table) for name, table in tables.items()}


def info(name: str) -> DatasetInfo:
    """Return the registry entry of the set ``name``.

    Examples
    --------
    >>> from nystrom.datasets import info
    >>> info("mnist").p
    784
    >>> info("protein-mix").stand_in_for
    'protein'
    """
    known = registry()
    if name not in known:
        close = difflib.get_close_matches(str(name), known, n=3)
        hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ValueError(f"name must be one of {', '.join(known)}; got {name!r}.{hint}")
    return known[name]


def make_rings(n: int = 4000, *, random_state: int = 0) -> tuple[Array, Array]:
    """Return the two-class set of the paper's Figure 1: points on two noisy circles about the origin.

    No line separates the classes. The kernel ⟨x, y⟩² maps a point to (x₁², √2 x₁x₂, x₂²), three coordinates whose
    leading direction is the squared radius: the best map of rank 2 separates the circles by a line.

    The paper gives n = 4000 and the plane but not the formula, so the circles are ours: radii 1 and 2, 8 % noise.

    Examples
    --------
    >>> from nystrom.datasets import make_rings
    >>> X, y = make_rings(4000)
    >>> X.shape, sorted(set(y.tolist()))
    ((4000, 2), [0.0, 1.0])
    """
    rng = np.random.default_rng(random_state)
    y = (np.arange(n) % 2).astype(np.float64)
    angle = rng.uniform(0, 2 * np.pi, n)
    radius = np.where(y == 1, 2.0, 1.0) * (1 + 0.08 * rng.standard_normal(n))
    X = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return X, y


def _digits() -> tuple[Array, Array]:
    from sklearn.datasets import load_digits  # slow, and the command line imports this file on every call

    X, y = load_digits(return_X_y=True)
    return np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)


GENERATORS: dict[str, Callable[[], tuple[Array, Array]]] = {"rings": make_rings, "digits": _digits}


_SUFFIXES = ("", ".bz2", ".xz", ".gz")


def user_cache() -> Path:
    """Return the folder for files of this library in the user's cache."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "nystrom"


def data_homes() -> tuple[Path, ...]:
    """Return the folders searched for data files, first to last.

    The environment variable ``NYSTROM_DATA`` names one folder, or several separated as in ``PATH``; without
    it, the folder is ``nystrom`` in the user's cache.
    """
    value = os.environ.get("NYSTROM_DATA", "")
    named = tuple(Path(part).expanduser() for part in value.split(os.pathsep) if part)
    return named or (user_cache(),)


def find_file(name: str) -> Path | None:
    """Return the data file ``name``, with its own or another compression suffix, or None."""
    stem = name
    for suffix in _SUFFIXES[1:]:
        stem = stem.removesuffix(suffix)
    names = [name, *(stem + suffix for suffix in _SUFFIXES if stem + suffix != name)]
    for home in data_homes():
        for candidate in names:
            path = home / candidate
            if path.is_file():
                return path
    return None


def is_writable(folder: Path) -> bool:
    """Return whether files may be written to ``folder``.

    The write bits count even for the superuser, who could write anyway: a folder that its owner has marked as read-only
    is not written to.
    """
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False
    return bool(mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)) and os.access(folder, os.W_OK)


def download_folder() -> Path:
    """Return the first data home that is writable or could be created; nothing is created here."""
    for home in data_homes():
        parent = next((folder for folder in (home, *home.parents) if folder.exists()), home)
        if parent.is_dir() and is_writable(parent):
            return home
    return user_cache()


def parsed_path(source: Path) -> Path | None:
    """Return the path of the binary form of ``source``: in the user's cache, or in ``NYSTROM_CACHE``.

    The environment variable names a folder, or is ``off`` for no cache.
    """
    chosen = os.environ.get("NYSTROM_CACHE", "")
    if chosen.lower() in ("off", "0", "no", "false"):
        return None
    real = source.resolve()
    tag = hashlib.sha256(str(real).encode()).hexdigest()[:12]
    folder = Path(chosen).expanduser() if chosen else user_cache() / "parsed"
    return folder / f"{real.name}.{tag}.npz"


_LINE = re.compile(r"([0-9a-fA-F]{64})\s+\*?(.+)")


def pinned(name: str, registered: str | None, given: str | None) -> str | None:
    """Return the expected checksum of a file: the given one, else from ``NYSTROM_CHECKSUMS``, else from the registry.

    The environment variable names a file in the form of sha256sum: a checksum and a file's name per line.
    """
    if given is not None:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", given):
            raise ValueError(f"sha256 must be 64 hexadecimal digits; got {given!r}.")
        return given.lower()
    listed = os.environ.get("NYSTROM_CHECKSUMS")
    return (_checksums_in(Path(listed)).get(name) if listed else None) or registered


def record(path: Path) -> None:
    """Write the checksum of a new download to a file in the same folder."""
    with replacing(_checksum_file(path)) as temporary:
        temporary.write_text(f"{_digest(path)}  {path.name}\n")


def verify(path: Path, expected: str | None) -> None:
    """Raise unless the file has the expected or the recorded checksum; if there is neither, accept it."""
    recorded = _checksums_in(_checksum_file(path)).get(path.name) if _checksum_file(path).is_file() else None
    wanted = expected or recorded
    if wanted is None:
        return
    found = _digest(path)
    if found != wanted:
        source = "expected" if expected else f"recorded when it was downloaded ({_checksum_file(path).name})"
        raise DataFileError(
            f"{path}: its sha256 is {found}, not the {wanted} {source}. It was damaged or exchanged: remove it and "
            f"fetch it again."
        )


def _checksum_file(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _checksums_in(path: Path) -> dict[str, str]:
    lines = (_LINE.fullmatch(line.strip()) for line in path.read_text(encoding="utf-8").splitlines())
    return {Path(found[2]).name: found[1].lower() for found in lines if found}


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class DataUnavailableError(NystromError, FileNotFoundError):
    """A data file is neither in the data home nor reachable; the message says where to get and put it."""


def fetch(address: str, folder: Path, *, sha256: str | None, progress: bool | None = None) -> Path:
    """Download ``address`` into ``folder`` and return the file.

    The file appears under its name only when it is complete and, where ``sha256`` is known, correct.
    ``progress`` shows a bar (default: if standard error is a terminal and the package tqdm is installed).
    """
    try:
        import pooch
    except ImportError as error:
        raise MissingDependencyError("pooch", "io", "downloading data") from error
    name = address.rsplit("/", 1)[1]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        path = pooch.retrieve(
            url=address,
            known_hash=f"sha256:{sha256}" if sha256 else None,
            fname=name,
            path=folder,
            downloader=pooch.HTTPDownloader(progressbar=_can_show(progress), timeout=30),
        )
    except OSError as error:
        raise DataUnavailableError(_advice(name, address, folder, f"the download failed ({error})")) from error
    except ValueError as error:
        raise DataUnavailableError(_advice(name, address, folder, f"the download is damaged ({error})")) from error
    return Path(path)


def missing(name: str, address: str | None, folder: Path) -> DataUnavailableError:
    """Return the error for a missing file that may not or cannot be downloaded."""
    return DataUnavailableError(_advice(name, address, folder, "it is not in the data home"))


def _advice(name: str, address: str | None, folder: Path, reason: str) -> str:
    get = (
        f"Get it from {address}" if address else "It is not part of the LIBSVM archive: copy it from where it was made"
    )
    return (
        f"The data file {name!r} could not be obtained: {reason}. {get} and put it into {folder} "
        f"(or set the environment variable NYSTROM_DATA to the folder that holds it)."
    )


def _can_show(progress: bool | None) -> bool:
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return False
    try:
        import tqdm  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        return False
    return True


_VERSION = 2


def cached(source: Path, parse: Callable[[], tuple[SparseMatrix, Array]]) -> tuple[SparseMatrix, Array]:
    """Return the result of ``parse`` for ``source``, from the cache if the source has not changed since."""
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
    # Inode numbers may need 64 unsigned bits.
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
    """Cache the parsed data; failure to write the cache is not an error."""
    narrow = X.data.astype(np.float32)
    data = narrow if np.array_equal(narrow, X.data) else X.data
    shape = np.array(X.shape, dtype=np.int64)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as temporary, temporary.open("wb") as stream:
            np.savez(stream, stamp=stamp, shape=shape, data=data, indices=X.indices, indptr=X.indptr, y=y)
    except OSError:
        return


def load(
    name: str,
    *,
    split: Split = "train",
    dtype: DTypeLike = np.float64,
    download: bool = True,
    sha256: str | None = None,
) -> tuple[Matrix, Array | None]:
    """Load a data set of the LIBSVM archive, or a generated one, by name.

    Files are looked for in the data home (the environment variable ``NYSTROM_DATA``, one folder or several;
    by default ``nystrom`` in the user's cache) and downloaded there if they are missing. Text is parsed once: its
    binary form is kept in the user's cache (or the folder ``NYSTROM_CACHE``; ``NYSTROM_CACHE=off`` keeps none).
    The checksum of a download is recorded in the same folder as ``FILE.sha256``, and later reads must match it.

    Parameters
    ----------
    name : str
        One of :func:`list_datasets`.
    split : {"train", "test"}
        Which part.
    dtype : dtype
        float64 or float32.
    download : bool
        Whether a missing file may be downloaded; False raises at once.
    sha256 : str, optional
        The expected checksum of the file. The environment variable ``NYSTROM_CHECKSUMS`` names a file of checksums in
        the format of the program sha256sum.

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
    parsed, y = cached(path, lambda: _parse(entry, path, split))  # parsing checks the recorded checksum
    parsed = parsed.astype(kind, copy=False)
    return (parsed if entry.sparse else parsed.toarray()), y


def locate(entry: DatasetInfo, split: Split = "train", *, download: bool = True, sha256: str | None = None) -> Path:
    """Return the file that holds a split, downloaded if necessary; it has the pinned checksum, if any."""
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
    """Return the registry entries of all sets, in order.

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
