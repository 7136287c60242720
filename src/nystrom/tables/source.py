"""Anything with named columns, as a table of Arrow record batches that can be read repeatedly."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from nystrom.rows.arrow import BATCH_ROWS, MISSING, Batch, Table, import_arrow, open_table_files, table_kind
from nystrom.rows.reading import require_file


def is_path(source: object) -> TypeGuard[str | os.PathLike[str]]:
    """Return whether a source is a file name."""
    return isinstance(source, (str, os.PathLike))


def is_table_file(source: str | os.PathLike[str]) -> bool:
    """Return whether a path names a table: CSV, Parquet, Feather, or a folder of one of them."""
    path = Path(source)
    return table_kind(path) is not None or (path.is_dir() and any(table_kind(file) for file in path.iterdir()))


def open_table(source: object, *, missing: Sequence[str] = MISSING, decimal: str | None = None) -> Table:
    """Return a path, a data frame, an Arrow table, a dict of columns or an array as a table.

    ``missing`` are the words that mean a gap in a CSV file, and ``decimal`` is its decimal sign.
    """
    if is_path(source):
        return open_table_files(require_file(Path(source)), missing=missing, decimal=decimal)
    if isinstance(source, Table):
        return source
    data = _as_arrow(source)
    repeated = sorted({name for name in data.column_names if data.column_names.count(name) > 1})
    if repeated:
        raise ValueError(f"the table has two columns of the name {repeated[0]!r}; names must differ.")

    def read(path: None, columns: list[str], numbers: Collection[str]) -> Iterator[Batch]:
        return iter(data.select(columns).to_batches(max_chunksize=BATCH_ROWS))

    return Table("X", list(data.column_names), typed=True, read=read, count=data.num_rows)


def _as_arrow(source: object) -> Any:
    arrow = import_arrow()
    if isinstance(source, arrow.Table):
        return source
    if isinstance(source, arrow.RecordBatch):
        return arrow.Table.from_batches([source])
    kind = type(source).__module__.partition(".")[0]
    if kind == "polars":
        frame = source.collect() if hasattr(source, "collect") else source
        return arrow.table(frame)
    if kind == "pandas" and hasattr(source, "columns"):
        return _from_pandas(source)
    if kind == "dask" and hasattr(source, "compute"):
        return _as_arrow(source.compute())
    if hasattr(source, "__arrow_c_stream__"):
        return arrow.table(source)
    if isinstance(source, dict):
        return arrow.table({str(name): _column(values, str(name)) for name, values in source.items()})
    array = np.asarray(source)
    if array.ndim != 2:
        raise ValueError(
            f"a table must be a path, a data frame, an Arrow table, a dict of columns or a two-dimensional array; got "
            f"{type(source).__name__} of shape {array.shape}. Reshape your data to two dimensions."
        )
    return arrow.table({f"x{j}": _column(array[:, j], f"x{j}") for j in range(array.shape[1])})


def _from_pandas(frame: Any) -> Any:
    arrow = import_arrow()
    columns = {}
    for position, name in enumerate(frame.columns):
        if str(name) in columns:
            raise ValueError(f"the table has two columns of the name {str(name)!r}; names must differ.")
        columns[str(name)] = _column(frame.iloc[:, position], str(name))
    return arrow.table(columns)


def _column(values: Any, name: str) -> Any:
    """Return one column; objects of mixed types become text."""
    arrow = import_arrow()
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise ValueError(f"column {name!r} must be a list or array with one value per row; got {values!r}.")
    try:
        return arrow.chunked_array([arrow.array(values, from_pandas=True)])
    except (arrow.ArrowException, TypeError, ValueError):
        texts = [None if value is None or value != value else str(value) for value in values]
        return arrow.chunked_array([arrow.array(texts, arrow.string())])
