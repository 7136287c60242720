"""``open_rows``: blocks of rows from a path, or from any other source of rows."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nystrom.checks import check_flag, check_optional_count, is_whole
from nystrom.disk import sweep
from nystrom.exceptions import DataFileError
from nystrom.rows.arrow import ArrowRows, open_table_files
from nystrom.rows.base import RowBlocks
from nystrom.rows.binary import open_npy, open_npz, read_npy_header
from nystrom.rows.binary import spool as spool_rows
from nystrom.rows.hdf5 import open_hdf5, read_hdf5_vector
from nystrom.rows.libsvm import LibsvmRows, open_text
from nystrom.rows.reading import require_file, require_unmasked
from nystrom.rows.stream import StreamRows, iterable_rows
from nystrom.rows.validation import as_blocks, is_matrix
from nystrom.rows.zarr import is_store, open_zarr, read_zarr_vector
from nystrom.types import Array

_FORMATS = {
    ".npy": "npy",
    ".npz": "npz",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".zarr": "zarr",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
}
_TABLES = ("parquet", "feather", "csv")
# Common files that are not supported, and what to use instead.
_NOT_READ = {
    **dict.fromkeys((".json", ".jsonl", ".xlsx", ".xls", ".ods", ".db", ".sqlite"), "CSV or Parquet"),
    **dict.fromkeys((".zip", ".zst", ".7z", ".tar"), "a plain file, or compressed as .csv.gz"),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), "Parquet or .npy (a pickle can run any code when it is opened)"),
}
_COMPRESSED = (".gz", ".bz2", ".xz")
_LIBSVM_LINE = re.compile(rb"^\s*[-+.\deE]+(\s+(qid:)?\d+:[-+.\deE]+)*\s*(#.*)?$")


def open_rows(
    source: object,
    *,
    target: Any = None,
    columns: Sequence[Any] | None = None,
    n_features: int | None = None,
    block_rows: int | None = None,
    dtype: DTypeLike | None = None,
    spool: bool | str | os.PathLike[str] = False,
    format: str | None = None,
    fill_missing: bool = False,
) -> RowBlocks:
    """Open rows that need not fit in memory; every estimator takes the result where it takes X.

    Parameters
    ----------
    source : path, array, sparse matrix, memmap, callable, iterable or object with ``shape`` and ``iterate``
        A file: ``.npy``, ``.npz`` of :func:`scipy.sparse.save_npz`, LIBSVM text (``.gz``, ``.bz2``, ``.xz`` too),
        CSV with a header (``.gz``, ``.bz2``, ``.xz`` too), Parquet, Feather, ``file.h5::dataset``, ``store.zarr`` or
        ``store.zarr::array``. A folder of CSV, Parquet or Feather files, read in the order of their names. Or blocks:
        a function that returns a new iterator for every pass, or an object that can be iterated again; a block is X,
        (X, y) or (X, y, weight).
    target : column name or number, path, array, or False
        Where the target is: a column of the file, a second file (``.npy``, ``file.h5::y``, ``y.zarr``), or an array.
        The label of LIBSVM text is its target unless this is False.
    columns : list of names or numbers, optional
        The features; all columns but the target by default.
    n_features : int, optional
        Columns of LIBSVM text; the largest index found by default.
    block_rows : int, optional
        Rows per block. The default depends on the size of a row alone, so results have the same bits from memory, from
        any file and for any ``max_memory``.
    dtype : float32, float64 or None
        Of the blocks; by default float32 for float32 data and float64 for the rest.
    spool : bool or folder
        Decode a text or compressed source once, into a temporary binary file that is removed with the rows.
    format : str, optional
        "npy", "npz", "csv", "parquet", "feather", "hdf5", "zarr" or "libsvm", if the file name does not show it.
    fill_missing : bool
        Read parts of a Zarr array or an HDF5 dataset that have no chunk as its fill value. By default they are an
        error, because a lost chunk cannot be distinguished from an omitted one.

    Returns
    -------
    RowBlocks

    Notes
    -----
    Opening text costs a pass that counts its rows (and writes them, with ``spool``); opening other files reads only
    their header.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from nystrom import open_rows
    >>> path = os.path.join(tempfile.mkdtemp(), "rows.npy")
    >>> np.save(path, np.arange(12.0).reshape(4, 3))
    >>> rows = open_rows(path, target=2)
    >>> rows.shape, rows.target()
    ((4, 2), array([ 2.,  5.,  8., 11.]))
    """
    sweep()
    if format is not None and (not isinstance(format, str) or format not in _FORMATS.values()):
        raise ValueError(f"format must be one of {sorted(set(_FORMATS.values()))} or None; got {format!r}.")
    check_optional_count(n_features, "n_features")
    check_optional_count(block_rows, "block_rows")
    check_flag(fill_missing, "fill_missing")
    _check_choice(target, columns, dtype, spool)
    choice = {"columns": columns, "target": target, "dtype": dtype, "block_rows": block_rows}
    if isinstance(source, (str, os.PathLike)):
        rows = _open_path(os.fspath(source), format, n_features, spool, fill_missing, choice)
        return rows if not _is_separate(target) else rows.with_target(_read_target(target, rows))
    if columns is not None or (target is not None and not _is_separate(target)):
        raise ValueError("columns= and target=<a column> choose among the columns of a file; select them in the array.")
    rows = _open_object(source, dtype, block_rows)
    return rows if target is None else rows.with_target(_read_target(target, rows))


def _check_choice(target: Any, columns: Any, dtype: Any, spool: Any) -> None:
    """Raise for values that cannot name a column, a folder or a dtype of any file."""
    if columns is not None and (isinstance(columns, (str, bytes)) or np.ndim(columns) != 1):
        raise ValueError(f"columns must be a list of names or numbers; got {columns!r}.")
    named = target is None or target is False or is_whole(target) or isinstance(target, (str, os.PathLike))
    if not named and (not np.iterable(target) or isinstance(target, (bytes, dict, set))):
        raise ValueError(f"target must be a column's name or number, a path, an array, or False; got {target!r}.")
    if not isinstance(spool, (bool, str, os.PathLike)):
        raise ValueError(f"spool must be True, False or a folder; got {spool!r}.")
    if dtype is not None:
        try:
            np.dtype(dtype)
        except TypeError:
            raise ValueError(f"dtype must be float32, float64 or None; got {dtype!r}.") from None


def _open_object(source: object, dtype: DTypeLike | None, block_rows: int | None) -> RowBlocks:
    if is_matrix(source):
        return as_blocks(source, block_rows=block_rows, dtype=dtype)
    if callable(source) or hasattr(source, "__iter__") or hasattr(source, "iterate"):
        return iterable_rows(source, dtype=dtype, block_rows=block_rows)
    raise TypeError(
        f"open_rows takes a path, an array, a sparse matrix, a function that returns an iterator of blocks, or an "
        f"object with shape and iterate; got {type(source).__name__}."
    )


def _open_path(
    text: str, format: str | None, n_features: int | None, spool: Any, fill_missing: bool, choice: dict[str, Any]
) -> RowBlocks:
    name, _, inside = text.partition("::")
    path = require_file(Path(name))
    kind = format or _format_of(path)
    columns, block_rows = choice["columns"], choice["block_rows"]
    inner = {**choice, "target": None if _is_separate(choice["target"]) else choice["target"]}
    rows: RowBlocks
    if kind in ("libsvm", "npz"):
        if kind == "libsvm":
            label = choice["target"] is None
            rows = LibsvmRows(path, n_features=n_features, dtype=choice["dtype"], label=label)
        else:
            rows = open_npz(path, dtype=choice["dtype"], block_rows=block_rows)
        if columns is not None or (inner["target"] is not None and inner["target"] is not False):
            raise ValueError(f"{path} is sparse: columns= and a target column are not read from it.")
    elif kind in _TABLES:
        rows = _open_table(path, kind, inner)
    elif kind == "npy":
        rows = open_npy(path, **inner)
    else:
        rows = (open_hdf5 if kind == "hdf5" else open_zarr)(path, inside, fill_missing=fill_missing, **inner)
    if spool and isinstance(rows, StreamRows):
        folder = None if spool is True else Path(spool)
        return spool_rows(rows, folder=folder, n_features=n_features, block_rows=block_rows)
    if isinstance(rows, LibsvmRows):
        rows.measure(n_features, block_rows)
    elif isinstance(rows, ArrowRows):
        rows.count_rows(block_rows)
    return rows


def _open_table(path: Path, kind: str, choice: dict[str, Any]) -> ArrowRows:
    table = open_table_files(path, kind=kind)
    return ArrowRows(table, columns=choice["columns"], target=choice["target"], dtype=choice["dtype"])


def _suffix_format(path: Path) -> str | None:
    bare = path.with_suffix("") if path.suffix in _COMPRESSED else path
    return _FORMATS.get(bare.suffix.lower())


def _format_of(path: Path) -> str:
    kind = _suffix_format(path)
    if kind is not None and (kind not in _TABLES or path.is_file()):
        return kind
    if path.is_dir():
        if is_store(path):
            return "zarr"
        kinds = {_suffix_format(file) for file in path.iterdir() if file.is_file()} & set(_TABLES)
        if len(kinds) == 1:
            return str(kinds.pop())
        raise ValueError(
            f"the folder {path} must hold files of one kind, .parquet, .feather or .csv; found {kinds or 'none'}."
        )
    if _looks_like_libsvm(path):
        return "libsvm"
    if path.suffix.lower() in _NOT_READ:
        raise ValueError(f"{path}: {path.suffix} files are not read; save it as {_NOT_READ[path.suffix.lower()]}.")
    raise ValueError(
        f"the kind of file of {path} is unknown: its name ends in none of {', '.join(_FORMATS)}, and its first line is "
        f"not LIBSVM text. Rename it, or tell open_rows with format='csv' or another of "
        f"{sorted(set(_FORMATS.values()))}; in the shell give a table as standard input, with - for its name."
    )


def _looks_like_libsvm(path: Path) -> bool:
    try:
        with open_text(path) as stream:
            head = stream.read(2**16)
    except (OSError, EOFError, ValueError):
        return False
    line = head.split(b"\n", 1)[0]
    if len(line) == len(head) and b" " in line:
        line = line.rpartition(b" ")[0]  # a longer line: its last word may be cut
    return bool(_LIBSVM_LINE.match(line))


def _is_separate(target: object) -> bool:
    """Return whether a target is not a column: an array, or the path of a second file."""
    if target is None or isinstance(target, (bool, int, np.integer)):
        return False
    if isinstance(target, str):
        bare = target.partition("::")[0]
        return "::" in target or _suffix_format(Path(bare)) is not None
    return True


def _read_target(target: Any, rows: RowBlocks) -> Array:
    """Return a target that is not a column, checked to be as long as the rows."""
    y: Any
    if isinstance(target, (str, os.PathLike)):
        name, _, inside = os.fspath(target).partition("::")
        path = require_file(Path(name))
        kind = _format_of(path)
        if kind == "npy":
            y = read_npy_header(path)
        elif kind == "hdf5":
            y = read_hdf5_vector(path, inside)
        elif kind == "zarr":
            y = read_zarr_vector(path, inside)
        else:
            raise ValueError(f"target={target!r}: a target in a second file must be .npy, .h5::dataset or .zarr.")
    else:
        require_unmasked(target, "target")
        y = np.asarray(target)
    if len(y) != rows.shape[0]:
        where = target if isinstance(target, (str, os.PathLike)) else "target"
        missing = "no target" if len(y) < rows.shape[0] else "no features"
        raise DataFileError(
            f"{where} has {len(y)} values for the {rows.shape[0]} rows of {rows.name}: from row "
            f"{min(len(y), rows.shape[0])} on there is {missing}."
        )
    return y


__all__ = ["open_rows"]
