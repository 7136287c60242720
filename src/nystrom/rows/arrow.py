"""Rows in CSV, Parquet and Feather files, and Parquet written: the only file that imports pyarrow."""

from __future__ import annotations

import bz2
import csv
import gzip
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from nystrom.exceptions import DataFileError, MissingDependencyError
from nystrom.rows.columns import Columns, check_dtype, choose_columns
from nystrom.rows.stamp import Stamp
from nystrom.rows.stream import Piece, StreamRows
from nystrom.types import Array

_BATCH_ROWS = 8192
_BUFFER_BYTES = 2**20
_CSV_BLOCK_BYTES = 4 * 2**20


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


class ArrowRows(StreamRows):
    """Base of the tables: one file or several, their columns by name."""

    def __init__(self, paths: Sequence[Path], name: str, *, columns: Any, target: Any, dtype: Any) -> None:
        self.paths = tuple(paths)
        self.name = name
        self.stamp = Stamp.of(self.paths)
        self.column_names = self._names(self.paths[0])
        if len(set(self.column_names)) < len(self.column_names):
            raise DataFileError(f"{self.paths[0]}: two columns have the same name in {self.column_names}.")
        self.columns: Columns = choose_columns(self.column_names, columns, target, name)
        chosen = range(len(self.column_names)) if self.columns.features is None else self.columns.features
        self.features = [self.column_names[j] for j in chosen]
        self.feature_names = tuple(self.features)
        self.target_name = None if self.columns.target is None else self.column_names[self.columns.target]
        self.has_target = self.target_name is not None
        self.dtype = check_dtype(self._stored_dtype(self.paths[0]), dtype, name)
        self.held_bytes = 3 * _BATCH_ROWS * (len(self.features) + 1) * 8 + len(self.features) * _BUFFER_BYTES

    @abstractmethod
    def _names(self, path: Path) -> list[str]: ...

    @abstractmethod
    def _stored_dtype(self, path: Path) -> np.dtype[Any]: ...

    @abstractmethod
    def _batches(self, path: Path, names: list[str]) -> Iterator[Any]:
        """Yield the record batches of one file with the columns ``names``."""

    def _wanted(self) -> list[str]:
        return self.features if self.target_name is None else [*self.features, self.target_name]

    def pieces(self) -> Iterator[Piece]:
        start = 0
        for path in self.paths:
            begin = start
            try:
                for batch in self._batches(path, self._wanted()):
                    X, y = self._matrix(batch, path), self._target(batch)
                    yield Piece(X, y)
                    start += len(X)
            except import_arrow().ArrowException as error:
                raise self._damaged(path, start - begin, error) from error

    def _damaged(self, path: Path, row: int, error: Exception) -> Exception:
        return DataFileError(f"{path}, in the rows from {row} on: {error}")

    def _matrix(self, batch: Any, path: Path) -> Array:
        X = np.empty((batch.num_rows, len(self.features)), self.dtype)
        for j, name in enumerate(self.features):
            X[:, j] = _numbers(batch.column(batch.schema.get_field_index(name)), name, path)
        return X

    def _target(self, batch: Any) -> Array | None:
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
        parts = [self._target(batch) for path in self.paths for batch in self._batches(path, [self.target_name])]
        return np.concatenate([part for part in parts if part is not None])


def _numbers(column: Any, name: str, path: Path) -> Array:
    arrow = import_arrow()
    types = arrow.types
    if not (types.is_floating(column.type) or types.is_integer(column.type) or types.is_boolean(column.type)):
        raise DataFileError(
            f"{path}: column {name!r} holds {column.type}, not numbers. Leave it out with columns=[...], or encode it."
        )
    if not types.is_floating(column.type):
        column = column.cast(arrow.float64())
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _numpy_dtype(schema: Any, names: list[str]) -> np.dtype[Any]:
    arrow = import_arrow()
    single = all(schema.field(name).type == arrow.float32() for name in names)
    return np.dtype(np.float32 if single else np.float64)


class ParquetRows(ArrowRows):
    """Parquet files, read batch by batch, never a whole row group."""

    def __init__(self, paths: Sequence[Path], name: str, *, block_rows: int | None, **choice: Any) -> None:
        super().__init__(paths, name, **choice)
        count = sum(self._file(path).metadata.num_rows for path in self.paths)
        self.set_size((count, len(self.features)), 0, block_rows)

    def _file(self, path: Path) -> Any:
        try:
            return import_arrow("parquet").ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        except (import_arrow().ArrowException, OSError) as error:
            raise DataFileError(f"{path}: not a Parquet file, or a damaged one ({error}).") from error

    def _names(self, path: Path) -> list[str]:
        return list(self._file(path).schema_arrow.names)

    def _stored_dtype(self, path: Path) -> np.dtype[Any]:
        return _numpy_dtype(self._file(path).schema_arrow, self.features)

    def _batches(self, path: Path, names: list[str]) -> Iterator[Any]:
        with self._file(path) as file:
            missing = sorted(set(names) - set(file.schema_arrow.names))
            if missing:
                raise DataFileError(f"{path}: the columns {missing} of {self.paths[0].name} are not in this file.")
            yield from file.iter_batches(batch_size=_BATCH_ROWS, columns=names)


class FeatherRows(ArrowRows):
    """Feather (Arrow IPC) files, read one record batch at a time."""

    def __init__(self, paths: Sequence[Path], name: str, *, block_rows: int | None, **choice: Any) -> None:
        super().__init__(paths, name, **choice)
        first = self.features[:1]
        count = sum(batch.num_rows for path in self.paths for batch in self._batches(path, first))
        self.set_size((count, len(self.features)), 0, block_rows)

    def _reader(self, path: Path, names: list[str] | None = None) -> Any:
        arrow = import_arrow()
        try:
            whole = import_arrow("ipc").open_file(arrow.OSFile(str(path)))
            if names is None:
                return whole
            fields = [whole.schema.get_field_index(name) for name in names]
            options = import_arrow("ipc").IpcReadOptions(included_fields=fields)
            return import_arrow("ipc").open_file(arrow.OSFile(str(path)), options=options)
        except arrow.ArrowException as error:
            raise DataFileError(f"{path}: not a Feather (version 2) file, or a damaged one ({error}).") from error

    def _names(self, path: Path) -> list[str]:
        return list(self._reader(path).schema.names)

    def _stored_dtype(self, path: Path) -> np.dtype[Any]:
        return _numpy_dtype(self._reader(path).schema, self.features)

    def _batches(self, path: Path, names: list[str]) -> Iterator[Any]:
        reader = self._reader(path, names)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


class CsvRows(ArrowRows):
    """CSV files with a header line, plain, ``.gz`` or ``.bz2``; numbers are read as float64."""

    def __init__(self, paths: Sequence[Path], name: str, **choice: Any) -> None:
        super().__init__(paths, name, **choice)
        self.held_bytes += 4 * _CSV_BLOCK_BYTES
        self._text_target = self.has_target and not self._target_is_numeric()

    def _names(self, path: Path) -> list[str]:
        with _open_text(path) as stream:
            return next(csv.reader(stream))

    def _stored_dtype(self, path: Path) -> np.dtype[Any]:
        return np.dtype(np.float64)

    def _target_is_numeric(self) -> bool:
        """Return whether the first target is a number; then all must be."""
        with _open_text(self.paths[0]) as stream:
            lines = csv.reader(stream)
            next(lines)
            row = next(lines, None)
        return row is None or self.columns.target is None or _is_number(row[self.columns.target])

    def _batches(self, path: Path, names: list[str]) -> Iterator[Any]:
        arrow, csv_module = import_arrow(), import_arrow("csv")
        if self._names(path) != self.column_names:
            raise DataFileError(f"{path}: its header is not that of {self.paths[0].name}.")
        types = {name: arrow.float64() for name in names}
        if self.target_name in types and getattr(self, "_text_target", False):
            types[self.target_name] = arrow.string()
        yield from csv_module.open_csv(
            path,
            read_options=csv_module.ReadOptions(block_size=_CSV_BLOCK_BYTES, use_threads=False),
            convert_options=csv_module.ConvertOptions(column_types=types, include_columns=names),
        )

    def _damaged(self, path: Path, row: int, error: Exception) -> Exception:
        """Find the row that pyarrow's message leaves out: read the lines one by one."""
        wanted = [self.column_names.index(name) for name in self.features]
        if self.target_name is not None and not self._text_target:
            wanted.append(self.column_names.index(self.target_name))
        with _open_text(path) as stream:
            lines = csv.reader(stream)
            next(lines)
            for number, line in enumerate(line for line in lines if line):
                if len(line) != len(self.column_names):
                    return DataFileError(
                        f"{path}, row {number}: {len(line)} columns, but the header has {len(self.column_names)}."
                    )
                bad = next((j for j in wanted if line[j] and not _is_number(line[j])), None)
                if bad is not None:
                    name = self.column_names[bad]
                    return DataFileError(f"{path}, row {number}, column {name!r}: {line[bad]!r} is not a number.")
        return super()._damaged(path, row, error)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return word == ""
    return True


def _open_text(path: Path) -> IO[str]:
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
    return opener(path, "rt", newline="", encoding="utf-8")


def write_parquet_part(path: Path, values: Array, prefix: str = "f") -> None:
    """Write one block of rows as a Parquet file of its own."""
    import_arrow("parquet").write_table(_table(values, prefix), path, compression="none")


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
