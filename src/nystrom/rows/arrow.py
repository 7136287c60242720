"""Rows in CSV, Parquet and Feather files, and Parquet written: the only file that imports pyarrow."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from nystrom.exceptions import DataFileError, MissingDependencyError
from nystrom.rows.reading import reading
from nystrom.rows.stamp import Stamp
from nystrom.rows.stream import Piece, StreamRows
from nystrom.rows.target_column import Columns, check_dtype, choose_columns
from nystrom.types import Array

# A pyarrow RecordBatch or Table, and one of its columns; pyarrow ships no types.
Batch: TypeAlias = Any
ArrowColumn: TypeAlias = Any

_BATCH_ROWS = 8192
_BUFFER_BYTES = 2**20
_CSV_BLOCK_BYTES = 4 * 2**20
_LONGEST_LINE = 4 * 2**20
_NO_NUMBERS = "Leave the column out with columns=[...], or encode it (nystrom.preprocessing.TableEncoder)."


def import_arrow(module: str = "pyarrow") -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependencyError("pyarrow", "io", "Reading CSV, Parquet and Feather files") from error
    return {
        "pyarrow": pyarrow,
        "compute": pyarrow.compute,
        "csv": pyarrow.csv,
        "ipc": pyarrow.ipc,
        "parquet": pyarrow.parquet,
    }[module]


def release_arrow() -> None:
    """Give memory that pyarrow keeps for its next call back to the system."""
    import_arrow().default_memory_pool().release_unused()


class ArrowRows(StreamRows):
    """Base of the tables: one file or several, their columns by name."""

    def __init__(
        self,
        paths: Sequence[Path],
        name: str,
        *,
        columns: Sequence[int | str] | None,
        target: int | str | None,
        dtype: DTypeLike,
    ) -> None:
        self.paths = tuple(paths)
        self.name = name
        self.stamp = Stamp.of(self.paths)
        with reading(self.paths[0]):
            self.column_names = self._names(self.paths[0])
        if len(set(self.column_names)) < len(self.column_names):
            raise DataFileError(f"{self.paths[0]}: two columns have the same name in {self.column_names}.")
        self.columns: Columns = choose_columns(self.column_names, columns, target, name)
        chosen = range(len(self.column_names)) if self.columns.features is None else self.columns.features
        self.features = [self.column_names[j] for j in chosen]
        self.feature_names = tuple(self.features)
        self.target_name = None if self.columns.target is None else self.column_names[self.columns.target]
        self.has_target = self.target_name is not None
        self.dtype = check_dtype(self._widest_dtype(), dtype, name)
        self.held_bytes = 3 * _BATCH_ROWS * (len(self.features) + 1) * 8 + len(self.features) * _BUFFER_BYTES

    @abstractmethod
    def _names(self, path: Path) -> list[str]: ...

    @abstractmethod
    def _stored_dtype(self, path: Path) -> np.dtype: ...

    def _widest_dtype(self) -> np.dtype:
        """Return float32 if every file holds nothing wider."""
        kinds = []
        for path in self.paths:
            with reading(path):
                kinds.append(self._stored_dtype(path))
        return np.result_type(*kinds)

    @abstractmethod
    def _batches(self, path: Path, names: list[str]) -> Iterator[Batch]:
        """Yield the record batches of one file with the columns ``names``."""

    def _require_columns(self, path: Path, wanted: list[str], found: list[str]) -> None:
        missing = sorted(set(wanted) - set(found))
        if missing:
            raise DataFileError(f"{path}: the columns {missing} of {self.paths[0].name} are not in this file.")

    def _wanted(self) -> list[str]:
        return self.features if self.target_name is None else [*self.features, self.target_name]

    def _choice(self) -> str:
        return self.columns.identity

    def pieces(self) -> Iterator[Piece]:
        for path in self.paths:
            start = 0
            batches = self._batches(path, self._wanted())
            while True:
                with reading(path, start):
                    try:
                        batch = next(batches, None)
                    except import_arrow().ArrowException as error:
                        self._explain(path, error)
                        raise
                    if batch is None:
                        break
                    piece = Piece(self._matrix(batch, path), self._target(batch))
                yield piece
                start += piece.n_rows

    def _explain(self, path: Path, error: Exception) -> None:
        """Raise a :class:`DataFileError` that says more than ``error``, if there is more to say."""

    def _matrix(self, batch: Batch, path: Path) -> Array:
        X = np.empty((batch.num_rows, len(self.features)), self.dtype)
        for j, name in enumerate(self.features):
            X[:, j] = _numbers(batch.column(batch.schema.get_field_index(name)), name, path)
        return X

    def _target(self, batch: Batch) -> Array | None:
        if self.target_name is None:
            return None
        column = batch.column(batch.schema.get_field_index(self.target_name))
        types = import_arrow().types
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if types.is_string(column.type) or types.is_large_string(column.type):
            return np.array(column.to_pylist(), dtype=object if column.null_count else np.str_)
        return _numbers(column, self.target_name, self.paths[0]).astype(np.float64)

    def target(self) -> Array | None:
        if self.target_name is None:
            return None
        parts = []
        for path in self.paths:
            with reading(path):
                parts += [self._target(batch) for batch in self._batches(path, [self.target_name])]
        return np.concatenate([part for part in parts if part is not None])


def _numbers(column: ArrowColumn, name: str, path: Path) -> Array:
    arrow = import_arrow()
    types = arrow.types
    if not (types.is_floating(column.type) or types.is_integer(column.type) or types.is_boolean(column.type)):
        raise DataFileError(f"{path}: column {name!r} holds {column.type}, not numbers. {_NO_NUMBERS}")
    if not types.is_floating(column.type):
        column = column.cast(arrow.float64())
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _numpy_dtype(schema: Any, names: list[str]) -> np.dtype:
    arrow = import_arrow()
    single = all(schema.field(name).type == arrow.float32() for name in names if name in schema.names)
    return np.dtype(np.float32 if single else np.float64)


class ParquetRows(ArrowRows):
    """Parquet files, read batch by batch, never a whole row group."""

    def __init__(self, paths: Sequence[Path], name: str, *, block_rows: int | None, **choice: Any) -> None:
        super().__init__(paths, name, **choice)
        count = 0
        for path in self.paths:
            with reading(path):
                count += self._rows_in(path)
        self.set_size((count, len(self.features)), 0, block_rows)

    def _rows_in(self, path: Path) -> int:
        rows = int(self._file(path).metadata.num_rows)
        if rows < 0:
            raise DataFileError(f"{path}: the file says that it has {rows} rows. Write it again.")
        return rows

    def _file(self, path: Path) -> Any:
        return import_arrow("parquet").ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)

    def _names(self, path: Path) -> list[str]:
        return list(self._file(path).schema_arrow.names)

    def _stored_dtype(self, path: Path) -> np.dtype:
        return _numpy_dtype(self._file(path).schema_arrow, self.features)

    def _batches(self, path: Path, names: list[str]) -> Iterator[Batch]:
        with self._file(path) as file:
            self._require_columns(path, names, file.schema_arrow.names)
            yield from file.iter_batches(batch_size=_BATCH_ROWS, columns=names)


class FeatherRows(ArrowRows):
    """Feather (Arrow IPC) files, read one record batch at a time."""

    def __init__(self, paths: Sequence[Path], name: str, *, block_rows: int | None, **choice: Any) -> None:
        super().__init__(paths, name, **choice)
        count = 0
        for path in self.paths:
            with reading(path):
                count += sum(batch.num_rows for batch in self._batches(path, self.features[:1]))
        self.set_size((count, len(self.features)), 0, block_rows)

    def _reader(self, path: Path, names: list[str] | None = None) -> Any:
        arrow = import_arrow()
        whole = import_arrow("ipc").open_file(arrow.OSFile(str(path)))
        if names is None:
            return whole
        self._require_columns(path, names, whole.schema.names)
        fields = [whole.schema.get_field_index(name) for name in names]
        options = import_arrow("ipc").IpcReadOptions(included_fields=fields)
        return import_arrow("ipc").open_file(arrow.OSFile(str(path)), options=options)

    def _names(self, path: Path) -> list[str]:
        return list(self._reader(path).schema.names)

    def _stored_dtype(self, path: Path) -> np.dtype:
        return _numpy_dtype(self._reader(path).schema, self.features)

    def _batches(self, path: Path, names: list[str]) -> Iterator[Batch]:
        reader = self._reader(path, names)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            batch.validate(full=True)  # a damaged offset would be followed out of the buffer
            yield batch


class CsvRows(ArrowRows):
    """CSV files with a header line, plain, ``.gz``, ``.bz2`` or ``.xz``; numbers are read as float64."""

    def __init__(self, paths: Sequence[Path], name: str, **choice: Any) -> None:
        super().__init__(paths, name, **choice)
        self.held_bytes += 4 * _CSV_BLOCK_BYTES
        self._text_target = self.has_target and not self._target_is_numeric()

    def _names(self, path: Path) -> list[str]:
        with _open_text(path) as stream:
            names = next(csv.reader(_bounded_lines(stream, path)), None)
        if not names:
            raise DataFileError(f"{path}: the first line must be a header with the columns' names; it is empty.")
        return names

    def _stored_dtype(self, path: Path) -> np.dtype:
        return np.dtype(np.float64)

    def _target_is_numeric(self) -> bool:
        """Return whether the first target is a number; then all must be."""
        with reading(self.paths[0]), _open_text(self.paths[0]) as stream:
            lines = csv.reader(_bounded_lines(stream, self.paths[0]))
            next(lines)
            row = next((line for line in lines if line), None)
        if row is not None and len(row) != len(self.column_names):
            return True  # the pass over the rows says what is wrong with the line
        return row is None or self.columns.target is None or _is_number(row[self.columns.target])

    def _batches(self, path: Path, names: list[str]) -> Iterator[Batch]:
        arrow, csv_module = import_arrow(), import_arrow("csv")
        if self._names(path) != self.column_names:
            raise DataFileError(f"{path}: its header is not that of {self.paths[0].name}.")
        types = {name: arrow.float64() for name in names}
        if self.target_name in types and getattr(self, "_text_target", False):
            types[self.target_name] = arrow.string()
        with open_compressed(path) as source:
            yield from csv_module.open_csv(
                source,
                read_options=csv_module.ReadOptions(block_size=_CSV_BLOCK_BYTES, use_threads=False),
                convert_options=csv_module.ConvertOptions(column_types=types, include_columns=names),
            )

    def _explain(self, path: Path, error: Exception) -> None:
        """Find the row that pyarrow's message leaves out: read the lines one by one."""
        wanted = [self.column_names.index(name) for name in self.features]
        if self.target_name is not None and not self._text_target:
            wanted.append(self.column_names.index(self.target_name))
        with _open_text(path) as stream:
            lines = csv.reader(_bounded_lines(stream, path))
            next(lines)
            for number, line in enumerate(line for line in lines if line):
                if len(line) != len(self.column_names):
                    raise DataFileError(
                        f"{path}, row {number}: {len(line)} columns, but the header has {len(self.column_names)}."
                    ) from error
                bad = next((j for j in wanted if line[j] and not _is_number(line[j])), None)
                if bad is not None:
                    name = self.column_names[bad]
                    raise DataFileError(
                        f"{path}, row {number}, column {name!r}: {line[bad]!r:.80} is not a number. {_NO_NUMBERS}"
                    ) from error


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return word == ""
    return "_" not in word  # Python reads 1_0 as 10


def _open_text(path: Path) -> IO[str]:
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(path.suffix, open)
    # Excel marks the beginning of UTF-8 text, which is no part of the first name.
    return opener(path, "rt", newline="", encoding="utf-8-sig")


def open_compressed(path: Path) -> AbstractContextManager[Any]:
    """Give what pyarrow can read: an open file where it does not know the compression, else the path."""
    return lzma.open(path) if path.suffix == ".xz" else nullcontext(path)


def _bounded_lines(stream: IO[str], path: Path) -> Iterator[str]:
    """Yield the lines of a text; one that is very long is an error before it fills the memory."""
    number = 0
    while line := stream.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE:
            raise DataFileError(
                f"{path}, line {number}: longer than {_LONGEST_LINE >> 20} million characters, so this is not a table."
            )
        yield line


def write_parquet_part(path: Path, values: Array, prefix: str = "f") -> None:
    """Write one block of rows as a Parquet file of its own."""
    import_arrow("parquet").write_table(_table(values, prefix), path, compression="none")


def read_parquet_part(path: Path) -> Array:
    """Return the rows that :func:`write_parquet_part` wrote."""
    table = import_arrow("parquet").read_table(path)
    return np.column_stack([column.to_numpy() for column in table.columns])


def count_parquet_rows(path: Path) -> int:
    """Return the rows of a Parquet file, by its footer."""
    return int(import_arrow("parquet").ParquetFile(path).metadata.num_rows)


def join_parquet(parts: Sequence[Path], path: Path) -> None:
    """Write one Parquet file with a row group for each part, in order."""
    parquet = import_arrow("parquet")
    tables = (parquet.read_table(part) for part in parts)
    first = next(tables)
    with parquet.ParquetWriter(path, first.schema) as writer:
        for table in chain((first,), tables):
            writer.write_table(table)


def _table(values: Array, prefix: str) -> Any:
    arrow = import_arrow()
    names = [f"{prefix}{j}" for j in range(values.shape[1])]
    return arrow.table([arrow.array(np.ascontiguousarray(column)) for column in values.T], names=names)
