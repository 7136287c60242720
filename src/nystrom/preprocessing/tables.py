"""Anything with named columns, as a source of Arrow record batches that can be read again and again."""

from __future__ import annotations

import lzma
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from nystrom.exceptions import DataFileError
from nystrom.preprocessing.dialect import OPENERS, read_dialect
from nystrom.preprocessing.parse import DECIMAL
from nystrom.rows.arrow import Batch, import_arrow, open_compressed
from nystrom.rows.stamp import Stamp, require_file

MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "null", "NULL", "None", "?")
_BATCH_ROWS = 8192
# Text of a CSV file that is decoded at a time; a block holds several lines. pyarrow holds about forty times as much,
# and (measured with 785 columns) 70 kB per column and six times what a larger block has more.
_CSV_BLOCK_BYTES = 2**18
_COLUMN_BYTES = 70_000
_LINES_A_BLOCK = 16
# Each column of a block costs about 60 µs, however few lines it has: long lines come in larger blocks, up to a limit.
_LINES_WORTH_IT = 600
_WIDE_BLOCK_BYTES = 2**20
_BUFFER_BYTES = 2**20
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
}


@dataclass(frozen=True)
class Table:
    """A source of named columns.

    Attributes
    ----------
    name : str
        For messages.
    names : list of str
        The columns.
    typed : bool
        Whether the columns say what they hold; those of a CSV file are text until they are understood.
    read : callable
        From column names to an iterator over record batches; each call starts from the first row.
    stamp : Stamp or None
        The files and how they were when they were opened.
    count : int or None
        The number of rows, where it is known without a pass.
    held_bytes : int
        What reading holds in memory.
    """

    name: str
    names: list[str]
    typed: bool
    read: Callable[[Sequence[str]], Iterator[Batch]]
    stamp: Stamp | None = None
    count: int | None = None
    held_bytes: int = 0

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """Yield record batches of these columns, in order; a damaged file raises :class:`DataFileError`."""
        row = 0
        try:
            for batch in self.read(columns):
                yield batch
                row += batch.num_rows
        except (import_arrow().ArrowException, EOFError, UnicodeError, lzma.LZMAError) as error:
            raise DataFileError(f"{self.name}, in the rows from {row} on: {_short(error)}") from error
        except OSError as error:
            if error.errno is not None:
                raise
            raise DataFileError(f"{self.name}, in the rows from {row} on: {_short(error)}") from error


def is_path(source: object) -> TypeGuard[str | os.PathLike[str]]:
    """Return whether a source is the name of a file."""
    return isinstance(source, (str, os.PathLike))


def is_table_file(source: str | os.PathLike[str]) -> bool:
    """Return whether a path names a table: CSV, Parquet, Feather, or a folder of one of them."""
    path = Path(source)
    return _kind(path) is not None or (path.is_dir() and any(_kind(file) for file in path.iterdir()))


def _kind(path: Path) -> str | None:
    bare = path.with_suffix("") if path.suffix in OPENERS else path
    return _SUFFIXES.get(bare.suffix.lower())


def open_table(source: object, *, missing: Sequence[str] = MISSING, decimal: str | None = None) -> Table:
    """Return the table that a path, a data frame, an Arrow table, a dict of columns or an array stands for.

    ``missing`` and ``decimal`` are the words that mean a gap, and the sign before decimals, in a CSV file; without
    ``decimal`` it is the comma where semicolons stand between the values, else the point.
    """
    if is_path(source):
        return _open_files(require_file(Path(source)), tuple(missing), decimal)
    if isinstance(source, Table):
        return source
    data = _as_arrow(source)
    repeated = sorted({name for name in data.column_names if data.column_names.count(name) > 1})
    if repeated:
        raise ValueError(f"the table has two columns of the name {repeated[0]!r}; names must differ.")

    def read(columns: Sequence[str]) -> Iterator[Batch]:
        return iter(data.select(list(columns)).to_batches(max_chunksize=_BATCH_ROWS))

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
    try:
        return arrow.chunked_array([arrow.array(values, from_pandas=True)])
    except (arrow.ArrowException, TypeError, ValueError):
        texts = [None if value is None or value != value else str(value) for value in values]
        return arrow.chunked_array([arrow.array(texts, arrow.string())])


def _open_files(path: Path, missing: tuple[str, ...], decimal: str | None) -> Table:
    paths = [path]
    if path.is_dir():
        paths = sorted(file for file in path.iterdir() if file.is_file() and _kind(file) is not None)
        if len({_kind(file) for file in paths}) != 1:
            raise ValueError(f"the folder {path} must hold files of one kind: .csv, .parquet or .feather.")
    kind = _kind(paths[0])
    if kind is None:
        raise ValueError(
            f"{path} is no table: its name must end in one of {', '.join(_SUFFIXES)} (after .csv also .gz, .bz2, .xz)."
        )
    if kind == "csv":
        return _open_csv(paths, str(path), missing, decimal)
    return (_open_parquet if kind == "parquet" else _open_feather)(paths, str(path))


def _open_parquet(paths: list[Path], name: str) -> Table:
    parquet, arrow = import_arrow("parquet"), import_arrow()

    def open_file(path: Path) -> Any:
        try:
            return parquet.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        except (arrow.ArrowException, OSError) as error:
            raise DataFileError(f"{path}: not a Parquet file, or a damaged one ({_short(error)}).") from error

    def read(columns: Sequence[str]) -> Iterator[Batch]:
        for path in paths:
            with open_file(path) as file:
                _require(path, columns, file.schema_arrow.names)
                for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=list(columns)):
                    yield batch.select(list(columns))

    names = list(open_file(paths[0]).schema_arrow.names)
    count = sum(open_file(path).metadata.num_rows for path in paths)
    held = len(names) * (_BUFFER_BYTES + 3 * 16 * _BATCH_ROWS)
    return Table(name, names, typed=True, read=read, stamp=Stamp.of(paths), count=count, held_bytes=held)


def _open_feather(paths: list[Path], name: str) -> Table:
    arrow, ipc = import_arrow(), import_arrow("ipc")

    def open_file(path: Path) -> Any:
        try:
            return ipc.open_file(arrow.OSFile(str(path)))
        except arrow.ArrowException as error:
            raise DataFileError(f"{path}: not a Feather file, or a damaged one ({_short(error)}).") from error

    def read(columns: Sequence[str]) -> Iterator[Batch]:
        for path in paths:
            reader = open_file(path)
            _require(path, columns, reader.schema.names)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number).select(list(columns))

    names = list(open_file(paths[0]).schema.names)
    held = len(names) * 3 * 16 * _BATCH_ROWS
    return Table(name, names, typed=True, read=read, stamp=Stamp.of(paths), held_bytes=held)


def _open_csv(paths: list[Path], name: str, missing: tuple[str, ...], decimal: str | None) -> Table:
    arrow, reader = import_arrow(), import_arrow("csv")
    dialect = read_dialect(paths[0])
    names = dialect.names
    repeated = sorted({column for column in names if names.count(column) > 1})
    if repeated:
        header = "" if repeated[0].strip() else " Is its first line a header with the names of the columns?"
        raise DataFileError(f"{paths[0]}: two columns have the name {repeated[0]!r}; rename one of them.{header}")
    wide = min(_LINES_WORTH_IT * dialect.line_bytes, _WIDE_BLOCK_BYTES)
    block_bytes = max(_CSV_BLOCK_BYTES, wide, _LINES_A_BLOCK * dialect.line_bytes)
    about = {DECIMAL: decimal or dialect.decimal}
    options = reader.ReadOptions(block_size=block_bytes, use_threads=False, encoding=dialect.encoding)
    parse = reader.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True)

    def read(columns: Sequence[str]) -> Iterator[Batch]:
        convert = reader.ConvertOptions(
            column_types={column: arrow.string() for column in names},
            include_columns=list(columns),
            null_values=list(missing),
            strings_can_be_null=True,
        )
        for path in paths:
            if read_dialect(path).names != names:
                raise DataFileError(f"{path}: its header is not that of {paths[0].name}.")
            with open_compressed(path) as source:
                batches = reader.open_csv(source, read_options=options, parse_options=parse, convert_options=convert)
                for batch in batches:
                    yield batch.replace_schema_metadata(about)

    held = 40 * _CSV_BLOCK_BYTES + _COLUMN_BYTES * len(names) + 6 * (block_bytes - _CSV_BLOCK_BYTES)
    return Table(name, names, typed=False, read=read, stamp=Stamp.of(paths), held_bytes=held)


def _require(path: Path, columns: Sequence[str], names: Sequence[str]) -> None:
    absent = [column for column in columns if column not in names]
    if absent:
        raise DataFileError(f"{path}: the column {absent[0]!r} of the other files is not in this one.")


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    if "invalid UTF8" in text:
        return f"{text}. Convert the file to UTF-8: iconv -f LATIN1 -t UTF-8 FILE > NEW, or the encoding that it has."
    return f"{text}. Mend that line: every row has as many values as the header." if "Expected" in text else text
