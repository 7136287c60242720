"""Input validation: everything a user passes as X becomes rows here, and nowhere else.

Shape, type and column names are checked on entry. The first pass, which reads the rows anyway, checks that every
number is finite.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike

from nystrom.devices import fetch, is_foreign_array
from nystrom.rows.base import ArrayRows, RowBlocks, TargetedArray, TargetedRows, array_rows
from nystrom.rows.binary import matrix_rows, memmap_file
from nystrom.rows.device import DeviceRows
from nystrom.rows.objects import holds_objects, object_rows
from nystrom.rows.reading import check_dtype, check_weights, require_unmasked
from nystrom.rows.sparse import canonical, require_room_for_columns
from nystrom.types import Array, Matrix, RowsLike, TargetLike, issparse

Reader = Callable[..., RowBlocks]

# Kinds of X whose rows an engine defines: how to recognise and how to read them. Engines register theirs,
# because rows/ does not import from engine/.
_READERS: list[tuple[Callable[[object], bool], Reader]] = []

# Numeric column types of pandas, polars and pyarrow, by the beginning of their names.
_NUMBER = re.compile(r"^(u?int\d|float|double|half|bool|sparse\[|decimal|null)", re.IGNORECASE)
_REGRESSION = "the target of a regression must be numbers. Convert it, or use a classifier."
_ENCODE = "Encode such columns with nystrom.preprocessing.TableEncoder, which takes text, dates and gaps, or drop them."
_OBJECTS = "A machine whose kernel is a function of two objects is fitted to text; all else takes a table of numbers."


def register_reader(recognises: Callable[[object], bool], read: Reader) -> None:
    """Have :func:`as_blocks` call ``read(X, name=...)`` for every X that ``recognises`` accepts."""
    _READERS.append((recognises, read))


def as_blocks(
    X: RowsLike,
    y: Array | None = None,
    *,
    weight: Array | None = None,
    block_rows: int | None = None,
    dtype: DTypeLike | None = None,
    name: str = "X",
    owner: object = None,
    objects: bool = False,
) -> RowBlocks:
    """Return ``X`` as :class:`RowBlocks`, with a target and weights if given.

    Parameters
    ----------
    X : RowBlocks, array, memmap, sparse matrix, data frame, table, tensor, list or Dask collection
        A memmap is read from its file, so that its pages do not count as memory of this process. Frames (pandas,
        polars, pyarrow, Dask) keep their column names as ``feature_names``.
    y, weight : array, optional
        One target and one weight per row.
    block_rows : int, optional
        Rows per block, for X in memory.
    dtype : float32, float64 or None
        The dtype of the blocks of X in memory; None keeps float32 and converts everything else to float64.
    name : str
        The name of X in error messages.
    owner : estimator, optional
        Named in error messages.
    objects : bool
        Whether X may be a sequence of anything: text, graphs, series of different lengths.

    Examples
    --------
    >>> as_blocks([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]).shape
    (3, 2)
    """
    if type(X) is np.ndarray and dtype is None and X.ndim == 2 and X.size and X.dtype.kind in "fiub":
        rows: RowBlocks = ArrayRows(X, block_rows=block_rows, name=name)
    elif objects and holds_objects(X):
        rows = object_rows(X, block_rows=block_rows, name=name)
    else:
        rows = _rows_of(X, block_rows, dtype, name, owner)
    if rows.is_sparse and not rows.on_cluster:
        require_room_for_columns(rows.shape[1], rows.name)
    return rows if y is None and weight is None else rows.with_target(y, weight)


def _rows_of(X: Any, block_rows: int | None, dtype: DTypeLike | None, name: str, owner: object) -> RowBlocks:
    if isinstance(X, RowBlocks):
        return X
    if isinstance(X, (str, bytes, os.PathLike)):
        path = os.fsdecode(X)
        raise ValueError(
            f"{name} is a path, {path!r}, not rows: open it first, with nystrom.open_rows({path!r}). If a column is "
            f"no feature, name it there with target=, or the features with columns=."
        )
    if is_foreign_array(X):
        return DeviceRows(X, block_rows=block_rows, name=name)
    for recognises, read in _READERS:
        if recognises(X):
            return read(X, name=name)
    if isinstance(X, np.memmap) and X.ndim == 2 and X.size > 0 and X.dtype.kind in "fiub":
        file = memmap_file(X)
        if file is not None:
            return matrix_rows(file, str(file.path), columns=None, target=None, dtype=dtype, block_rows=block_rows)
    if _is_lazy_frame(X):
        X = X.collect()
    names = column_names(X)
    matrix = _numbers(X, name, owner)
    kind = check_dtype(matrix.dtype, dtype, name)
    if dtype is not None and kind != matrix.dtype:
        matrix = matrix.astype(kind)
    rows = array_rows(matrix, block_rows=block_rows, name=name)
    rows.feature_names, rows.frame = names, None if names is None else X
    return rows.with_target(X.target) if isinstance(X, TargetedArray) and X.target is not None else rows


def is_matrix(X: object) -> bool:
    """Return whether X is a complete set of rows: not a path, and not an iterable of blocks."""
    return isinstance(X, RowBlocks) or issparse(X) or hasattr(X, "__array__") or _is_lazy_frame(X)


def _is_lazy_frame(X: object) -> bool:
    # polars.LazyFrame
    return hasattr(X, "collect") and hasattr(X, "collect_schema")


def column_names(X: Any) -> tuple[str, ...] | None:
    """Return the names of a frame's columns, or None if X has none or they are not text.

    Raises
    ------
    TypeError
        If some names are text and others are not, as in scikit-learn.
    ValueError
        If two columns have the same name.
    """
    columns = getattr(X, "column_names", None)
    if columns is None:
        columns = getattr(X, "columns", None)
    if columns is None or callable(columns) or not isinstance(columns, Iterable):
        return None
    names = tuple(columns)
    text = sum(isinstance(column, str) for column in names)
    if 0 < text < len(names):
        kinds = sorted({type(column).__qualname__ for column in names})
        raise TypeError(
            f"Feature names are only supported if all input features have string names, but your input has {kinds} as "
            f"feature name / column name types. Convert them with X.columns = X.columns.astype(str), for example."
        )
    twice = _repeated(names) if text else None
    if twice is not None:
        raise ValueError(f"two columns have the name {twice!r}; names must differ, so that columns can be told apart.")
    return names if text else None


def _repeated(names: tuple[str, ...]) -> str | None:
    return None if len(set(names)) == len(names) else Counter(names).most_common(1)[0][0]


def _numbers(X: Any, name: str, owner: object) -> Matrix:
    """Return X as a dense array or a CSR matrix of numbers with at least one row and one column."""
    require_unmasked(X, name)
    if isinstance(X, np.ndarray) and not isinstance(X, np.matrix):
        X = np.asarray(X)
    ready = issparse(X) or type(X) is np.ndarray
    if ready and X.ndim == 2 and min(X.shape) > 0 and X.dtype.kind in "fiub":
        return X
    if issparse(X):
        X = canonical(X, name)
    # Imported on use: importing scikit-learn takes most of a second, and numeric arrays do not need it.
    from sklearn.utils.validation import check_array

    frame = hasattr(X, "columns") or hasattr(X, "column_names")
    if frame:
        require_number_columns(X, name)
    if not (issparse(X) or isinstance(X, np.ndarray) or (frame and hasattr(X, "iloc"))):
        X = np.asarray(X)
    if isinstance(X, np.ndarray):
        _require_number_dtype(X, name)
    try:
        return check_array(
            X,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            input_name=name,
            estimator=owner,
        )
    except TypeError as error:
        if isinstance(X, np.ndarray) and X.dtype.kind == "O":
            raise TypeError(f"{name} holds objects that are not numbers: {error}. {_ENCODE}") from error
        raise


def require_number_columns(X: Any, name: str, *, objects: bool = True) -> None:
    """Raise ``ValueError`` naming the first column of a frame that does not hold numbers.

    With ``objects``, columns of Python objects pass if all their values are numbers.
    """
    types = getattr(getattr(X, "schema", None), "types", None)
    kinds = list(types if types is not None else X.dtypes)
    labels = list(X.column_names if hasattr(X, "column_names") else X.columns)
    for j, (label, kind) in enumerate(zip(labels, kinds, strict=True)):
        said = str(kind)
        if _NUMBER.match(said):
            continue
        if objects and said in ("object", "category") and hasattr(X, "iloc") and _are_numbers(X.iloc[:, j]):
            continue
        raise ValueError(f"column {label!r} of {name} holds {said}, which are not numbers. {_ENCODE}")


def _are_numbers(column: Any) -> bool:
    values = np.asarray(column, dtype=object)
    if any(isinstance(value, (str, bytes)) for value in values):
        return False
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _require_number_dtype(X: Array, name: str) -> None:
    advice = _OBJECTS if X.ndim == 1 else _ENCODE
    if X.dtype.kind in "MmSUV":
        kind = {"M": "dates", "m": "time spans", "V": "records"}.get(X.dtype.kind, "text")
        raise ValueError(f"{name} holds {kind} (dtype {X.dtype}), which are not numbers. {advice}")
    if X.dtype.kind == "O":
        text = next((value for value in X.flat if isinstance(value, (str, bytes))), None)
        if text is not None:
            raise ValueError(f"{name} holds text, such as {text!r}, which is not a number. {advice}")


@dataclass(frozen=True)
class Checked:
    """Rows with a target and weights, checked.

    Attributes
    ----------
    rows : RowBlocks
    y, weight : array or None
        As given; None if the rows hold their own, or if there are none. A Dask array stays one if the rows are on the
        same cluster.
    """

    rows: RowBlocks
    y: Array | None = None
    weight: Array | None = None

    @property
    def joined(self) -> RowBlocks:
        """The rows with the given target and weights."""
        return self.rows.with_target(self.y, self.weight)


def check_target(
    rows: RowBlocks,
    y: TargetLike = None,
    sample_weight: TargetLike = None,
    *,
    numeric: bool,
    multi_output: bool = True,
    owner: object = None,
) -> Checked:
    """Return the rows with target and weights, all checked, whether given separately or held by the rows.

    Parameters
    ----------
    rows : RowBlocks
    y, sample_weight : array, series or Dask collection, optional
        One entry per row; None if the rows hold them.
    numeric : bool
        Whether the target must be numeric, as for a regression.
    multi_output : bool
        Whether it may have several columns.
    owner : estimator, optional
        Named in error messages.

    Raises
    ------
    ValueError
        There is no target; it holds text where numbers are needed, missing or masked entries, or its length differs
        from the number of rows. Weights are not finite, negative, all 0, or given twice.
    """
    y, sample_weight = (fetch(each) if is_foreign_array(each) else each for each in (y, sample_weight))
    if y is None:
        if not rows.has_target:
            raise ValueError(
                f"{type(owner).__name__} requires y to be passed, but the target y is None: give y, or rows that hold "
                f"their target."
            )
        if isinstance(rows, TargetedRows) and isinstance(rows.y, np.ndarray):
            _check_y(rows.y, rows, numeric, multi_output, owner)
        held = rows.target_dtype()
        if numeric and held is not None and held.kind not in "fiubO":
            raise ValueError(f"the target inside {rows.name} holds text ({held}), which are not numbers; {_REGRESSION}")
        if numeric and held is not None and held.kind == "O" and not rows.on_cluster:
            require_numbers(next(iter(rows.iterate())).y, f"the target inside {rows.name}", _REGRESSION)
    elif not (is_dask(y) and numeric and rows.on_cluster):  # else it stays on the cluster with the rows
        y = _check_y(y, rows, numeric, multi_output, owner)
    if isinstance(rows, TargetedRows) and isinstance(rows.weight, np.ndarray):
        check_weights(rows.weight, f"the weights of {rows.name}")
    weight = None if sample_weight is None else check_weight(sample_weight, rows)
    return Checked(rows, cast("Array | None", y), weight)


def _check_y(y: Any, rows: RowBlocks, numeric: bool, multi_output: bool, owner: object) -> Array:
    from sklearn.utils.validation import _check_y as check_y

    check_kind(y)
    if numeric:
        require_numbers(y, "y", _REGRESSION)
    y = np.asarray(check_y(y, multi_output=multi_output, y_numeric=numeric, estimator=owner))
    if len(y) != rows.shape[0]:
        raise ValueError(f"y has {len(y)} entries, but X has {rows.shape[0]} rows; there must be one per row.")
    return y


def check_weight(sample_weight: Any, rows: RowBlocks) -> Array:
    """Return weights that are given separately: one per row, finite, not negative, not all 0."""
    if rows.has_weight:
        raise ValueError(f"sample_weight is given, but {rows.name} holds weights of its own; leave one of them out.")
    from sklearn.utils.validation import _check_sample_weight

    require_unmasked(sample_weight, "sample_weight")
    require_numbers(sample_weight, "sample_weight", "weights must be numbers. Convert them.")
    n = rows.shape[0]
    weight = _check_sample_weight(sample_weight, np.empty((n, 1)), dtype=np.float64, ensure_non_negative=True)
    if not weight.sum() > 0:
        raise ValueError("sample_weight must have at least one positive entry; got only zeros.")
    check_weights(weight, "sample_weight")
    return np.asarray(weight)


def is_dask(values: object) -> bool:
    """Return whether values are a Dask collection."""
    return callable(getattr(values, "__dask_graph__", None))


def require_numbers(values: Any, name: str, advice: str) -> None:
    """Raise for text, dates and bytes; scikit-learn would silently convert those that look like numbers."""
    if is_dask(values) or is_foreign_array(values):
        return
    found = np.asarray(values)
    bad: Any = None
    if found.dtype.kind == "O":
        words = (str, bytes, np.datetime64, np.timedelta64)
        bad = next((value for value in found.flat if isinstance(value, words)), None)
    elif found.dtype.kind not in "fiubc" and found.size:
        bad = found.flat[0]
    if bad is not None:
        raise ValueError(f"{name} holds {found.dtype}, such as {bad!r}, which are not numbers; {advice}")


def check_kind(y: Any) -> None:
    """Raise for a target that scikit-learn's check does not cover: not an array, sparse, or with missing values."""
    if issparse(y):
        raise ValueError("y is a sparse matrix; give it as an array, with y.toarray().")
    if is_dask(y) or is_foreign_array(y):
        return
    require_unmasked(y, "y")
    found = np.asarray(y)
    if found.ndim == 0:
        column = f" The name of a column needs the path of a file as X; of a table, give table[{y!r}]."
        advice = column if isinstance(y, str) else ""
        raise ValueError(f"y must be an array with one entry per row; got {type(y).__name__}.{advice}")
    if callable(getattr(y, "isna", None)):
        gaps = np.asarray(y.isna())
    elif found.dtype.kind == "O":
        gaps = np.array([value is None for value in found.flat], dtype=bool).reshape(found.shape)
    else:
        return
    if np.any(gaps):
        row = int(np.argmax(gaps.reshape(len(found), -1).any(axis=1)))
        what = "NaN" if callable(getattr(y, "isna", None)) else "None"
        raise ValueError(f"Input y contains {what} (first in row {row}): drop the rows without a target.")
